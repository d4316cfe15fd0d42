//! The checks of the suite that are about whole instances, on a store that divides each namespace
//! into parts.

use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::store::{
    Answer, BoxFuture, ChangedRows, Charter, Counts, DeadChange, DeadRows, Fire, FireReport,
    Inspect, InstanceId, List, Load, LoadWindow, Loaded, Namespace, Opened, Settle, Settled, Store,
    Stored, Version, Write, WriteOutcome,
};
use tickwheel_durable::{Claims, DurableTimers, Memory, builder};
use tickwheel_durable_conformance::{Pace, Stores};
use tokio::time::sleep;

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

async fn start(memory: &Memory) -> (DurableTimers<String, u64>, Claims<String, u64>) {
    let store = InParts(memory.clone());
    let started = builder("orders").start(&TimerWheel::new(), store).await;
    started.expect("it starts")
}

fn part(name: &str) -> Namespace {
    Namespace::new(name).expect("it is a name")
}

/// A step deletes some hundreds of each part, and the last part may be empty before others.
#[tokio::test(start_paused = true)]
async fn purge_goes_on_until_each_part_is_empty() {
    let memory = Memory::new();
    let (timers, _claims) = start(&memory).await;
    let keys: Vec<_> = (0..3_000).map(|number| number.to_string()).collect();
    let hour = Duration::from_secs(3_600);
    let set = keys.iter().map(|key| (key, &1, hour));
    timers.set_many(set).await.expect("they are set");
    for others in ["orders/1", "orders/2"] {
        while memory.purge(&part(others)).await.expect("it purges").more {}
    }
    let left = timers.counts().await.expect("it counts").waiting;
    assert!(left > 600, "{left} are deleted in one step");
    assert_eq!(timers.admin().purge().await, Ok(left));
    assert_eq!(timers.counts().await.expect("it counts").waiting, 0);
}

/// An amendment that ends in the middle has changed the first parts.
#[tokio::test(start_paused = true)]
async fn instance_differs_where_one_part_does() {
    let memory = Memory::new();
    let (timers, _claims) = start(&memory).await;
    let first = part("orders");
    let charter = memory.inspect().charter(&first).await.expect("it looks");
    let mut charter = charter.expect("it is open");
    assert!(!timers.metrics().differs);
    charter.no_overlap = true;
    let amended = memory.amend(&first, &charter).await;
    amended.expect("it is amended");
    sleep(Duration::from_secs(5)).await;
    assert!(timers.metrics().differs);
}

checks_in_parts! {
    #[tokio::test(start_paused = true)]
    (Parted(Memory::new()), Pace::paused())
}
