//! The cost of durable timers on an SQLite file, against a plain transaction for each set.
//!
//! ```sh
//! cargo bench -p tickwheel-durable              # all
//! cargo bench -p tickwheel-durable -- sets      # one: sets, lateness, storm, start
//! ```
//!
//! The file lies in the folder `TICKWHEEL_BENCH_DIR`, or in that for temporary files: put it on the
//! disk that counts.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use tickwheel_durable::Sqlite;

#[path = "support/numbers.rs"]
mod numbers;
mod support;

use numbers::{RUN, report_rate};
use support::{Connect, report_delays, wanted};

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the runtime starts");
    if wanted("sets") {
        plain_sets();
        for tasks in [1, 64, 4_096] {
            runtime.block_on(numbers::sets(&Folder::new("sets"), tasks));
        }
    }
    if wanted("lateness") {
        runtime.block_on(lateness());
    }
    if wanted("storm") {
        let stores = Folder::new("storm");
        runtime.block_on(numbers::storm(&stores, 100_000, 4, 1_024, Duration::ZERO));
        runtime.block_on(numbers::storm(
            &stores,
            20_000,
            1,
            64,
            Duration::from_secs(5),
        ));
    }
    if wanted("start") {
        runtime.block_on(numbers::start_with(&Folder::new("start"), 1_000_000));
    }
}

/// A new folder, which goes when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let base =
            std::env::var_os("TICKWHEEL_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let folder = base.join(format!("tickwheel-bench-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder is made");
        Folder(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("timers.db")
    }
}

impl Connect for Folder {
    type Store = Sqlite;

    async fn connect(&self) -> Sqlite {
        Sqlite::open(self.file()).expect("it opens")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A file that is left over is harmless.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A program without this crate: one transaction for each set.
fn plain_sets() {
    let folder = Folder::new("plain");
    let connection = rusqlite::Connection::open(folder.file()).expect("it opens");
    connection
        .pragma_update(None, "journal_mode", "WAL")
        .expect("it is set");
    connection
        .pragma_update(None, "synchronous", "FULL")
        .expect("it is set");
    let table = "CREATE TABLE timers (key INTEGER PRIMARY KEY, value INTEGER, due INTEGER)";
    connection.execute_batch(table).expect("it is made");
    let sql = "INSERT INTO timers VALUES (?1, ?2, ?3)";
    let mut insert = connection.prepare(sql).expect("it is SQL");
    let began = Instant::now();
    let mut count = 0_u32;
    while began.elapsed() < RUN {
        insert.execute((count, 0, 0)).expect("it is written");
        count += 1;
    }
    let took = began.elapsed();
    report_rate("plain transaction for each set", count.into(), took);
}

/// A timer every 10 ms, each loaded before it is due.
async fn lateness() {
    let folder = Folder::new("lateness");
    let (timers, mut claims) = numbers::start(&folder, "bench-late").await;
    let first = SystemTime::now() + Duration::from_secs(2);
    for number in 0..500_u32 {
        let deadline = first + Duration::from_millis(10) * number;
        timers
            .set_timer_at(&number.into(), &0, deadline)
            .await
            .expect("it is set");
    }
    let mut late = Vec::new();
    while late.len() < 500 {
        let claim = claims.recv().await.expect("the stream goes on");
        late.push(claim.deadline.elapsed().expect("it is not early"));
        claim.ack().await.expect("it is held");
    }
    report_delays("lateness of loaded timers, 100 a second", late);
}
