//! Very many pending timers in one namespace: how long they take to be set, what a start and a
//! delivery among them cost, and how fast they are purged.
//!
//! ```sh
//! cargo bench -p tickwheel-durable --bench scale --all-features -- <url or file> <timers> [parts] [step..]
//! ```
//!
//! The steps are `fill`, which empties the namespace `bench-scale` first, `start` and `purge`: all
//! of them unless some are named. The CPU time of Redis is what its nodes say; that of the other
//! servers is not measured.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tickwheel::TimerWheel;
use tickwheel_durable::store::Store;
use tickwheel_durable::{Claims, DurableTimers, Postgres, Redis, Sqlite, builder};

#[path = "support/numbers.rs"]
#[expect(dead_code, reason = "the other benchmarks need more of it")]
mod numbers;
#[expect(dead_code, reason = "the other benchmarks need more of it")]
mod support;

use numbers::{FAR, report_rate, resident};
use support::{report, report_delays};

type Timers = DurableTimers<u64, String>;

/// So many timers are set with one call, by so many tasks.
const BATCH: u64 = 2_000;
const TASKS: u64 = 8;

/// So many are delivered among those that are pending.
const DELIVERED: u64 = 20_000;

struct Target {
    url: String,
    parts: usize,
}

impl Target {
    async fn connect(&self) -> Box<dyn Store> {
        let url = &self.url;
        if url.starts_with("postgres") {
            Box::new(Postgres::connect(url).await.expect("it connects"))
        } else if url.starts_with("redis") {
            let redis = Redis::connect(url).await.expect("it connects");
            Box::new(redis.spread(self.parts))
        } else {
            Box::new(Sqlite::open(url).expect("it opens"))
        }
    }

    async fn start(&self) -> (Timers, Claims<u64, String>) {
        let builder = builder("bench-scale").call_timeout(Duration::from_secs(60));
        let wheel = TimerWheel::new();
        let started = builder.start(&wheel, self.connect().await);
        started.await.expect("it starts")
    }

    /// The CPU time of the nodes of Redis.
    async fn server_cpu(&self) -> Duration {
        let Some((_, hosts)) = self
            .url
            .split_once("://")
            .filter(|_| self.url.starts_with("redis"))
        else {
            return Duration::ZERO;
        };
        let mut sum = 0.0;
        for host in hosts.split(',') {
            let client = redis::Client::open(format!("redis://{host}")).expect("it is a URL");
            let connecting = client.get_multiplexed_async_connection();
            let mut connection = connecting.await.expect("it connects");
            let mut info = redis::cmd("INFO");
            let info: String = info
                .arg("cpu")
                .query_async(&mut connection)
                .await
                .expect("it says");
            let fields = info.lines().filter_map(|line| line.split_once(':'));
            let of_main =
                fields.filter(|(name, _)| matches!(*name, "used_cpu_sys" | "used_cpu_user"));
            sum += of_main
                .map(|(_, cpu)| cpu.trim().parse().unwrap_or(0.0))
                .sum::<f64>();
        }
        Duration::from_secs_f64(sum)
    }
}

/// The CPU time of this process.
fn own_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    let ticks = fields
        .skip(11)
        .take(2)
        .map(|field| field.parse().unwrap_or(0));
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

/// Runs a step, and reports what it took for each of so many timers.
async fn measured<T>(target: &Target, what: &str, count: u64, step: impl Future<Output = T>) -> T {
    let (server, own, began) = (target.server_cpu().await, own_cpu(), Instant::now());
    let result = step.await;
    report_rate(what, count, began.elapsed());
    let each = |cpu: Duration| cpu * 1_000 / u32::try_from(count).unwrap_or(u32::MAX);
    let server = each(target.server_cpu().await.saturating_sub(server));
    let own = each(own_cpu().saturating_sub(own));
    println!("  CPU of a thousand: {server:.1?} of the server, {own:.1?} of this process");
    result
}

