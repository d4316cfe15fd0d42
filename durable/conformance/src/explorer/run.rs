//! A trace that is played: a store, and instances that do what those of `tickwheel-durable` do,
//! step by step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tickwheel_durable::Memory;
use tickwheel_durable::store::{
    Action, Armed, Due, Fire, Fired, InstanceId, LeftRow, List, Load, LoadWindow, Namespace,
    Settle, Settled, Settlement, State, Store, StoreTime, Stored, Version, Write, WriteOutcome,
};

use super::step::{Call, Delay, How, Key, Step};

/// A unit on the store in memory: so long that the time that calls take does not matter.
const UNIT: Duration = Duration::from_secs(3_600);

/// The time between two calls on the store in memory.
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
    /// A settle, after its answer was lost. The instance makes the same one again.
    pub(super) unanswered: Option<How>,
}

/// What an instance knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instance {
    pub(super) id: InstanceId,
    /// The rows it has loaded, and when they are due.
    pub(super) wheel: BTreeMap<Version, StoreTime>,
    pub(super) claims: Vec<Claim>,
    /// An answer was lost that may have marked rows: it unloads everything before it loads.
    pub(super) must_unload: bool,
}

/// The rows of a namespace.
pub(super) type Rows = BTreeMap<Version, Stored>;

/// What a step did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Tick,
    Crash,
    Written(WriteOutcome),
    Loaded(Vec<Version>),
    Unloaded,
    Fired(Vec<Fired>),
    Unmarked(Vec<Version>),
    Settled(Version, How, Settled),
}

/// See the module.
pub(super) struct Run {
    store: Arc<dyn Store>,
    /// The store if it is the one in memory: there a unit passes at once.
    memory: Option<Memory>,
    space: Namespace,
    unit: Duration,
    pub(super) instances: Vec<Instance>,
    /// How many values have been set: each set has its own.
    pub(super) sets: u32,
}

impl Run {
    pub(super) async fn new(
        store: Arc<dyn Store>,
        space: Namespace,
        unit: Duration,
        instances: u8,
    ) -> Self {
        let mut run = Run {
            store,
            memory: None,
            space,
            unit,
            instances: Vec::new(),
            sets: 0,
        };
        for _ in 0..instances {
            let instance = run.start().await;
            run.instances.push(instance);
        }
        run
    }

    /// On a new store in memory.
    pub(super) async fn in_memory(instances: u8) -> Self {
        let memory = Memory::new();
        let space = Namespace::new("explored").expect("it is a name");
        let mut run = Run::new(Arc::new(memory.clone()), space, UNIT, instances).await;
        run.memory = Some(memory);
        run
    }

    async fn start(&self) -> Instance {
        let opened = self.store.open(&self.space, &"test".into()).await;
        Instance {
            id: opened.expect("it opens").instance,
            wheel: BTreeMap::new(),
            claims: Vec::new(),
            must_unload: false,
        }
    }

    /// So many half units.
    pub(super) fn halves(&self, halves: u32) -> Duration {
        self.unit * halves / HALVES
    }

    /// How long a claim lasts.
    pub(super) fn lease(&self) -> Duration {
        self.halves(3)
    }

    /// The rows, and the store's time.
    pub(super) async fn rows(&self) -> (Rows, StoreTime) {
        let mut rows = Rows::new();
        for state in [State::Waiting, State::InFlight, State::Dead] {
            let list = List::new(state, None, 1_000);
            let listed = self.store.list(&self.space, list).await.expect("it lists");
            rows.extend(listed.into_iter().map(|row| (row.version, row)));
        }
        let counts = self.store.count(&self.space).await.expect("it counts");
        (rows, counts.now)
    }

    /// The ids that count as living, and until when.
    pub(super) async fn alive(&self) -> Vec<(InstanceId, StoreTime)> {
        let inspect = self.store.inspect();
        let instances = inspect.instances(&self.space).await.expect("it lists");
        let alive = instances.iter();
        alive
            .map(|living| (living.id, living.alive_until))
            .collect()
    }

    /// Takes a step. `None` if it makes no sense now.
    pub(super) async fn step(&mut self, step: Step) -> Option<Outcome> {
        if let Some(memory) = &self.memory {
            // No two calls come at the same time, as on the other stores.
            memory.set_clock(self.now().await.after(MOMENT).into());
        }
        match step {
            Step::Tick => {
                match &self.memory {
                    Some(memory) => memory.set_clock(self.now().await.after(self.unit).into()),
                    None => tokio::time::sleep(self.unit).await,
                }
                Some(Outcome::Tick)
            }
            Step::Crash { by } => {
                self.instances[usize::from(by)] = self.start().await;
                Some(Outcome::Crash)
            }
            Step::Call { by, call, lost } => self.call(usize::from(by), call, lost).await,
        }
    }

    async fn call(&mut self, by: usize, call: Call, lost: bool) -> Option<Outcome> {
        let outcome = match call {
            Call::Set(key, delay) => {
                let action = Action::set(self.value(), self.due(delay), None, false);
                self.write(by, key, action, lost).await
            }
            Call::SetIfAbsent(key, delay) => {
                let action = Action::set(self.value(), self.due(delay), None, true);
                self.write(by, key, action, lost).await
            }
            Call::SetInterval(key) => {
                let due = self.due(Delay::Near);
                let action = Action::set(self.value(), due, Some(self.unit), false);
                self.write(by, key, action, lost).await
            }
            Call::Move(key, delay) => {
                let action = Action::move_to(self.due(delay));
                self.write(by, key, action, lost).await
            }
            Call::Remove(key) => self.write(by, key, Action::Remove, lost).await,
            Call::Load if self.instances[by].must_unload => self.unload(by, lost).await,
            Call::Load => self.load(by, lost).await,
            Call::Fire => {
                let now = self.now().await;
                let wheel = self.instances[by].wheel.iter();
                let due = wheel.filter(|&(_, due)| *due <= now);
                let due: Vec<_> = due.map(|(&version, _)| version).collect();
                if due.is_empty() {
                    return None;
                }
                self.fire(by, due, 0, lost).await
            }
            Call::FireUnloaded => self.fire(by, Vec::new(), 1, lost).await,
            Call::Unmark => self.unmark(by, lost).await?,
            Call::Settle(how) => self.settle(by, how, lost).await?,
        };
        Some(outcome)
    }

