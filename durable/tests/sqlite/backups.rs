//! The commands of the page on backups, on files.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rusqlite::Connection;
use tickwheel::TimerWheel;
use tickwheel_durable::{Claims, DurableTimers, Sqlite, builder};
use tokio::time::timeout;

use super::File;
use crate::closing::in_the_file_alone;
use crate::not_run::not_run;
use crate::page::run;

const TIMERS: u64 = 3_000;
const HOUR: Duration = Duration::from_secs(3_600);

type Instance = (DurableTimers<String, u64>, Claims<String, u64>);

/// An instance on the file of the page.
async fn start(folder: &Path) -> Instance {
    let store = Sqlite::open(folder.join("orders.db")).expect("it opens");
    let started = builder("orders").start(&TimerWheel::new(), store).await;
    started.expect("it starts")
}

async fn set(timers: &DurableTimers<String, u64>, keys: std::ops::Range<u64>, delay: Duration) {
    let all: Vec<_> = keys.map(|key| (format!("order {key}"), key)).collect();
    let all = all.iter().map(|(key, value)| (key, value, delay));
    timers.set_many(all).await.expect("they are set");
}

fn commands(words: &str, folder: &Path) -> Option<()> {
    let ran = run("SQLite", words, folder, &[]);
    if ran.is_none() {
        not_run("no sqlite3 is installed");
    }
    ran
}

/// Copies files, in another process: one that closes a file loses its locks on it.
fn copy(folder: &Path, names: &[&str], to: &Path) {
    let files = names.iter().map(|name| folder.join(name));
    let copied = Command::new("cp").args(files).arg(to).status();
    assert!(copied.expect("there is such a command").success());
}

/// The files of a process, in another folder, as they are when it is killed.
fn killed(folder: &Path) -> File {
    let left = File::new();
    copy(folder, &["orders.db", "orders.db-wal"], &left.folder);
    left
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_the_page_back_a_running_file_up_and_restore_it() {
    let file = File::new();
    let folder = &file.folder;
    let (timers, _claims) = start(folder).await;
    set(&timers, 0..TIMERS, HOUR).await;
    let Some(()) = commands("Back up", folder) else {
        return;
    };
    set(&timers, TIMERS..2 * TIMERS, HOUR).await;
    for backup in ["backup.db", "compact.db"] {
        let found = in_the_file_alone(&folder.join(backup));
        assert_eq!(found.expect("it is whole"), 3_000, "{backup}");
        let host = killed(folder);
        copy(folder, &[backup], &host.folder.join("backup.db"));
        commands("Restore", &host.folder).expect("it was installed");
        let (restored, _claims) = start(&host.folder).await;
        let counts = restored.counts().await.expect("it counts");
        assert_eq!(counts.waiting, TIMERS, "{backup}");
        let other = Connection::open(host.folder.join("orders.db")).expect("it opens");
        let checked = other.query_row("PRAGMA integrity_check", (), |row| row.get::<_, String>(0));
        assert_eq!(checked.expect("it reads"), "ok", "{backup}");
    }
}

/// So says the page of `cp` without more, and of the log that is left beside a restored file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_of_a_running_file_has_nothing_and_its_log_undoes_a_restore() {
    let file = File::new();
    let folder = &file.folder;
    let (timers, _claims) = start(folder).await;
    set(&timers, 0..300, HOUR).await;
    let copied = folder.join("copy.db");
    copy(folder, &["orders.db"], &copied);
    assert!(in_the_file_alone(&copied).is_err(), "it has no tables");
    let Some(()) = commands("Back up", folder) else {
        return;
    };
    set(&timers, 300..400, HOUR).await;
    let host = killed(folder);
    copy(folder, &["backup.db"], &host.folder.join("orders.db"));
    let (restored, _claims) = start(&host.folder).await;
    let counts = restored.counts().await.expect("it counts");
    assert_eq!(counts.waiting, 400, "nothing is restored");
}

/// A dump of production in another place sent its reminders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_timers_that_are_held_run_once_they_are_released() {
    let file = File::new();
    let folder = &file.folder;
    let (timers, claims) = start(folder).await;
    set(&timers, 0..3, Duration::from_millis(1_500)).await;
    drop(claims);
    timers.shutdown().await;
    let Some(()) = commands("Hold", folder) else {
        return;
    };
    let (timers, mut claims) = start(folder).await;
    let nothing = timeout(Duration::from_secs(4), claims.recv()).await;
    assert!(nothing.is_err(), "{nothing:?} is held");
    timers.shutdown().await;
    commands("Release", folder).expect("it was installed");
    let (_timers, mut claims) = start(folder).await;
    for _ in 0..3 {
        let claim = timeout(Duration::from_secs(20), claims.recv()).await;
        let claim = claim.expect("it comes").expect("the stream goes on");
        claim.ack().await.expect("it is held");
    }
}
