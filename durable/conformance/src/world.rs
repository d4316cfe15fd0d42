//! The world of a check: a store, a new namespace, and instances.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::future::{Future, poll_fn};
use std::hash::BuildHasher;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use futures_util::future::{Either, join_all, select};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tickwheel::TimerWheel;
use tickwheel_durable::store::{Action, Charter, Due, Namespace, Opened, Store, Terms, Write};
use tickwheel_durable::{
    BuildError, Builder, Claim, Claims, Counts, DurableMetrics, DurableTimers, Entry, builder,
};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::faulty::Faulty;

/// A way to connect to one store, again and again, as the instances of a program do.
pub trait Stores: Send + Sync + 'static {
    /// The store.
    type Store: Store;

    /// Connects to it. All connections see the same timers.
    fn connect(&self) -> impl Future<Output = Self::Store> + Send;
}

/// How long the steps of a check are.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// The unit: the poll interval, and what deadlines are apart. The default, 100 ms, is much
    /// longer than a call takes. Where calls take long, such as those of a file on a busy disk,
    /// [`World::paced`] makes it longer.
    pub unit: Duration,
    /// How much later than its bound something may happen. The default, 2 s, is for the real clock
    /// and a busy machine. A slack that is shorter than the unit is taken for a paused clock: no
    /// check runs again then.
    pub slack: Duration,
}

impl Pace {
    /// For a store that follows Tokio's paused clock: a slack of a few milliseconds.
    pub fn paused() -> Self {
        Pace {
            slack: Duration::from_millis(5),
            ..Pace::default()
        }
    }
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            unit: Duration::from_millis(100),
            slack: Duration::from_secs(2),
        }
    }
}

/// At least 20 calls, one after the other, have room in a unit.
const CALLS_IN_A_UNIT: u32 = 20;

/// The pace is made slower by this at most.
const SLOWEST: u32 = 3;

/// A server of a busy machine responds within a minute, and an instance has started.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Opens a namespace. On a busy machine a server may be too slow for it: it tries again, as a
/// program would.
pub(super) async fn opened(store: &dyn Store, space: &Namespace, charter: &Charter) -> Opened {
    let began = Instant::now();
    loop {
        match store.open(space, charter).await {
            Err(error) if error.may_pass() && began.elapsed() < CALL_TIMEOUT => {}
            opened => return opened.expect("it opens"),
        }
    }
}

/// The world of one check.
#[derive(Debug)]
pub struct World<T> {
    stores: Arc<T>,
    pace: Pace,
    name: String,
}

/// An instance that a check has started.
pub(super) struct Running<S, V = u64> {
    pub(super) timers: DurableTimers<String, V>,
    pub(super) claims: Claims<String, V>,
    /// Its store, which fails on demand.
    pub(super) faults: Faulty<S>,
    pub(super) unit: Duration,
}

impl<T: Stores> World<T> {
    /// A new namespace in that store.
    pub fn new(stores: T, pace: Pace) -> Self {
        let random = RandomState::new().hash_one(0_u8);
        World {
            stores: Arc::new(stores),
            pace,
            name: format!("check-{random:016x}"),
        }
    }

    /// Measures some writes, and makes the steps longer if these take long.
    #[must_use]
    pub async fn paced(mut self) -> Self {
        let (store, space) = (self.store().await, self.part("pace").namespace());
        opened(&store, &space, &"test".into()).await;
        let terms = Terms::NONE;
        let set = Write::new(
            b"pace".to_vec(),
            Action::set(Vec::new(), Due::In(self.units(1_000)), None, false),
        );
        let mut longest = Duration::ZERO;
        for _ in 0..5 {
            let began = Instant::now();
            let written = store.write(&space, vec![set.clone()], terms).await;
            written.expect("it writes");
            longest = longest.max(began.elapsed());
        }
        // A whole number, so that units stay whole microseconds.
        let slower = (longest * CALLS_IN_A_UNIT).as_nanos() / self.pace.unit.as_nanos().max(1) + 1;
        let slower = u32::try_from(slower).map_or(SLOWEST, |slower| slower.min(SLOWEST));
        self.pace = Pace {
            unit: self.units(slower),
            slack: self.pace.slack * slower,
        };
        self
    }

