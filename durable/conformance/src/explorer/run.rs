//! A trace that is played: a store, and instances that do what those of `tickwheel-durable` do,
//! step by step.
//!
//! A call has three parts: what the instance [asks](Run::request) for, what the store
//! [answers](Run::send), and what the instance [learns](Run::learn) from that. A fault takes the
//! third away, or the second too.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::join;
use tickwheel_durable::Memory;
use tickwheel_durable::store::{
    BoxFuture, Counts, DeadChange, DeadRows, Edition, InstanceId, List, Namespace, Settle,
    Settlement, State, Store, StoreError, StoreTime, Stored, Version,
};

use super::bounds::Bounds;
use super::instance::{Instance, Outcome, Request};
use super::step::{Call, Fault, Settling, Step, key_bytes};
use crate::world::opened;

/// A unit where the run sets the store's clock: so long that the time that calls take does not
/// matter.
pub(super) const UNIT: Duration = Duration::from_secs(3_600);

/// The time between two calls there.
pub(super) const MOMENT: Duration = Duration::from_millis(1);

/// The rows of a namespace.
pub(super) type Rows = BTreeMap<Version, Stored>;

/// In which order two calls reach the store.
#[derive(Clone)]
pub(super) enum Meeting {
    InOrder,
    Reversed,
    /// At once, the second through this store.
    Through(Arc<dyn Store>),
}

/// Sets the clock of the store.
pub(super) type SetClock = Arc<dyn Fn(SystemTime) -> BoxFuture<'static, ()> + Send + Sync>;

/// See the module.
#[derive(Clone)]
pub(super) struct Run {
    store: Arc<dyn Store>,
    /// The same store if it is the one in memory.
    memory: Option<Memory>,
    /// Where there is none, the clock is the real one.
    clock: Option<SetClock>,
    space: Namespace,
    pub(super) bounds: Arc<Bounds>,
    /// Whether the charter of the namespace is another one than that of the instances.
    pub(super) is_amended: bool,
    /// The last edition of a charter that instances agree with.
    pub(super) edition: Edition,
    pub(super) unit: Duration,
    pub(super) instances: Vec<Instance>,
    /// How many values have been set: each set has another one.
    pub(super) sets: u32,
    /// The versions that the last fire named.
    pub(super) named: Vec<Version>,
    /// When the last call was sent.
    pub(super) sent_at: StoreTime,
    /// Whether the last step has sent a hint, where the store is the one in memory.
    pub(super) is_hinted: bool,
    /// The store as it was before each step, if it may return to that.
    past: Vec<Memory>,
    /// The claims that came back when the store returned to an earlier state, and that no instance
    /// holds any more.
    pub(super) returned: BTreeSet<Version>,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.instances.fmt(f)
    }
}

impl Run {
    pub(super) async fn new(
        store: Arc<dyn Store>,
        space: Namespace,
        unit: Duration,
        bounds: &Bounds,
    ) -> Self {
        let mut run = Run {
            store,
            memory: None,
            clock: None,
            space,
            bounds: Arc::new(bounds.clone()),
            is_amended: false,
            edition: Edition(0),
            unit,
            instances: Vec::new(),
            sets: 0,
            named: Vec::new(),
            sent_at: StoreTime::default(),
            is_hinted: false,
            past: Vec::new(),
            returned: BTreeSet::new(),
        };
        for _ in 0..bounds.instances {
            let opened = opened(&*run.store, &run.space, &run.bounds.charter).await;
            let instance = Instance::new(opened.instance, opened.edition);
            run.edition = instance.edition.unwrap_or(run.edition);
            run.instances.push(instance);
        }
        run
    }

    /// On a new store in memory.
    pub(super) async fn in_memory(bounds: &Bounds) -> Self {
        let space = Namespace::new("explored").expect("it is a name");
        let memory = Memory::new();
        let run = Run::new(Arc::new(memory.clone()), space, UNIT, bounds).await;
        run.on(memory)
    }

    /// On a store with this clock, on which no other run is under way.
    pub(super) async fn on_clock(
        store: Arc<dyn Store>,
        space: Namespace,
        clock: SetClock,
        bounds: &Bounds,
    ) -> Self {
        let mut run = Run::new(store, space, UNIT, bounds).await;
        run.clock = Some(clock);
        run
    }

    fn on(mut self, memory: Memory) -> Self {
        self.store = Arc::new(memory.clone());
        self.memory = Some(memory.clone());
        self.clock = Some(Arc::new(move |time| {
            memory.set_clock(time);
            Box::pin(async {})
        }));
        self
    }

    /// The same, which goes on for itself. Only on the store in memory.
    pub(super) fn fork(&self) -> Self {
        let memory = self.memory.as_ref().expect("it is in memory").fork();
        self.clone().on(memory)
    }

