//! Files that are locked, full, read-only, from the future, or no databases, and what is read of
//! large ones.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use tokio::time::timeout;

use super::*;
use crate::store::{Action, Due, Settlement, Version};

mod commits;
mod counts;
mod lineage;
mod looks;
mod plans;
mod steps;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tickwheel-sqlite-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("the folder is made");
        Folder(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("timers.db")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A file that is left over is harmless.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const NEAR: Terms = Terms::NONE;

fn space() -> Namespace {
    Namespace::new("test").expect("it is a name")
}

fn set(key: &str, bytes: usize) -> Vec<Write> {
    vec![Write {
        key: key.into(),
        action: Action::Set {
            value: vec![7; bytes],
            due: Due::In(Duration::from_secs(3_600)),
            period: None,
            schedule: None,
            if_absent: false,
        },
    }]
}

async fn opened(folder: &Folder) -> Sqlite {
    let store = Sqlite::open(folder.file()).expect("it opens");
    Store::open(&store, &space(), &"json".into())
        .await
        .expect("it opens");
    store
}

/// Runs a pragma on the connection of the store.
async fn pragma(store: &Sqlite, name: &'static str, value: i64) {
    let pragma = store.thread.call(move |batch| {
        let read = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        let sql = format!("PRAGMA {name} = {value}");
        match batch.connection.query_row(&sql, (), read) {
            Ok(_) | Err(rusqlite::Error::QueryReturnedNoRows) => Ok(Ok(())),
            Err(error) => Err(error),
        }
    });
    pragma.await.expect("it is set");
}

#[tokio::test]
async fn keeps_timers_when_it_is_opened_again() {
    let folder = Folder::new();
    let store = opened(&folder).await;
    store
        .write(&space(), set("a", 3), NEAR)
        .await
        .expect("it writes");
    drop(store);
    let store = opened(&folder).await;
    let rows = store.rows_of(&space(), b"a".to_vec(), 1).await;
    assert_eq!(rows.expect("it reads")[0].value, [7, 7, 7]);
}

#[tokio::test]
async fn writes_ahead_and_waits_for_the_disk() {
    let folder = Folder::new();
    let store = opened(&folder).await;
    let settings = store.thread.call(|batch| {
        let read = |sql| {
            batch
                .connection
                .query_row(sql, (), |row| row.get::<_, rusqlite::types::Value>(0))
        };
        Ok(Ok((
            read("PRAGMA journal_mode")?,
            read("PRAGMA synchronous")?,
        )))
    });
    // 2 is FULL.
    let expected = ("wal".to_owned().into(), 2.into());
    assert_eq!(settings.await, Ok(expected));
}

#[tokio::test]
async fn two_that_open_a_new_file_at_once_make_it_once() {
    let folder = Folder::new();
    let empty = Connection::open(folder.file()).expect("it opens");
    // A transaction of a user makes nothing.
    let refused = schema::check(&empty).expect("it reads");
    let refused = refused.expect_err("there are no tables").to_string();
    assert!(refused.contains("Sqlite::open"), "{refused}");
    let stores = [(); 2].map(|()| {
        std::thread::spawn({
            let file = folder.file();
            move || Sqlite::open(file).expect("it opens")
        })
    });
    let [store, other] = stores.map(|store| store.join().expect("it does not panic"));
    let opened = Store::open(&store, &space(), &"json".into()).await;
    opened.expect("it opens");
    let written = store.write(&space(), set("a", 3), NEAR).await;
    written.expect("it writes");
    let rows = other.rows_of(&space(), b"a".to_vec(), 1).await;
    assert_eq!(rows.expect("it reads")[0].value, [7, 7, 7]);
}

/// One of two processes that started together was told that the database is locked.
#[test]
fn many_that_open_new_files_at_once_wait_for_each_other() {
    const AT_ONCE: usize = 6;
    for _ in 0..40 {
        let folder = Folder::new();
        let begin = std::sync::Barrier::new(AT_ONCE);
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    begin.wait();
                    Sqlite::open(folder.file()).expect("it opens");
                });
            }
        });
    }
}

