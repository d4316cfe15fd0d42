//! A trace that is played: a store, and instances that do what those of `tickwheel-durable` do,
//! step by step.
//!
//! A call has three parts: what the instance [asks](Run::request) for, what the store
//! [answers](Run::send), and what the instance [learns](Run::learn) from that. A fault takes the
//! third away, or the second too.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::join;
use tickwheel_durable::Memory;
use tickwheel_durable::store::{
    Action, Armed, BoxFuture, Charter, DeadChange, DeadRows, Due, Edition, Fire, FireReport,
    InstanceId, LeftRow, List, Load, LoadWindow, Loaded, Namespace, Settle, Settled, Settlement,
    State, Store, StoreError, StoreTime, Stored, Version, Write, WriteOutcome,
};

use super::Bounds;
use super::step::{Call, Delay, Fault, How, Key, Step, key_bytes};

/// A unit on a store whose clock the run sets: so long that the time that calls take does not
/// matter.
pub(super) const UNIT: Duration = Duration::from_secs(3_600);

/// The time between two calls there.
const MOMENT: Duration = Duration::from_millis(1);

/// Deadlines, leases and ids end between two ticks, never at one.
const HALVES: u32 = 2;

/// A claim that an instance holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) token: Version,
    pub(super) value: Vec<u8>,
    pub(super) repeats: bool,
    /// When its lease ends, as far as the instance knows.
    pub(super) until: StoreTime,
    /// An end without an answer. The instance sends the same one again.
    pub(super) unanswered: Option<How>,
}

/// What an instance knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instance {
    pub(super) id: InstanceId,
    /// The edition of the charter that it agrees with, if it knows.
    pub(super) edition: Option<Edition>,
    /// The rows it has loaded, and when they are due.
    pub(super) wheel: BTreeMap<Version, StoreTime>,
    pub(super) claims: Vec<Claim>,
    /// An answer was lost that may have marked rows: it unloads everything before it loads.
    pub(super) must_unload: bool,
    /// The ids under which fires were sent whose answers were lost.
    pub(super) lost_fires: Vec<InstanceId>,
}

/// The rows of a namespace.
pub(super) type Rows = BTreeMap<Version, Stored>;

/// What a step did.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    Written(WriteOutcome),
    Loaded(Loaded),
    Unloaded(InstanceId),
    Unmarked(Vec<Version>),
    Fired(FireReport),
    /// Each claim, how it was settled, and the answer.
    Settled(Vec<(Version, How, Settled)>),
    /// The store has refused the call.
    Refused,
    /// The call never reached the store.
    Unsent,
    /// So many dead rows were retried or discarded.
    Changed(u64),
    /// Whether an instance that starts now is refused.
    Amended(bool),
    /// A tick, a step of the clock or a crash.
    Happened,
}