    async fn start(&self) -> Result<Instance, StoreError> {
        let opened = self.store.open(&self.space, &self.bounds.charter).await?;
        Ok(Instance::new(opened.instance, opened.edition))
    }

    /// The value that was set last.
    pub(super) fn last_value(&self) -> Vec<u8> {
        self.sets.to_be_bytes().to_vec()
    }

    /// Half units: deadlines, leases and ids end between two ticks, never at one.
    pub(super) fn halves(&self, halves: u32) -> Duration {
        self.unit * halves / 2
    }

    /// How long a claim lasts.
    pub(super) fn lease(&self) -> Duration {
        self.halves(3)
    }

    /// The rows.
    pub(super) async fn rows(&self) -> Rows {
        let mut rows = Rows::new();
        for state in [State::Waiting, State::InFlight, State::Dead] {
            let list = List::new(state, None, 1_000);
            let listed = self.store.list(&self.space, list).await.expect("it lists");
            rows.extend(listed.into_iter().map(|row| (row.version, row)));
        }
        rows
    }

    /// The row that is seen under a key.
    pub(super) async fn get(&self, key: Vec<u8>) -> Option<Stored> {
        let rows = self.store.rows_of(&self.space, key, 1).await;
        rows.expect("it reads").into_iter().next()
    }

    /// The ids that count as living, and until when.
    pub(super) async fn alive(&self) -> BTreeMap<InstanceId, StoreTime> {
        let inspect = self.store.inspect();
        let instances = inspect.instances(&self.space).await.expect("it lists");
        assert!(instances.iter().all(|living| !living.id.is_left()));
        let alive = instances.into_iter();
        alive
            .map(|living| (living.id, living.alive_until))
            .collect()
    }

    pub(super) async fn counts(&self) -> Counts {
        let counts = self.store.count(&self.space).await;
        counts.expect("it counts")
    }

    pub(super) async fn now(&self) -> StoreTime {
        self.counts().await.now
    }

    /// Lets time pass on a clock of the run's own.
    async fn set_clock(&self, time: StoreTime) {
        if let Some(set) = &self.clock {
            set(time.into()).await;
        }
    }

    /// Takes a step. `None` if it makes no sense now.
    pub(super) async fn step(&mut self, step: Step) -> Option<Outcome> {
        if let Some(memory) = self.memory.as_ref().filter(|_| self.bounds.returns()) {
            self.past.push(memory.fork());
        }
        // No two calls come at the same time, as on a real clock.
        self.set_clock(self.now().await.after(MOMENT)).await;
        let mut hinted = self.memory.as_ref().map(|_| {
            let (store, space) = (Arc::clone(&self.store), self.space.clone());
            let mut hinted = Box::pin(async move { store.hinted(&space).await });
            // It listens from now on.
            let _ = (&mut hinted).now_or_never();
            hinted
        });
        let outcome = self.take(step).await;
        self.is_hinted = hinted
            .as_mut()
            .is_none_or(|hinted| hinted.now_or_never().is_some());
        outcome
    }

    async fn take(&mut self, step: Step) -> Option<Outcome> {
        match step {
            Step::Call { by, call, fault } => return self.call(usize::from(by), call, fault).await,
            Step::Crash(by) => self.instances[usize::from(by)] = self.start().await.ok()?,
            Step::Tick => {
                match self.clock {
                    Some(_) => self.set_clock(self.now().await.after(self.unit)).await,
                    None => tokio::time::sleep(self.unit).await,
                }
                // The instances have clocks of their own, which do not step.
                let now = self.now().await;
                let claims = self.instances.iter_mut().flat_map(|it| &mut it.claims);
                for claim in claims.filter(|claim| claim.until <= now) {
                    claim.until = StoreTime::default();
                }
            }
            Step::Failover(steps) => self.go_back(steps, true).await?,
            Step::Restore(steps) => self.go_back(steps, false).await?,
            Step::TurnBack => self.set_clock(self.now().await.before(self.unit)).await,
            Step::RetryDead(_) | Step::DiscardDead(_) => {
                let (_, request) = self.request_of(step).await?;
                return Some(self.send(&request).await.expect("dead rows change"));
            }
            Step::Amend => {
                self.is_amended = !self.is_amended;
                let mut charter = self.bounds.charter.clone();
                charter.no_overlap ^= self.is_amended;
                let amended = self.store.amend(&self.space, &charter).await;
                amended.expect("it amends");
                let started = self.start().await;
                self.edition = match &started {
                    Ok(started) => started.edition.unwrap_or(self.edition),
                    Err(_) => Edition(0),
                };
                return Some(Outcome::Amended(started.is_err()));
            }
        }
        Some(Outcome::Happened)
    }