/// As in a file that was restored: tokens were given twice.
#[tokio::test]
async fn versions_grow_though_the_sequence_went_back() {
    let folder = Folder::new();
    let (store, space) = (opened(&folder).await, space());
    let before = store.open(&space, &"json".into()).await.expect("it opens");
    let other = Connection::open(folder.file()).expect("it opens");
    let sql = "UPDATE tickwheel_meta SET value = 7 WHERE name = 'sequence'";
    other.execute(sql, ()).expect("it writes");
    let after = store.open(&space, &"json".into()).await.expect("it opens");
    assert!(after.instance > before.instance, "{after:?} {before:?}");
}

#[tokio::test]
async fn refuses_a_schema_of_a_later_version() {
    let folder = Folder::new();
    drop(opened(&folder).await);
    let other = Connection::open(folder.file()).expect("it opens");
    let sql = "UPDATE tickwheel_meta SET value = 7 WHERE name IN ('schema', 'readable_by')";
    other.execute(sql, ()).expect("it writes");
    let error = Sqlite::open(folder.file()).expect_err("it is from the future");
    assert_eq!(error, StoreError::schema(7, 7, 1));
}

/// An older instance went on with its old statements forever.
#[tokio::test]
async fn older_instance_stops_when_the_schema_is_raised() {
    let folder = Folder::new();
    let (store, space) = (opened(&folder).await, space());
    let charter = "json".into();
    let instance = Store::open(&store, &space, &charter).await;
    let instance = instance.expect("it opens").instance;
    let other = Connection::open(folder.file()).expect("it opens");
    let raise = |version: i64| {
        let sql = "UPDATE tickwheel_meta SET value = ?1 WHERE name IN ('schema', 'readable_by')";
        other.execute(sql, [version]).expect("it writes");
    };
    raise(2);
    let later = StoreError::schema(2, 2, 1);
    let written = store.write(&space, set("a", 1), NEAR).await;
    assert_eq!(written, Err(later.clone()));
    let load = crate::store::Load::new(instance, Duration::ZERO, 1, Duration::ZERO);
    assert_eq!(store.load(&space, load).await, Err(later.clone()));
    let fire = Fire::new(vec![Version(1)], None, NEAR);
    assert_eq!(store.fire(&space, fire).await, Err(later.clone()));
    let ack = vec![Settle::new(Version(1), Settlement::Ack)];
    assert_eq!(
        store.settle(&space, ack, NEAR).await,
        Ok(vec![crate::store::Settled::Lost])
    );
    let opened = Store::open(&store, &space, &charter).await;
    assert_eq!(opened, Err(later.clone()));
    assert_eq!(store.count(&space).await, Err(later));
    raise(1);
    let written = store.write(&space, set("a", 1), NEAR).await;
    assert!(written.is_ok(), "{written:?}");
}

#[tokio::test]
async fn refuses_what_is_no_database_and_names_it() {
    let folder = Folder::new();
    std::fs::write(folder.file(), [b'x'; 4096]).expect("it is written");
    for path in [
        folder.file(),
        folder.0.clone(),
        folder.0.join("no folder/x.db"),
    ] {
        let error = Sqlite::open(&path).expect_err("it is none");
        assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
        let path = path.display().to_string();
        assert!(error.to_string().contains(&path), "{error}");
    }
}

#[tokio::test]
async fn refuses_to_write_a_read_only_file() {
    let folder = Folder::new();
    let store = opened(&folder).await;
    pragma(&store, "query_only", 1).await;
    let error = store.write(&space(), set("a", 1), NEAR).await;
    let error = error.expect_err("it is read-only");
    assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
    assert!(format!("{error:#}").contains("readonly"), "{error:#}");
}

