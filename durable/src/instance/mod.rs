//! One running instance: what its tasks share, how it starts and how it ends.
//!
//! | task | does | ends |
//! |---|---|---|
//! | [`loader`] | loads rows onto the wheel: each poll, after a hint, when there is room again; gives others what they lack | when the claims end |
//! | [`firing`] | fires what the wheel says is due and the program asks for, and delivers what the store confirms | when the claims end |
//! | [writes](batches) | [group commit](group_commit) of sets, moves and removes | with the last handle |
//! | [settles](batches) | [group commit](group_commit) of what becomes of claims | with the last claim |
//! | [renewals](lease) | keeps the leases of claims while their handlers run | with the last claim |
//!
//! The tasks share a [`Core`], which knows no types of keys and values. An instance on a namespace
//! of several [parts](cores) has such tasks and a core for each, so that a part whose server hangs
//! delays no other. They share the counters, the queue of [deliveries](delivery) and their end. The
//! claims end when the stream of claims is dropped, the instance or the wheel is shut down. From
//! then on the instance only writes and settles.

mod batches;
mod calendar;
mod calls;
mod clock;
mod cores;
mod deferred;
mod delivery;
mod due;
mod ending;
mod firing;
mod group_commit;
mod incarnation;
mod lease;
mod loader;
mod lost_fires;
mod opening;
mod undecoded;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use futures_util::future::{join, join_all, try_join_all};
use tickwheel::{Expirations, KeyedTimers, SetTimerError, TimerWheel, Unexpired};
use tokio::sync::{Mutex, Notify, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout_at};

use batches::{run_settles, run_writes};
use calendar::Calendar;
pub(crate) use calls::{Calls, in_steps};
use calls::{OPEN_TO_WRITE, Timed};
use clock::StoreClock;
pub(crate) use cores::Cores;
use delivery::Deliveries;
pub(crate) use delivery::{Delivery, MAX_AHEAD, Want};
use due::DueRows;
pub(crate) use ending::{End, Settling};
use firing::Firing;
pub(crate) use group_commit::Group;
use group_commit::group;
use incarnation::Incarnation;
pub(crate) use lease::Lease;
use lease::Leases;
pub use lease::RenewGuard;
use loader::Unloaded;
use lost_fires::LostFires;
use opening::{open, open_other};
pub(crate) use undecoded::Undecoded;

use crate::error::{BuildError, Error};
use crate::jitter::jittered;
use crate::metrics::Metrics;
use crate::race::race;
use crate::settings::Settings;
use crate::store::{
    Armed, Charter, DeadChange, DeadRows, InstanceId, Loaded, Namespace, NamespaceError, Scheduled,
    Settlement, Store, StoreError, StoreTime, Terms, Version, Write, WriteOutcome,
};

/// The state that the tasks, handles and claims of an instance share.
pub(crate) struct Core {
    pub(crate) calls: Calls,
    pub(crate) settings: Settings,
    pub(crate) metrics: Arc<Metrics>,
    /// The number of the part.
    part: usize,
    /// The id under which it loads: another one after each unload.
    id: AtomicI64,
    /// Held during a load or unload.
    incarnation: Mutex<Incarnation>,
    clock: StoreClock,
    /// The schedules of loaded rows.
    calendar: Calendar,
    /// The rows that this instance has loaded, by version.
    on_wheel: KeyedTimers<Version, ()>,
    /// The rows that have come due and wait to be fired.
    due: DueRows,
    /// The claims that wait for the program, and what it asks for.
    deliveries: Arc<Deliveries>,
    /// The timers that do not decode here.
    pub(crate) undecoded: Undecoded,
    /// How many rows it may have loaded.
    max_loaded: AtomicUsize,
    /// Whether the log says that the wheel is too small.
    wheel_was_full: AtomicBool,
    /// One permit for each claim that is not settled.
    capacity: Arc<Semaphore>,
    /// Whether it loads: not after the claims have ended.
    loads: AtomicBool,
    /// What the store may have for it to load.
    unloaded: StdMutex<Unloaded>,
    /// Tells the loader to load now.
    load_now: Notify,
    /// Notified of hints.
    heard: Notify,
    /// Held by the one call that asks for the time.
    asking: Mutex<()>,
}

