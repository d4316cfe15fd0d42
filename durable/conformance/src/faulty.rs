//! A store that can be taken away, and an instance that can be killed.

use std::collections::HashSet;
use std::future::{Future, pending};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tickwheel_durable::store::{
    Answer, Armed, BoxFuture, ChangedRows, Charter, Counts, DeadChange, DeadRows, Fire, FireReport,
    Inspect, InstanceId, List, Load, LoadWindow, Loaded, Namespace, Opened, Settle, Settled,
    Settlement, Store, StoreError, Stored, Version, Write, WriteOutcome,
};
use tokio::time::sleep;

/// A store between an instance and its store, which fails on demand. Clones fail together.
///
/// It panics if the instance breaks its side of the contract: if it loads under an id that it has
/// unloaded.
#[derive(Debug)]
pub struct Faulty<S> {
    store: Arc<S>,
    state: Arc<Mutex<State>>,
}

/// Whether a call fails before or after it has taken effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultPoint {
    /// It has no effect.
    Before,
    /// The call has taken effect, and its caller does not learn of it.
    After,
}

/// A fault, and the call that it happens in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Plan {
    #[default]
    Nothing,
    /// Every call fails.
    Away,
    /// One call fails.
    Error(u64, FaultPoint),
    /// In one call the instance dies: nothing returns any more.
    Crash(u64, FaultPoint),
    /// The instance is dead.
    Dead,
}