    /// Has the store return to the state that it had before the last `steps`, this one not counted.
    /// What an instance holds of what is undone is void. `None` if there were fewer, or if without
    /// a break in the connections no instance could know.
    async fn go_back(&mut self, steps: u8, cuts: bool) -> Option<()> {
        let earlier = self.past.len().checked_sub(usize::from(steps) + 1)?;
        let memory = self.memory.as_ref().expect("it is in memory");
        memory.restore(&self.past[earlier]);
        let alive = self.alive().await;
        for instance in self.instances.iter_mut().filter(|_| !cuts) {
            let Some(last) = instance.last.as_mut() else {
                continue;
            };
            if alive.get(&instance.id) == Some(&last.alive_until) {
                return None;
            }
            // As if the store did not know either.
            last.connection += 1;
        }
        let rows = self.rows().await;
        let claims = self.instances.iter_mut().flat_map(|it| &mut it.claims);
        let mut held = BTreeSet::new();
        for claim in claims {
            let lease = rows.get(&claim.token).map(|row| row.due);
            claim.until = claim.until.min(lease.unwrap_or_default());
            held.insert(claim.token);
        }
        let in_flight = rows.values().filter(|row| row.state == State::InFlight);
        let returned = in_flight.map(|row| row.version);
        self.returned
            .extend(returned.filter(|token| !held.contains(token)));
        for instance in &mut self.instances {
            instance.is_unaware = true;
        }
        Some(())
    }

    async fn call(&mut self, by: usize, call: Call, fault: Fault) -> Option<Outcome> {
        let mut request = self.request(by, call).await?;
        Some(self.send_and_learn(by, &mut request, fault).await)
    }

    /// Sends a request, and learns from the answer.
    async fn send_and_learn(&mut self, by: usize, request: &mut Request, fault: Fault) -> Outcome {
        let outcome = match (fault, &mut *request) {
            (Fault::Late, Request::Write(_, near)) => {
                *near = near.until(self.now().await.before(MOMENT));
                self.try_to_send(by, request).await
            }
            (Fault::Late, _) => Outcome::Unsent,
            (Fault::None | Fault::Lost, _) => self.try_to_send(by, request).await,
        };
        let learns = fault == Fault::None && !matches!(outcome, Outcome::Refused);
        self.learn(by, request, learns.then_some(&outcome));
        outcome
    }

    /// Takes steps that one call of the store [can stand for](Step::joins). `None` if one of them
    /// makes no sense now.
    pub(super) async fn steps(&mut self, steps: &[Step]) -> Option<Vec<Outcome>> {
        let [Step::Call { by, fault, .. }, _, ..] = *steps else {
            return Some(vec![self.step(steps[0]).await?]);
        };
        // One that differs from the charter is refused once, and then looks at it again.
        let agrees = self.instances[usize::from(by)].edition == Some(self.edition);
        if self.memory.is_some() || !agrees {
            let mut outcomes = Vec::new();
            for &step in steps {
                outcomes.push(self.step(step).await?);
            }
            return Some(outcomes);
        }
        let (by, mut joined) = (usize::from(by), None);
        for &step in steps {
            let (_, request) = self.request_of(step).await?;
            match (&mut joined, request) {
                (None, request) => joined = Some(request),
                (Some(Request::Write(writes, _)), Request::Write(more, _)) => writes.extend(more),
                (Some(Request::Settle(settles, _)), Request::Settle(more, _)) => {
                    settles.extend(more);
                }
                (joined, request) => panic!("{joined:?} and {request:?} are not alike"),
            }
            if let Some(Request::Settle(..)) = joined {
                // The next settle is of the next claim.
                self.instances[by].claims.rotate_left(1);
            }
        }
        Some(match self.send_and_learn(by, &mut joined?, fault).await {
            Outcome::Written(written) => written
                .into_iter()
                .map(|written| Outcome::Written(vec![written]))
                .collect(),
            Outcome::Settled(settled) => settled
                .into_iter()
                .map(|settled| Outcome::Settled(vec![settled]))
                .collect(),
            other => vec![other; steps.len()],
        })
    }

    /// Sends a request, if the instance agrees with the charter.
    async fn try_to_send(&mut self, by: usize, request: &Request) -> Outcome {
        let mut request = request.clone();
        let edition = match &mut request {
            Request::Write(_, near) => Some(&mut near.edition),
            Request::Load(load) => Some(&mut load.edition),
            Request::Fire(fire) => Some(&mut fire.near.edition),
            _ => None,
        };
        if let Some(edition @ None) = edition {
            let Ok(opened) = self.start().await else {
                return Outcome::Refused;
            };
            self.instances[by].edition = opened.edition;
            *edition = opened.edition;
        }
        match self.send(&request).await {
            Ok(outcome) => outcome,
            Err(StoreError::Amended { .. }) => {
                self.instances[by].edition = None;
                Outcome::Refused
            }
            Err(StoreError::Late { now, .. }) => {
                assert!(
                    now > self.sent_at.before(MOMENT),
                    "it is late already at {now}"
                );
                Outcome::Refused
            }
            Err(error) => panic!("{error} to {request:?}"),
        }
    }

