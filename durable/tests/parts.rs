//! The checks of the suite that are about whole instances, on a store that divides each namespace
//! into parts.

use tickwheel_durable::Memory;
use tickwheel_durable::store::{
    Answer, BoxFuture, ChangedRows, Charter, Counts, DeadChange, DeadRows, Fire, FireReport,
    Inspect, InstanceId, List, Load, LoadWindow, Loaded, Namespace, Opened, Settle, Settled, Store,
    Stored, Version, Write, WriteOutcome,
};
use tickwheel_durable_conformance::{Pace, Stores};

#[macro_use]
#[path = "support/parts.rs"]
mod parts;
#[macro_use]
#[path = "support/pass_on.rs"]
mod pass_on;

struct InParts(Memory);

impl Store for InParts {
    pass_on!(0);

    fn parts(&self) -> usize {
        3
    }

    fn load<'a>(&'a self, namespace: &'a Namespace, request: Load) -> Answer<'a, Loaded> {
        self.0.load(namespace, request)
    }

    fn fire<'a>(&'a self, namespace: &'a Namespace, request: Fire) -> Answer<'a, FireReport> {
        self.0.fire(namespace, request)
    }
}

struct Parted(Memory);

impl Stores for Parted {
    type Store = InParts;

    async fn connect(&self) -> InParts {
        InParts(self.0.clone())
    }
}

checks_in_parts! {
    #[tokio::test(start_paused = true)]
    (Parted(Memory::new()), Pace::paused())
}
