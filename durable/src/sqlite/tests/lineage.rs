//! Files that are restored beside the log of the file that was there before.

use std::process::Command;

use super::*;
use crate::sqlite::lineage::advance;

/// The file and its log in another folder, as a killed process leaves them.
///
/// Another process copies them: a process that closes a file loses its locks on it.
fn killed(folder: &Folder) -> Folder {
    let left = Folder::new();
    let files = ["", "-wal"].map(|end| folder.0.join(format!("timers.db{end}")));
    let copied = Command::new("cp").args(files).arg(&left.0).status();
    assert!(copied.expect("there is such a command").success());
    left
}

async fn write(store: &Sqlite, key: &str) {
    let written = store.write(&space(), set(key, 1), NEAR).await;
    written.expect("it writes");
}

async fn has(store: &Sqlite, key: &str) -> bool {
    let rows = store.rows_of(&space(), key.into(), 1).await;
    !rows.expect("it reads").is_empty()
}

/// A backup was copied over the file of a killed process: its log undid that, silently.
#[tokio::test]
async fn backup_beside_an_older_log_is_refused() {
    let folder = Folder::new();
    let (store, other) = (opened(&folder).await, Connection::open(folder.file()));
    let other = other.expect("it opens");
    write(&store, "a").await;
    let backup = folder.0.join("backup.db");
    let copy = format!("VACUUM INTO '{}'", backup.display());
    other.execute_batch(&copy).expect("it is copied");
    write(&store, "b").await;
    advance(&other, &folder.file()).expect("it advances");
    write(&store, "c").await;
    let restored = killed(&folder);
    std::fs::copy(&backup, restored.file()).expect("it is copied");
    let refused = Sqlite::open(restored.file()).expect_err("the log is of another file");
    let text = format!("{refused:#}");
    assert!(text.contains("older than its write-ahead log"), "{text}");
    // As the error says.
    for end in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(restored.0.join(format!("timers.db{end}")));
    }
    std::fs::copy(&backup, restored.file()).expect("it is copied");
    let store = opened(&restored).await;
    assert!(has(&store, "a").await && !has(&store, "b").await && !has(&store, "c").await);
}

/// However much of the log is in the file when the process dies.
#[tokio::test]
async fn killed_process_leaves_what_is_opened_again() {
    let folder = Folder::new();
    let (store, other) = (opened(&folder).await, Connection::open(folder.file()));
    let other = other.expect("it opens");
    let mut reader = None;
    for round in 0..24 {
        write(&store, &round.to_string()).await;
        match round % 6 {
            1 => {
                let read = Connection::open(folder.file()).expect("it opens");
                read.execute_batch("BEGIN; SELECT count(*) FROM tickwheel_timers")
                    .expect("it reads");
                reader = Some(read);
            }
            // As far as the reader lets it.
            2 => advance(&other, &folder.file()).expect("it advances"),
            4 => reader = None,
            // By another program.
            5 => {
                let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
                let read = other.query_row(checkpoint, (), |_| Ok(()));
                read.expect("it writes");
            }
            _ => {}
        }
        let left = killed(&folder);
        let again = opened(&left).await;
        assert!(has(&again, &round.to_string()).await, "{round}");
    }
    drop(reader);
}

/// It has gone back, and the process is killed before the file alone has.
#[tokio::test]
async fn file_that_is_restored_under_a_process_is_opened_again() {
    let folder = Folder::new();
    let store = opened(&folder).await;
    let other = Connection::open(folder.file()).expect("it opens");
    // As if the clock had been ahead.
    let ahead = "UPDATE tickwheel_meta SET value = value + 3600000000 WHERE name = 'sequence'";
    let back =
        "UPDATE tickwheel_meta SET value = value - 7200000000 WHERE name IN ('sequence', 'base')";
    other.execute(ahead, ()).expect("it is set");
    advance(&other, &folder.file()).expect("it advances");
    other.execute(back, ()).expect("it is set");
    for _ in 0..3 {
        advance(&other, &folder.file()).expect("it advances");
        opened(&killed(&folder)).await;
    }
    drop(store);
}