impl Core {
    /// That of a part which was opened: with the first id of the instance there, and an answer with
    /// the store's time.
    fn new(
        calls: Calls,
        settings: Settings,
        metrics: Arc<Metrics>,
        part: usize,
        (id, loaded): (InstanceId, Timed<Loaded>),
        on_wheel: KeyedTimers<Version, ()>,
        deliveries: Arc<Deliveries>,
    ) -> Self {
        let incarnation = Incarnation::new(loaded.answer.receipt, calls.made());
        Core {
            clock: StoreClock::new(loaded.sent, loaded.received, loaded.answer.now),
            calendar: Calendar::default(),
            calls,
            metrics,
            part,
            id: AtomicI64::new(id.0),
            incarnation: Mutex::new(incarnation),
            on_wheel,
            due: DueRows::default(),
            undecoded: Undecoded::default(),
            deliveries,
            max_loaded: AtomicUsize::new(settings.max_loaded()),
            wheel_was_full: AtomicBool::new(false),
            capacity: Arc::new(Semaphore::new(settings.capacity)),
            loads: AtomicBool::new(true),
            unloaded: StdMutex::new(Unloaded::Nothing),
            load_now: Notify::new(),
            heard: Notify::new(),
            asking: Mutex::default(),
            settings,
        }
    }

    /// How to load rows that a call makes due soon.
    pub(crate) fn near(&self) -> Terms {
        // The id first: once this instance has unloaded because it does not load any more, nothing
        // may be marked by its fresh id.
        let id = self.id();
        let loader = (self.room() > 0 && !self.is_behind()).then_some(id);
        Terms::new(self.settings.window, loader)
    }

    /// A write of an operator. Any instance may load what it makes due, since this one does not put
    /// it on its wheel.
    pub(crate) async fn write_for_operator(
        &self,
        write: Write,
    ) -> Result<Vec<WriteOutcome>, Error> {
        let near = Terms::new(self.settings.window, None);
        let until = self.call_until();
        self.write_near(near, vec![write], Some(until)).await
    }

    /// Changes dead timers, step by step. Returns how many there were.
    pub(crate) async fn change_dead(
        &self,
        change: DeadChange,
        which: DeadRows,
    ) -> Result<u64, Error> {
        let step = || {
            self.calls.ask("change_dead", |store, space| {
                store.change_dead(space, which.clone(), change)
            })
        };
        let changed = in_steps(step).await?;
        if changed.locked > 0 {
            return Err(Error::Store(StoreError::locked("the keys of dead timers")));
        }
        Ok(changed.rows)
    }

    /// The store's time, asked for if it was last heard long ago: an instance that only writes
    /// hears it from no load. The caller gives up at `until`, whether it waits for its turn to ask
    /// or for the store.
    pub(crate) async fn fresh_now(&self, until: Instant) -> Result<StoreTime, Error> {
        if self.clock.is_old() {
            let turn = timeout_at(until, self.asking.lock()).await;
            let _turn = turn.map_err(|_| self.calls.timeout_of(OPEN_TO_WRITE))?;
            if self.clock.is_old() {
                let opened = self.calls.open_until(OPEN_TO_WRITE, until).await?;
                self.observe(opened.sent, opened.received, opened.answer.now);
            }
        }
        Ok(self.now())
    }

    /// When a call that begins now gives up.
    pub(crate) fn call_until(&self) -> Instant {
        Instant::now() + self.settings.call_timeout
    }

    /// Writes, unless the store gets to it later than that.
    async fn write_near(
        &self,
        near: Terms,
        writes: Vec<Write>,
        until: Option<Instant>,
    ) -> Result<Vec<WriteOutcome>, Error> {
        // The callers of a batch give up by themselves.
        self.fresh_now(self.call_until()).await?;
        let until = until.map_or(StoreTime::NEVER, |until| self.clock.latest_at(until));
        let near = near.until(until);
        let sent = Instant::now();
        let written = self.calls.write(writes, near).await;
        if let Err(Error::Store(StoreError::Late { now, .. })) = written {
            // Unless the callers have given up, the store's clock has stepped: the next write
            // knows.
            self.observe(sent, Instant::now(), now);
        }
        written
    }

    /// The store's time, more or less.
    pub(crate) fn now(&self) -> StoreTime {
        self.clock.now()
    }

    /// Learns the schedules of rows that are loaded. Returns those that are left to other
    /// instances.
    fn learn(&self, rows: Vec<Scheduled>) -> HashSet<Version> {
        let unknown = self.calendar.add(rows, self.calls.namespace());
        for &version in &unknown {
            self.due.add_surplus(version);
        }
        unknown
    }

    pub(crate) fn id(&self) -> InstanceId {
        InstanceId(self.id.load(Ordering::Acquire))
    }

    fn loads(&self) -> bool {
        self.loads.load(Ordering::Acquire)
    }

