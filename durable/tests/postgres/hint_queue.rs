//! The server's queue of hints: no call depends on its room, and transactions that set near timers
//! do not take turns for it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{StreamExt, poll_fn};
use tickwheel::TimerWheel;
use tickwheel_durable::store::{
    Action, Due, InstanceId, Load, Namespace, Store, Terms, Write, WriteOutcome,
};
use tickwheel_durable::{Claims, DurableTimers, Postgres, builder};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, NoTls};

use super::log::Log;
use super::server::{Server, client, database, missing, until};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

async fn run(client: &tokio_postgres::Client, sql: &str) {
    let done = client.batch_execute(sql).await;
    done.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

/// What comes on the channel of the first namespace.
async fn hints(url: &str) -> mpsc::UnboundedReceiver<String> {
    let connected = tokio_postgres::connect(url, NoTls).await;
    let (client, mut connection) = connected.expect("it connects");
    let (heard, hints) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut messages = poll_fn(move |cx| connection.poll_message(cx));
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(hint) = message {
                let _ = heard.send(hint.payload().to_owned());
            }
        }
    });
    let channel =
        "SELECT 'tickwheel_' || replace(identity::text, '-', '') || '_1' FROM tickwheel_schema";
    let channel = client.query_one(channel, &[]).await.expect("it reads");
    run(&client, &format!("LISTEN {}", channel.get::<_, &str>(0))).await;
    // It listens as long as it is connected.
    tokio::spawn(async move {
        std::future::pending::<()>().await;
        drop(client);
    });
    hints
}

/// How many have come by now.
async fn count(hints: &mut mpsc::UnboundedReceiver<String>) -> usize {
    let mut count = 0;
    while timeout(SECOND / 2, hints.recv()).await.is_ok() {
        count += 1;
    }
    count
}

async fn load(store: &Postgres, space: &Namespace, instance: InstanceId, wanted: usize) -> bool {
    let mut load = Load::new(instance, SECOND * 30, 10, SECOND * 3);
    load.wanted = wanted;
    store.load(space, load).await.expect("it loads").again
}

/// Every near timer of a transaction had a hint, within an hour, and so these commits took turns in
/// all databases of the server: 200 a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_hint_what_a_poll_would_find_too_late() {
    let Some(url) = database("hints_near").await else {
        return missing();
    };
    let store = Postgres::connect(&url).await.expect("it connects");
    let space = Namespace::new("near").expect("it is a name");
    let opened = store.open(&space, &"json".into()).await.expect("it opens");
    let mut hints = hints(&url).await;
    let user = client(&url).await;
    // An instance with a poll of a second, as it loads.
    load(&store, &space, opened.instance, 1).await;
    let set = |key: &str, due: &str| {
        format!("SELECT tickwheel_set('near', '{key}', '1', clock_timestamp() + interval '{due}')")
    };
    run(&user, &set("a", "4 s")).await;
    run(&user, &set("a", "30 min")).await;
    assert_eq!(count(&mut hints).await, 0, "the poll finds it in time");
    load(&store, &space, opened.instance, 1).await;
    run(&user, &set("b", "1 s")).await;
    assert_eq!(
        hints.recv().await.expect("it comes"),
        opened.instance.0.to_string()
    );
    // A transaction gives one, however many timers it sets.
    load(&store, &space, opened.instance, 1).await;
    let many = "SELECT tickwheel_set('near', n::text, '1', now()) FROM generate_series(1, 20) n";
    run(&user, many).await;
    assert_eq!(count(&mut hints).await, 1);
    // What was far when it was set is due at the commit.
    load(&store, &space, opened.instance, 1).await;
    let late = format!(
        "BEGIN; {}; SELECT pg_sleep(2.5); COMMIT",
        set("late", "4 s")
    );
    run(&user, &late).await;
    assert_eq!(count(&mut hints).await, 1);
}

