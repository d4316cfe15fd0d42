//! A store that can be taken away, and an instance that can be killed.

use std::collections::HashSet;
use std::future::{pending, ready};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tickwheel_durable::store::{
    Answer, Armed, BoxFuture, ChangedRows, Charter, Counts, DeadChange, DeadRows, Fire, FireReport,
    Inspect, InstanceId, List, Load, Loaded, Namespace, Opened, Settle, Settled, Settlement, Store,
    StoreError, Stored, Terms, Version, Write, WriteOutcome,
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

/// The calls that may fail, by the names of their methods.
const CALLS: [&str; 13] = [
    "open",
    "amend",
    "write",
    "load",
    "fire",
    "settle",
    "unload",
    "unmark",
    "rows_of",
    "list",
    "count",
    "purge",
    "change_dead",
];

/// A name that is wrong would make no call fail.
fn check(call: Option<&str>) {
    let is_known = call.is_none_or(|call| CALLS.contains(&call));
    assert!(is_known, "{call:?} is none of {CALLS:?}");
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
    /// How many rows that write, load, fire, settle and unmark have changed, but for renewals of
    /// leases.
    writes: u64,
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

    /// How many rows that [`write`](Store::write), [`load`](Store::load), [`fire`](Store::fire),
    /// [`settle`](Store::settle) and [`unmark`](Store::unmark) have changed, as their answers say,
    /// but for renewals of leases. Other calls do not count, nor do occurrences that are skipped.
    pub fn row_writes(&self) -> u64 {
        self.lock().writes
    }

    /// Makes every call of one kind fail before it has an effect, by the name of the method, as
    /// `"load"`. `None` brings it back.
    ///
    /// # Panics
    ///
    /// If no call of a store that may fail has that name. So do the other setters that take one.
    pub fn set_failing(&self, call: Option<&'static str>) {
        check(call);
        self.lock().failing = call;
    }

    /// Makes every call of one kind fail after it has taken effect. `None` brings it back.
    pub fn set_losing(&self, call: Option<&'static str>) {
        check(call);
        self.lock().losing = call;
    }

    /// Makes every call of one kind fail at once and reach the store so much later. `None` brings
    /// it back.
    pub fn set_late(&self, late: Option<(&'static str, Duration)>) {
        check(late.map(|(call, _)| call));
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
        check(Some(call));
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

    /// Whether the call that is made now fails, and when.
    fn fate(&self, call: &'static str) -> Option<FaultPoint> {
        let mut state = self.lock();
        let number = state.calls;
        state.calls += 1;
        if state.plan == Plan::Dead {
            return Some(FaultPoint::Before);
        }
        if state.failing == Some(call) {
            return Some(FaultPoint::Before);
        }
        if state.losing == Some(call) {
            return Some(FaultPoint::After);
        }
        let fate = match state.plan {
            Plan::Away => FaultPoint::Before,
            Plan::Error(call, when) if call == number => when,
            Plan::Crash(call, when) if call == number => {
                state.plan = Plan::Dead;
                when
            }
            _ => return None,
        };
        state.struck = true;
        Some(fate)
    }
}

impl<S: Store> Faulty<S> {
    /// Passes a call on, unless it fails. The call learns whether all rows are locked.
    fn call<T, F>(&self, name: &'static str, space: &Namespace, call: F) -> Answer<'_, T>
    where
        T: Send + 'static,
        F: for<'s> FnOnce(&'s S, &Namespace, bool) -> Answer<'s, T> + Send + 'static,
    {
        let (space, store) = (space.clone(), Arc::clone(&self.store));
        Box::pin(async move {
            let late = self.lock().late.filter(|(late, _)| *late == name);
            let delay = self.lock().delay / 2;
            if late.is_none() {
                pause(delay).await;
            }
            let fate = self.fate(name);
            if let (Some((_, delay)), None) = (late, fate) {
                drop(tokio::spawn(async move {
                    sleep(delay).await;
                    drop(call(&store, &space, false).await);
                }));
                return Err(StoreError::unavailable("its answer was lost"));
            }
            let mut answer = Err(StoreError::unavailable("it was taken away by the test"));
            if fate != Some(FaultPoint::Before) {
                let locked = self.lock().locked;
                let answered = call(&store, &space, locked).await;
                if fate.is_none() {
                    let slow = self.lock().slow.filter(|(slow, _)| *slow == name);
                    pause(delay + slow.map_or(Duration::ZERO, |(_, more)| more)).await;
                    answer = answered;
                }
            }
            // A caller that has died meanwhile receives nothing.
            if self.lock().plan == Plan::Dead {
                pending::<()>().await;
            }
            answer
        })
    }

    /// An answer of the store, once its rows are counted as written.
    fn counted<'a, T: Send + 'a>(
        &'a self,
        answer: Answer<'a, T>,
        rows: impl FnOnce(&T) -> usize + Send + 'a,
    ) -> Answer<'a, T> {
        Box::pin(async move {
            let answer = answer.await?;
            self.lock().writes += rows(&answer) as u64;
            Ok(answer)
        })
    }
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}

/// Fires while all rows are locked: the store says later when they are due.
async fn fire_locked(
    store: &impl Store,
    space: Namespace,
    mut request: Fire,
) -> Result<FireReport, StoreError> {
    let versions = std::mem::take(&mut request.versions);
    request.unloaded = 0;
    let mut report = store.fire(&space, request).await?;
    let later = |version| Armed {
        version,
        due: report.now,
        loaded: true,
    };
    report.later = versions.into_iter().map(later).collect();
    Ok(report)
}

/// Settles while all rows are locked: what needs the lock of a key is left out.
async fn settle_locked(
    store: &impl Store,
    space: Namespace,
    settles: Vec<Settle>,
    terms: Terms,
) -> Result<Vec<Settled>, StoreError> {
    let mut outcomes = vec![Settled::Locked; settles.len()];
    let settles = settles.into_iter().enumerate();
    let settles = settles
        .filter(|(_, settle)| matches!(settle.settlement, Settlement::Ack | Settlement::Extend(_)));
    let (places, settles): (Vec<_>, _) = settles.unzip();
    let settled = store.settle(&space, settles, terms).await?;
    for (place, settled) in places.into_iter().zip(settled) {
        outcomes[place] = settled;
    }
    Ok(outcomes)
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
    fn open(&self, space: &Namespace, charter: &Charter) -> Answer<'_, Opened> {
        let charter = charter.clone();
        self.call("open", space, move |store, space, _| {
            store.open(space, &charter)
        })
    }

    fn amend(&self, space: &Namespace, charter: &Charter) -> Answer<'_, ()> {
        let charter = charter.clone();
        self.call("amend", space, move |store, space, _| {
            store.amend(space, &charter)
        })
    }

    fn write(
        &self,
        space: &Namespace,
        writes: Vec<Write>,
        terms: Terms,
    ) -> Answer<'_, Vec<WriteOutcome>> {
        let written = self.call("write", space, move |store, space, locked| {
            if locked {
                let locked = writes.into_iter().map(WriteOutcome::Locked).collect();
                return Box::pin(ready(Ok(locked)));
            }
            store.write(space, writes, terms)
        });
        self.counted(written, |written| {
            let changed = written.iter().filter(|written| {
                matches!(
                    written,
                    WriteOutcome::Armed { .. } | WriteOutcome::Removed { .. }
                )
            });
            changed.count()
        })
    }

    fn load(&self, space: &Namespace, request: Load) -> Answer<'_, Loaded> {
        let is_unloaded = self.lock().unloaded.contains(&request.instance);
        assert!(!is_unloaded, "an id loads after its unload: {request:?}");
        let loaded = self.call("load", space, move |store, space, _| {
            store.load(space, request)
        });
        self.counted(loaded, |loaded| loaded.rows.len())
    }

    fn fire(&self, space: &Namespace, request: Fire) -> Answer<'_, FireReport> {
        let fired = self.call("fire", space, move |store, space, locked| {
            if locked {
                return Box::pin(fire_locked(store, space.clone(), request));
            }
            store.fire(space, request)
        });
        self.counted(fired, |report| report.fired.len() + report.next.len())
    }

    fn settle(
        &self,
        space: &Namespace,
        settles: Vec<Settle>,
        terms: Terms,
    ) -> Answer<'_, Vec<Settled>> {
        let renews = |settle: &Settle| matches!(settle.settlement, Settlement::Extend(_));
        let renewals: Vec<_> = settles.iter().map(renews).collect();
        let settled = self.call("settle", space, move |store, space, locked| {
            if locked {
                return Box::pin(settle_locked(store, space.clone(), settles, terms));
            }
            store.settle(space, settles, terms)
        });
        self.counted(settled, move |settled| {
            let settled = settled.iter().zip(renewals);
            let written = settled.filter(|(settled, renews)| {
                matches!(settled, Settled::Done | Settled::Armed(_)) && !renews
            });
            written.count()
        })
    }

    fn unload(&self, space: &Namespace, instance: InstanceId) -> Answer<'_, InstanceId> {
        self.lock().unloaded.insert(instance);
        self.call("unload", space, move |store, space, _| {
            store.unload(space, instance)
        })
    }

    fn unmark(
        &self,
        space: &Namespace,
        instance: InstanceId,
        versions: Vec<Version>,
    ) -> Answer<'_, Vec<Version>> {
        let asked = versions.len();
        let left = self.call("unmark", space, move |store, space, locked| {
            if locked {
                return Box::pin(ready(Ok(versions)));
            }
            store.unmark(space, instance, versions)
        });
        self.counted(left, move |left| asked - left.len())
    }

    fn rows_of(&self, space: &Namespace, key: Vec<u8>, limit: usize) -> Answer<'_, Vec<Stored>> {
        self.call("rows_of", space, move |store, space, _| {
            store.rows_of(space, key, limit)
        })
    }

    fn list(&self, space: &Namespace, request: List) -> Answer<'_, Vec<Stored>> {
        self.call("list", space, move |store, space, _| {
            store.list(space, request)
        })
    }

    fn count(&self, space: &Namespace) -> Answer<'_, Counts> {
        self.call("count", space, |store, space, _| store.count(space))
    }

    fn purge(&self, space: &Namespace) -> Answer<'_, ChangedRows> {
        self.call("purge", space, |store, space, _| store.purge(space))
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
        space: &Namespace,
        which: DeadRows,
        change: DeadChange,
    ) -> Answer<'_, ChangedRows> {
        self.call("change_dead", space, move |store, space, locked| {
            if locked {
                let mut changed = ChangedRows::default();
                changed.locked = 1;
                return Box::pin(ready(Ok(changed)));
            }
            store.change_dead(space, which, change)
        })
    }

    fn hinted(&self, space: &Namespace) -> BoxFuture<'_, ()> {
        self.store.hinted(space)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.store.close()
    }
}