/// What an instance asks of the store.
#[derive(Debug, Clone)]
pub(super) enum Request {
    Write(Write, LoadWindow),
    Load(Load),
    Unload(InstanceId),
    Unmark(InstanceId, Version),
    Fire(Fire),
    Settle(Version, How, Settlement, LoadWindow),
    RetryDead(Vec<u8>),
    DiscardDead(Vec<u8>),
    /// Finds the claims of lost fires, and unfires them.
    Unfire(Vec<InstanceId>, Vec<Version>, LoadWindow),
}

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
    charter: Charter,
    /// Whether the charter of the namespace is another one than that of the instances.
    pub(super) is_amended: bool,
    /// The last edition of a charter that instances agree with.
    pub(super) edition: Edition,
    pub(super) unit: Duration,
    pub(super) instances: Vec<Instance>,
    /// How many values have been set: each set has one of its own.
    sets: u32,
    /// The versions that the last fire named.
    pub(super) named: Vec<Version>,
    /// When the last call was asked for.
    asked: StoreTime,
    /// Whether the last step has sent a hint, where the store is the one in memory.
    pub(super) is_hinted: bool,
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
        let mut charter = Charter::new("test");
        charter.no_overlap = bounds.no_overlap;
        let mut run = Run {
            store,
            memory: None,
            clock: None,
            space,
            charter,
            is_amended: false,
            edition: Edition(0),
            unit,
            instances: Vec::new(),
            sets: 0,
            named: Vec::new(),
            asked: StoreTime::default(),
            is_hinted: false,
        };
        for _ in 0..bounds.instances {
            let instance = run.start().await.expect("it opens");
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
        let opened = self.store.open(&self.space, &self.charter).await?;
        Ok(Instance {
            id: opened.instance,
            edition: Some(opened.edition),
            wheel: BTreeMap::new(),
            claims: Vec::new(),
            must_unload: false,
            lost_fires: Vec::new(),
        })
    }

    pub(super) fn no_overlap(&self) -> bool {
        self.charter.no_overlap
    }

    /// The value that was set last.
    pub(super) fn last_value(&self) -> Vec<u8> {
        self.sets.to_be_bytes().to_vec()
    }

    /// So many half units.
    pub(super) fn halves(&self, halves: u32) -> Duration {
        self.unit * halves / HALVES
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

    /// The ids that count as living, and until when.
    pub(super) async fn alive(&self) -> BTreeMap<InstanceId, StoreTime> {
        let inspect = self.store.inspect();
        let instances = inspect.instances(&self.space).await.expect("it lists");
        let alive = instances.into_iter();
        alive
            .map(|living| (living.id, living.alive_until))
            .collect()
    }

    pub(super) async fn now(&self) -> StoreTime {
        let counts = self.store.count(&self.space).await;
        counts.expect("it counts").now
    }

    /// Lets time pass on a clock of the run's own.
    async fn set_clock(&self, time: StoreTime) {
        if let Some(set) = &self.clock {
            set(time.into()).await;
        }
    }

    /// Takes a step. `None` if it makes no sense now.
    pub(super) async fn step(&mut self, step: Step) -> Option<Outcome> {
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
            Step::Crash { by } => self.instances[usize::from(by)] = self.start().await.ok()?,
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
            Step::StepBack => self.set_clock(self.now().await.before(self.unit)).await,
            Step::RetryDead(_) | Step::DiscardDead(_) => {
                let (_, request) = self.request_of(step).await?;
                return Some(self.send(&request).await.expect("dead rows change"));
            }
            Step::Amend => {
                self.is_amended = !self.is_amended;
                let mut charter = self.charter.clone();
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

    async fn call(&mut self, by: usize, call: Call, fault: Fault) -> Option<Outcome> {
        let mut request = self.request(by, call).await?;
        let outcome = match (fault, &mut request) {
            (Fault::Late, Request::Write(_, near)) => {
                *near = near.until(self.now().await.before(MOMENT));
                self.try_to_send(by, &request).await
            }
            (Fault::Late, _) => Outcome::Unsent,
            (Fault::None | Fault::Lost, _) => self.try_to_send(by, &request).await,
        };
        let learns = fault == Fault::None && !matches!(outcome, Outcome::Refused);
        self.learn(by, &request, learns.then_some(&outcome));
        Some(outcome)
    }

    /// Sends a request, if the instance agrees with the charter.
    async fn try_to_send(&mut self, by: usize, request: &Request) -> Outcome {
        let edition = match request {
            Request::Write(_, near) => Some(near.charter),
            Request::Load(load) => Some(load.charter),
            Request::Fire(fire) => Some(fire.near.charter),
            _ => None,
        };
        let mut request = request.clone();
        if edition == Some(None) {
            let Ok(opened) = self.start().await else {
                return Outcome::Refused;
            };
            self.instances[by].edition = opened.edition;
            match &mut request {
                Request::Write(_, near) => *near = near.under(opened.edition),
                Request::Load(load) => load.charter = opened.edition,
                Request::Fire(fire) => fire.near.charter = opened.edition,
                _ => {}
            }
        }
        match self.send(&request).await {
            Ok(outcome) => outcome,
            Err(StoreError::Amended { .. }) => {
                self.instances[by].edition = None;
                Outcome::Refused
            }
            Err(StoreError::Late { .. }) => Outcome::Refused,
            Err(error) => panic!("{error} to {request:?}"),
        }
    }

    /// What a step asks of the store, and the number of the instance that asks. `None` if it asks
    /// for nothing.
    async fn request_of(&mut self, step: Step) -> Option<(usize, Request)> {
        match step {
            Step::Call { by, call, .. } => {
                let by = usize::from(by);
                Some((by, self.request(by, call).await?))
            }
            Step::RetryDead(key) => Some((0, Request::RetryDead(key_bytes(key)))),
            Step::DiscardDead(key) => Some((0, Request::DiscardDead(key_bytes(key)))),
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

    /// What an instance asks for. `None` if it would ask for nothing.
    pub(super) async fn request(&mut self, by: usize, call: Call) -> Option<Request> {
        let now = self.now().await;
        self.asked = now;
        // Each set has a value of its own.
        self.sets += u32::from(call.sets());
        let instance = &self.instances[by];
        let near = LoadWindow::new(self.unit, Some(instance.id)).under(instance.edition);
        let write = |key: Key, action| Request::Write(Write::new(key_bytes(key), action), near);
        let set = |delay, period, if_absent| {
            Action::set(self.last_value(), self.due(delay), period, if_absent)
        };
        let lease = self.lease();
        let fire = |named, unloaded| {
            let mut fire = Fire::new(named, Some(lease), near);
            (fire.unloaded, fire.by) = (unloaded, Some(instance.id));
            fire.no_overlap = self.charter.no_overlap;
            Request::Fire(fire)
        };
        let request = match call {
            Call::Fire | Call::FireEarly | Call::FireUnloaded
                if !instance.lost_fires.is_empty() =>
            {
                let held = instance.claims.iter().map(|claim| claim.token).collect();
                Request::Unfire(instance.lost_fires.clone(), held, near)
            }
            Call::Fire => {
                let due = instance.wheel.iter().filter(|&(_, due)| *due <= now);
                let due: Vec<_> = due.map(|(&version, _)| version).collect();
                if due.is_empty() {
                    return None;
                }
                fire(due, 0)
            }
            Call::FireEarly => {
                let mut early = instance.wheel.iter().filter(|&(_, due)| *due > now);
                fire(vec![*early.next()?.0], 0)
            }
            Call::FireUnloaded => fire(Vec::new(), 1),
            Call::Load if instance.must_unload => Request::Unload(instance.id),
            Call::Load => {
                let mut load = Load::new(instance.id, self.unit, 8, self.halves(5));
                load.charter = instance.edition;
                Request::Load(load)
            }
            Call::Unmark => Request::Unmark(instance.id, *instance.wheel.first_key_value()?.0),
            Call::Settle(how) => {
                let claim = instance.claims.first()?;
                if claim.unanswered.is_some_and(|before| before != how) {
                    return None;
                }
                let settlement = self.settlement(how, instance.id);
                Request::Settle(claim.token, how, settlement, near)
            }
            Call::Move(key, delay) => write(key, Action::move_to(self.due(delay))),
            Call::Remove(key) => write(key, Action::Remove),
            Call::Set(key, delay) => write(key, set(delay, None, false)),
            Call::SetIfAbsent(key, delay) => write(key, set(delay, None, true)),
            Call::SetInterval(key) => write(key, set(Delay::Near, Some(self.unit), false)),
        };
        if let Request::Fire(fire) = &request {
            self.named.clone_from(&fire.versions);
        }
        Some(request)
    }

    fn settlement(&self, how: How, by: InstanceId) -> Settlement {
        match how {
            How::Ack => Settlement::Ack,
            How::Release => Settlement::Release,
            How::Retry => Settlement::RetryAfter(self.halves(1)),
            How::Unfire => Settlement::Unfire,
            How::Extend => Settlement::Extend(self.lease()),
            How::Leave => Settlement::Leave(LeftRow::new(by, Duration::ZERO, self.lease())),
            How::Dead => Settlement::Dead,
        }
    }

    fn due(&self, delay: Delay) -> Due {
        Due::In(match delay {
            Delay::Zero => Duration::ZERO,
            Delay::Near => self.halves(1),
            Delay::Far => self.halves(3),
        })
    }

    /// What the store answers.
    pub(super) async fn send(&self, request: &Request) -> Result<Outcome, StoreError> {
        let (store, space) = (&*self.store, &self.space);
        Ok(match request.clone() {
            Request::Write(write, near) => {
                let mut written = store.write(space, vec![write], near).await?;
                Outcome::Written(written.remove(0))
            }
            Request::Load(load) => Outcome::Loaded(store.load(space, load).await?),
            Request::Unload(id) => Outcome::Unloaded(store.unload(space, id).await?),
            Request::Unmark(id, version) => {
                let kept = store.unmark(space, id, vec![version]).await?;
                assert!(kept.is_empty(), "no other transaction locks rows");
                Outcome::Unmarked(vec![version])
            }
            Request::Fire(fire) => Outcome::Fired(store.fire(space, fire).await?),
            Request::Settle(token, how, settlement, near) => {
                let settles = vec![Settle::new(token, settlement)];
                let settled = store.settle(space, settles, near).await?;
                Outcome::Settled(vec![(token, how, settled[0])])
            }
            Request::RetryDead(key) => {
                let which = DeadRows::Key(key);
                let step = store.change_dead(space, which, DeadChange::Retry).await?;
                Outcome::Changed(step.rows)
            }
            Request::DiscardDead(key) => {
                let which = DeadRows::Key(key);
                let step = store.change_dead(space, which, DeadChange::Discard).await?;
                Outcome::Changed(step.rows)
            }
            Request::Unfire(ids, held, near) => {
                let list = List::new(State::InFlight, None, 1_000);
                let mut rows = store.list(space, list).await?;
                rows.retain(|row| {
                    let is_lost = row.claimed_by.is_some_and(|by| ids.contains(&by));
                    is_lost && !held.contains(&row.version)
                });
                let settles = rows.iter();
                let settles = settles.map(|row| Settle::new(row.version, Settlement::Unfire));
                let settled = store.settle(space, settles.collect(), near).await?;
                let settled = rows.iter().zip(settled);
                let settled = settled.map(|(row, settled)| (row.version, How::Unfire, settled));
                Outcome::Settled(settled.collect())
            }
        })
    }

    /// What the instance learns from an answer, or from having none.
    pub(super) fn learn(&mut self, by: usize, request: &Request, outcome: Option<&Outcome>) {
        let (lease, asked) = (self.lease(), self.asked);
        let instance = &mut self.instances[by];
        match request {
            Request::Fire(fire) => {
                for version in &fire.versions {
                    instance.wheel.remove(version);
                }
            }
            Request::Unload(_) => instance.wheel.clear(),
            Request::Unmark(_, version) => drop(instance.wheel.remove(version)),
            _ => {}
        }
        let Some(outcome) = outcome else {
            instance.must_unload = true;
            match request {
                Request::Fire(fire) => instance.lost_fires.extend(fire.by),
                Request::Settle(_, how, ..) if *how != How::Extend => {
                    instance.claims[0].unanswered = Some(*how);
                }
                _ => {}
            }
            return;
        };
        match outcome {
            Outcome::Written(WriteOutcome::Armed { row, replaced, .. }) => {
                replaced.and_then(|version| instance.wheel.remove(&version));
                instance.arm(*row);
            }
            Outcome::Written(WriteOutcome::Removed { version, .. }) => {
                instance.wheel.remove(version);
            }
            Outcome::Loaded(loaded) => instance.wheel.extend(loaded.rows.iter().copied()),
            Outcome::Unloaded(fresh) => (instance.id, instance.must_unload) = (*fresh, false),
            Outcome::Fired(report) => {
                for row in report.later.iter().chain(&report.next) {
                    instance.arm(*row);
                }
                for fired in &report.fired {
                    instance.claims.push(Claim {
                        token: fired.token,
                        value: fired.value.clone(),
                        repeats: fired.repeats,
                        until: report.now.after(lease),
                        unanswered: None,
                    });
                }
            }
            Outcome::Settled(settled) => {
                if let Request::Unfire(..) = request {
                    instance.lost_fires.clear();
                }
                for &(token, how, settled) in settled {
                    if let Settled::Armed(row) = settled {
                        instance.arm(row);
                    }
                    if (how, settled) == (How::Extend, Settled::Done) {
                        instance.claims[0].until = asked.after(lease);
                    } else {
                        instance.claims.retain(|claim| claim.token != token);
                    }
                }
            }
            _ => {}
        }
    }
}

impl Instance {
    fn arm(&mut self, row: Armed) {
        if row.loaded {
            self.wheel.insert(row.version, row.due);
        }
    }
}