/// Transactions that commit at the same time give one hint together. The next load learns that some
/// were not committed yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_transaction_gives_the_hint_of_those_beside_it() {
    let Some(url) = database("hints_beside").await else {
        return missing();
    };
    let store = Postgres::connect(&url).await.expect("it connects");
    let space = Namespace::new("near").expect("it is a name");
    let opened = store.open(&space, &"json".into()).await.expect("it opens");
    let mut hints = hints(&url).await;
    let gate = client(&url).await;
    // Commits wait here, after all else that they do.
    run(
        &gate,
        "CREATE TABLE gate (number int);
        CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN PERFORM pg_advisory_xact_lock(NEW.number); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER gate AFTER INSERT ON gate DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION wait();
        SELECT pg_advisory_lock(1), pg_advisory_lock(2)",
    )
    .await;
    let commit = |number: i32| {
        let url = url.clone();
        tokio::spawn(async move {
            let user = client(&url).await;
            run(
                &user,
                &format!(
                    "BEGIN; SELECT tickwheel_set('near', 'key {number}', '1', clock_timestamp());
                INSERT INTO gate VALUES ({number}); COMMIT"
                ),
            )
            .await;
        })
    };
    let waiting = async |count: i64| {
        let sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        until("a commit waits", async || {
            let row = gate.query_one(sql, &[]).await.expect("it reads");
            row.get::<_, i64>(0) == count
        })
        .await;
    };
    let first = commit(1);
    waiting(1).await;
    let second = commit(2);
    waiting(2).await;
    assert_eq!(count(&mut hints).await, 0);
    run(&gate, "SELECT pg_advisory_unlock(1)").await;
    first.await.expect("it commits");
    assert_eq!(count(&mut hints).await, 1);
    assert!(
        load(&store, &space, opened.instance, 1).await,
        "another one is not committed yet"
    );
    run(&gate, "SELECT pg_advisory_unlock(2)").await;
    second.await.expect("it commits");
    assert_eq!(count(&mut hints).await, 0, "one hint was for both");
    assert!(!load(&store, &space, opened.instance, 1).await);
    // Neither is held any more.
    let third = commit(3);
    third.await.expect("it commits");
    assert_eq!(count(&mut hints).await, 1);
}

/// All instances loaded at each hint: 18 calls a timer with 16 of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hint_names_an_instance_that_lacks_rows() {
    let Some(url) = database("hints_named").await else {
        return missing();
    };
    let store = Postgres::connect(&url).await.expect("it connects");
    let space = Namespace::new("near").expect("it is a name");
    let open = async || {
        store
            .open(&space, &"json".into())
            .await
            .expect("it opens")
            .instance
    };
    let (busy, idle, other) = (open().await, open().await, open().await);
    let mut hints = hints(&url).await;
    let set = async |key: &str| {
        let due = Action::set(b"1".to_vec(), Due::In(Duration::ZERO), None, false);
        let near = Terms::new(HOUR, None);
        let written = store
            .write(&space, vec![Write::new(key.into(), due)], near)
            .await;
        assert!(matches!(
            written.expect("it writes")[0],
            WriteOutcome::Armed { .. }
        ));
    };
    load(&store, &space, busy, 0).await;
    set("all").await;
    assert_eq!(hints.recv().await.as_deref(), Some(""), "none lacks rows");
    load(&store, &space, idle, 100).await;
    for round in 0..5 {
        set(&round.to_string()).await;
        assert_eq!(hints.recv().await, Some(idle.0.to_string()));
    }
    load(&store, &space, other, 100).await;
    let mut named = Vec::new();
    for round in 0..40 {
        set(&round.to_string()).await;
        named.push(hints.recv().await.expect("it comes"));
    }
    for instance in [idle, other] {
        let count = named
            .iter()
            .filter(|name| **name == instance.0.to_string())
            .count();
        assert!((1..40).contains(&count), "{named:?}");
    }
}

type Started = (DurableTimers<String, u64>, Claims<String, u64>);

async fn start(url: &str) -> Started {
    let store = Postgres::connect(url).await.expect("it connects");
    let started = builder("full").start(&TimerWheel::new(), store).await;
    started.expect("it starts")
}

async fn deliver((timers, claims): &mut Started, key: &str) {
    let set = timers.set_timer(key, &1, Duration::ZERO).await;
    set.expect("it is set");
    receive(claims, key).await;
}

async fn receive(claims: &mut Claims<String, u64>, key: &str) {
    let claim = timeout(60 * SECOND, claims.recv()).await;
    let claim = claim.expect("it comes").expect("it goes on");
    assert_eq!(claim.key, key);
    claim.ack().await.expect("it is held");
}

/// Stands for a queue that can be full, which has eight gigabytes before version 17: then the
/// function that fills it fails as a commit does, and the one that tells its use says so, or not.
/// The built-in functions step aside, because the server knows these by their numbers.
const QUEUE: &str = "
    CREATE TABLE public.queue (is_full boolean NOT NULL, is_told boolean NOT NULL);
    GRANT SELECT ON public.queue TO PUBLIC;
    ALTER FUNCTION pg_catalog.pg_notify(text, text) RENAME TO real_notify;
    ALTER FUNCTION pg_catalog.pg_notification_queue_usage() RENAME TO real_queue_usage;
    CREATE FUNCTION pg_catalog.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
        IF (SELECT is_full FROM public.queue) THEN
            RAISE 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000';
        END IF;
        PERFORM pg_catalog.real_notify($1, $2);
    END $$;
    CREATE FUNCTION pg_catalog.pg_notification_queue_usage() RETURNS float8 LANGUAGE sql VOLATILE AS
        'SELECT CASE WHEN is_full AND is_told THEN 1.0 ELSE 0.0 END::float8 FROM public.queue'";

