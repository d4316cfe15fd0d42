//! Namespaces that are spread over the nodes of a cluster.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use redis::from_redis_value;
use tickwheel::TimerWheel;
use tickwheel_durable::store::{Namespace, Store};
use tickwheel_durable::{Claims, DurableTimers, Redis, builder};
use tickwheel_durable_conformance::{Pace, Stores};
use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout};

use crate::cluster::{Cluster, PRIMARIES, survives_moves};
use crate::failover::{Servers, until_primary};
use crate::faults::{delivered, set_at_last, start};
use crate::server::connect;
use crate::started::{started, try_start};

const SECOND: Duration = Duration::from_secs(1);

/// With six parts each of three nodes has some.
const PARTS: usize = 6;

/// The cluster that checks of the suite share.
struct Shared(String);

impl Stores for Shared {
    type Store = Redis;

    async fn connect(&self) -> Redis {
        connect(&self.0).await.spread(3)
    }
}

async fn shared() -> Option<Shared> {
    static SHARED: OnceCell<Option<Cluster>> = OnceCell::const_new();
    let cluster = SHARED.get_or_init(|| Cluster::start_with(0)).await;
    Some(Shared(cluster.as_ref()?.url()))
}

checks_in_parts! {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    (match shared().await {
        Some(shared) => shared,
        None => return,
    }, Pace::default())
}

/// The key of a part of the namespace.
fn key_of(part: usize) -> String {
    match part {
        0 => "tickwheel:{faults}".to_owned(),
        part => format!("tickwheel:{{faults/{part}}}"),
    }
}

/// The nodes of the parts, in their order.
async fn nodes_of_parts(cluster: &Cluster) -> Vec<usize> {
    let mut nodes = Vec::new();
    for part in 0..PARTS {
        let slot = cluster.slot_of(&key_of(part)).await;
        nodes.push(cluster.owner_of(slot).await);
    }
    nodes
}

/// The timers of a node, by their values, which are their keys.
async fn timers_on(cluster: &Cluster, node: usize, nodes: &[usize]) -> BTreeSet<u64> {
    let mut timers = BTreeSet::new();
    for part in (0..PARTS).filter(|&part| nodes[part] == node) {
        for bucket in 0..16 {
            let keys = format!("{}:keys:{bucket:x}", key_of(part));
            let keys = cluster.nodes()[node].command(&["HKEYS", &keys]).await;
            let keys: Vec<String> = from_redis_value(keys).expect("they are texts");
            let numbers = keys.iter().map(|key| key.trim_matches('"').parse::<u64>());
            timers.extend(numbers.map(|number| number.expect("it is a number")));
        }
    }
    timers
}

