//! What durable timers cost on an SQLite file, against a plain transaction for each set.
//!
//! ```sh
//! cargo bench -p tickwheel-durable              # all
//! cargo bench -p tickwheel-durable -- sets      # one: sets, lateness, storm, start
//! ```
//!
//! The file lies in the folder `TICKWHEEL_BENCH_DIR`, or in that for temporary files: put it on the disk that counts.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use tickwheel::TimerWheel;
use tickwheel_durable::store::{Action, Due, Namespace, Near, Store, Write};
use tickwheel_durable::{Builder, Claims, DurableTimers, Sqlite, builder};

const FAR: Duration = Duration::from_secs(1_000_000);

fn main() {
    let wanted: Vec<_> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the runtime starts");
    if is_wanted("sets") {
        plain_sets();
        for tasks in [1, 64, 4_096] {
            runtime.block_on(sets(tasks));
        }
    }
    if is_wanted("lateness") {
        runtime.block_on(lateness());
    }
    if is_wanted("storm") {
        runtime.block_on(storm(100_000));
    }
    if is_wanted("start") {
        runtime.block_on(start_with(1_000_000));
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

impl Drop for Folder {
    fn drop(&mut self) {
        // Left over, it does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn timers() -> Builder<u64, u64> {
    builder("bench")
}

async fn start(wheel: &TimerWheel, file: &Path) -> (DurableTimers<u64, u64>, Claims<u64, u64>) {
    let store = Sqlite::open(file).expect("it opens");
    timers().start(wheel, store).await.expect("it starts")
}

#[allow(clippy::cast_precision_loss, reason = "it is shown in thousands")]
fn show(what: &str, count: u64, took: Duration) {
    let rate = count as f64 / took.as_secs_f64();
    println!(
        "{what:<44} {count:>8} in {:>7.3} s  {:>9.0} /s",
        took.as_secs_f64(),
        rate
    );
}

/// What a program without this crate does: one transaction for each set.
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
    while began.elapsed() < Duration::from_secs(3) {
        insert.execute((count, 0, 0)).expect("it is written");
        count += 1;
    }
    show(
        "plain transaction for each set",
        count.into(),
        began.elapsed(),
    );
}

/// Durable sets by so many concurrent tasks.
async fn sets(tasks: u64) {
    let folder = Folder::new("sets");
    let wheel = TimerWheel::new();
    let (timers, _claims) = start(&wheel, &folder.file()).await;
    let next = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let setters = (0..tasks).map(|_| {
        let (timers, next) = (timers.clone(), Arc::clone(&next));
        tokio::spawn(async move {
            while began.elapsed() < Duration::from_secs(3) {
                let key = next.fetch_add(1, Ordering::Relaxed);
                timers.set_timer(&key, &key, FAR).await.expect("it is set");
            }
        })
    });
    for setter in setters.collect::<Vec<_>>() {
        setter.await.expect("it ends");
    }
    let took = began.elapsed();
    show(
        &format!("durable sets, {tasks} tasks"),
        next.load(Ordering::Relaxed),
        took,
    );
    println!("  writes at once: {}", timers.metrics().write_batches);
}

/// A timer every 10 ms, each loaded before it is due.
async fn lateness() {
    let folder = Folder::new("lateness");
    let wheel = TimerWheel::new();
    let (timers, mut claims) = start(&wheel, &folder.file()).await;
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
    late.sort_unstable();
    println!(
        "lateness, 100 timers a second: p50 {:.1?}, p99 {:.1?}, max {:.1?}",
        late[250], late[495], late[499]
    );
}

/// So many timers due at once, four instances.
async fn storm(count: u64) {
    let folder = Folder::new("storm");
    let wheel = TimerWheel::new();
    fill(&folder, count, Due::In(Duration::ZERO)).await;
    let delivered: Arc<Vec<AtomicU64>> = Arc::new((0..count).map(|_| AtomicU64::new(0)).collect());
    let done = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let mut instances = Vec::new();
    for _ in 0..4 {
        let (timers, mut claims) = start(&wheel, &folder.file()).await;
        let (delivered, done) = (Arc::clone(&delivered), Arc::clone(&done));
        instances.push(tokio::spawn(async move {
            let mut batch = Vec::new();
            while claims.recv_many(&mut batch, 1_024).await > 0 {
                let acks = batch.drain(..).map(|claim| async move {
                    claim.ack().await.expect("it is held");
                    claim.key
                });
                for key in futures_util::future::join_all(acks).await {
                    delivered[usize::try_from(key).expect("it is small")]
                        .fetch_add(1, Ordering::Relaxed);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
        }));
        instances.push(tokio::spawn(async move {
            tokio::time::sleep(FAR).await;
            drop(timers);
        }));
    }
    while done.load(Ordering::Relaxed) < count && began.elapsed() < Duration::from_secs(120) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    show(
        "storm, 4 instances: fired and acknowledged",
        done.load(Ordering::Relaxed),
        began.elapsed(),
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    instances.iter().for_each(tokio::task::JoinHandle::abort);
    let once = delivered
        .iter()
        .filter(|times| times.load(Ordering::Relaxed) == 1)
        .count();
    println!("  delivered exactly once: {once} of {count}");
}

/// An instance that starts on so many timers, all of them far.
async fn start_with(count: u64) {
    let folder = Folder::new("start");
    let began = Instant::now();
    fill(&folder, count, Due::In(FAR)).await;
    show("written by the store in batches", count, began.elapsed());
    let before = resident();
    let wheel = TimerWheel::new();
    let began = Instant::now();
    let (timers, mut claims) = start(&wheel, &folder.file()).await;
    let started = began.elapsed();
    timers
        .set_timer(&count, &0, Duration::ZERO)
        .await
        .expect("it is set");
    claims
        .recv()
        .await
        .expect("it comes")
        .ack()
        .await
        .expect("it is held");
    println!(
        "start with {count} pending: {started:.1?}, first delivery after {:.1?}; {} KiB more memory",
        began.elapsed(),
        resident().saturating_sub(before)
    );
}

async fn fill(folder: &Folder, count: u64, due: Due) {
    let store = Sqlite::open(folder.file()).expect("it opens");
    let space = Namespace::new("bench").expect("it is a name");
    store.open(&space, "json").await.expect("it opens");
    let near = Near {
        window: Duration::ZERO,
        loader: None,
    };
    let keys: Vec<_> = (0..count).collect();
    for keys in keys.chunks(10_000) {
        let writes = keys.iter().map(|key| Write {
            key: key.to_string().into(),
            action: Action::Set {
                value: b"0".to_vec(),
                due,
                period: None,
                if_absent: false,
            },
        });
        store
            .write(&space, writes.collect(), near)
            .await
            .expect("it writes");
    }
}

/// The resident memory of this process in KiB; zero where that is not known.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let word = line.and_then(|line| line.split_whitespace().next());
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}
