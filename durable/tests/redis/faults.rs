//! The server and its connections go away and come back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tickwheel_durable::store::{
    Action, Due, Fire, LeftRow, Namespace, Settle, Settled, Settlement, Store, Terms, Write,
    WriteOutcome,
};
use tickwheel_durable::{Claims, DurableTimers, Error, Moved, Redis, builder};
use tokio::time::{sleep, timeout};

use crate::heard::heard_by;
use crate::log::Log;
use crate::server::{Server, until};
use crate::started::started;

const SECOND: Duration = Duration::from_secs(1);
const FAR: Duration = Duration::from_secs(3_600);

pub(crate) async fn start(store: Redis) -> (DurableTimers<String, u64>, Claims<String, u64>) {
    start_within(2 * SECOND, store).await
}

/// With a time limit for each call. Where no call may fail, it is long: the machine may be busy.
pub(crate) async fn start_within(
    limit: Duration,
    store: Redis,
) -> (DurableTimers<String, u64>, Claims<String, u64>) {
    let build = || {
        builder("faults")
            .poll(SECOND / 5)
            .window(2 * SECOND)
            .call_timeout(limit)
            // After a lost answer a fire is delivered after its lease, before these tests give up.
            .lease(10 * SECOND)
    };
    started(build, store).await
}

pub(crate) fn set(key: &str, value: u64, delay: Duration) -> Write {
    Write::new(
        key.into(),
        Action::set(value.to_string().into_bytes(), Due::In(delay), None, false),
    )
}

/// The values that are delivered until all of these have been.
pub(crate) async fn delivered(
    claims: &mut Claims<String, u64>,
    awaited: &BTreeSet<u64>,
) -> BTreeSet<u64> {
    let mut delivered = BTreeSet::new();
    while !delivered.is_superset(awaited) {
        // How long all of them take depends on how many were set, and on the disk.
        let next = timeout(30 * SECOND, claims.recv()).await;
        let Ok(claim) = next else {
            let lost = awaited.difference(&delivered).count();
            panic!("{lost} of {} were lost", awaited.len());
        };
        let claim = claim.expect("the stream goes on");
        delivered.insert(claim.value);
        // It may fail while the server is away: then it is delivered again.
        let _ = claim.ack().await;
    }
    delivered
}

