//! Transactions that fail, wait for a lock, or go into a file that is not there any more.

use std::sync::{Mutex, Once, PoisonError, mpsc};
use std::thread::ThreadId;
use std::time::Instant;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::*;
use crate::sqlite::thread::{LONG_TURN, PAUSE};

/// Keeps the thread busy until the sender is dropped. Calls that are made meanwhile share the next
/// transaction.
async fn occupy(store: &Sqlite) -> mpsc::Sender<()> {
    let (release, released) = mpsc::channel();
    let (begin, begun) = tokio::sync::oneshot::channel();
    let occupying = store.thread.call(move |_| {
        // The test waits for this message, then for the drop of the sender.
        let _ = begin.send(());
        let _ = released.recv();
        Ok(Ok(()))
    });
    drop(tokio::spawn(occupying));
    begun.await.expect("it begins");
    release
}

async fn has(store: &Sqlite, key: &str) -> bool {
    let rows = store.rows_of(&space(), key.into(), 1).await;
    !rows.expect("it reads").is_empty()
}

/// Nothing was said Ok of, though no test held it: only a deferred constraint makes a commit fail.
#[tokio::test]
async fn commit_that_fails_fails_every_call_in_it() {
    let folder = Folder::new();
    let (store, space) = (opened(&folder).await, space());
    let release = occupy(&store).await;
    let before = store.write(&space, set("before", 1), NEAR);
    let violating = store.thread.call(|batch| {
        let sql = "CREATE TABLE parents (id INTEGER PRIMARY KEY);
            CREATE TABLE children (parent REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED);
            INSERT INTO children VALUES (1);";
        batch.connection.execute_batch(sql)?;
        Ok(Ok(()))
    });
    let after = store.write(&space, set("after", 1), NEAR);
    drop(release);
    let (before, violating, after) = tokio::join!(before, violating, after);
    for error in [
        before.expect_err("nothing was committed"),
        violating.expect_err("nothing was committed"),
        after.expect_err("nothing was committed"),
    ] {
        assert!(format!("{error:#}").contains("FOREIGN KEY"), "{error}");
    }
    assert!(!has(&store, "before").await && !has(&store, "after").await);
    let again = store.write(&space, set("again", 1), NEAR).await;
    again.expect("the next transaction is a new one");
    assert!(has(&store, "again").await);
}

/// Some errors, such as a full disk, roll back what earlier calls of the transaction have written.
/// They must not say Ok.
#[tokio::test]
async fn error_that_rolls_all_back_fails_the_calls_before_it() {
    let folder = Folder::new();
    let (store, space) = (opened(&folder).await, space());
    let release = occupy(&store).await;
    let before = store.write(&space, set("before", 1), NEAR);
    let failing = store.thread.call(|batch| {
        let sql = "INSERT OR ROLLBACK INTO tickwheel_meta VALUES ('schema', 0)";
        batch.connection.execute(sql, ())?;
        Ok(Ok(()))
    });
    let after = store.write(&space, set("after", 1), NEAR);
    drop(release);
    let (before, failing, after) = tokio::join!(before, failing, after);
    let (before, failing) = (before.expect_err("gone"), failing.expect_err("refused"));
    assert!(format!("{failing:#}").contains("UNIQUE"), "{failing:#}");
    assert_eq!(before, failing);
    after.expect("it has another transaction");
    assert!(!has(&store, "before").await && has(&store, "after").await);
}

/// The threads that have logged a warning, as often as they have.
static WARNED: Mutex<Vec<ThreadId>> = Mutex::new(Vec::new());

/// Notes the threads of warnings, for the whole process.
struct Warnings;

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {
        let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
        warned.push(std::thread::current().id());
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// How many warnings the thread of a store has logged since the first call of this.
async fn warnings(store: &Sqlite) -> usize {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let installed = tracing::subscriber::set_global_default(Warnings);
        installed.expect("there is no other");
    });
    let thread = store.thread.call(|_| Ok(Ok(std::thread::current().id())));
    let thread = thread.await.expect("it runs");
    let warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
    warned.iter().filter(|warned| **warned == thread).count()
}

/// After two seconds calls failed with "database is locked", acknowledgements too, while their
/// callers would have waited. A warning for each attempt would be thousands.
#[tokio::test]
async fn call_waits_for_the_lock_as_long_as_its_caller() {
    let folder = Folder::new();
    let (store, space) = (opened(&folder).await, space());
    assert_eq!(warnings(&store).await, 0);
    let other = Connection::open(folder.file()).expect("it opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("it locks");
    let given_up = store.write(&space, set("given up", 1), NEAR);
    let given_up = timeout(Duration::from_millis(100), given_up).await;
    assert!(given_up.is_err(), "it is locked");
    let mut patient = Box::pin(store.write(&space, set("patient", 1), NEAR));
    let early = timeout(Duration::from_secs(3), &mut patient).await;
    assert!(early.is_err(), "it is locked: {early:?}");
    other.execute_batch("COMMIT").expect("it unlocks");
    patient.await.expect("it is free");
    assert!(!has(&store, "given up").await && has(&store, "patient").await);
    // The call that was given up has one only if the machine is very busy.
    let warnings = warnings(&store).await;
    assert!((1..=2).contains(&warnings), "{warnings} warnings");
}

/// Where commits take long, a process with much to do left the lock free for some microseconds
/// between them. Another one, which looks every half millisecond, waited for seconds, and failed.
#[tokio::test]
async fn long_turn_is_followed_by_a_pause() {
    let folder = Folder::new();
    let store = opened(&folder).await;
    for _ in 0..5 {
        let (begin, begun) = tokio::sync::oneshot::channel();
        let long = store.thread.call(move |_| {
            let _ = begin.send(());
            std::thread::sleep(LONG_TURN);
            Ok(Ok(Instant::now()))
        });
        begun.await.expect("it begins");
        let next = store.thread.call(|_| Ok(Ok(Instant::now())));
        let (long, next) = tokio::join!(long, next);
        let left_free = next.expect("it runs") - long.expect("it runs");
        assert!(left_free >= PAUSE, "free for {left_free:?} only");
    }
}

/// Calls returned Ok, and what they wrote went into a file without a name.
#[cfg(unix)]
#[tokio::test]
async fn file_that_was_deleted_or_replaced_takes_no_calls() {
    for log in ["", "-wal", "-shm"] {
        let folder = Folder::new();
        let (store, space) = (opened(&folder).await, space());
        let written = store.write(&space, set("a", 1), NEAR).await;
        written.expect("it is there");
        let name = folder.0.join(format!("timers.db{log}"));
        let moved = folder.0.join("moved");
        std::fs::rename(&name, &moved).expect("it is moved");
        let fails = async |why: &str| {
            let write = store.write(&space, set("b", 1), NEAR).await;
            let look = store.count(&space).await;
            for error in [write.expect_err(why), look.expect_err(why)] {
                assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
                let text = format!("{error:#}");
                assert!(text.contains(&name.display().to_string()), "{text}");
            }
        };
        fails("it is gone").await;
        std::fs::write(&name, "").expect("it is written");
        fails("it is another one").await;
        std::fs::rename(&moved, &name).expect("it is moved back");
        let written = store.write(&space, set("a", 1), NEAR).await;
        written.expect("it is the one that was opened");
    }
}

#[tokio::test]
async fn memory_is_no_file() {
    let error = Sqlite::open(":memory:").expect_err("it has no log");
    assert!(error.to_string().contains("write-ahead log"), "{error}");
}
