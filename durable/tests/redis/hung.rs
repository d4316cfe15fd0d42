//! A server that hangs: it neither answers nor closes its connections.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tickwheel_durable::store::{Namespace, Store, StoreError, Terms};
use tickwheel_durable::{Moved, Redis};
use tokio::time::{sleep, timeout};

use crate::faults::{delivered, set, set_at_last, start};
use crate::heard::heard_by;
use crate::proxy::Proxy;
use crate::server::{Server, connect, until};

const SECOND: Duration = Duration::from_secs(1);
const FAR: Duration = Duration::from_secs(3_600);
/// It waited forever, as for a server without TLS at the end of a `rediss` URL.
#[tokio::test(start_paused = true)]
async fn connect_fails_when_the_server_says_nothing() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("it binds");
    let address = silent.local_addr().expect("it is bound");
    for scheme in ["redis", "rediss"] {
        let connecting = Redis::connect(&format!("{scheme}://{address}")).await;
        let error = connecting.expect_err("it cannot connect");
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
        assert!(format!("{error:#}").contains(&address.to_string()));
    }
}

/// On the store's own connection it waited forever, too.
#[tokio::test]
async fn check_of_durability_fails_when_the_server_hangs() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let store = server.connect().await;
    server.signal("STOP");
    tokio::time::pause();
    let checked = timeout(60 * SECOND, store.check_durability()).await;
    let error = checked.expect("it gives up").expect_err("it hangs");
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
}

/// How far a server has got in the stream of replication. That is not above 0 before a replica has
/// all that came earlier.
async fn replicated(server: &Server, field: &str) -> i64 {
    let offset = server.info("replication", field).await;
    offset.map_or(-1, |offset| offset.parse().expect("it is a number"))
}

/// Running instances never came back: their calls timed out on the old connection, whose peer's
/// kernel acknowledged them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instance_recovers_from_a_primary_that_hangs() {
    let Some(primary) = Server::start(&["--repl-diskless-sync-delay", "0"]) else {
        return;
    };
    let port = primary.port().to_string();
    let replica = Server::start(&["--replicaof", "127.0.0.1", &port]).expect("there is one");
    let proxy = Proxy::start(primary.port()).await;
    let (timers, mut claims) = start(connect(&proxy.url()).await).await;
    let (other, other_claims) = start(connect(&proxy.url()).await).await;
    set_at_last(&timers, "before", 0).await;
    delivered(&mut claims, &BTreeSet::from([0])).await;
    let kept = timers.set_timer("kept", &1, FAR).await;
    kept.expect("it is set");
    let written = replicated(&primary, "master_repl_offset").await;
    let began = Instant::now();
    while replicated(&replica, "slave_repl_offset").await < written {
        assert!(began.elapsed() < 30 * SECOND, "the replica does not follow");
        sleep(SECOND / 20).await;
    }

    primary.signal("STOP");
    replica.command(&["REPLICAOF", "NO", "ONE"]).await;
    proxy.lead_to(replica.port());
    let began = Instant::now();
    for (timers, value) in [(&timers, 2), (&other, 3)] {
        set_at_last(timers, &value.to_string(), value).await;
    }
    println!("works again after {:?}", began.elapsed());
    let moved = timers.move_timer("kept", SECOND / 10).await;
    assert_eq!(moved, Ok(Moved::Done));
    // The old primary wakes up with calls in its sockets. No instance listens to it any more.
    primary.signal("CONT");
    let mut all = BTreeSet::new();
    let claimed = async {
        let mut claims = [claims, other_claims];
        while all.len() < 3 {
            for claims in &mut claims {
                if let Ok(Some(claim)) = timeout(SECOND / 10, claims.recv()).await {
                    claim.ack().await.expect("it is held");
                    all.insert(claim.value);
                }
            }
        }
    };
    let claimed = timeout(30 * SECOND, claimed).await;
    assert!(claimed.is_ok(), "only {all:?} were delivered");
    assert_eq!(all, BTreeSet::from([1, 2, 3]));
}

/// The server that takes an old one's place, a namespace on both, a proxy that leads to the old one
/// yet, and stores on the proxy and on the new server.
async fn succeeded(old: &Server, namespace: &str) -> (Server, Namespace, Proxy, [Redis; 2]) {
    let new = Server::start(&[]).expect("there is one");
    let space = Namespace::new(namespace).expect("it is a name");
    let proxy = Proxy::start(old.port()).await;
    let stores = [connect(&proxy.url()).await, new.connect().await];
    for store in &stores {
        store.open(&space, &"json".into()).await.expect("it opens");
    }
    (new, space, proxy, stores)
}