/// Where a listener in any database of the server is stuck, a call with a hint fails: after the end
/// of an instance none of the others delivered anything, and none started.
#[tokio::test]
async fn calls_go_on_without_hints_while_the_queue_is_full() {
    for is_told in [true, false] {
        let settings = ["fsync=off", "allow_system_table_mods=on"];
        let Some(server) = Server::start(&settings) else {
            return missing();
        };
        let url = server.url();
        let log = Log::default();
        let _capturing = log.capture();
        let admin = client(&url).await;
        run(&admin, QUEUE).await;
        let queue = format!("INSERT INTO public.queue VALUES (false, {is_told})");
        run(&admin, &queue).await;
        let (mut first, second) = (start(&url).await, start(&url).await);
        deliver(&mut first, "before").await;
        let warnings = || log.with(&["WARN", "NOTIFY queue is full"]);
        assert_eq!(warnings(), 0);
        run(&admin, "UPDATE public.queue SET is_full = true").await;
        // Its end leaves what it has loaded, and a handle without claims sets near timers.
        let (timers, claims) = second;
        let left = timers.set_timer("left", &1, 2 * SECOND).await;
        left.expect("it is set");
        claims.shutdown().await;
        let far = timers.set_timer("far", &1, HOUR);
        let near = timers.set_timer("near", &1, Duration::ZERO);
        let (far, near) = tokio::join!(far, near);
        far.expect("it is set");
        near.expect("it is set");
        receive(&mut first.1, "near").await;
        receive(&mut first.1, "left").await;
        deliver(&mut first, "first").await;
        drop(first);
        let mut third = start(&url).await;
        deliver(&mut third, "third").await;
        if is_told {
            let user = client(&url).await;
            let set = "SELECT tickwheel_set('full', 'by a user', '1', now())";
            run(&user, set).await;
            receive(&mut third.1, "by a user").await;
        }
        let warned = warnings();
        assert!((1..=3).contains(&warned), "{warned}: a store warns once");
        run(&admin, "UPDATE public.queue SET is_full = false").await;
        until("room in the queue", async || {
            log.with(&["INFO", "has room again"]) > 0 || warned == 1
        })
        .await;
        let timer = timers.set_timer("after", &1, Duration::ZERO).await;
        timer.expect("it is set");
        receive(&mut third.1, "after").await;
        assert_eq!(
            log.with(&["WARN", "54000"]),
            0,
            "no call has failed for a hint"
        );
    }
}

/// The instance that a hint names loads at once, and the others a quarter of a poll later at most,
/// however many hints there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn named_instance_loads_and_others_do_not() {
    let Some(url) = database("hints_woken").await else {
        return missing();
    };
    let start = async || {
        let store = Postgres::connect(&url).await.expect("it connects");
        let builder = builder::<String, u64>("woken")
            .poll(40 * SECOND)
            .window(HOUR);
        let started = builder.start(&TimerWheel::new(), store).await;
        started.expect("it starts")
    };
    let mut instances = Vec::new();
    let (sent, mut keys) = mpsc::unbounded_channel();
    for _ in 0..4 {
        let (timers, mut claims) = start().await;
        let sent = sent.clone();
        tokio::spawn(async move {
            claims
                .dispatch(4, |claim| {
                    let _ = sent.send(claim.key.clone());
                    std::future::ready(Ok(()))
                })
                .await;
        });
        instances.push(Arc::new(timers));
    }
    let (writer, claims) = start().await;
    claims.shutdown().await;
    // They lack rows from their second load on, which the hint that they listen brings.
    tokio::time::sleep(2 * SECOND).await;
    let loads = || {
        let calls = instances
            .iter()
            .map(|timers| timers.metrics().store_latency.count());
        calls.sum::<u64>()
    };
    let before = loads();
    for round in 0..20 {
        let key = round.to_string();
        writer
            .set_timer(&key, &1, Duration::ZERO)
            .await
            .expect("it is set");
        let handled = timeout(30 * SECOND, keys.recv()).await;
        assert_eq!(handled.expect("long before a poll"), Some(key));
    }
    tokio::time::sleep(SECOND / 2).await;
    let calls = loads() - before;
    // A load, a fire and an acknowledgement each; it was five and more.
    assert!(calls <= 20 * 4, "{calls} calls for 20 timers");
}
