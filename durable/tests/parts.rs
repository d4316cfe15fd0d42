//! The checks of the suite that are about whole instances, on a store that divides each namespace
//! into parts.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use tickwheel::TimerWheel;
use tickwheel_durable::store::{
    Answer, BoxFuture, ChangedRows, Charter, Counts, DeadChange, DeadRows, Fire, FireReport,
    Inspect, InstanceId, List, Load, Loaded, Namespace, Opened, Settle, Settled, State, Store,
    Stored, Terms, Version, Write, WriteOutcome,
};
use tickwheel_durable::{Change, Claims, DurableTimers, Entry, Memory, Retry, builder};
use tickwheel_durable_conformance::{FaultPoint, Faulty, Pace, Stores};
use tokio::time::{sleep, timeout};

#[macro_use]
#[path = "support/parts.rs"]
mod parts;
#[macro_use]
#[path = "support/pass_on.rs"]
mod pass_on;

/// A store for each part. All may be the same one.
struct InParts([Memory; 3]);

impl InParts {
    fn all_in(memory: &Memory) -> Self {
        InParts([(); 3].map(|()| memory.clone()))
    }

    fn of(&self, namespace: &Namespace) -> &Memory {
        let part = namespace.as_str().split_once('/');
        &self.0[part.map_or(0, |(_, number)| number.parse().expect("it is a number"))]
    }
}

impl Store for InParts {
    pass_on!(of);

    /// For tests with one store for all parts.
    fn inspect(&self) -> &dyn Inspect {
        self.0[0].inspect()
    }

    fn parts(&self) -> usize {
        3
    }

    fn load(&self, namespace: &Namespace, request: Load) -> Answer<'_, Loaded> {
        self.of(namespace).load(namespace, request)
    }

    fn fire(&self, namespace: &Namespace, request: Fire) -> Answer<'_, FireReport> {
        self.of(namespace).fire(namespace, request)
    }
}

struct Parted(Memory);

impl Stores for Parted {
    type Store = InParts;

    async fn connect(&self) -> InParts {
        InParts::all_in(&self.0)
    }
}

type Instance = (DurableTimers<String, u64>, Claims<String, u64>);

async fn start(memory: &Memory) -> Instance {
    start_on(InParts::all_in(memory)).await
}

async fn start_on(store: InParts) -> Instance {
    let started = builder("orders").start(&TimerWheel::new(), store).await;
    started.expect("it starts")
}

const HOUR: Duration = Duration::from_secs(3_600);

/// The parts of the namespace.
const PARTS: [&str; 3] = ["orders", "orders/1", "orders/2"];

fn part(name: &str) -> Namespace {
    Namespace::new(name).expect("it is a name")
}

/// Sets so many timers, due after an hour, and returns their keys.
async fn set_numbered(timers: &DurableTimers<String, u64>, count: usize) -> BTreeSet<String> {
    let keys: BTreeSet<_> = (0..count).map(|number| number.to_string()).collect();
    let set = keys.iter().map(|key| (key, &1, HOUR));
    timers.set_many(set).await.expect("they are set");
    keys
}

/// Sees that a list has each key once.
fn assert_all_once(listed: Vec<Entry<String, u64>>, keys: &BTreeSet<String>) {
    assert_eq!(listed.len(), keys.len());
    let listed = listed.into_iter();
    let listed: BTreeSet<_> = listed.map(|entry| entry.key.expect("it decodes")).collect();
    assert_eq!(listed, *keys);
}

/// A step deletes some hundreds of each part, and the last part may be empty before others.
#[tokio::test(start_paused = true)]
async fn purge_goes_on_until_each_part_is_empty() {
    let memory = Memory::new();
    let (timers, _claims) = start(&memory).await;
    set_numbered(&timers, 3_000).await;
    for others in &PARTS[1..] {
        while memory.purge(&part(others)).await.expect("it purges").more {}
    }
    let left = timers.counts().await.expect("it counts").waiting;
    assert!(left > 600, "{left} are deleted in one step");
    assert_eq!(timers.admin().purge().await, Ok(left));
    assert_eq!(timers.counts().await.expect("it counts").waiting, 0);
}

/// Rows of one call have the same deadline, and each part has versions of its own.
#[tokio::test(start_paused = true)]
async fn pages_of_a_list_leave_out_no_row_with_the_deadline_and_version_of_another() {
    let now = SystemTime::now();
    let parts = [(); 3].map(|()| Memory::new());
    for memory in &parts {
        memory.set_clock(now);
    }
    let (timers, _claims) = start_on(InParts(parts.clone())).await;
    let keys = set_numbered(&timers, 60).await;
    let mut places = BTreeSet::new();
    for (memory, name) in parts.iter().zip(PARTS) {
        let all = List::new(State::Waiting, None, 100);
        let rows = memory.list(&part(name), all).await;
        let rows = rows.expect("it lists").into_iter();
        places.extend(rows.map(|row| (row.due, row.version)));
    }
    assert!(places.len() < 50, "{} of 60 rows differ", places.len());
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = timers.admin().pending(after, 7).await.expect("it lists");
        let Some(last) = page.last() else { break };
        after = Some(last.position());
        listed.extend(page);
        assert!(listed.len() <= 60, "rows come again");
    }
    assert_all_once(listed, &keys);
}