/// A server that serves as a replica from now on goes on to answer, and refuses each write. The
/// store leaves it for the one that has its address now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_has_become_a_replica_is_left() {
    let Some(old) = Server::start(&[]) else {
        return;
    };
    let (new, space, proxy, [store, on_new]) = succeeded(&old, "left").await;
    let set = |value| store.write(&space, vec![set("timer", value, FAR)], Terms::NONE);
    set(1).await.expect("it is set");
    let rows = on_new.rows_of(&space, b"timer".to_vec(), 1).await;
    assert_eq!(rows, Ok(Vec::new()));
    proxy.lead_to(new.port());
    let port = new.port().to_string();
    old.command(&["REPLICAOF", "127.0.0.1", &port]).await;
    until("it writes again", async || set(2).await.is_ok()).await;
    let rows = on_new.rows_of(&space, b"timer".to_vec(), 1).await;
    assert_eq!(rows.expect("it reads")[0].value, b"2");
}

/// The subscription of a listener to a server that hangs has nothing to say, and does not fail. It
/// goes with the connection of the calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_are_heard_again_when_their_server_hangs() {
    let Some(old) = Server::start(&[]) else {
        return;
    };
    let (new, space, proxy, [store, other]) = succeeded(&old, "hints").await;
    let store = Arc::new(store);
    let hints = heard_by(Arc::clone(&store), &space);
    let heard = async |what: &str| {
        let hinted = timeout(20 * SECOND, hints.notified()).await;
        hinted.unwrap_or_else(|_| panic!("{what}"));
    };
    heard("subscribing counts as a hint").await;
    old.signal("STOP");
    proxy.lead_to(new.port());
    let silent = timeout(3 * SECOND / 2, store.count(&space)).await;
    assert!(silent.is_err(), "it hangs");
    heard("it subscribes again").await;
    let near = Terms::new(SECOND, None);
    let written = other.write(&space, vec![set("near", 1, SECOND / 2)], near);
    written.await.expect("it is set");
    heard("the other one is on the new server").await;
}

/// A call that was given up with its connection must not happen after later ones, whenever its
/// bytes arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_call_of_a_given_up_connection_changes_nothing() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let proxy = Proxy::start(server.port()).await;
    let store = connect(&proxy.url()).await;
    let space = Namespace::new("hung").expect("it is a name");
    store.open(&space, &"json".into()).await.expect("it opens");
    let set = |value| store.write(&space, vec![set("timer", value, FAR)], Terms::NONE);
    let value = async || {
        let rows = store.rows_of(&space, b"timer".to_vec(), 1).await;
        rows.expect("it reads").remove(0).value
    };
    set(1).await.expect("it is set");
    // Twice: the second time the server knows an epoch of this store.
    for round in 0..2_u64 {
        let held = proxy.hold();
        let late = timeout(3 * SECOND / 2, set(100)).await;
        assert!(late.is_err(), "it is held back");
        let answers = proxy.late_answers();
        let later = timeout(10 * SECOND, set(round)).await;
        later.expect("it has a new connection").expect("it is set");
        held.send_replace(false);
        let began = Instant::now();
        while proxy.late_answers() == answers {
            assert!(began.elapsed() < 20 * SECOND, "the late call has no answer");
            sleep(SECOND / 100).await;
        }
        assert_eq!(value().await, round.to_string().into_bytes());
    }
    set(7).await.expect("the connection is good");
    assert_eq!(value().await, b"7");
}

/// A call that had timed out overwrote a later one of another instance, whenever its bytes arrived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_write_does_not_replace_one_of_another_instance() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let proxy = Proxy::start(server.port()).await;
    let (store, other) = (connect(&proxy.url()).await, server.connect().await);
    let space = Namespace::new("late").expect("it is a name");
    for store in [&store, &other] {
        store.open(&space, &"json".into()).await.expect("it opens");
    }
    let now = store.count(&space).await.expect("it counts").now;
    let limit = Terms::NONE.until(now.after(SECOND / 2));
    let held = proxy.hold();
    let late = store.write(&space, vec![set("timer", 1, FAR)], limit);
    assert!(timeout(SECOND / 2, late).await.is_err(), "it is held back");
    let later = other
        .write(&space, vec![set("timer", 2, FAR)], Terms::NONE)
        .await;
    later.expect("it is set");
    let answers = proxy.late_answers();
    held.send_replace(false);
    let began = Instant::now();
    while proxy.late_answers() == answers {
        assert!(began.elapsed() < 20 * SECOND, "the late call has no answer");
        sleep(SECOND / 100).await;
    }
    let rows = other.rows_of(&space, b"timer".to_vec(), 1).await;
    assert_eq!(rows.expect("it reads")[0].value, b"2");
}
