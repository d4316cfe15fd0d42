//! Hints: every call that leaves a near row unloaded notifies the other instances, long before they
//! poll.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tickwheel::TimerWheel;
use tickwheel_durable::store::{
    Action, Due, Fire, FireReport, InstanceId, Load, Namespace, Settle, Settlement, Store, Terms,
    Version, Write, WriteOutcome,
};
use tickwheel_durable::{Postgres, builder};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::heard::heard_by;
use super::log::Log;
use super::proxy::Proxy;
use super::server::{Server, client, database, missing};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const FAR: Due = Due::In(HOUR);
const SOON: Due = Due::In(SECOND);

/// Rows due within a minute are near, and the instance that writes loads none.
const NEAR: Terms = Terms::new(Duration::from_secs(60), None);

fn set(due: Due, if_absent: bool) -> Action {
    Action::set(b"1".to_vec(), due, None, if_absent)
}

/// Two stores, as in two processes: one writes, the other waits for hints.
struct Case {
    url: String,
    space: Namespace,
    writer: Postgres,
    listener: Postgres,
    /// Notified of the hints that the listener hears.
    heard: Arc<Notify>,
}

impl Case {
    async fn open(name: &str) -> Option<Self> {
        let url = database(name).await?;
        let space = Namespace::new(name).expect("it is a name");
        let writer = Postgres::connect(&url).await.expect("it connects");
        let listener = Postgres::connect(&url).await.expect("it connects");
        for store in [&writer, &listener] {
            store.open(&space, &"json".into()).await.expect("it opens");
        }
        let heard = heard_by(Arc::new(listener.clone()), &space);
        Some(Case {
            url,
            space,
            writer,
            listener,
            heard,
        })
    }

    async fn instance(&self) -> InstanceId {
        let opened = self.writer.open(&self.space, &"json".into()).await;
        opened.expect("it opens").instance
    }

    /// Takes the hints that there are.
    async fn quiet(&self) {
        self.quiet_for(SECOND).await;
    }

    async fn quiet_for(&self, time: Duration) {
        while self.is_hinted(time).await {}
    }

    async fn is_hinted(&self, within: Duration) -> bool {
        timeout(within, self.heard.notified()).await.is_ok()
    }

    async fn sees_a_hint(&self, of: &str) {
        assert!(self.is_hinted(10 * SECOND).await, "no hint of {of}");
    }

    async fn write(&self, key: &str, action: Action) -> Version {
        let key = key.into();
        let writes = vec![Write::new(key, action)];
        let written = self.writer.write(&self.space, writes, NEAR).await;
        match written.expect("it writes")[0] {
            WriteOutcome::Armed { row, .. } => row.version,
            ref other => panic!("{other:?}"),
        }
    }

