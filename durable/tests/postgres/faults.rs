//! Faults of a real server.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::{Duration, Instant};

use tickwheel_durable::store::{
    Action, Due, Fire, Load, Namespace, Settle, Settled, Settlement, Store, StoreError, Terms,
    Version, Write, WriteOutcome,
};
use tickwheel_durable::{Claims, DurableTimers, Postgres, builder};
use tokio_postgres::Transaction;

use super::server::{Server, client, database, missing, shared_url, until_waits_for_lock};
use super::started::started;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const FAR: Duration = Duration::from_secs(3_600);

type Timers = DurableTimers<String, u64>;

/// Starts an instance with a time limit for calls that they keep on this machine.
async fn start(url: &str, space: &str) -> (Timers, Claims<String, u64>) {
    start_within(url, space, call_limit(url).await).await
}

/// Starts an instance with this time limit for its calls.
pub(super) async fn start_within(
    url: &str,
    space: &str,
    limit: Duration,
) -> (Timers, Claims<String, u64>) {
    let store = Postgres::connect(url).await.expect("it connects");
    let build = || {
        builder(space)
            .poll(Duration::from_millis(200))
            // A timer that is due after four limits is near.
            .window(60 * SECOND)
            .call_timeout(limit)
    };
    started(build, store).await
}

/// A time limit that calls keep on this machine, as busy as it is: three seconds, or more if a
/// plain client that connects and writes takes a good part of a second.
pub(super) async fn call_limit(url: &str) -> Duration {
    let mut longest = Duration::ZERO;
    for _ in 0..10 {
        let began = Instant::now();
        let write = "CREATE TABLE IF NOT EXISTS control (n int); INSERT INTO control VALUES (1)";
        let written = client(url).await.batch_execute(write).await;
        written.expect("it writes");
        longest = longest.max(began.elapsed());
    }
    let seconds = (20 * longest).as_secs().clamp(3, 10);
    Duration::from_secs(seconds)
}

fn set(key: &str, delay: Duration) -> Write {
    Write::new(
        key.into(),
        Action::set(b"1".to_vec(), Due::In(delay), None, false),
    )
}

/// The error of a connection that must fail.
pub(super) async fn refused(url: &str) -> StoreError {
    Postgres::connect(url).await.expect_err("it must fail")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recovers_when_the_server_is_back() {
    // Durability is the subject: fsync stays on.
    let Some(mut server) = Server::start(&[]) else {
        return missing();
    };
    let limit = call_limit(&server.url()).await;
    let (timers, mut claims) = start_within(&server.url(), "restart", limit).await;
    for number in 0..50 {
        let key = number.to_string();
        let set = timers.set_timer(&key, &number, 3 * limit);
        set.await.expect("it is set");
    }
    server.stop();
    let failed = timers.set_timer("late", &0, FAR).await;
    let error = failed.expect_err("the server is away").to_string();
    assert!(
        error.contains("unavailable") || error.contains(&format!("within {limit:?}")),
        "{error}"
    );
    tokio::time::sleep(4 * limit).await;
    assert_eq!(timers.metrics().delivered, 0, "nothing is confirmed");
    server.start_again();
    let mut seen = BTreeSet::new();
    while seen.len() < 50 {
        let next = tokio::time::timeout(60 * SECOND, claims.recv()).await;
        let claim = next.expect("nothing is lost").expect("the stream goes on");
        assert!(seen.insert(claim.value), "{claim:?} came twice");
        claim.ack().await.expect("it is held");
    }
    timers
        .set_timer("late", &0, FAR)
        .await
        .expect("the server is back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recovers_when_all_connections_are_cut() {
    let Some(url) = database("cut").await else {
        return missing();
    };
    let (timers, mut claims) = start(&url, "cut").await;
    let other = client(shared_url().expect("it is there")).await;
    let name = url.rsplit_once('/').expect("it has a name").1;
    for number in 0..5 {
        timers
            .set_timer("a", &number, SECOND)
            .await
            .expect("it is set");
        let cut = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE datname = $1";
        let cut: i64 = other
            .query_one(cut, &[&name])
            .await
            .expect("it cuts")
            .get(0);
        assert!(cut >= 3, "{cut} connections");
        let next = tokio::time::timeout(60 * SECOND, claims.recv()).await;
        let claim = next.expect("nothing is lost").expect("the stream goes on");
        assert_eq!(claim.value, number);
        claim.ack().await.expect("it is held");
    }
    // Hints, too, come again.
    let writer = start(&url, "cut").await.0;
    writer.shutdown().await;
    tokio::time::sleep(SECOND).await;
    writer
        .set_timer("b", &9, Duration::from_millis(50))
        .await
        .expect("it is set");
    let next = tokio::time::timeout(60 * SECOND, claims.recv()).await;
    assert_eq!(
        next.expect("it comes").expect("the stream goes on").value,
        9
    );
}

/// Locks the rows of a key, until the transaction ends.
async fn lock<'a>(client: &'a mut tokio_postgres::Client, key: &str) -> Transaction<'a> {
    let lock = client.transaction().await.expect("it begins");
    let rows = "SELECT 1 FROM tickwheel_timers WHERE key = $1 FOR UPDATE";
    let key = format!("\"{key}\"").into_bytes();
    assert_eq!(lock.query(rows, &[&key]).await.expect("it locks").len(), 1);
    lock
}