async fn set(timers: &Timers, from: u64, to: u64, delay: Duration) {
    let tasks = (0..TASKS).map(async |task| {
        let mut batch = from + task * BATCH;
        while batch < to {
            let keys: Vec<u64> = (batch..to.min(batch + BATCH)).collect();
            let value = |key: &u64| format!("reminder {key:>8}: something that is to be done");
            let values: Vec<String> = keys.iter().map(value).collect();
            let pairs = keys.iter().zip(&values);
            let setting = timers.set_many(pairs.map(|(key, value)| (key, value, delay)));
            setting.await.expect("they are set");
            batch += TASKS * BATCH;
        }
    });
    join_all(tasks).await;
}

async fn deliver(claims: &mut Claims<u64, String>, count: u64) -> Vec<Duration> {
    let mut late = Vec::new();
    let mut claimed = Vec::new();
    while (late.len() as u64) < count {
        let left = usize::try_from(count).expect("it is small") - late.len();
        claims.recv_many(&mut claimed, left.min(1_024)).await;
        late.extend(
            claimed
                .iter()
                .map(|claim| claim.deadline.elapsed().unwrap_or_default()),
        );
        let acks = join_all(claimed.drain(..).map(async |claim| claim.ack().await)).await;
        for ack in acks {
            ack.expect("it is held");
        }
    }
    late
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let [url, count, rest @ ..] = &*words else {
        return println!("a URL or a file, and how many timers, are missing: nothing is measured");
    };
    let count = count.parse().expect("it is a number");
    let parts = rest
        .first()
        .map_or(1, |parts| parts.parse().expect("it is a number"));
    let is_wanted = |step: &str| rest.len() < 2 || rest[1..].iter().any(|word| word == step);
    let target = Target {
        url: url.clone(),
        parts,
    };
    if is_wanted("fill") {
        fill(&target, count).await;
    }
    if is_wanted("start") {
        start(&target, count).await;
    }
    if is_wanted("purge") {
        let (timers, _claims) = target.start().await;
        let purging = async { timers.admin().purge().await.expect("it is emptied") };
        measured(&target, "purged", count, purging).await;
    }
}

async fn fill(target: &Target, count: u64) {
    let (timers, claims) = target.start().await;
    claims.shutdown().await;
    timers.admin().purge().await.expect("it is emptied");
    let setting = set(&timers, 0, count, FAR);
    let what = format!("set, in {} parts", target.parts);
    measured(target, &what, count, setting).await;
    timers.shutdown().await;
}

async fn start(target: &Target, count: u64) {
    let (before, began) = (resident(), Instant::now());
    let (timers, mut claims) = target.start().await;
    let ready = began.elapsed();
    let now = set(&timers, count, count + 1, Duration::ZERO);
    now.await;
    deliver(&mut claims, 1).await;
    let first = format!(
        "ready in {ready:.1?}, first delivery after {:.1?}",
        began.elapsed()
    );
    let memory = resident().saturating_sub(before);
    report(
        &format!("start with {count} pending"),
        &format!("{first}; {memory} KiB more memory"),
    );

    let mut late = Vec::new();
    for number in 0..500 {
        set(
            &timers,
            count + number,
            count + number + 1,
            Duration::from_millis(300),
        )
        .await;
        if number >= 30 {
            late.extend(deliver(&mut claims, 1).await);
        }
    }
    report_delays("lateness of one after the other", late);
    deliver(&mut claims, 30).await;

    set(&timers, count, count + DELIVERED, Duration::ZERO).await;
    let delivering = deliver(&mut claims, DELIVERED);
    measured(target, "fired and acknowledged", DELIVERED, delivering).await;
    let metrics = timers.metrics();
    println!(
        "  {} loaded, {} a fire",
        metrics.loaded,
        metrics.fire_batches.mean()
    );
    claims.shutdown().await;
    timers.shutdown().await;
}
