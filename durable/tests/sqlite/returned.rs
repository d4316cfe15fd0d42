//! A file that is restored in place, or emptied, under instances that run.

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::Connection;

use super::returned::{is_survived, loss_is_survived};
use super::{File, Sqlite};

const POLL: Duration = Duration::from_millis(200);
const LONG_POLL: Duration = Duration::from_secs(5);

const TABLES: [&str; 4] = ["meta", "namespaces", "instances", "timers"];

impl File {
    fn path(&self) -> PathBuf {
        self.folder.join("timers.db")
    }

    async fn two_stores(&self) -> [Sqlite; 2] {
        use tickwheel_durable_conformance::Stores;
        [self.connect().await, self.connect().await]
    }

    /// Runs statements on a connection of its own.
    fn run(&self, sql: &str) {
        let other = Connection::open(self.path()).expect("it opens");
        other
            .busy_timeout(Duration::from_secs(30))
            .expect("it waits");
        other.execute_batch(sql).expect("it runs");
    }

    fn backup(&self) -> String {
        self.folder.join("backup.db").display().to_string()
    }

    fn keep(&self) {
        self.run(&format!("VACUUM INTO '{}'", self.backup()));
    }

    /// Has the tables of the backup in place of those in the file, in one commit, as `.restore` of
    /// the program `sqlite3` has.
    fn restore(&self) {
        let tables = TABLES.map(|table| {
            format!(
                "DELETE FROM main.tickwheel_{table};
                INSERT INTO main.tickwheel_{table} SELECT * FROM backup.tickwheel_{table};"
            )
        });
        let (backup, tables) = (self.backup(), tables.concat());
        self.run(&format!(
            "ATTACH '{backup}' AS backup; BEGIN IMMEDIATE; {tables} COMMIT"
        ));
    }
}

#[tokio::test]
async fn file_restored_in_place_strands_no_timer() {
    let file = File::new();
    let stores = file.two_stores().await;
    let noticed = is_survived(stores, POLL, async || file.keep(), async || file.restore()).await;
    assert_eq!(noticed, 2);
}

/// The backup is made and restored between two loads. Clones share the file's thread, so one of the
/// two instances cannot hide from the other that versions were given since.
#[tokio::test]
async fn file_restored_within_a_poll_strands_no_timer() {
    let file = File::new();
    let [store, _] = file.two_stores().await;
    let stores = [store.clone(), store];
    let restore = async || file.restore();
    let noticed = is_survived(stores, LONG_POLL, async || file.keep(), restore).await;
    assert_eq!(noticed, 2);
}

#[tokio::test]
async fn emptied_tables_are_used_again() {
    let file = File::new();
    let stores = file.two_stores().await;
    let empty = TABLES.map(|table| format!("DELETE FROM tickwheel_{table};"));
    let empty = format!("BEGIN IMMEDIATE; {} COMMIT", empty.concat());
    loss_is_survived(stores, async || file.run(&empty)).await;
}

#[tokio::test]
async fn dropped_tables_are_made_again() {
    let file = File::new();
    let stores = file.two_stores().await;
    let drop = TABLES.map(|table| format!("DROP TABLE tickwheel_{table};"));
    let drop = format!("BEGIN IMMEDIATE; {} COMMIT", drop.concat());
    loss_is_survived(stores, async || file.run(&drop)).await;
}
