//! What durable timers cost on PostgreSQL, beside the plain ways on the same server in the same run.
//!
//! ```sh
//! cargo bench -p tickwheel-durable --features postgres --bench postgres            # all
//! cargo bench -p tickwheel-durable --features postgres --bench postgres -- sets    # one: sets, storm, lateness, near, start
//! ```
//!
//! The server is that of `TICKWHEEL_POSTGRES_URL`, in which timers of namespaces `bench-*` go, or one that is started with its
//! usual settings in the folder for temporary files: every commit waits for the disk. Set `TMPDIR` to the disk that counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use tickwheel::TimerWheel;
use tickwheel_durable::store::{Action, Due, Namespace, Near, Store, Write};
use tickwheel_durable::{Claims, DurableTimers, Postgres, builder};

#[allow(dead_code, unreachable_pub, reason = "it is shared with the tests")]
#[path = "../tests/postgres/server.rs"]
mod server;

use server::{Server, client};

const FAR: Duration = Duration::from_secs(1_000_000);
const RUN: Duration = Duration::from_secs(4);

type Instance = (DurableTimers<u64, u64>, Claims<u64, u64>);

fn main() {
    let wanted: Vec<_> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    let given = std::env::var("TICKWHEEL_POSTGRES_URL").ok();
    let server = match given {
        Some(_) => None,
        None => Some(
            Server::start(&["shared_buffers=512MB", "max_wal_size=4GB"])
                .expect("PostgreSQL is installed"),
        ),
    };
    let url = given.unwrap_or_else(|| server.as_ref().expect("it is started").url());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the runtime starts");
    runtime.block_on(async {
        if is_wanted("sets") {
            plain_sets(&url).await;
            for tasks in [1, 64, 4_096] {
                sets(&url, tasks).await;
            }
        }
        if is_wanted("storm") {
            for instances in [1, 4] {
                storm(&url, 100_000, instances).await;
            }
        }
        if is_wanted("lateness") {
            lateness_of_a_poll(&url).await;
            lateness(&url, "bench-late", true, Duration::from_secs(3)).await;
        }
        if is_wanted("near") {
            lateness(&url, "bench-near", false, Duration::from_millis(50)).await;
        }
        if is_wanted("start") {
            start_with(&url, 1_000_000).await;
        }
    });
}

async fn start(url: &str, space: &str) -> Instance {
    let store = Postgres::connect(url).await.expect("it connects");
    let started = builder(space).start(&TimerWheel::new(), store).await;
    started.expect("it starts")
}

#[allow(clippy::cast_precision_loss, reason = "it is shown in thousands")]
fn show(what: &str, count: u64, took: Duration) {
    let (took, rate) = (took.as_secs_f64(), count as f64 / took.as_secs_f64());
    println!("{what:<48} {count:>8} in {took:>7.3} s  {rate:>9.0} /s");
}

fn show_lateness(what: &str, mut late: Vec<Duration>) {
    late.sort_unstable();
    let at = |percent: usize| late[(late.len() - 1) * percent / 100];
    println!(
        "{what:<48} p50 {:.1?}, p99 {:.1?}, max {:.1?}",
        at(50),
        at(99),
        at(100)
    );
}

/// What a program without this crate does: a transaction for each set, 64 connections.
async fn plain_sets(url: &str) {
    let table = "DROP TABLE IF EXISTS plain; CREATE TABLE plain (key bigint PRIMARY KEY, value bigint, due timestamptz);
        CREATE INDEX ON plain (due)";
    client(url)
        .await
        .batch_execute(table)
        .await
        .expect("it is made");
    let next = Arc::new(AtomicU64::new(0));
    let mut setters = Vec::new();
    let began = Instant::now();
    for _ in 0..64 {
        let (client, next) = (client(url).await, Arc::clone(&next));
        setters.push(tokio::spawn(async move {
            let sql = "INSERT INTO plain VALUES ($1, 0, now() + interval '1 day')";
            let insert = client.prepare(sql).await.expect("it is SQL");
            while began.elapsed() < RUN {
                let key = i64::try_from(next.fetch_add(1, Ordering::Relaxed)).expect("it is small");
                client.execute(&insert, &[&key]).await.expect("it is set");
            }
        }));
    }
    for setter in setters {
        setter.await.expect("it ends");
    }
    show(
        "plain transaction for each set, 64 connections",
        next.load(Ordering::Relaxed),
        began.elapsed(),
    );
}

/// Durable sets by so many concurrent tasks.
async fn sets(url: &str, tasks: u64) {
    let (timers, _claims) = start(url, &format!("bench-sets-{tasks}")).await;
    let next = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let setters = (0..tasks).map(|_| {
        let (timers, next) = (timers.clone(), Arc::clone(&next));
        tokio::spawn(async move {
            while began.elapsed() < RUN {
                let key = next.fetch_add(1, Ordering::Relaxed);
                timers.set_timer(&key, &key, FAR).await.expect("it is set");
            }
        })
    });
    for setter in setters.collect::<Vec<_>>() {
        setter.await.expect("it ends");
    }
    show(
        &format!("durable sets, {tasks} tasks"),
        next.load(Ordering::Relaxed),
        began.elapsed(),
    );
    println!("  writes at once: {}", timers.metrics().write_batches);
    timers.admin().purge().await.expect("it is thrown away");
}