#[derive(Debug, Default)]
struct State {
    calls: u64,
    /// How long each call takes besides: half of it before it reaches the store, and half after.
    delay: Duration,
    plan: Plan,
    /// Whether the planned fault has happened.
    struck: bool,
    /// The ids that were to be unloaded, under which nothing may be loaded any more.
    unloaded: HashSet<InstanceId>,
    /// The kind of call that fails.
    failing: Option<&'static str>,
    /// The kind of call that loses its answers.
    losing: Option<&'static str>,
    /// Whether another transaction has locked every row.
    locked: bool,
    /// The kind of call that fails at once, and how much later it takes effect.
    late: Option<(&'static str, Duration)>,
    /// The kind of call that takes that much longer to answer.
    slow: Option<(&'static str, Duration)>,
    /// How many rows the calls have written, and how many of these to renew a lease.
    writes: u64,
    renewals: u64,
}

impl<S> Faulty<S> {
    /// Nothing fails yet.
    pub fn new(store: S) -> Self {
        Faulty {
            store: Arc::new(store),
            state: Arc::default(),
        }
    }

    /// How many calls were made, [`hinted`](Store::hinted) left out.
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    /// How many rows the calls have inserted, changed or deleted, but for renewals of leases and
    /// for unloads.
    pub fn row_writes(&self) -> u64 {
        let state = self.lock();
        state.writes - state.renewals
    }

    /// Makes every call of one kind fail before it has an effect: `"load"`, `"fire"`, `"write"` or
    /// `"settle"`. `None` brings it back.
    pub fn set_failing(&self, call: Option<&'static str>) {
        self.lock().failing = call;
    }

    /// Makes every call of one kind fail after it has taken effect. `None` brings it back.
    pub fn set_losing(&self, call: Option<&'static str>) {
        self.lock().losing = call;
    }

    /// Makes every call of one kind, `"fire"` or `"write"`, fail at once and reach the store so
    /// much later. `None` brings it back.
    pub fn set_late(&self, late: Option<(&'static str, Duration)>) {
        self.lock().late = late;
    }

    /// Makes every row and key look locked by another transaction: `unmark` leaves the marks,
    /// `fire` finds nothing due yet, `settle` puts nothing back, and `write` and `change_dead` do
    /// nothing.
    pub fn set_locked(&self, locked: bool) {
        self.lock().locked = locked;
    }

    /// Takes the store away, so that every call fails before it has an effect, or brings it back.
    pub fn set_away(&self, away: bool) {
        self.lock().plan = if away { Plan::Away } else { Plan::Nothing };
    }

    /// Makes every call take that much longer: half of it before it reaches the store, and half
    /// after.
    pub fn set_delay(&self, delay: Duration) {
        self.lock().delay = delay;
    }

    /// Makes the answers to calls of one kind take that much longer, by the name of the method, as
    /// `"load"`.
    pub fn set_slow(&self, call: &'static str, delay: Duration) {
        self.lock().slow = Some((call, delay));
    }

    /// Makes the call with this number, counted from zero, fail.
    pub fn fail_at(&self, call: u64, when: FaultPoint) {
        self.lock().plan = Plan::Error(call, when);
    }

    /// Kills the instance in the call with this number: neither it nor any later one returns.
    pub fn crash_at(&self, call: u64, when: FaultPoint) {
        self.lock().plan = Plan::Crash(call, when);
    }

    /// Kills the instance now: no call returns any more.
    pub fn kill(&self) {
        self.lock().plan = Plan::Dead;
    }

    /// Whether the planned call has been made.
    pub fn has_struck(&self) -> bool {
        self.lock().struck
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much later than it fails such a call reaches the store.
    fn late_by(&self, call: &'static str) -> Option<Duration> {
        let late = self.lock().late;
        late.filter(|(late, _)| *late == call).map(|(_, by)| by)
    }

    /// The fate of the call that is made now: when it fails, and whether it returns.
    fn fate(&self, call: &'static str) -> Option<(FaultPoint, bool)> {
        let mut state = self.lock();
        let number = state.calls;
        state.calls += 1;
        if state.failing == Some(call) {
            return Some((FaultPoint::Before, true));
        }
        if state.losing == Some(call) {
            return Some((FaultPoint::After, true));
        }
        let fate = match state.plan {
            Plan::Away => Some((FaultPoint::Before, true)),
            Plan::Error(call, when) if call == number => Some((when, true)),
            Plan::Crash(call, when) if call == number => {
                state.plan = Plan::Dead;
                Some((when, false))
            }
            Plan::Dead => return Some((FaultPoint::Before, false)),
            _ => return None,
        };
        state.struck = true;
        fate
    }

    async fn call<T, F>(
        &self,
        name: &'static str,
        call: impl FnOnce() -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let delay = self.lock().delay / 2;
        if !delay.is_zero() {
            sleep(delay).await;
        }
        let Some((when, returns)) = self.fate(name) else {
            let answer = call().await;
            let slow = self.lock().slow.filter(|(slow, _)| *slow == name);
            let delay = delay + slow.map_or(Duration::ZERO, |(_, more)| more);
            if !delay.is_zero() {
                sleep(delay).await;
            }
            // A caller that has died meanwhile receives nothing.
            if self.lock().plan == Plan::Dead {
                pending::<()>().await;
            }
            return answer;
        };
        if when == FaultPoint::After {
            // The answer is lost, whatever it is.
            let _ = call().await;
        }
        if !returns {
            pending::<()>().await;
        }
        Err(StoreError::unavailable("it was taken away by the test"))
    }
}

impl<S: Store> Faulty<S> {
    /// Fires, unless the rows are locked: then the store says later when they are due.
    async fn fire_unlocked(
        &self,
        namespace: &Namespace,
        mut request: Fire,
    ) -> Result<FireReport, StoreError> {
        if !self.lock().locked {
            return self.store.fire(namespace, request).await;
        }
        let versions = std::mem::take(&mut request.versions);
        request.unloaded = 0;
        let mut report = self.store.fire(namespace, request).await?;
        let due = report.now;
        report.later = versions
            .into_iter()
            .map(|version| Armed {
                version,
                due,
                loaded: true,
            })
            .collect();
        Ok(report)
    }

    /// Writes, unless the keys are locked.
    async fn write_unlocked(
        &self,
        namespace: &Namespace,
        writes: Vec<Write>,
        near: LoadWindow,
    ) -> Result<Vec<WriteOutcome>, StoreError> {
        if self.lock().locked {
            return Ok(writes.into_iter().map(WriteOutcome::Locked).collect());
        }
        self.store.write(namespace, writes, near).await
    }

    /// Settles, but leaves out what needs the lock of a key, if the rows are locked.
    async fn settle_unlocked(
        &self,
        namespace: &Namespace,
        settles: Vec<Settle>,
        near: LoadWindow,
    ) -> Result<Vec<Settled>, StoreError> {
        let is_locked = self.lock().locked;
        let is_settled = |(_, settle): &(usize, Settle)| {
            !is_locked || matches!(settle.settlement, Settlement::Ack | Settlement::Extend(_))
        };
        let mut outcomes = vec![Settled::Locked; settles.len()];
        let settles = settles.into_iter().enumerate().filter(is_settled);
        let (places, settles): (Vec<_>, _) = settles.unzip();
        let settled = self.store.settle(namespace, settles, near).await?;
        for (place, settled) in places.into_iter().zip(settled) {
            outcomes[place] = settled;
        }
        Ok(outcomes)
    }
}

/// Has a call reach the store that much later. Its answer is lost.
fn happen_late<T: Send>(
    delay: Duration,
    call: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> StoreError {
    drop(tokio::spawn(async move {
        sleep(delay).await;
        drop(call.await);
    }));
    StoreError::unavailable("its answer was lost")
}

impl<S> Clone for Faulty<S> {
    fn clone(&self) -> Self {
        Faulty {
            store: Arc::clone(&self.store),
            state: Arc::clone(&self.state),
        }
    }
}

impl<S: Store> Store for Faulty<S> {
    fn open(&self, namespace: &Namespace, charter: &Charter) -> Answer<'_, Opened> {
        let (namespace, charter) = (namespace.clone(), charter.clone());
        Box::pin(self.call("open", move || self.store.open(&namespace, &charter)))
    }

    fn amend(&self, namespace: &Namespace, charter: &Charter) -> Answer<'_, ()> {
        let (namespace, charter) = (namespace.clone(), charter.clone());
        Box::pin(self.call("amend", move || self.store.amend(&namespace, &charter)))
    }

    fn write(
        &self,
        namespace: &Namespace,
        writes: Vec<Write>,
        near: LoadWindow,
    ) -> Answer<'_, Vec<WriteOutcome>> {
        let namespace = namespace.clone();
        Box::pin(async move {
            if let Some(delay) = self.late_by("write") {
                let store = Arc::clone(&self.store);
                let write = async move { store.write(&namespace, writes, near).await };
                return Err(happen_late(delay, write));
            }
            let writing = self.call("write", || self.write_unlocked(&namespace, writes, near));
            let written = writing.await?;
            let changed = |written: &&WriteOutcome| {
                matches!(
                    written,
                    WriteOutcome::Armed { .. } | WriteOutcome::Removed { .. }
                )
            };
            self.lock().writes += written.iter().filter(changed).count() as u64;
            Ok(written)
        })
    }

    fn load(&self, namespace: &Namespace, request: Load) -> Answer<'_, Loaded> {
        let namespace = namespace.clone();
        Box::pin(async move {
            let load = || {
                let is_unloaded = self.lock().unloaded.contains(&request.instance);
                assert!(!is_unloaded, "an id loads after its unload: {request:?}");
                self.store.load(&namespace, request)
            };
            let loaded = self.call("load", load).await?;
            self.lock().writes += loaded.rows.len() as u64;
            Ok(loaded)
        })
    }

    fn fire(&self, namespace: &Namespace, request: Fire) -> Answer<'_, FireReport> {
        let namespace = namespace.clone();
        Box::pin(async move {
            if let Some(delay) = self.late_by("fire") {
                let store = Arc::clone(&self.store);
                let fire = async move { store.fire(&namespace, request).await };
                return Err(happen_late(delay, fire));
            }
            let firing = self.call("fire", || self.fire_unlocked(&namespace, request));
            let report = firing.await?;
            self.lock().writes += (report.fired.len() + report.next.len()) as u64;
            Ok(report)
        })
    }