    /// A world with this store, in a new namespace.
    pub(super) fn part(&self, name: &str) -> Self {
        World {
            stores: Arc::clone(&self.stores),
            pace: self.pace,
            name: format!("{}-{name}", self.name),
        }
    }

    /// Runs a check that the machine can spoil by standing still. While it returns an error, all
    /// steps are made longer, and it runs again: not on a paused clock, which stands still with the
    /// machine. What no delay can spoil, it asserts.
    pub(super) async fn undisturbed(&self, check: impl AsyncFn(&Self) -> Result<(), String>) {
        let mut errors = Vec::new();
        let is_paused = self.pace.slack < self.pace.unit;
        for slower in 1..=(if is_paused { 1 } else { SLOWEST }) {
            let mut world = self.part(&format!("slower-{slower}"));
            world.pace.unit *= slower;
            match check(&world).await {
                Ok(()) => return,
                Err(error) => {
                    println!("try {slower} fails, perhaps since the machine stood still: {error}");
                    errors.push(error);
                }
            }
        }
        panic!("with steps of each length: {errors:#?}");
    }

    /// So many steps.
    pub(super) fn units(&self, units: u32) -> Duration {
        self.pace.unit * units
    }

    /// How long after a row is free to load an instance fires it, at the latest.
    pub(super) fn longest_poll(&self) -> Duration {
        // A poll is up to a tenth longer.
        self.units(1) + self.units(1) / 10 + self.pace.slack
    }

    /// How many units have passed since then.
    pub(super) fn units_since(&self, began: Instant) -> u128 {
        began.elapsed().as_micros() / self.units(1).as_micros()
    }

    pub(super) async fn wait(&self, units: u32) {
        sleep(self.units(units)).await;
    }

    pub(super) fn namespace(&self) -> Namespace {
        Namespace::new(&self.name).expect("it is a name")
    }

    /// Another connection to the store.
    pub(super) async fn store(&self) -> T::Store {
        self.stores.connect().await
    }

    /// Starts an instance with its defaults, in units: a poll of 1, a window of 20, a lease of 20.
    pub(super) async fn instance(&self) -> Running<T::Store> {
        self.instance_with(|builder| builder).await
    }

    /// Starts an instance whose claims last, however busy the machine is.
    pub(super) async fn patient(&self) -> Running<T::Store> {
        let lease = self.units(600);
        self.instance_with(|builder| builder.lease(lease)).await
    }

    /// Starts an instance with other settings. On a busy machine a server may be too slow to open
    /// the namespace: it tries again, as a program would.
    pub(super) async fn instance_with<V>(
        &self,
        set: impl Fn(Builder<String, V>) -> Builder<String, V>,
    ) -> Running<T::Store, V>
    where
        V: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let wheel = TimerWheel::new();
        let began = Instant::now();
        let (faults, (timers, claims)) = loop {
            let faults = Faulty::new(self.store().await);
            let builder = builder(self.name.as_str())
                .poll(self.units(1))
                .window(self.units(20))
                .lease(self.units(20))
                .call_timeout(CALL_TIMEOUT);
            match set(builder).start(&wheel, faults.clone()).await {
                Err(BuildError::Open(error))
                    if error.may_pass() && began.elapsed() < CALL_TIMEOUT => {}
                started => break (faults, started.expect("the instance starts")),
            }
        };
        Running {
            timers,
            claims,
            faults,
            unit: self.pace.unit,
        }
    }
}

impl<S, V> Running<S, V> {
    /// The next claim.
    pub(super) async fn next(&mut self) -> Claim<String, V> {
        let next = timeout(self.unit * 600, self.claims.recv()).await;
        next.expect("a timer is delivered")
            .expect("the stream goes on")
    }

    /// The next claim, acknowledged.
    pub(super) async fn next_acked(&mut self) -> Claim<String, V> {
        let claim = self.next().await;
        claim.ack().await.expect("the claim is held");
        claim
    }
}

impl<S: Store> Running<S> {
    /// Sets a timer due in so many units.
    pub(super) async fn set(&self, key: &str, value: u64, units: u32) {
        let set = self.timers.set_timer(key, &value, self.unit * units);
        set.await.expect("it is set");
    }

    /// Sets so many timers at once, with their numbers as values.
    pub(super) async fn set_numbers(&self, count: u32, delay: Duration) {
        self.set_apart(count, delay, Duration::ZERO).await;
    }