/// So many timers due at once, for so many instances.
async fn storm(url: &str, count: u64, instances: usize) {
    let space = format!("bench-storm-{instances}");
    fill(url, &space, count, Due::In(Duration::ZERO)).await;
    let delivered: Arc<Vec<AtomicU64>> = Arc::new((0..count).map(|_| AtomicU64::new(0)).collect());
    let done = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let mut running = Vec::new();
    for _ in 0..instances {
        let (timers, mut claims) = start(url, &space).await;
        let (delivered, done) = (Arc::clone(&delivered), Arc::clone(&done));
        let run = tokio::spawn(async move {
            claims
                .dispatch(1_024, async |claim| {
                    let key = usize::try_from(claim.key).expect("it is small");
                    delivered[key].fetch_add(1, Ordering::Relaxed);
                    claim.ack().await.expect("it is held");
                    done.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                })
                .await;
        });
        running.push((timers, run));
    }
    while done.load(Ordering::Relaxed) < count && began.elapsed() < Duration::from_secs(120) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let took = began.elapsed();
    show(
        &format!("fired and acknowledged, {instances} instances"),
        done.load(Ordering::Relaxed),
        took,
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    let once = delivered
        .iter()
        .filter(|times| times.load(Ordering::Relaxed) == 1);
    println!("  delivered exactly once: {} of {count}", once.count());
    for (timers, run) in running {
        timers.shutdown().await;
        run.await.expect("it ends");
    }
}

/// The other plain way: every second, what is due is taken and deleted.
async fn lateness_of_a_poll(url: &str) {
    let client = client(url).await;
    let table = "DROP TABLE IF EXISTS plain; CREATE TABLE plain (key bigint PRIMARY KEY, value bigint, due timestamptz);
        CREATE INDEX ON plain (due);
        INSERT INTO plain SELECT n, 0, now() + interval '1 s' + interval '10 ms' * n FROM generate_series(1, 500) n";
    client.batch_execute(table).await.expect("it is filled");
    let take = "WITH taken AS (SELECT key FROM plain WHERE due <= now() ORDER BY due LIMIT 1024 FOR UPDATE SKIP LOCKED)
        DELETE FROM plain USING taken WHERE plain.key = taken.key RETURNING plain.due";
    let mut late = Vec::new();
    while late.len() < 500 {
        let rows = client.query(take, &[]).await.expect("it takes");
        let now = SystemTime::now();
        late.extend(
            rows.iter()
                .map(|row| now.duration_since(row.get(0)).expect("it is due")),
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    show_lateness("lateness of a plain poll each second", late);
}

/// A timer every 10 ms, each set so long before it is due, by the instance that claims or by one that claims nothing.
async fn lateness(url: &str, space: &str, by_itself: bool, ahead: Duration) {
    let (timers, mut claims) = start(url, space).await;
    let (writer, writers_claims) = start(url, space).await;
    writers_claims.shutdown().await;
    let setter = if by_itself { timers.clone() } else { writer };
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let sets = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        for number in 0..500_u64 {
            ticks.tick().await;
            let deadline = SystemTime::now() + ahead;
            setter
                .set_timer_at(&number, &0, deadline)
                .await
                .expect("it is set");
        }
        setter
    });
    let mut late = Vec::new();
    while late.len() < 500 {
        let claim = claims.recv().await.expect("the stream goes on");
        late.push(claim.deadline.elapsed().expect("it is not early"));
        claim.ack().await.expect("it is held");
    }
    let what = if by_itself {
        "lateness, 100 timers a second"
    } else {
        "lateness when another instance sets 50 ms ahead"
    };
    show_lateness(what, late);
    drop(sets.await.expect("it ends"));
    timers.shutdown().await;
}

/// An instance that starts on so many timers, all of them far.
async fn start_with(url: &str, count: u64) {
    let space = "bench-start";
    let began = Instant::now();
    fill(url, space, count, Due::In(FAR)).await;
    show(
        "written by the store in batches of 1,000",
        count,
        began.elapsed(),
    );
    let began = Instant::now();
    let (timers, mut claims) = start(url, space).await;
    let started = began.elapsed();
    timers
        .set_timer(&count, &0, Duration::ZERO)
        .await
        .expect("it is set");
    let claim = claims.recv().await.expect("it comes");
    claim.ack().await.expect("it is held");
    println!(
        "start with {count} pending: {started:.1?}, first delivery after {:.1?}",
        began.elapsed()
    );
    timers.admin().purge().await.expect("it is thrown away");
}

async fn fill(url: &str, space: &str, count: u64, due: Due) {
    let store = Postgres::connect(url).await.expect("it connects");
    let space = Namespace::new(space).expect("it is a name");
    store.open(&space, "json").await.expect("it opens");
    store.purge(&space).await.expect("it is thrown away");
    let near = Near {
        window: Duration::ZERO,
        loader: None,
    };
    let keys: Vec<_> = (0..count).collect();
    for keys in keys.chunks(1_000) {
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