    fn settle(
        &self,
        namespace: &Namespace,
        settles: Vec<Settle>,
        near: LoadWindow,
    ) -> Answer<'_, Vec<Settled>> {
        let namespace = namespace.clone();
        Box::pin(async move {
            let settlements: Vec<_> = settles.iter().map(|settle| settle.settlement).collect();
            let settling = self.call("settle", || self.settle_unlocked(&namespace, settles, near));
            let settled = settling.await?;
            let mut state = self.lock();
            for (settled, settlement) in settled.iter().zip(settlements) {
                if *settled == Settled::Lost {
                    continue;
                }
                state.writes += 1;
                state.renewals += u64::from(matches!(settlement, Settlement::Extend(_)));
            }
            drop(state);
            Ok(settled)
        })
    }

    fn unload(&self, namespace: &Namespace, instance: InstanceId) -> Answer<'_, InstanceId> {
        self.lock().unloaded.insert(instance);
        let namespace = namespace.clone();
        Box::pin(self.call("unload", move || self.store.unload(&namespace, instance)))
    }

    fn unmark(
        &self,
        namespace: &Namespace,
        instance: InstanceId,
        versions: Vec<Version>,
    ) -> Answer<'_, Vec<Version>> {
        let namespace = namespace.clone();
        Box::pin(async move {
            let asked = versions.len();
            let unmarking = self.call("unmark", || async {
                if self.lock().locked {
                    return Ok(versions);
                }
                self.store.unmark(&namespace, instance, versions).await
            });
            let left = unmarking.await?;
            self.lock().writes += (asked - left.len()) as u64;
            Ok(left)
        })
    }

    fn rows_of(
        &self,
        namespace: &Namespace,
        key: Vec<u8>,
        limit: usize,
    ) -> Answer<'_, Vec<Stored>> {
        let namespace = namespace.clone();
        Box::pin(self.call("rows_of", move || {
            self.store.rows_of(&namespace, key, limit)
        }))
    }

    fn list(&self, namespace: &Namespace, request: List) -> Answer<'_, Vec<Stored>> {
        let namespace = namespace.clone();
        Box::pin(self.call("list", move || self.store.list(&namespace, request)))
    }

    fn count(&self, namespace: &Namespace) -> Answer<'_, Counts> {
        let namespace = namespace.clone();
        Box::pin(self.call("count", move || self.store.count(&namespace)))
    }

    fn purge(&self, namespace: &Namespace) -> Answer<'_, ChangedRows> {
        let namespace = namespace.clone();
        Box::pin(self.call("purge", move || self.store.purge(&namespace)))
    }

    fn parts(&self) -> usize {
        self.store.parts()
    }

    /// Not counted, and never made to fail: no instance asks.
    fn inspect(&self) -> &dyn Inspect {
        self.store.inspect()
    }

    fn change_dead(
        &self,
        namespace: &Namespace,
        which: DeadRows,
        change: DeadChange,
    ) -> Answer<'_, ChangedRows> {
        let namespace = namespace.clone();
        Box::pin(self.call("change_dead", move || async move {
            if self.lock().locked {
                let mut changed = ChangedRows::default();
                changed.locked = 1;
                return Ok(changed);
            }
            self.store.change_dead(&namespace, which, change).await
        }))
    }

    fn hinted(&self, namespace: &Namespace) -> BoxFuture<'_, ()> {
        self.store.hinted(namespace)
    }
}