    async fn fire(&self, version: Version) -> FireReport {
        let fire = Fire::new(vec![version], Some(HOUR), NEAR);
        let fired = self.writer.fire(&self.space, fire).await;
        fired.expect("it fires")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn near_rows_that_no_instance_loads_are_hinted() {
    let Some(case) = Case::open("hints").await else {
        return missing();
    };
    // From here on it listens.
    case.sees_a_hint("the beginning").await;
    case.quiet().await;

    case.write("set", set(SOON, false)).await;
    case.sees_a_hint("a set").await;
    case.write("if_absent", set(SOON, true)).await;
    case.sees_a_hint("a set if absent").await;
    case.write("moved", set(FAR, false)).await;
    assert!(!case.is_hinted(SECOND / 2).await, "far rows are not hinted");
    case.write("moved", Action::move_to(SOON)).await;
    case.sees_a_hint("a move").await;

    let due = Due::In(Duration::ZERO);
    let version = case.write("released", set(due, false)).await;
    case.quiet().await;
    let token = case.fire(version).await.fired[0].token;
    let settles = vec![Settle::new(token, Settlement::Release)];
    let settled = case.writer.settle(&case.space, settles, NEAR).await;
    settled.expect("it settles");
    case.sees_a_hint("a release").await;

    let repeats = Action::set(Vec::new(), due, Some(SECOND), false);
    let version = case.write("repeats", repeats).await;
    case.quiet().await;
    assert_eq!(case.fire(version).await.next.len(), 1);
    case.sees_a_hint("a next occurrence").await;
}

/// A timer that a transaction sets may be due when it commits, though no instance loads what is so
/// far when it is set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_hints_whatever_may_be_due_at_its_commit() {
    let Some(case) = Case::open("far_hints").await else {
        return missing();
    };
    case.sees_a_hint("the beginning").await;
    case.quiet().await;
    let user = client(&case.url).await;
    let call = async |sql: &str| user.batch_execute(sql).await.expect("it does");
    call("BEGIN; SELECT tickwheel_set('far_hints', 'a', '1', now() + interval '50 min')").await;
    assert!(!case.is_hinted(SECOND / 2).await, "it is not committed");
    call("COMMIT").await;
    case.sees_a_hint("a set").await;
    call("SELECT tickwheel_move('far_hints', 'a', now() + interval '70 min')").await;
    assert!(!case.is_hinted(SECOND / 2).await, "it is very far");
    for off in ["off", "false"] {
        let set = format!("SET LOCAL tickwheel.hints = {off}");
        call(&format!(
            "BEGIN; {set}; SELECT tickwheel_move('far_hints', 'a', now()); COMMIT"
        ))
        .await;
        assert!(!case.is_hinted(SECOND / 2).await, "hints are {off}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_an_instance_gives_back_are_hinted() {
    let Some(case) = Case::open("given_back").await else {
        return missing();
    };
    case.sees_a_hint("the beginning").await;
    case.write("a", set(SOON, false)).await;
    let load = |instance, alive| Load::new(instance, HOUR, 10, alive);
    let mut instance = case.instance().await;
    let loaded = case.writer.load(&case.space, load(instance, HOUR)).await;
    assert_eq!(loaded.expect("it loads").rows.len(), 1);
    case.quiet().await;
    let fresh = case.writer.unload(&case.space, instance).await;
    instance = fresh.expect("it unloads");
    case.sees_a_hint("an unload").await;
    // A life that ends at once, and the sign of life of another.
    let request = load(instance, Duration::ZERO);
    let loaded = case.writer.load(&case.space, request).await;
    assert_eq!(loaded.expect("it loads").rows.len(), 1);
    let other = case.instance().await;
    case.quiet().await;
    let mut request = load(other, HOUR);
    request.limit = 0;
    case.writer.load(&case.space, request).await.expect("loads");
    case.sees_a_hint("a sign of life").await;
}

/// A hint was never sent, and the poll of a tenth of a second hid it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn near_deadline_of_another_instance_needs_no_poll() {
    let Some(url) = database("near_deadline").await else {
        return missing();
    };
    let start = async || {
        let store = Postgres::connect(&url).await.expect("it connects");
        let builder = builder::<String, u64>("near")
            .poll(600 * SECOND)
            .window(HOUR);
        let started = builder.start(&TimerWheel::new(), store).await;
        started.expect("it starts")
    };
    let (_timers, mut claims) = start().await;
    let (writer, writers_claims) = start().await;
    writers_claims.shutdown().await;
    for number in 0..3 {
        let key = number.to_string();
        let set = writer.set_timer(&key, &number, SECOND / 20);
        set.await.expect("it is set");
        let next = timeout(60 * SECOND, claims.recv()).await;
        let claim = next.expect("long before a poll").expect("it goes on");
        assert_eq!(claim.value, number);
        claim.ack().await.expect("it is held");
    }
}

/// A load leaves rows out by its limit: the next one follows at once, not with the next poll.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_a_load_leaves_out_need_no_poll() {
    let Some(url) = database("left_out").await else {
        return missing();
    };
    let store = Postgres::connect(&url).await.expect("it connects");
    let space = Namespace::new("left_out").expect("it is a name");
    store.open(&space, &"json".into()).await.expect("it opens");
    // More than one load takes.
    let writes = (0..6_000).map(|number: u64| {
        Write::new(
            format!("\"{number}\"").into(),
            set(Due::In(Duration::ZERO), false),
        )
    });
    let far = Terms::NONE;
    let written = store.write(&space, writes.collect(), far).await;
    written.expect("it writes");
    let builder = builder::<String, u64>("left_out")
        .poll(600 * SECOND)
        .window(HOUR);
    let started = builder.start(&TimerWheel::new(), store).await;
    let (_timers, mut claims) = started.expect("it starts");
    for _ in 0..6_000 {
        let next = timeout(60 * SECOND, claims.recv()).await;
        let claim = next.expect("long before a poll").expect("it goes on");
        tokio::spawn(async move { claim.ack().await });
    }
}

/// One of several instances in a process took the hint, though it could take no timers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hint_is_for_all_instances_of_a_process() {
    let Some(case) = Case::open("hints_all").await else {
        return missing();
    };
    case.quiet().await;
    let clones = [case.listener.clone(), case.listener.clone()];
    let hinted = clones.each_ref().map(|store| store.hinted(&case.space));
    let hinted = timeout(10 * SECOND, join_all(hinted));
    let writing = async {
        tokio::time::sleep(SECOND).await;
        let write = Write::new(b"a".to_vec(), set(SOON, false));
        case.writer.write(&case.space, vec![write], NEAR).await
    };
    let (heard, written) = tokio::join!(hinted, writing);
    written.expect("it writes");
    heard.expect("both hear");
}