    /// Whether more is due here than the program can take.
    fn is_behind(&self) -> bool {
        self.due.len() > 0 && self.deliveries.demand(self.part).claims == 0
    }

    /// Puts a row that this instance has loaded on the wheel.
    fn arm(&self, version: Version, due: StoreTime) {
        self.arm_at(version, self.clock.instant_of(due));
    }

    fn arm_at(&self, version: Version, instant: Instant) {
        // On the wheel, a past deadline would count as lateness of the wheel.
        if instant <= Instant::now() {
            return self.due.add([(instant, version)]);
        }
        match self.on_wheel.set_timer_at(version, (), instant) {
            Ok(_) | Err(SetTimerError::Closed(..)) => {}
            Err(_) => self.wheel_is_full(version),
        }
    }

    /// Takes everything off the wheel that is not due.
    fn drain(&self) -> Vec<Unexpired<Version, ()>> {
        self.on_wheel.drain().unwrap_or_default()
    }

    /// The wheel has a bound, and no room for a loaded row. The instance leaves the row to others,
    /// and loads less from now on.
    fn wheel_is_full(&self, version: Version) {
        let fits = self.on_wheel.len().max(1);
        self.max_loaded.fetch_min(fits, Ordering::AcqRel);
        if !self.wheel_was_full.swap(true, Ordering::AcqRel) {
            tracing::warn!(namespace = %self.calls.namespace(), fits, "the wheel is too small for what is loaded");
        }
        self.due.add_surplus(version);
    }

    /// There may be room on the wheel again: loads more, little by little.
    fn raise_max_loaded(&self) {
        let most = self.settings.max_loaded();
        let raised = |max: usize| Some((max + max / 8 + 1).min(most));
        let _ = (self.max_loaded).fetch_update(Ordering::AcqRel, Ordering::Acquire, raised);
    }

    /// How many more rows it may load.
    fn room(&self) -> usize {
        if !self.loads() {
            return 0;
        }
        let max = self.max_loaded.load(Ordering::Acquire);
        max.saturating_sub(self.on_wheel.len() + self.due.len())
    }

    fn arm_if_loaded(&self, row: Armed) {
        if row.loaded {
            self.arm(row.version, row.due);
        }
    }

    fn disarm(&self, version: Version) {
        self.calendar.remove(&[version]);
        // Without a timer, or after a shutdown, there is nothing to do. A row that is due makes a
        // wasted query.
        let _ = self.on_wheel.remove_timer(&version);
    }

    /// Records the store's time from a response. If the store's clock has stepped, reschedules all
    /// timers on the wheel.
    fn observe(&self, sent: Instant, received: Instant, now: StoreTime) {
        let Some(step) = self.clock.observe(sent, received, now) else {
            return;
        };
        tracing::warn!(namespace = %self.calls.namespace(), micros = step, "the store's clock has stepped");
        let micros = Duration::from_micros(step.unsigned_abs());
        for timer in self.drain() {
            let instant = if step > 0 {
                timer.deadline.checked_sub(micros).unwrap_or(sent)
            } else {
                timer.deadline + micros
            };
            self.arm_at(timer.key, instant);
        }
    }
}

/// A started instance.
pub(crate) struct Instance {
    pub(crate) cores: Arc<Cores>,
    /// Those of each part.
    pub(crate) writes: Arc<[Group<Write, WriteOutcome>]>,
    pub(crate) shutdown: Arc<Shutdown>,
}

/// The end of an instance's claims, and the wait for it.
pub(crate) struct Shutdown {
    stop: watch::Sender<bool>,
    /// Closed when loading and firing have ended and everything is given back.
    ended: watch::Receiver<()>,
    pub(crate) deliveries: Arc<Deliveries>,
}

impl Shutdown {
    /// Ends loading, firing and the stream of claims.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// The program has stopped receiving.
    pub(crate) fn abandon(&self) {
        self.stop();
        self.deliveries.abandon();
    }

    /// Returns once loading and firing have ended, and what was loaded is given back.
    pub(crate) async fn ended(&self) {
        let mut ended = self.ended.clone();
        // Nothing is ever sent: it returns when the sender is dropped.
        while ended.changed().await.is_ok() {}
    }
}

/// The first sweep of dead timers comes so long after the start, or sooner.
const FIRST_SWEEP: Duration = Duration::from_secs(60);