async fn set_all(timers: &DurableTimers<String, u64>, values: &BTreeSet<u64>, delay: Duration) {
    for value in values {
        let set = timers.set_timer(&value.to_string(), value, delay).await;
        set.expect("it is set");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_stream_has_the_timers_of_all_nodes() {
    for count in 1..=PRIMARIES {
        let Some(cluster) = Cluster::start_of(count, 0).await else {
            return;
        };
        let nodes = nodes_of_parts(&cluster).await;
        let (timers, mut claims) = start(connect(&cluster.url()).await.spread(PARTS)).await;
        let (other, mut other_claims) = start(connect(&cluster.url()).await.spread(PARTS)).await;
        let values: BTreeSet<u64> = (0..240).collect();
        set_all(&timers, &values, 2 * SECOND).await;
        let mut found = BTreeSet::new();
        for node in 0..count {
            let on_node = timers_on(&cluster, node, &nodes).await;
            assert!(on_node.len() > 20, "{on_node:?} on node {node} of {count}");
            found.extend(on_node);
        }
        assert_eq!(found, values);
        // To an operator each part is a namespace.
        let store = connect(&cluster.url()).await;
        let namespaces = store.inspect().namespaces().await.expect("it lists");
        let names: BTreeSet<_> = namespaces.iter().map(|found| found.name.as_str()).collect();
        assert_eq!(names.len(), PARTS);
        assert!(names.contains("faults") && names.contains("faults/5"));
        let first = Namespace::new("faults").expect("it is a name");
        let counts = store.count(&first).await.expect("it counts");
        assert!((1..200).contains(&counts.waiting), "{counts:?}");
        let moved = other.move_timer("7", SECOND * 3_600).await;
        assert!(moved.is_ok(), "{moved:?}");
        let mut left = values;
        left.remove(&7);
        while !left.is_empty() {
            let claim = tokio::select! {
                claim = claims.recv() => claim,
                claim = other_claims.recv() => claim,
                () = sleep(20 * SECOND) => panic!("{left:?} are not delivered"),
            };
            let claim = claim.expect("the stream goes on");
            assert!(left.remove(&claim.value), "{claim:?} is delivered twice");
            claim.ack().await.expect("it is held");
        }
        let counts = other.counts().await.expect("they count");
        assert_eq!((counts.waiting, counts.in_flight), (1, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_of_all_parts_come_by_deadline() {
    let Some(shared) = shared().await else {
        return;
    };
    let store = connect(&shared.0).await.spread(PARTS);
    let (timers, mut claims) = started(|| builder("in-order"), store).await;
    for number in (1..=8).rev() {
        let delay = SECOND / 2 * u32::try_from(number).expect("it is small");
        let key = number.to_string();
        let set = timers.set_timer(&key, &number, delay);
        set.await.expect("it is set");
    }
    for number in 1..=8 {
        let claim = claims.recv().await.expect("the stream goes on");
        assert_eq!(claim.value, number, "{claim:?}");
        claim.ack().await.expect("it is held");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_number_of_parts_is_refused() {
    let Some(shared) = shared().await else {
        return;
    };
    assert_eq!(connect(&shared.0).await.spread(0).parts(), 1);
    let (timers, _claims) = start(connect(&shared.0).await.spread(PARTS)).await;
    for parts in [1, PARTS - 1, PARTS + 1] {
        let store = connect(&shared.0).await.spread(parts);
        let started = try_start(|| builder("faults"), store);
        let error = format!("{:#}", started.await.expect_err("the number differs"));
        let says = format!("parts = {PARTS} in its charter");
        assert!(error.contains(&says), "{error}");
    }
    let mut charter = timers.admin().charter().await.expect("there is one");
    charter.parts = 4;
    let error = timers.admin().amend(&charter).await;
    let error = error.expect_err("the number never changes");
    assert!(error.to_string().contains("which never change"), "{error}");
    let part = connect(&shared.0).await.spread(PARTS);
    let started = try_start(|| builder("faults/1"), part);
    let error = started.await.expect_err("it is a part of another one");
    assert!(error.to_string().contains("faults/1"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_move_between_nodes_under_load() {
    let keys: Vec<_> = (0..PARTS).map(key_of).collect();
    survives_moves(PARTS, &keys).await;
}

/// Sets timers for half a second ahead, and sees them delivered. Returns how long that takes: it is
/// the control too, before the fault.
async fn delivered_soon(
    timers: &DurableTimers<String, u64>,
    claims: &mut Claims<String, u64>,
    numbers: &BTreeSet<u64>,
) -> Duration {
    let began = Instant::now();
    set_all(timers, numbers, SECOND / 2).await;
    delivered(claims, numbers).await;
    began.elapsed()
}

/// Sets timers of parts on other nodes, and sees them delivered within seconds: if each of their
/// calls waited for a node that hangs, it would take longer.
async fn others_go_on(
    timers: &DurableTimers<String, u64>,
    claims: &mut Claims<String, u64>,
    others: &BTreeSet<u64>,
    control: Duration,
) {
    let took = delivered_soon(timers, claims, others).await;
    assert!(
        took < 10 * SECOND + 8 * control,
        "{took:?}, without a fault {control:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_parts_go_on_while_a_node_hangs() {
    let Some(cluster) = Cluster::start_with(0).await else {
        return;
    };
    let nodes = nodes_of_parts(&cluster).await;
    let (timers, mut claims) = start(connect(&cluster.url()).await.spread(PARTS)).await;
    let all: BTreeSet<u64> = (0..60).collect();
    let control = delivered_soon(&timers, &mut claims, &all).await;
    set_all(&timers, &all, 3 * SECOND + control).await;
    let hung = nodes[0];
    let of_hung = timers_on(&cluster, hung, &nodes).await;
    let others: BTreeSet<u64> = all.difference(&of_hung).copied().collect();
    assert!(!others.is_empty() && !of_hung.is_empty());
    cluster.nodes()[hung].signal("STOP");
    let began = Instant::now();
    delivered(&mut claims, &others).await;
    let took = began.elapsed();
    assert!(
        took < 13 * SECOND + 8 * control,
        "{took:?}, without a fault {control:?}"
    );
    others_go_on(&timers, &mut claims, &others, control).await;
    let one = *of_hung.first().expect("there are some");
    let set = timers.set_timer(&one.to_string(), &one, SECOND).await;
    assert!(set.is_err(), "its node hangs");
    // What needs all parts fails.
    assert!(timers.counts().await.is_err());
    assert!(timers.admin().pending(None, 10).await.is_err());
    let store = connect(&cluster.url()).await.spread(PARTS);
    let wheel = TimerWheel::new();
    let started = builder::<String, u64>("faults").start(&wheel, store);
    assert!(started.await.is_err(), "it starts with all parts only");
    cluster.nodes()[hung].signal("CONT");
    delivered(&mut claims, &of_hung).await;
    let stray = timeout(SECOND, claims.recv()).await;
    // One that fired while its node hung may come once more.
    assert!(
        stray.as_ref().is_err()
            || stray.is_ok_and(|claim| claim.is_some_and(|claim| claim.attempt > 1)),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_parts_go_on_while_a_primary_is_replaced() {
    let Some(mut cluster) = Cluster::start().await else {
        return;
    };
    let nodes = nodes_of_parts(&cluster).await;
    let (timers, mut claims) = start(connect(&cluster.url()).await.spread(PARTS)).await;
    let all: BTreeSet<u64> = (0..60).collect();
    let control = delivered_soon(&timers, &mut claims, &all).await;
    set_all(&timers, &all, SECOND * 3_600).await;
    let old = until_primary(&cluster, None).await;
    let of_old = timers_on(&cluster, old, &nodes).await;
    let others: BTreeSet<u64> = all.difference(&of_old).copied().collect();
    assert!(!others.is_empty() && !of_old.is_empty());
    // The replicas of the first node have what it has.
    sleep(SECOND).await;
    // None of them takes over before the other parts have gone on.
    let is_replica = |node: &usize| !nodes.contains(node);
    let replicas: Vec<usize> = (0..cluster.nodes().len()).filter(is_replica).collect();
    for &replica in &replicas {
        let replica = &cluster.nodes()[replica];
        let any_time = ["CONFIG", "SET", "cluster-replica-validity-factor", "0"];
        replica.command(&any_time).await;
        replica.signal("STOP");
    }
    cluster.servers()[old].kill();
    others_go_on(&timers, &mut claims, &others, control).await;
    for replica in replicas {
        cluster.nodes()[replica].signal("CONT");
    }
    until_primary(&cluster, Some(old)).await;
    for value in &of_old {
        set_at_last(&timers, &value.to_string(), *value).await;
    }
    delivered(&mut claims, &of_old).await;
    let counts = timers.counts().await.expect("they count");
    assert_eq!(counts.waiting, 0);
}