    /// The same with deadlines that are so far apart.
    pub(super) async fn set_apart(&self, count: u32, first: Duration, apart: Duration) {
        let set = (0..count).map(async |number| {
            let (value, delay) = (number.into(), first + apart * number);
            let set = self.timers.set_timer(&key(value), &value, delay).await;
            set.expect("it is set");
        });
        join_all(set).await;
    }

    /// Sees that nothing comes for so many units.
    pub(super) async fn sees_nothing(&mut self, units: u32) {
        if let Ok(claim) = timeout(self.unit * units, self.claims.recv()).await {
            panic!("{claim:?} was delivered, and nothing should be");
        }
    }

    pub(super) async fn counts(&self) -> Counts {
        self.timers.counts().await.expect("it counts")
    }

    /// The store's time.
    pub(super) async fn now(&self) -> SystemTime {
        self.counts().await.now.into()
    }

    /// Waits until all timers that wait are loaded. An instance loads nothing before its first load
    /// has made it count as alive.
    pub(super) async fn has_loaded_all(&self) {
        for _ in 0..600 {
            let pending = self.timers.admin().pending(None, 100).await;
            if pending.expect("it lists").iter().all(|entry| entry.loaded) {
                return;
            }
            sleep(self.unit).await;
        }
        panic!("some are never loaded");
    }

    /// The keys in flight, claimed by any instance, and when their leases end.
    pub(super) async fn leases(&self) -> BTreeMap<String, SystemTime> {
        let in_flight = self.timers.admin().in_flight(None, 100).await;
        let entries = in_flight.expect("it lists").into_iter();
        let lease = |entry: Entry<String, u64>| {
            let claim = entry.in_flight.expect("it is in flight");
            let key = entry.key.expect("it decodes");
            (key, claim.lease_until.expect("it ends"))
        };
        entries.map(lease).collect()
    }

    /// As SIGKILL: nothing it does has an effect any more.
    pub(super) fn kill(self) {
        self.faults.kill();
    }
}

/// The key of the timer with this number.
pub(super) fn key(number: u64) -> String {
    format!("key {number}")
}

/// How many timers are waiting, in flight and dead.
pub(super) fn by_state(counts: &Counts) -> [u64; 3] {
    [counts.waiting, counts.in_flight, counts.dead]
}

/// Waits until the metrics are like that.
pub(super) async fn until<V>(
    timers: &DurableTimers<String, V>,
    unit: Duration,
    are_so: impl Fn(&DurableMetrics) -> bool,
) {
    for _ in 0..2_400 {
        if are_so(&timers.metrics()) {
            return;
        }
        sleep(unit / 4).await;
    }
    panic!("they stay {:?}", timers.metrics());
}

/// Makes a check while the instances work, which do not end before.
pub(super) async fn while_they_work<O>(work: impl Future, check: impl Future<Output = O>) -> O {
    match select(pin!(work), pin!(check)).await {
        Either::Left(_) => panic!("the streams have ended"),
        Either::Right((checked, _)) => checked,
    }
}

/// The next claim of any of the instances, and which one has it.
pub(super) async fn next_of<S>(instances: &mut [Running<S>]) -> (usize, Claim<String, u64>) {
    let limit = instances[0].unit * 600;
    let next = poll_fn(|cx| {
        for (number, instance) in instances.iter_mut().enumerate() {
            if let Poll::Ready(claim) = instance.claims.poll_recv(cx) {
                return Poll::Ready((number, claim.expect("the stream goes on")));
            }
        }
        Poll::Pending
    });
    timeout(limit, next).await.expect("a timer is delivered")
}

/// So many claims of the instances, and all within that time after them, acknowledged.
pub(super) async fn collect<S>(
    instances: &mut [Running<S>],
    at_least: usize,
    longer: Duration,
) -> Vec<Claim<String, u64>> {
    let (mut claims, mut end) = (Vec::new(), None);
    loop {
        let (_, claim) = if claims.len() < at_least {
            next_of(instances).await
        } else {
            let end = *end.get_or_insert_with(|| Instant::now() + longer);
            match timeout_at(end, next_of(instances)).await {
                Ok(next) => next,
                Err(_) => return claims,
            }
        };
        claim.ack().await.expect("the claim is held");
        claims.push(claim);
    }
}
