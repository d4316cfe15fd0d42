//! A store that can be taken away, and an instance that can be killed.

use std::collections::HashSet;
use std::future::{Future, pending};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::sleep;

use crate::store::{
    Counts, Fire, FireReport, InstanceId, List, Load, Loaded, Namespace, Near, Opened, Purged,
    Settle, Settled, Store, StoreError, Stored, Version, Write, Written,
};

/// A store between an instance and its store, which fails on demand. Clones fail together.
///
/// It panics if the instance breaks its side of the contract: if it loads under an id that it has unloaded.
#[derive(Debug)]
pub struct Faulty<S> {
    store: Arc<S>,
    state: Arc<Mutex<State>>,
}

/// Whether a call fails before or after it has taken effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// It has no effect.
    Before,
    /// It has taken effect, and nobody learns of it.
    After,
}

/// What goes wrong, and in which call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plan {
    Nothing,
    /// Every call fails.
    Away,
    /// One call fails.
    Error(u64, When),
    /// In one call the instance dies: nothing returns any more.
    Crash(u64, When),
    /// The instance is dead.
    Dead,
}

#[derive(Debug)]
struct State {
    calls: u64,
    /// How long each call takes before it reaches the store.
    delay: Duration,
    plan: Plan,
    /// Whether the planned fault has happened.
    struck: bool,
    /// The ids that were to be unloaded, under which nothing may be loaded any more.
    unloaded: HashSet<InstanceId>,
}

impl<S> Faulty<S> {
    /// Nothing fails yet.
    pub fn new(store: S) -> Self {
        let state = State {
            calls: 0,
            delay: Duration::ZERO,
            plan: Plan::Nothing,
            struck: false,
            unloaded: HashSet::new(),
        };
        Faulty {
            store: Arc::new(store),
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// How many calls were made, [`hinted`](Store::hinted) left out.
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    /// Takes the store away, so that every call fails before it has an effect, or brings it back.
    pub fn set_away(&self, away: bool) {
        self.lock().plan = if away { Plan::Away } else { Plan::Nothing };
    }

    /// Makes every call take that much longer.
    pub fn set_delay(&self, delay: Duration) {
        self.lock().delay = delay;
    }

    /// Makes the call with this number, counted from zero, fail.
    pub fn fail_at(&self, call: u64, when: When) {
        self.lock().plan = Plan::Error(call, when);
    }

    /// Kills the instance in the call with this number: neither it nor any later one returns.
    pub fn crash_at(&self, call: u64, when: When) {
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

    /// What happens to the call that is made now: when it fails, and whether it returns.
    fn fate(&self) -> Option<(When, bool)> {
        let mut state = self.lock();
        let number = state.calls;
        state.calls += 1;
        let fate = match state.plan {
            Plan::Away => Some((When::Before, true)),
            Plan::Error(call, when) if call == number => Some((when, true)),
            Plan::Crash(call, when) if call == number => {
                state.plan = Plan::Dead;
                Some((when, false))
            }
            Plan::Dead => return Some((When::Before, false)),
            _ => return None,
        };
        state.struck = true;
        fate
    }

    async fn call<T, F>(&self, call: impl FnOnce() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let delay = self.lock().delay;
        if !delay.is_zero() {
            sleep(delay).await;
        }
        let Some((when, returns)) = self.fate() else {
            let answer = call().await;
            // Whoever has died meanwhile learns nothing.
            if self.lock().plan == Plan::Dead {
                pending::<()>().await;
            }
            return answer;
        };
        if when == When::After {
            // The answer is lost, whatever it is.
            let _ = call().await;
        }
        if !returns {
            pending::<()>().await;
        }
        Err(StoreError::unavailable("it was taken away by the test"))
    }
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
    async fn open(&self, namespace: &Namespace, codec: &str) -> Result<Opened, StoreError> {
        self.call(|| self.store.open(namespace, codec)).await
    }

    async fn write(
        &self,
        namespace: &Namespace,
        writes: Vec<Write>,
        near: Near,
    ) -> Result<Vec<Written>, StoreError> {
        self.call(|| self.store.write(namespace, writes, near))
            .await
    }

    async fn load(&self, namespace: &Namespace, request: Load) -> Result<Loaded, StoreError> {
        let load = || {
            let is_unloaded = self.lock().unloaded.contains(&request.instance);
            assert!(!is_unloaded, "an id loads after its unload: {request:?}");
            self.store.load(namespace, request)
        };
        self.call(load).await
    }

    async fn fire(&self, namespace: &Namespace, request: Fire) -> Result<FireReport, StoreError> {
        self.call(|| self.store.fire(namespace, request)).await
    }

    async fn settle(
        &self,
        namespace: &Namespace,
        settles: Vec<Settle>,
        near: Near,
    ) -> Result<Vec<Settled>, StoreError> {
        self.call(|| self.store.settle(namespace, settles, near))
            .await
    }

    async fn unload(
        &self,
        namespace: &Namespace,
        instance: InstanceId,
    ) -> Result<InstanceId, StoreError> {
        self.lock().unloaded.insert(instance);
        self.call(|| self.store.unload(namespace, instance)).await
    }

    async fn unmark(
        &self,
        namespace: &Namespace,
        instance: InstanceId,
        versions: Vec<Version>,
    ) -> Result<Vec<Version>, StoreError> {
        self.call(|| self.store.unmark(namespace, instance, versions))
            .await
    }

    async fn get(&self, namespace: &Namespace, key: Vec<u8>) -> Result<Option<Stored>, StoreError> {
        self.call(|| self.store.get(namespace, key)).await
    }

    async fn list(&self, namespace: &Namespace, request: List) -> Result<Vec<Stored>, StoreError> {
        self.call(|| self.store.list(namespace, request)).await
    }

    async fn count(&self, namespace: &Namespace) -> Result<Counts, StoreError> {
        self.call(|| self.store.count(namespace)).await
    }

    async fn purge(&self, namespace: &Namespace) -> Result<Purged, StoreError> {
        self.call(|| self.store.purge(namespace)).await
    }

    async fn hinted(&self, namespace: &Namespace) {
        self.store.hinted(namespace).await;
    }
}