/// Sets a timer until that works. How soon that has to be is up to the test.
pub(crate) async fn set_at_last(timers: &DurableTimers<String, u64>, key: &str, value: u64) {
    let mut last = None;
    let began = Instant::now();
    while began.elapsed() < 60 * SECOND {
        match timers.set_timer(&key.to_owned(), &value, SECOND / 10).await {
            Ok(()) => return,
            Err(error) => {
                let is_expected = matches!(error, Error::Store(_) | Error::Timeout { .. });
                assert!(is_expected, "{error}");
                last = Some(error);
            }
        }
        sleep(SECOND / 10).await;
    }
    panic!("it does not recover: {last:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loses_nothing_when_the_server_is_killed() {
    let Some(mut server) = Server::start(&[]) else {
        return;
    };
    let (timers, mut claims) = start(server.connect().await).await;
    let mut kept = BTreeSet::new();
    for round in 0..3 {
        let setters = (0..16).map(|task| {
            let timers = timers.clone();
            tokio::spawn(async move {
                let mut kept = Vec::new();
                for number in 0..100_000 {
                    let value = (round * 16 + task) * 100_000 + number;
                    let set = timers
                        .set_timer(&value.to_string(), &value, 2 * SECOND)
                        .await;
                    if set.is_err() {
                        break;
                    }
                    kept.push(value);
                }
                kept
            })
        });
        let setters: Vec<_> = setters.collect();
        sleep(SECOND / 2).await;
        server.kill();
        for setter in setters {
            kept.extend(setter.await.expect("it ends"));
        }
        server.run();
    }
    assert!(kept.len() > 100, "{} were set", kept.len());
    set_at_last(&timers, "at last", u64::MAX).await;
    delivered(&mut claims, &kept).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connects_again_when_its_connections_are_cut() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let (claimant, writer) = (server.connect().await, server.connect().await);
    let (_timers, mut claims) = start(claimant).await;
    let (timers, other_claims) = start(writer).await;
    other_claims.shutdown().await;
    for round in 0..5 {
        for kind in ["normal", "pubsub"] {
            server
                .command(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"])
                .await;
        }
        set_at_last(&timers, "timer", round).await;
        delivered(&mut claims, &BTreeSet::from([round])).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hears_hints_again_when_its_connections_are_cut() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let listener = server.connect().await;
    let space = Namespace::new("faults").expect("it is a name");
    // Subscribing counts as one, since it may have missed some.
    let heard = heard_by(Arc::new(listener), &space);
    let listens = timeout(60 * SECOND, heard.notified()).await;
    listens.expect("it subscribes");
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    timeout(5 * SECOND, heard.notified())
        .await
        .expect("it subscribes again");
    let other = server.connect().await;
    other.open(&space, &"json".into()).await.expect("it opens");
    let near = Terms::new(SECOND, None);
    let written = other.write(&space, vec![set("near", 1, SECOND / 2)], near);
    written.await.expect("it is set");
    timeout(5 * SECOND, heard.notified())
        .await
        .expect("it hears");
}

/// Once for each time, however often it tries meanwhile.
#[tokio::test]
async fn listener_that_does_not_connect_is_warned_of_each_time() {
    let Some(mut server) = Server::start(&[]) else {
        return;
    };
    let log = Log::default();
    let _capturing = log.capture();
    let space = Namespace::new("faults").expect("it is a name");
    let heard = heard_by(Arc::new(server.connect().await), &space);
    for times in 1..=2 {
        let listens = timeout(60 * SECOND, heard.notified()).await;
        listens.expect("it listens");
        server.kill();
        let warnings = || log.with(&["WARN", "no hints"]);
        until("it warns", async || warnings() == times).await;
        sleep(SECOND).await;
        assert_eq!(warnings(), times);
        server.run();
    }
}

/// The pause before the listener connects again grows while it fails, and not with each time that
/// it has connected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_are_heard_again_soon_however_often_they_were_cut() {
    /// The pause would be the longest, 5 s, after so many.
    const CUTS: usize = 8;
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let space = Namespace::new("faults").expect("it is a name");
    let heard = heard_by(Arc::new(server.connect().await), &space);
    let mut pauses = Vec::new();
    // Subscribing counts as a hint.
    heard.notified().await;
    for _ in 0..CUTS + 3 {
        let began = Instant::now();
        server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        let again = timeout(60 * SECOND, heard.notified()).await;
        again.expect("it subscribes again");
        pauses.push(began.elapsed());
    }
    // Whichever way the machine is busy, one of the last is quick.
    let quickest = pauses[CUTS..].iter().min().expect("there are some");
    assert!(*quickest < 4 * SECOND, "{pauses:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn makes_its_scripts_known_again_after_a_flush() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let (timers, mut claims) = start(server.connect().await).await;
    for round in 0..5 {
        server.command(&["SCRIPT", "FLUSH"]).await;
        let set = timers.set_timer("timer", &round, SECOND / 10).await;
        set.expect("the caller notices nothing");
        server.command(&["SCRIPT", "FLUSH"]).await;
        delivered(&mut claims, &BTreeSet::from([round])).await;
    }
    assert_eq!(timers.metrics().store_errors, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_the_order_of_calls_that_were_given_up() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let (store, space) = server.open("faults").await;
    let near = Terms::NONE;
    let set = |value| store.write(&space, vec![set("timer", value, FAR)], near);
    set(0).await.expect("it is set");
    server.signal("STOP");
    // The third waits for so long that the connection is given up.
    for (value, limit) in [
        (1, SECOND / 20),
        (2, SECOND / 20),
        (3, 2 * SECOND),
        (4, SECOND / 20),
    ] {
        let set = timeout(limit, set(value)).await;
        assert!(set.is_err(), "the server has stopped");
    }
    let last = async {
        sleep(SECOND / 20).await;
        server.signal("CONT");
    };
    let (written, ()) = tokio::join!(set(5), last);
    written.expect("it is set");
    let rows = store.rows_of(&space, b"timer".to_vec(), 1).await;
    assert_eq!(rows.expect("it reads")[0].value, b"5");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delivers_what_it_has_when_memory_is_full() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let (timers, mut claims) = start(server.connect().await).await;
    let keys: Vec<_> = (0..200)
        .map(|number: u64| (number.to_string(), number))
        .collect();
    let set = keys
        .iter()
        .map(|(key, value)| timers.set_timer(key, value, SECOND));
    for set in join_all(set).await {
        set.expect("there is room");
    }
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let full = timers.set_timer("full", &1_000, SECOND).await;
    let text = full.expect_err("there is no room").to_string();
    assert!(text.contains("its memory is full (maxmemory)"), "{text}");
    assert_eq!(timers.deadline("full").await, Ok(None));
    let moved = timers.move_timer(&keys[0].0, SECOND).await;
    assert_eq!(moved, Ok(Moved::Done));
    // Another instance can come to help.
    let (_other, other_claims) = start(server.connect().await).await;
    other_claims.shutdown().await;
    let values: BTreeSet<_> = keys.iter().map(|(_, value)| *value).collect();
    assert_eq!(delivered(&mut claims, &values).await, values);
    let left = timers.counts().await.expect("it counts");
    assert_eq!((left.waiting, left.in_flight), (0, 0));
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    set_at_last(&timers, "full", 1_000).await;
}

/// On a full server no claim could be left to other instances: the first write of that script took
/// memory, so the server refused it, and with it what was acknowledged in the same batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_are_settled_in_any_way_when_memory_is_full() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let store = server.connect().await;
    let space = Namespace::new("faults").expect("it is a name");
    let opened = store.open(&space, &"json".into()).await.expect("it opens");
    let left = LeftRow::new(opened.instance, Duration::ZERO, FAR);
    let batches = [
        vec![Settlement::Extend(FAR)],
        vec![Settlement::Dead],
        vec![Settlement::RetryAfter(FAR)],
        vec![Settlement::Leave(left)],
        vec![Settlement::Leave(left), Settlement::Ack],
    ];
    let near = Terms::NONE;
    let writes = (0..6).map(|key: u64| set(&key.to_string(), key, Duration::ZERO));
    let written = store.write(&space, writes.collect(), near).await;
    written.expect("there is room");
    let mut fire = Fire::new(Vec::new(), Some(FAR), near);
    (fire.unloaded, fire.by) = (6, Some(opened.instance));
    let fired = store.fire(&space, fire).await.expect("it fires").fired;
    assert_eq!(fired.len(), 6);
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let mut tokens = fired.iter().map(|fired| fired.token);
    for batch in batches {
        let settles = tokens.by_ref().zip(&batch);
        let settles = settles.map(|(token, &how)| Settle::new(token, how));
        let settled = store.settle(&space, settles.collect(), near).await;
        let settled = settled.unwrap_or_else(|error| panic!("{batch:?}: {error}"));
        assert!(!settled.contains(&Settled::Lost), "{batch:?}: {settled:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn says_that_the_server_has_lost_its_data() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let store = server.connect().await;
    let space = Namespace::new("faults").expect("it is a name");
    let before = store.open(&space, &"json".into()).await.expect("it opens");
    let (timers, mut claims) = start(server.connect().await).await;
    server.command(&["FLUSHALL"]).await;
    let lost = store.count(&space).await;
    // An instance that loads may have made the namespace again by now.
    if let Err(error) = lost {
        let text = error.to_string();
        assert!(text.contains("the store has lost its data"), "{text}");
    }
    let after = store.open(&space, &"json".into()).await.expect("it opens");
    assert!(after.instance > before.instance, "versions go on growing");
    set_at_last(&timers, "timer", 2).await;
    delivered(&mut claims, &BTreeSet::from([2])).await;
}

/// Versions follow the clock, so tokens grow also after the server has lost its last writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_grow_after_the_server_has_lost_its_last_writes() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let (store, space) = server.open("faults").await;
    let near = Terms::NONE;
    let version = async || {
        let written = store.write(&space, vec![set("timer", 1, SECOND)], near);
        match written.await.expect("it is set")[0] {
            WriteOutcome::Armed { row, .. } => row.version,
            ref other => panic!("{other:?}"),
        }
    };
    let before = version().await;
    // As after a restart from an old snapshot.
    let old = ["HSET", "tickwheel:{faults}", "sequence", "1000"];
    server.command(&old).await;
    assert!(version().await > before);
}

#[tokio::test]
async fn looks_at_all_namespaces_connect_again() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let store = server.connect().await;
    let cut = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
    server.command(&cut).await;
    until("a list of namespaces", async || {
        store.inspect().namespaces().await.is_ok()
    })
    .await;
}