/// Opens the store and starts the tasks of an instance.
pub(crate) async fn start(
    store: Arc<dyn Store>,
    namespace: &str,
    codec: &str,
    settings: Settings,
    wheel: &TimerWheel,
) -> Result<Instance, BuildError> {
    let namespace = Namespace::new(namespace)?;
    settings.check()?;
    if wheel.is_shutdown() {
        return Err(BuildError::WheelShutDown);
    }
    let metrics = Arc::<Metrics>::default();
    let charter = Charter {
        codec: codec.to_owned(),
        no_overlap: settings.no_overlap,
        at_most_once: settings.at_most_once,
        parts: u32::try_from(store.parts()).unwrap_or(u32::MAX),
    };
    if namespace.is_part() {
        let value = namespace.to_string();
        return Err(NamespaceError { value }.into());
    }
    let parts = (0..store.parts().max(1)).map(|number| namespace.part(number));
    let calls = parts.map(|part| {
        let (store, metrics) = (Arc::clone(&store), Arc::clone(&metrics));
        let charter = charter.clone();
        Calls::new(store, part, charter, settings.call_timeout, metrics)
    });
    let calls: Vec<_> = calls.collect();
    // The first part decides: an instance that is refused there makes no other one.
    let mut opened = vec![open(&calls[0], &settings).await?];
    let others = (calls[1..].iter()).map(|part| open_other(part, &calls[0], &settings, &charter));
    // No task starts before it is clear that the instance does.
    opened.extend(try_join_all(others).await?);
    let parts = opened.len();
    let deliveries = Arc::new(Deliveries::new(settings.poll, parts));
    let (stop, stopped) = watch::channel(false);
    let (end, ended) = watch::channel(());
    let (mut cores, mut writes) = (Vec::new(), Vec::new());
    for (part, (calls, opened)) in calls.into_iter().zip(opened).enumerate() {
        let settings = settings.of_part(part, parts);
        let (on_wheel, expirations) = wheel.keyed();
        let limit = settings.call_timeout;
        let (write, write_batches) = group("write", limit);
        let (settle, settle_batches) = group("settle", limit);
        let (metrics, deliveries) = (Arc::clone(&metrics), Arc::clone(&deliveries));
        let core = Core::new(calls, settings, metrics, part, opened, on_wheel, deliveries);
        let core = Arc::new(core);
        let leases = Arc::new(Leases::new(&core, settle));
        drop(tokio::spawn(run_writes(Arc::clone(&core), write_batches)));
        drop(tokio::spawn(run_settles(Arc::clone(&core), settle_batches)));
        let renewals = lease::renew(Arc::downgrade(&leases), core.settings.lease);
        drop(tokio::spawn(renewals));
        let firing = Firing {
            core: Arc::clone(&core),
            leases,
            stopped: stopped.clone(),
            lost: LostFires::default(),
        };
        let claims = run_claims(firing, expirations, end.clone());
        drop(tokio::spawn(claims));
        cores.push(core);
        writes.push(write);
    }
    Ok(Instance {
        cores: Arc::new(Cores::new(cores)),
        writes: writes.into(),
        shutdown: Arc::new(Shutdown {
            stop,
            ended,
            deliveries,
        }),
    })
}

/// Loads and fires until the claims end, then gives everything back.
async fn run_claims(firing: Firing, expirations: Expirations<Version, ()>, end: watch::Sender<()>) {
    let core = Arc::clone(&firing.core);
    let serve = Box::pin(race(
        firing.run(expirations),
        race(loader::run(&core), loader::listen(&core)),
    ));
    race(serve, sweep(&core)).await;
    core.loads.store(false, Ordering::Release);
    let unreceived = core.deliveries.close(core.part);
    let release = unreceived
        .iter()
        .map(|delivery| delivery.lease.end(End::new(Settlement::Unfire)));
    let mut incarnation = core.incarnation.lock().await;
    let unload = core.end_incarnation(&mut incarnation);
    let (_, unloaded) = join(join_all(release), unload).await;
    // A claim is released again when it is dropped, if its release has failed.
    drop(unreceived);
    if let Err(error) = unloaded {
        tracing::warn!(namespace = %core.calls.namespace(), error = %format_args!("{error:#}"), "what was loaded could not be given back");
    }
    core.calls.end_claims();
    drop((incarnation, end));
}

/// Discards timers that have been dead for long, until it is dropped.
async fn sweep(core: &Core) {
    let settings = &core.settings;
    let mut pause = settings.sweep().min(FIRST_SWEEP);
    loop {
        sleep(jittered(pause)).await;
        pause = settings.sweep();
        // After an error the next sweep does what this one has left.
        let old = DeadRows::Until(core.now().before(settings.keep_dead));
        let _ = core.change_dead(DeadChange::Discard, old).await;
    }
}
