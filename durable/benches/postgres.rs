//! The cost of durable timers on PostgreSQL, beside the plain ways on the same server in the same
//! run.
//!
//! ```sh
//! cargo bench -p tickwheel-durable --features postgres --bench postgres            # all
//! cargo bench -p tickwheel-durable --features postgres --bench postgres -- sets    # one: sets, storm, lateness, near, start
//! ```
//!
//! The server is that of `TICKWHEEL_POSTGRES_URL`, in which timers of namespaces `bench-*` go, or
//! one that is started with its usual settings in the folder for temporary files: every commit
//! waits for the disk, and for the microseconds in `TICKWHEEL_BENCH_COMMIT_DELAY` before that. Set
//! `TMPDIR` to the disk that counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use tickwheel_durable::Postgres;

#[path = "support/numbers.rs"]
mod numbers;
#[allow(dead_code, unreachable_pub, reason = "it is shared with the tests")]
#[path = "../tests/postgres/server.rs"]
mod server;
mod support;

use numbers::{RUN, report_rate};
use server::{Server, client};
use support::{Connect, report_delays, wanted};

struct Local(String);

impl Connect for Local {
    type Store = Postgres;

    async fn connect(&self) -> Postgres {
        Postgres::connect(&self.0).await.expect("it connects")
    }
}

fn main() {
    let given = std::env::var("TICKWHEEL_POSTGRES_URL").ok();
    let delay = std::env::var("TICKWHEEL_BENCH_COMMIT_DELAY").unwrap_or_else(|_| "0".to_owned());
    let server = match given {
        Some(_) => None,
        None => Some(
            Server::start(&[
                "shared_buffers=512MB",
                "max_wal_size=4GB",
                "commit_siblings=0",
                &format!("commit_delay={delay}"),
            ])
            .expect("PostgreSQL is installed"),
        ),
    };
    let url = given.unwrap_or_else(|| server.as_ref().expect("it is started").url());
    let local = Local(url.clone());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the runtime starts");
    runtime.block_on(async {
        if wanted("sets") {
            plain_sets(&url).await;
            for tasks in [1, 64, 4_096] {
                numbers::sets(&local, tasks).await;
            }
        }
        if wanted("storm") {
            for instances in [1, 4] {
                numbers::storm(&local, 100_000, instances, 1_024, Duration::ZERO).await;
            }
            numbers::storm(&local, 20_000, 1, 64, Duration::ZERO).await;
            numbers::storm(&local, 20_000, 1, 64, Duration::from_secs(5)).await;
        }
        if wanted("lateness") {
            lateness_of_a_poll(&url).await;
            lateness(&local, "bench-late", true, Duration::from_secs(3)).await;
        }
        if wanted("near") {
            lateness(&local, "bench-near", false, Duration::from_millis(50)).await;
        }
        if wanted("start") {
            numbers::start_with(&local, 1_000_000).await;
        }
    });
}

/// A program without this crate: a transaction for each set, 64 connections.
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
    report_rate(
        "plain transaction for each set, 64 connections",
        next.load(Ordering::Relaxed),
        began.elapsed(),
    );
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
    report_delays("lateness of a plain poll each second", late);
}

/// A timer every 10 ms, each set so long before it is due, by the instance that claims or by one
/// that claims nothing.
async fn lateness(local: &Local, space: &str, by_itself: bool, ahead: Duration) {
    let (timers, mut claims) = numbers::start(local, space).await;
    let (writer, writers_claims) = numbers::start(local, space).await;
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
    report_delays(what, late);
    drop(sets.await.expect("it ends"));
    timers.shutdown().await;
}