    async fn now(&self) -> StoreTime {
        let counts = self.store.count(&self.space).await;
        counts.expect("it counts").now
    }

    /// Another value for each set.
    fn value(&mut self) -> Vec<u8> {
        self.sets += 1;
        self.sets.to_be_bytes().to_vec()
    }

    fn due(&self, delay: Delay) -> Due {
        Due::In(match delay {
            Delay::Zero => Duration::ZERO,
            Delay::Near => self.halves(1),
            Delay::Far => self.halves(3),
        })
    }

    fn near(&self, by: usize) -> LoadWindow {
        let instance = &self.instances[by];
        let loader = (!instance.must_unload).then_some(instance.id);
        LoadWindow::new(self.unit, loader)
    }

    async fn write(&mut self, by: usize, key: Key, action: Action, lost: bool) -> Outcome {
        let writes = vec![Write::new(vec![b'a' + key], action)];
        let written = self.store.write(&self.space, writes, self.near(by)).await;
        let written = written.expect("it writes").remove(0);
        let instance = &mut self.instances[by];
        match &written {
            _ if lost => instance.must_unload = true,
            WriteOutcome::Armed { row, replaced, .. } => {
                replaced.and_then(|version| instance.wheel.remove(&version));
                instance.arm(*row);
            }
            WriteOutcome::Removed { version, .. } => {
                instance.wheel.remove(version);
            }
            _ => {}
        }
        Outcome::Written(written)
    }

    /// Ends the incarnation.
    async fn unload(&mut self, by: usize, lost: bool) -> Outcome {
        let instance = &mut self.instances[by];
        instance.wheel.clear();
        let fresh = self.store.unload(&self.space, instance.id).await;
        let fresh = fresh.expect("it unloads");
        if !lost {
            (instance.id, instance.must_unload) = (fresh, false);
        }
        Outcome::Unloaded
    }

    async fn load(&mut self, by: usize, lost: bool) -> Outcome {
        let alive = self.halves(5);
        let instance = &mut self.instances[by];
        let request = Load::new(instance.id, self.unit, 8, alive);
        let loaded = self.store.load(&self.space, request).await;
        let rows = loaded.expect("it loads").rows;
        if lost {
            instance.must_unload = true;
        } else {
            instance.wheel.extend(rows.iter().copied());
        }
        Outcome::Loaded(rows.into_iter().map(|(version, _)| version).collect())
    }

    async fn fire(
        &mut self,
        by: usize,
        named: Vec<Version>,
        unloaded: usize,
        lost: bool,
    ) -> Outcome {
        let lease = self.lease();
        let mut request = Fire::new(named.clone(), Some(lease), self.near(by));
        request.unloaded = unloaded;
        request.by = Some(self.instances[by].id);
        let report = self.store.fire(&self.space, request).await;
        let report = report.expect("it fires");
        let instance = &mut self.instances[by];
        for version in named {
            instance.wheel.remove(&version);
        }
        if lost {
            instance.must_unload = true;
            return Outcome::Fired(report.fired);
        }
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
        Outcome::Fired(report.fired)
    }

    async fn unmark(&mut self, by: usize, lost: bool) -> Option<Outcome> {
        let instance = &mut self.instances[by];
        let (version, _) = instance.wheel.pop_first()?;
        let left = vec![version];
        let kept = self.store.unmark(&self.space, instance.id, left.clone());
        let kept = kept.await.expect("it unmarks");
        assert!(kept.is_empty(), "no other transaction locks rows");
        instance.must_unload |= lost;
        Some(Outcome::Unmarked(left))
    }

    async fn settle(&mut self, by: usize, how: How, lost: bool) -> Option<Outcome> {
        let settlement = match how {
            How::Ack => Settlement::Ack,
            How::Release => Settlement::Release,
            How::Retry => Settlement::RetryAfter(self.halves(1)),
            How::Unfire => Settlement::Unfire,
            How::Extend => Settlement::Extend(self.lease()),
            How::Leave => {
                let left = LeftRow::new(self.instances[by].id, Duration::ZERO, self.lease());
                Settlement::Leave(left)
            }
            How::Dead => Settlement::Dead,
        };
        let claim = self.instances[by].claims.first()?;
        if claim.unanswered.is_some_and(|before| before != how) {
            return None;
        }
        let token = claim.token;
        let settles = vec![Settle::new(token, settlement)];
        let settled = self.store.settle(&self.space, settles, self.near(by)).await;
        let settled = settled.expect("it settles")[0];
        let until = self.now().await.after(self.lease());
        let instance = &mut self.instances[by];
        if lost {
            instance.claims[0].unanswered = Some(how);
            instance.must_unload = true;
        } else if how == How::Extend && settled == Settled::Done {
            instance.claims[0].until = until;
            instance.claims[0].unanswered = None;
        } else {
            instance.claims.remove(0);
            if let Settled::Armed(row) = settled {
                instance.arm(row);
            }
        }
        Some(Outcome::Settled(token, how, settled))
    }
}

impl Instance {
    fn arm(&mut self, row: Armed) {
        if row.loaded {
            self.wheel.insert(row.version, row.due);
        }
    }
}