#[tokio::test(start_paused = true)]
async fn operator_sees_and_changes_the_timers_of_all_parts() {
    let memory = Memory::new();
    let (timers, mut claims) = start(&memory).await;
    let keys = set_numbered(&timers, 60).await;
    let admin = timers.admin();
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = admin.with_prefix(State::Waiting, "", after, 7).await;
        let (page, next) = page.expect("it lists");
        assert!(page.len() <= 7, "{} on a page", page.len());
        listed.extend(page);
        assert!(listed.len() <= 60, "rows come again");
        let Some(next) = next else { break };
        after = Some(next);
    }
    assert_all_once(listed, &keys);
    let now = SystemTime::from(timers.counts().await.expect("it counts").now);
    assert_eq!(admin.count_due(&[now, now + 2 * HOUR]).await, Ok(vec![60]));
    // One of each part.
    let members = admin.instances().await.expect("it looks");
    let own = members.iter().filter(|member| member.is_own).count();
    assert_eq!((members.len(), own), (3, 3));

    let run = admin.change_prefix("", Change::Run).await;
    assert_eq!(run.map(|changed| changed.rows), Ok(60));
    for _ in 0..60 {
        let claim = timeout(HOUR / 2, claims.recv()).await;
        let claim = claim.expect("it is due").expect("the stream goes on");
        let failed = claim.fail(Retry::never("why")).await;
        failed.expect("it is held");
    }
    assert_eq!(admin.retry_all_dead().await, Ok(60));
    let counts = timers.counts().await.expect("it counts");
    assert_eq!((counts.waiting, counts.dead), (60, 0));

    let mut charter = admin.charter().await.expect("it looks");
    charter.no_overlap = true;
    admin.amend(&charter).await.expect("it is amended");
    for name in PARTS {
        let amended = memory.inspect().charter(&part(name)).await;
        assert_eq!(amended, Ok(Some(charter.clone())), "{name}");
    }
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
    assert!(timers.metrics().failing.load, "though the last one loads");
}

/// What it had amended when it failed is put back, also where its answer was lost.
#[tokio::test(start_paused = true)]
async fn amendment_that_fails_leaves_each_part_as_it_was() {
    for lost in 0..PARTS.len() as u64 {
        let memory = Memory::new();
        let store = Faulty::new(InParts::all_in(&memory));
        let instance = builder::<String, u64>("orders");
        let started = instance.start(&TimerWheel::new(), store.clone()).await;
        let (timers, claims) = started.expect("it starts");
        claims.shutdown().await;
        let was = timers.admin().charter().await.expect("it looks");
        let mut charter = was.clone();
        charter.no_overlap = true;
        store.fail_at(store.calls() + lost, FaultPoint::After);
        let amended = timers.admin().amend(&charter).await;
        assert!(store.has_struck() && amended.is_err(), "{amended:?}");
        for name in PARTS {
            let left = memory.inspect().charter(&part(name)).await;
            assert_eq!(left, Ok(Some(was.clone())), "{name}, {lost}");
        }
    }
}

/// An amendment that had ended in the middle kept every instance from starting.
#[tokio::test(start_paused = true)]
async fn instance_that_agrees_with_the_first_part_ends_an_amendment() {
    let memory = Memory::new();
    let (timers, claims) = start(&memory).await;
    let mut charter = timers.admin().charter().await.expect("it looks");
    charter.no_overlap = true;
    let amended = memory.amend(&part("orders"), &charter).await;
    amended.expect("it is amended");
    drop((timers, claims));
    let wheel = TimerWheel::new();
    let former = builder::<String, u64>("orders").start(&wheel, InParts::all_in(&memory));
    former.await.expect_err("the first part is another");
    let next = builder::<String, u64>("orders").no_overlap();
    let next = next.start(&wheel, InParts::all_in(&memory)).await;
    next.expect("it starts");
    for name in PARTS {
        let amended = memory.inspect().charter(&part(name)).await;
        assert_eq!(amended, Ok(Some(charter.clone())), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn parts_share_the_capacity() {
    let memory = Memory::new();
    let wheel = TimerWheel::new();
    let instance = builder::<String, u64>("orders").capacity(7);
    let instance = instance.lease(24 * HOUR);
    let started = instance.start(&wheel, InParts::all_in(&memory)).await;
    let (timers, mut claims) = started.expect("it starts");
    for number in 0..30 {
        let key = number.to_string();
        let set = timers.set_timer(&key, &number, Duration::ZERO).await;
        set.expect("it is set");
    }
    let mut handled = 0;
    while handled < 30 {
        let mut held = Vec::new();
        while let Ok(claim) = timeout(HOUR / 60, claims.recv()).await {
            held.push(claim.expect("the stream goes on"));
            assert!(held.len() <= 7, "{}", held.len());
        }
        assert_eq!(timers.metrics().unsettled, held.len());
        // Those of all parts together, while each has some left.
        assert!(handled > 0 || held.len() == 7, "{}", held.len());
        handled += held.len();
        for claim in held {
            claim.ack().await.expect("it is held");
        }
    }
    let counts = timers.counts().await.expect("it counts");
    assert_eq!((counts.waiting, counts.in_flight), (0, 0));
}

checks_in_parts! {
    #[tokio::test(start_paused = true)]
    (Parted(Memory::new()), Pace::paused())
}
