//! The store in an SQLite file keeps the promises. The clock is the real one.

#[path = "sqlite/backups.rs"]
mod backups;
#[path = "sqlite/closing.rs"]
mod closing;
#[cfg(feature = "cron")]
#[path = "support/cron.rs"]
mod cron;
#[path = "sqlite/damaged.rs"]
mod damaged;
#[path = "support/log.rs"]
mod log;
#[path = "support/not_run.rs"]
mod not_run;
#[path = "support/outage.rs"]
mod outage;
#[path = "support/backups.rs"]
mod page;
#[path = "support/raised.rs"]
mod raised;
#[path = "support/returned.rs"]
mod returned;
#[path = "sqlite/returned.rs"]
mod returns;
#[path = "support/started.rs"]
mod started;
#[path = "sqlite/transactions.rs"]
mod transactions;

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::Connection;
use tickwheel_durable::store::{Namespace, Store, StoreError, StoreTime};
use tickwheel_durable::{BuildError, Error, Moved, Removed, Sqlite, SqliteTransaction};
use tickwheel_durable_conformance::{Pace, Stores, conformance_tests};

/// A file in a folder that goes with it.
struct File {
    folder: PathBuf,
}

impl File {
    fn new() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tickwheel-durable-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("the folder is made");
        File { folder }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // A file that is left over is harmless.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Stores for File {
    type Store = Sqlite;

    /// A new connection, as another process has.
    async fn connect(&self) -> Sqlite {
        Sqlite::open(self.folder.join("timers.db")).expect("the file opens")
    }
}

#[cfg(feature = "cron")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cron_timer_repeats_each_second() {
    let file = File::new();
    cron::repeats_each_second([file.connect().await, file.connect().await]).await;
}

#[tokio::test]
async fn d17_schema_that_is_raised_stops_new_work_alone() {
    let file = File::new();
    let store = file.connect().await;
    let other = rusqlite::Connection::open(file.folder.join("timers.db")).expect("it opens");
    other
        .busy_timeout(std::time::Duration::from_secs(30))
        .expect("it waits");
    raised::d17_stops_new_work_alone(
        "raised",
        async || store.clone().into(),
        async |version, readable_by| {
            let raise =
                "UPDATE tickwheel_meta SET value = CASE name WHEN 'schema' THEN ?1 ELSE ?2 END
            WHERE name IN ('schema', 'readable_by')";
            let changed = other.execute(raise, [version, readable_by]);
            assert_eq!(changed, Ok(2));
        },
    )
    .await;
}

/// Another process holds the lock of the file for five seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_handlers_that_end_while_the_file_is_locked_run_once() {
    let file = File::new();
    let store = file.connect().await;
    let path = file.folder.join("timers.db");
    outage::is_survived("locked", store, async || {
        let other = rusqlite::Connection::open(path).expect("it opens");
        other
            .busy_timeout(std::time::Duration::from_secs(30))
            .expect("it waits");
        other.execute_batch("BEGIN IMMEDIATE").expect("it locks");
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        other.execute_batch("ROLLBACK").expect("it ends");
    })
    .await;
}

/// A file that was restored gives no version again: they go by the time.
#[tokio::test]
async fn versions_begin_at_the_time() {
    let (file, began) = (File::new(), StoreTime::from(SystemTime::now()));
    let store = file.connect().await;
    let opened = store.open(&orders(), &"json".into()).await;
    let first = opened.expect("it opens").instance;
    assert!(first.0 >= began.as_micros(), "{first:?} at {began}");
}

/// A store that has opened a namespace with this codec, and a connection of a user.
async fn opened(file: &File, namespace: &Namespace, codec: &str) -> (Sqlite, Connection) {
    let store = file.connect().await;
    let opened = store.open(namespace, &codec.into()).await;
    opened.expect("it opens");
    let user = Connection::open(file.folder.join("timers.db"));
    (store, user.expect("it opens"))
}

fn orders() -> Namespace {
    Namespace::new("orders").expect("it is a name")
}

#[tokio::test]
async fn transaction_with_another_codec_is_refused() {
    let file = File::new();
    let (_store, mut user) = opened(&file, &orders(), "other").await;
    let transaction = user.transaction().expect("it begins");
    let refused = SqliteTransaction::<String, u64>::new(&transaction, "orders");
    let refused = refused.expect_err("its codec is JSON");
    let BuildError::Open(Error::Store(StoreError::Charter { stored, asked, .. })) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((&*stored, &*asked), ("other", "json"));
}

#[tokio::test]
async fn transaction_sets_and_moves_timers_to_a_time() {
    let (file, orders) = (File::new(), orders());
    let (store, mut user) = opened(&file, &orders, "json").await;
    let year_2100 = UNIX_EPOCH + Duration::from_secs(4_102_444_800);
    let hours = |hours: u64| year_2100 + Duration::from_secs(3_600 * hours);
    let transaction = user.transaction().expect("it begins");
    let timers = SqliteTransaction::<String, u64>::new(&transaction, "orders");
    let timers = timers.expect("it is open");
    for (key, value, deadline) in [("a", 1, hours(1)), ("a", 2, hours(2)), ("b", 3, hours(3))] {
        let set = timers.set_timer_at(key, &value, deadline);
        set.expect("it is set");
    }
    assert_eq!(timers.move_timer_at("b", hours(4)), Ok(Moved::Done));
    assert_eq!(timers.move_timer_at("c", hours(5)), Ok(Moved::Absent));
    drop(timers);
    transaction.commit().expect("it commits");
    for (key, value, deadline) in [("\"a\"", "2", hours(2)), ("\"b\"", "3", hours(4))] {
        let rows = store.rows_of(&orders, key.into(), 1).await;
        let row = rows.expect("it reads").remove(0);
        let times = (SystemTime::from(row.due), SystemTime::from(row.deadline));
        assert_eq!((row.value, times), (value.into(), (deadline, deadline)));
    }
    assert_eq!(store.count(&orders).await.expect("it counts").waiting, 2);
}

/// It has deleted the timer that it replaces before it fails.
#[tokio::test]
async fn call_that_fails_in_a_transaction_leaves_nothing() {
    let file = File::new();
    let (_store, mut user) = opened(&file, &orders(), "json").await;
    let transaction = user.transaction().expect("it begins");
    let timers = SqliteTransaction::<String, u64>::new(&transaction, "orders");
    let timers = timers.expect("it is open");
    let far = Duration::from_secs(3_600);
    timers.set_timer("a", &1, far).expect("it is set");
    let refuse = "CREATE TEMP TRIGGER refuse BEFORE INSERT ON tickwheel_timers
        BEGIN SELECT RAISE(ABORT, 'it is refused'); END";
    transaction.execute_batch(refuse).expect("it is made");
    let refused = timers.set_timer("a", &2, far);
    let error = refused.expect_err("it is refused");
    assert!(format!("{error:#}").contains("it is refused"), "{error:#}");
    let allow = transaction.execute_batch("DROP TRIGGER refuse");
    allow.expect("it is dropped");
    assert_eq!(timers.remove_timer("a"), Ok(Removed::Done(1)));
}

conformance_tests! {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    (File::new(), Pace::default())
}