#[tokio::test]
async fn recovers_from_a_full_disk_and_keeps_what_was_written() {
    let folder = Folder::new();
    let store = opened(&folder).await;
    pragma(&store, "max_page_count", 40).await;
    let mut written = 0;
    let error = loop {
        // Calls that wait together share a transaction, in which the disk becomes full.
        let calls = (0..8).map(|n| {
            let key = (written * 8 + n).to_string();
            let store = &store;
            async move { store.write(&space(), set(&key, 8_000), NEAR).await }
        });
        let answers = futures_util::future::join_all(calls).await;
        let ok = answers.iter().filter(|answer| answer.is_ok()).count();
        written += ok as u64;
        let error = answers.into_iter().find_map(Result::err);
        if let Some(error) = error {
            break error;
        }
        assert!(written < 100, "it is never full");
    };
    assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
    assert!(format!("{error:#}").contains("full"), "{error:#}");
    let counts = store.count(&space()).await.expect("it counts");
    assert_eq!(counts.waiting, written);
    drop(store);
    // The file holds every timer if its call returned `Ok`, and no other.
    let store = opened(&folder).await;
    store
        .write(&space(), set("after", 8_000), NEAR)
        .await
        .expect("there is room");
    let counts = store.count(&space()).await.expect("it counts");
    assert_eq!(counts.waiting, written + 1);
}

#[tokio::test]
async fn undoes_a_call_that_fails_and_no_other() {
    let folder = Folder::new();
    let (store, space) = (opened(&folder).await, space());
    // The calls are queued before the first is awaited, so they share a transaction or not: either
    // way.
    let before = store.write(&space, set("before", 1), NEAR);
    let failing = store
        .thread
        .call(|batch| -> rusqlite::Result<Result<Version, _>> {
            batch
                .connection
                .execute("DELETE FROM tickwheel_timers", ())?;
            batch.connection.execute("no SQL", ())?;
            Ok(Ok(Version(1)))
        });
    let after = store.write(&space, set("after", 1), NEAR);
    let (before, failed, after) = tokio::join!(before, failing, after);
    assert!(before.is_ok() && after.is_ok());
    let failed = failed.expect_err("it is no SQL");
    assert!(format!("{failed:#}").contains("no SQL"), "{failed:#}");
    assert_eq!(store.count(&space).await.expect("it counts").waiting, 2);
}

#[tokio::test]
async fn calls_that_were_given_up_do_not_run() {
    let folder = Folder::new();
    let (store, space) = (opened(&folder).await, space());
    let other = Connection::open(folder.file()).expect("it opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("it locks");
    let blocked = store.write(&space, set("blocked", 1), NEAR);
    // The thread is busy with the one before.
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(store.write(&space, set("given up", 1), NEAR));
    other.execute_batch("COMMIT").expect("it unlocks");
    blocked.await.expect("it writes");
    let rows = store.rows_of(&space, b"given up".to_vec(), 1).await;
    assert_eq!(rows, Ok(Vec::new()));
}

/// Hints were never sent, and no test noticed: a near timer waited for the next poll of the
/// claiming instance.
#[tokio::test]
async fn near_row_that_is_not_loaded_sends_a_hint() {
    let folder = Folder::new();
    let (store, space) = (opened(&folder).await, space());
    let clone = store.clone();
    let near = |window| Terms::new(window, None);
    let hour = Duration::from_secs(3_600);
    let mut hinted = Box::pin(clone.hinted(&space));
    for (window, hints) in [(hour / 2, false), (2 * hour, true)] {
        let early = timeout(Duration::ZERO, &mut hinted).await;
        assert!(early.is_err(), "nothing is near yet");
        let written = store.write(&space, set("a", 1), near(window)).await;
        written.expect("it writes");
        let heard = timeout(Duration::ZERO, &mut hinted).await;
        assert_eq!(heard.is_ok(), hints, "within {window:?}");
    }
}