    /// What a step sends to the store, and the number of the instance that sends it. `None` if it
    /// sends nothing.
    async fn request_of(&mut self, step: Step) -> Option<(usize, Request)> {
        match step {
            Step::Call { by, call, .. } => {
                let by = usize::from(by);
                Some((by, self.request(by, call).await?))
            }
            Step::RetryDead(key) => {
                Some((0, Request::ChangeDead(key_bytes(key), DeadChange::Retry)))
            }
            Step::DiscardDead(key) => {
                Some((0, Request::ChangeDead(key_bytes(key), DeadChange::Discard)))
            }
            _ => None,
        }
    }

    /// Takes two steps that know nothing of each other: the first one before the second, after it,
    /// or at once through two stores. `None` if one of them makes no sense.
    pub(super) async fn meet(&mut self, steps: [Step; 2], order: Meeting) -> Option<[Outcome; 2]> {
        let (one, first) = self.request_of(steps[0]).await?;
        let (other, second) = self.request_of(steps[1]).await?;
        let (a, b) = match &order {
            Meeting::InOrder => {
                let a = self.send(&first).await;
                (a, self.send(&second).await)
            }
            Meeting::Reversed => {
                let b = self.send(&second).await;
                (self.send(&first).await, b)
            }
            Meeting::Through(store) => {
                let mut through = self.clone();
                through.store = Arc::clone(store);
                join(self.send(&first), through.send(&second)).await
            }
        };
        let (a, b) = (a.expect("it answers"), b.expect("it answers"));
        self.learn(one, &first, Some(&a));
        self.learn(other, &second, Some(&b));
        Some([a, b])
    }

    /// What the store answers.
    pub(super) async fn send(&self, request: &Request) -> Result<Outcome, StoreError> {
        let (store, space) = (&*self.store, &self.space);
        Ok(match request.clone() {
            Request::Write(writes, near) => {
                Outcome::Written(store.write(space, writes, near).await?)
            }
            Request::Load(load) => Outcome::Loaded(store.load(space, load).await?),
            Request::Unload(id) => Outcome::Unloaded(store.unload(space, id).await?),
            Request::Unmark(id, versions) => {
                let kept = store.unmark(space, id, versions.clone()).await?;
                assert!(kept.is_empty(), "no other transaction locks rows");
                Outcome::Unmarked(versions)
            }
            Request::Fire(fire) => Outcome::Fired(store.fire(space, fire).await?),
            Request::Settle(settles, near) => {
                let by = near.loader.expect("an instance settles");
                let settle = |&(token, how): &(Version, Settling)| {
                    let settle = Settle::new(token, self.settlement(how, by));
                    match how.error() {
                        Some(error) => settle.with_error(error),
                        None => settle,
                    }
                };
                let sent = settles.iter().map(settle).collect();
                let settled = store.settle(space, sent, near).await?;
                let settled = settles.into_iter().zip(settled);
                let settled = settled.map(|((token, how), settled)| (token, how, settled));
                Outcome::Settled(settled.collect())
            }
            Request::ChangeDead(key, change) => {
                let which = DeadRows::Key(key);
                let mut rows = 0;
                // On a busy machine a step may change a part of them.
                loop {
                    let step = store.change_dead(space, which.clone(), change).await?;
                    rows += step.rows;
                    if !step.more {
                        break Outcome::Changed(rows);
                    }
                }
            }
            Request::Unfire(ids, held, near) => {
                let list = List::new(State::InFlight, None, 1_000);
                let mut rows = store.list(space, list).await?;
                rows.retain(|row| {
                    let is_lost = row.claimed_by.is_some_and(|by| ids.contains(&by));
                    is_lost && !held.contains(&row.version)
                });
                // Which of two rows that one call makes comes first is the store's affair.
                rows.sort_by(|a, b| (&a.key, &a.value).cmp(&(&b.key, &b.value)));
                let mut all_settled = Vec::new();
                for row in rows {
                    let settle = Settle::new(row.version, Settlement::Unfire);
                    let settled = store.settle(space, vec![settle], near).await?;
                    let settled = settled.into_iter().next().expect("one for each settle");
                    all_settled.push((row.version, Settling::Unfire, settled));
                }
                Outcome::Settled(all_settled)
            }
        })
    }
}