/// Sets timers with numbers as keys and values.
async fn set_each(timers: &Timers, numbers: Range<u64>, delay: Duration) {
    for number in numbers {
        let set = timers.set_timer(&number.to_string(), &number, delay).await;
        set.expect("it is set");
    }
}

/// The values of the next claims, which are acknowledged.
async fn next(claims: &mut Claims<String, u64>, count: usize) -> BTreeSet<u64> {
    let mut values = BTreeSet::new();
    for _ in 0..count {
        let next = tokio::time::timeout(60 * SECOND, claims.recv()).await;
        let next = next.unwrap_or_else(|_| panic!("after {values:?} nothing comes"));
        let claim = next.expect("the stream goes on");
        claim.ack().await.expect("it is held");
        assert!(values.insert(claim.value), "{claim:?} came twice");
    }
    values
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goes_on_beside_a_row_that_is_locked() {
    let Some(url) = database("locked").await else {
        return missing();
    };
    let mut other = client(&url).await;
    let limit = call_limit(&url).await;
    let (timers, mut claims) = start_within(&url, "locked", limit).await;
    // All are loaded before one of them is locked, and are due while it is.
    set_each(&timers, 0..1, 2 * limit).await;
    set_each(&timers, 1..20, 4 * limit).await;
    let locked = lock(&mut other, "0").await;
    set_each(&timers, 20..21, Duration::ZERO).await;
    assert_eq!(next(&mut claims, 1).await, [20].into());
    // A move of the row waits, and is given up.
    let moved = timers.move_timer("0", FAR).await;
    let error = moved.expect_err("the row is locked").to_string();
    assert!(error.contains(&format!("within {limit:?}")), "{error}");
    // The instance delivers all others: those loaded before, those set now, and those set when they
    // can only be loaded.
    set_each(&timers, 21..30, Duration::ZERO).await;
    assert_eq!(next(&mut claims, 28).await, (1..20).chain(21..30).collect());
    set_each(&timers, 30..40, 2 * limit).await;
    assert_eq!(next(&mut claims, 10).await, (30..40).collect());
    assert_eq!(timers.metrics().delivered, 39);
    // The move that was given up never takes effect.
    locked.rollback().await.expect("it ends");
    assert_eq!(next(&mut claims, 1).await, [0].into());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goes_on_beside_a_claim_that_is_locked() {
    let Some(url) = database("claim").await else {
        return missing();
    };
    let limit = call_limit(&url).await;
    let (timers, mut claims) = start_within(&url, "claim", limit).await;
    let mut other = client(&url).await;
    set_each(&timers, 0..1, Duration::ZERO).await;
    let claim = claims.recv().await.expect("the stream goes on");
    let locked = lock(&mut other, "0").await;
    set_each(&timers, 1..2, 3 * limit).await;
    let error = claim.ack().await.expect_err("the row is locked");
    let says = format!("within {limit:?}");
    assert!(error.to_string().contains(&says), "{error}");
    set_each(&timers, 2..3, Duration::ZERO).await;
    assert_eq!(next(&mut claims, 2).await, [1, 2].into());
    locked.rollback().await.expect("it ends");
    claim.ack().await.expect("it is still held");
    let counts = timers.counts().await.expect("it counts");
    assert_eq!((counts.waiting, counts.in_flight), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shuts_down_beside_a_row_that_is_locked() {
    let Some(url) = database("shutdown").await else {
        return missing();
    };
    let limit = call_limit(&url).await;
    let (timers, _claims) = start_within(&url, "shutdown", 3 * limit).await;
    // They are not due before the shutdown has ended.
    set_each(&timers, 0..2, 4 * limit).await;
    let reader = client(&url).await;
    let loaders = async || {
        let sql = "SELECT loaded_by FROM tickwheel_timers WHERE NOT in_flight ORDER BY key";
        let rows = reader.query(sql, &[]).await.expect("it reads");
        rows.iter()
            .map(|row| row.get(0))
            .collect::<Vec<Option<i64>>>()
    };
    let loaded = loaders().await;
    assert!(loaded[0].is_some() && loaded[0] == loaded[1], "{loaded:?}");
    let mut other = client(&url).await;
    let locked = lock(&mut other, "0").await;
    timers.shutdown().await;
    assert_eq!(loaders().await, [loaded[0], None]);
    let (_timers, mut claims) = start_within(&url, "shutdown", limit).await;
    assert_eq!(next(&mut claims, 1).await, [1].into());
    locked.rollback().await.expect("it ends");
    assert_eq!(next(&mut claims, 1).await, [0].into());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lets_no_dropped_call_overtake_a_later_one() {
    let Some(url) = database("dropped").await else {
        return missing();
    };
    let store = Postgres::connect(&url).await.expect("it connects");
    let space = Namespace::new("dropped").expect("it is a name");
    store.open(&space, &"json".into()).await.expect("it opens");
    let first = vec![set("a", FAR)];
    store
        .write(&space, first, Terms::NONE)
        .await
        .expect("it writes");
    let mut other = client(&url).await;
    let lock = other.transaction().await.expect("it begins");
    let rows = "SELECT 1 FROM tickwheel_timers FOR UPDATE";
    lock.query(rows, &[]).await.expect("it locks");
    let remove = Write::new(b"a".to_vec(), Action::Remove);
    let removes = store.write(&space, vec![remove], Terms::NONE);
    let dropped = tokio::time::timeout(SECOND / 2, removes).await;
    assert!(dropped.is_err(), "{dropped:?}");
    // A read is a later call: once it has answered, the removal is over.
    let rows = store.rows_of(&space, b"a".to_vec(), 1).await;
    lock.rollback().await.expect("it ends");
    tokio::time::sleep(SECOND / 2).await;
    let later = store.rows_of(&space, b"a".to_vec(), 1).await;
    assert_eq!(rows.as_ref().map(Vec::len), Ok(1));
    assert_eq!(rows, later);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_again_what_the_server_has_rolled_back() {
    let Some(url) = database("conflict").await else {
        return missing();
    };
    let store = Postgres::connect(&url).await.expect("it connects");
    let space = Namespace::new("conflict").expect("it is a name");
    let instance = store
        .open(&space, &"json".into())
        .await
        .expect("it opens")
        .instance;
    let written = store
        .write(&space, vec![set("a", Duration::ZERO)], Terms::NONE)
        .await;
    let WriteOutcome::Armed { row, .. } = written.expect("it writes")[0] else {
        panic!("it is armed")
    };
    let fire = Fire::new(vec![row.version], Some(FAR), Terms::NONE);
    let token = store.fire(&space, fire).await.expect("it fires").fired[0].token;
    // Another transaction sets the key while the claim is put back, and commits after that has
    // begun.
    let mut other = client(&url).await;
    let sets = other.transaction().await.expect("it begins");
    let insert = "INSERT INTO tickwheel_timers (version, namespace, key, value, in_flight, due, deadline, attempt)
        SELECT nextval('tickwheel_versions'), id, 'a', '2', false, 9007199254740991, 9007199254740991, 0
        FROM tickwheel_namespaces";
    sets.execute(insert, &[]).await.expect("it inserts");
    let back = {
        let (store, space) = (store.clone(), space.clone());
        let how = Settlement::RetryAfter(Duration::ZERO);
        tokio::spawn(async move {
            store
                .settle(&space, vec![Settle::new(token, how)], Terms::NONE)
                .await
        })
    };
    until_waits_for_lock(&client(&url).await).await;
    sets.commit().await.expect("it commits");
    // The key has a newer row by now, so it is in flight again.
    let settled = back.await.expect("it ends").expect("it settles");
    assert_eq!(settled, [Settled::Done]);
    let request = Load::new(instance, FAR, 10, FAR);
    let loaded = store.load(&space, request).await.expect("it loads");
    assert_eq!(loaded.rows.len(), 1);
    assert!(loaded.rows[0].0 > token);
}

#[tokio::test]
async fn refuses_a_schema_of_a_later_version() {
    let Some(url) = database("later").await else {
        return missing();
    };
    Postgres::connect(&url).await.expect("it connects");
    let update = "UPDATE tickwheel_schema SET version = 7, readable_by = 6";
    client(&url)
        .await
        .batch_execute(update)
        .await
        .expect("it is changed");
    let error = refused(&url).await;
    assert_eq!(error, StoreError::schema(7, 6, 1));
}

/// An older instance went on with its old statements forever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_instance_stops_when_tables_are_raised() {
    let Some(url) = database("raised").await else {
        return missing();
    };
    let store = Postgres::connect(&url).await.expect("it connects");
    let space = Namespace::new("raised").expect("it is a name");
    let opened = store.open(&space, &"json".into()).await;
    let instance = opened.expect("it opens").instance;
    let near = Terms::NONE;
    let set = |key: &str| {
        let action = Action::set(b"1".to_vec(), Due::In(FAR), None, false);
        vec![Write::new(key.into(), action)]
    };
    let written = store.write(&space, set("a"), near).await;
    written.expect("it writes");
    let raise = "UPDATE tickwheel_schema SET version = 7, readable_by = 6";
    client(&url)
        .await
        .batch_execute(raise)
        .await
        .expect("it is changed");
    let later = StoreError::schema(7, 6, 1);
    assert_eq!(
        store.write(&space, set("a"), near).await,
        Err(later.clone())
    );
    let remove = vec![Write::new(b"a".to_vec(), Action::Remove)];
    assert_eq!(store.write(&space, remove, near).await, Err(later.clone()));
    let load = Load::new(instance, FAR, 1, FAR);
    assert_eq!(store.load(&space, load).await, Err(later.clone()));
    let fire = Fire::new(vec![Version(1)], None, near);
    assert_eq!(store.fire(&space, fire).await, Err(later.clone()));
    for settlement in [Settlement::Ack, Settlement::Release] {
        let settles = vec![Settle::new(Version(1), settlement)];
        let settled = store.settle(&space, settles, near).await;
        assert_eq!(settled, Ok(vec![Settled::Lost]));
    }
    let opened = store.open(&space, &"json".into()).await;
    assert_eq!(opened, Err(later));
}

#[tokio::test]
async fn d17_schema_that_is_raised_stops_new_work_alone() {
    let Some(url) = database("raised_meanwhile").await else {
        return missing();
    };
    let store = Postgres::connect(&url).await.expect("it connects");
    let other = client(&url).await;
    crate::raised::d17_stops_new_work_alone(
        "raised",
        async || store.clone().into(),
        async |version, readable_by| {
            let raise = format!(
                "UPDATE tickwheel_schema SET version = {version}, readable_by = {readable_by}"
            );
            other.batch_execute(&raise).await.expect("it is changed");
        },
    )
    .await;
}

/// A set that waits for a row which another session has locked has taken effect when that one
/// ended, however late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_that_has_waited_too_long_changes_nothing() {
    let Some(url) = database("waited").await else {
        return missing();
    };
    let store = Postgres::connect(&url).await.expect("it connects");
    let space = Namespace::new("waited").expect("it is a name");
    store.open(&space, &"json".into()).await.expect("it opens");
    let near = Terms::NONE;
    let set = |value: &str| {
        let action = Action::set(value.into(), Due::In(FAR), None, false);
        Write::new(b"a".to_vec(), action)
    };
    let written = store.write(&space, vec![set("1")], near).await;
    written.expect("it writes");
    let move_far = Write::new(b"a".to_vec(), Action::move_to(Due::In(2 * FAR)));
    for late in [set("2"), move_far] {
        let session = client(&url).await;
        let lock = "BEGIN; SELECT 1 FROM tickwheel_timers FOR UPDATE";
        session.batch_execute(lock).await.expect("it locks");
        let now = store.count(&space).await.expect("it counts").now;
        let limit = near.until(now.after(Duration::from_millis(300)));
        let writing = store.write(&space, vec![late], limit);
        let unlock = async {
            tokio::time::sleep(Duration::from_millis(600)).await;
            session.batch_execute("COMMIT").await.expect("it unlocks");
        };
        let (written, ()) = tokio::join!(writing, unlock);
        assert!(
            matches!(written, Err(StoreError::Late { .. })),
            "{written:?}"
        );
    }
    let rows = store.rows_of(&space, b"a".to_vec(), 1).await;
    assert_eq!(rows.expect("it reads")[0].value, b"1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn makes_the_tables_once_among_many() {
    let Some(url) = database("many").await else {
        return missing();
    };
    let connect = (0..12).map(|_| Postgres::connect(&url));
    for store in futures_util::future::join_all(connect).await {
        store.expect("it connects");
    }
}

#[tokio::test]
async fn names_what_is_refused_and_no_password() {
    let Some(url) = database("refused").await else {
        return missing();
    };
    let admin = client(&url).await;
    // A server that is not the tests' own may have it, with rights in other databases.
    let role = "DO $$BEGIN CREATE ROLE guarded; EXCEPTION WHEN duplicate_object THEN NULL; END$$;
        ALTER ROLE guarded LOGIN PASSWORD 's3cret'";
    admin.batch_execute(role).await.expect("it is made");
    let wrong = url.replace("postgres@", "guarded:wr0ng@");
    let error = refused(&wrong).await;
    let text = format!("{error:#}");
    assert!(matches!(error, StoreError::Refused { .. }), "{text}");
    assert!(
        text.contains("as guarded: ") && text.contains("password authentication failed"),
        "{text}"
    );
    assert!(!text.contains("wr0ng"), "{text}");
    // It may log in, and not make tables.
    let right = url.replace("postgres@", "guarded:s3cret@");
    let text = format!("{:#}", refused(&right).await);
    assert!(
        text.contains("permission denied") && !text.contains("s3cret"),
        "{text}"
    );
    // With the documented rights on tables that are there it may do all.
    Postgres::connect(&url).await.expect("it connects");
    let grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO guarded;
        GRANT USAGE, UPDATE ON SEQUENCE tickwheel_versions TO guarded";
    admin.batch_execute(grant).await.expect("it is granted");
    let store = Postgres::connect(&right).await.expect("it connects");
    let (timers, mut claims) = started(|| builder("guarded"), store).await;
    timers
        .set_timer("a", &1, Duration::ZERO)
        .await
        .expect("it is set");
    let claim = claims.recv().await.expect("the stream goes on");
    claim.ack().await.expect("it is held");
    assert!(!format!("{timers:?}").contains("s3cret"));
    let server = url.rsplit_once('/').expect("it has a name").0;
    let text = format!("{:#}", refused(&format!("{server}/nothing")).await);
    assert!(
        text.contains("/nothing as postgres: ")
            && text.contains("database \"nothing\" does not exist"),
        "{text}"
    );
}

#[tokio::test]
async fn says_where_no_server_answers() {
    let error = refused("postgres://me:s3cret@127.0.0.1:1/orders").await;
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    let text = format!("{error:#}");
    assert!(text.contains("127.0.0.1:1/orders as me"), "{text}");
    assert!(!text.contains("s3cret"), "{text}");
}
