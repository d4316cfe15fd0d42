//! What a store in memory has, for the tests of what an operator sees and changes.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tickwheel_durable::Memory;
use tickwheel_durable::store::{
    Action, Due, Fire, Namespace, Settle, Settlement, Store as _, Terms, Version, Write,
    WriteOutcome,
};
use tickwheel_durable_conformance::Faulty;

use crate::operator::{Operator, StoreAccess};

const HOUR: Duration = Duration::from_secs(3_600);

/// Timers of a store in memory, and what is logged.
pub(crate) struct Case {
    pub(crate) memory: Memory,
    pub(crate) store: Faulty<Memory>,
    space: Namespace,
    pub(crate) operator: Operator,
    pub(crate) logged: Arc<Mutex<Vec<String>>>,
}

impl Case {
    pub(crate) async fn new() -> Self {
        let memory = Memory::new();
        let store = Faulty::new(memory.clone());
        let space = Namespace::new("orders").expect("it is a name");
        let opened = store.open(&space, &"json".into()).await;
        opened.expect("it opens");
        let mut access = StoreAccess::new(Box::new(store.clone()), Duration::from_secs(5));
        let logged = Arc::<Mutex<Vec<String>>>::default();
        access.log = Arc::new({
            let logged = Arc::clone(&logged);
            move |line| logged.lock().expect("it is sound").push(line.to_owned())
        });
        let found = access.operators(Some(&space)).await.expect("it lists");
        let operator = found[0].clone();
        Case {
            memory,
            store,
            space,
            operator,
            logged,
        }
    }

    /// Sets timers with keys that begin with `order `.
    pub(crate) async fn set(&self, numbers: Range<usize>, due: Duration) -> Vec<Version> {
        let keys = numbers.map(|number| format!("\"order {number}\"").into_bytes());
        self.set_keys(keys, due).await
    }

    pub(crate) async fn set_keys(
        &self,
        keys: impl IntoIterator<Item = Vec<u8>>,
        due: Duration,
    ) -> Vec<Version> {
        let writes = keys.into_iter().map(|key| {
            let set = Action::set(b"1".to_vec(), Due::In(due), None, false);
            Write::new(key, set)
        });
        let written = self.store.write(&self.space, writes.collect(), Terms::NONE);
        let written = written.await.expect("it writes");
        let versions = written.iter().map(|written| match written {
            WriteOutcome::Armed { row, .. } => row.version,
            other => panic!("{other:?}"),
        });
        versions.collect()
    }

    /// Fires so many timers. Returns their tokens.
    pub(crate) async fn in_flight(&self, numbers: Range<usize>) -> Vec<Version> {
        let versions = self.set(numbers, Duration::ZERO).await;
        self.fire(versions).await
    }

    /// Fires timers that are due. Returns their tokens.
    pub(crate) async fn fire(&self, versions: Vec<Version>) -> Vec<Version> {
        let fire = Fire::new(versions, Some(HOUR), Terms::NONE);
        let fired = self.store.fire(&self.space, fire).await.expect("it fires");
        fired.fired.iter().map(|fired| fired.token).collect()
    }

    /// Makes claims dead, with this error.
    pub(crate) async fn die(&self, tokens: Vec<Version>, error: &str) {
        let settles = tokens.into_iter().map(|token| {
            let mut settle = Settle::new(token, Settlement::Dead);
            settle.error = Some(error.to_owned());
            settle
        });
        let settles = settles.collect();
        let settled = self.store.settle(&self.space, settles, Terms::NONE);
        settled.await.expect("it settles");
    }
}