/// A task that looked for the namespace while the server had lost it waited forever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_are_heard_again_after_the_namespace_was_lost() {
    let Some(case) = Case::open("hints_lost").await else {
        return missing();
    };
    let admin = client(&case.url).await;
    case.sees_a_hint("the beginning").await;
    for is_noticed in [true, false] {
        let opened = case.listener.open(&case.space, &"json".into()).await;
        let near = NEAR.under(Some(opened.expect("it opens").edition));
        case.quiet().await;
        let lost = "DELETE FROM tickwheel_namespaces";
        admin.batch_execute(lost).await.expect("it is lost");
        if is_noticed {
            let writes = vec![Write::new(b"a".to_vec(), set(SOON, false))];
            let amended = case.listener.write(&case.space, writes, near).await;
            amended.expect_err("its edition is gone");
            tokio::time::sleep(SECOND / 2).await;
        }
        for store in [&case.listener, &case.writer] {
            let opened = store.open(&case.space, &"json".into()).await;
            opened.expect("it opens");
        }
        case.sees_a_hint("the new channel").await;
        case.quiet().await;
        case.write("a", set(SOON, false)).await;
        case.sees_a_hint("a set").await;
    }
}

/// The kernel of a server that hangs acknowledges what is sent, and another server may have its
/// address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_are_heard_again_after_a_server_that_hangs() {
    let Some(case) = Case::open("hints_hung").await else {
        return missing();
    };
    let proxy = Proxy::start(&case.url).await;
    let listener = Postgres::connect(&proxy.url).await.expect("it connects");
    let opened = listener.open(&case.space, &"json".into()).await;
    opened.expect("it opens");
    let heard = heard_by(Arc::new(listener.clone()), &case.space);
    let first = timeout(10 * SECOND, heard.notified()).await;
    first.expect("it listens");
    proxy.freeze();
    let write = async || {
        let writes = vec![Write::new(b"a".to_vec(), set(FAR, false))];
        listener.write(&case.space, writes, NEAR).await
    };
    let late = timeout(SECOND, write()).await;
    late.expect_err("it hangs");
    let written = timeout(10 * SECOND, write()).await;
    written.expect("it connects again").expect("it writes");
    // Listening again counts as one.
    let again = timeout(10 * SECOND, heard.notified()).await;
    again.expect("it listens again");
    // So is the connection for reads, which are many at once, when one has waited in vain.
    let read = || listener.rows_of(&case.space, b"a".to_vec(), 1);
    proxy.freeze();
    let late = timeout(SECOND, read()).await;
    late.expect_err("it hangs");
    let rows = timeout(60 * SECOND, read()).await;
    let rows = rows.expect("it connects again").expect("it reads");
    assert_eq!(rows.len(), 1);
}

/// The pause before the listener connects again grows while it fails, and not with each time that
/// it has connected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_are_heard_again_soon_however_often_they_were_cut() {
    /// The pause would be the longest, 5 s, after so many.
    const CUTS: usize = 8;
    let Some(case) = Case::open("hints_cut").await else {
        return missing();
    };
    let admin = client(&case.url).await;
    case.sees_a_hint("the beginning").await;
    let cut = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
        WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    let mut pauses = Vec::new();
    for _ in 0..CUTS + 3 {
        case.quiet_for(SECOND / 20).await;
        let began = Instant::now();
        let cut = admin.query_one(cut, &[]).await.expect("it cuts");
        assert!(cut.get::<_, i64>(0) > 0, "it listens");
        // Listening again counts as a hint.
        case.sees_a_hint("its return").await;
        pauses.push(began.elapsed());
    }
    // Whichever way the machine is busy, one of the last is quick.
    let quickest = pauses[CUTS..].iter().min().expect("there are some");
    assert!(*quickest < 4 * SECOND, "{pauses:?}");
}

/// A store whose listener did not connect said nothing of it.
#[tokio::test]
async fn listener_that_does_not_connect_is_warned_of_once() {
    let Some(mut server) = Server::start(&["fsync=off"]) else {
        return missing();
    };
    let log = Log::default();
    let _capturing = log.capture();
    let store = Postgres::connect(&server.url()).await.expect("it connects");
    let space = Namespace::new("silent").expect("it is a name");
    store.open(&space, &"json".into()).await.expect("it opens");
    let heard = heard_by(Arc::new(store), &space);
    let first = timeout(10 * SECOND, heard.notified()).await;
    first.expect("it listens");
    server.stop();
    tokio::time::sleep(SECOND).await;
    server.start_again();
    let again = timeout(10 * SECOND, heard.notified()).await;
    again.expect("it listens again");
    assert_eq!(log.with(&["WARN", "no hints"]), 1);
    assert_eq!(log.with(&["INFO", "hints are heard again"]), 1);
}
