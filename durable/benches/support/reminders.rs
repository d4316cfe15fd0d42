//! Measurements on timers with values like those of reminders.

use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tickwheel::TimerWheel;
use tickwheel_durable::store::Due;
use tickwheel_durable::{Builder, Claims, DurableTimers, builder};
use tokio::time::{Instant, sleep, sleep_until};

use crate::support::{Connect, fill, report, report_delays, wanted};

type Timers = DurableTimers<u64, String>;

const SECOND: Duration = Duration::from_secs(1);
const FAR: Duration = Duration::from_secs(86_400);

/// Some tens of bytes, as orders and reminders have.
fn value(number: u64) -> String {
    format!("reminder {number:>8}: something that is to be done")
}

/// The same, as it lies in the store.
fn json(number: u64) -> String {
    format!("\"{}\"", value(number))
}

fn settings(namespace: &str) -> Builder<u64, String> {
    builder(namespace).call_timeout(30 * SECOND)
}

async fn start<T: Connect>(
    stores: &T,
    settings: Builder<u64, String>,
) -> (Timers, Claims<u64, String>) {
    let started = settings
        .start(&TimerWheel::new(), stores.connect().await)
        .await;
    started.expect("the instance starts")
}

/// An instance that only writes, on a namespace without timers.
async fn writer<T: Connect>(stores: &T, namespace: &str) -> Timers {
    let (timers, claims) = start(stores, settings(namespace)).await;
    claims.shutdown().await;
    timers.admin().purge().await.expect("it is emptied");
    timers
}

/// So many tasks each make one call after the other, `total` together. Returns the calls in a
/// second.
pub(crate) async fn rate<F>(
    tasks: u64,
    total: u64,
    call: impl Fn(u64) -> F + Clone + Send + 'static,
) -> f64
where
    F: Future<Output = ()> + Send,
{
    let began = Instant::now();
    let tasks = (0..tasks).map(|task| {
        let call = call.clone();
        tokio::spawn(async move {
            for number in (task..total).step_by(usize::try_from(tasks).expect("it is small")) {
                call(number).await;
            }
        })
    });
    let mut tasks: FuturesUnordered<_> = tasks.collect();
    while let Some(ended) = tasks.next().await {
        ended.expect("no task panics");
    }
    #[expect(clippy::cast_precision_loss, reason = "it is a figure for a table")]
    let total = total as f64;
    total / began.elapsed().as_secs_f64()
}

/// Sets of new timers, by tasks that each wait for their answer.
pub(crate) async fn sets<T: Connect>(stores: &T) {
    for (tasks, total) in [(64, 100_000), (1_024, 200_000), (4_096, 300_000)] {
        let timers = writer(stores, "bench-sets").await;
        let writes = timers.clone();
        let set = move |number| {
            let timers = writes.clone();
            async move {
                let set = timers.set_timer(&number, &value(number), FAR).await;
                set.expect("it is set");
            }
        };
        let rate = rate(tasks, total, set).await;
        let batch = timers.metrics().write_batches.mean();
        report(
            &format!("sets, {tasks} tasks"),
            &format!("{rate:>9.0} a second, {batch} at once"),
        );
        timers.admin().purge().await.expect("it is emptied");
    }
}

/// A backlog that is claimed and acknowledged as fast as it goes.
pub(crate) async fn fire_and_ack<T: Connect>(stores: &T) {
    const TIMERS: u64 = 200_000;
    let timers = writer(stores, "bench-fire").await;
    let due = Due::In(Duration::ZERO);
    let rows = (0..TIMERS).map(|number| (number, json(number), due));
    fill(&stores.connect().await, "bench-fire", rows).await;
    for capacity in [1_024, 8_192] {
        let target = TIMERS / 2;
        let began = Instant::now();
        let settings = settings("bench-fire").capacity(capacity);
        let (claimant, mut claims) = start(stores, settings).await;
        let mut acks = FuturesUnordered::new();
        let (mut received, mut acked) = (0, 0);
        while acked < target {
            tokio::select! {
                biased;
                Some(()) = acks.next() => acked += 1,
                claim = claims.recv(), if received < target => {
                    let claim = claim.expect("the stream goes on");
                    received += 1;
                    acks.push(async move { claim.ack().await.expect("it is held") });
                }
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "it is a figure for a table")]
        let rate = target as f64 / began.elapsed().as_secs_f64();
        let metrics = claimant.metrics();
        report(
            &format!("fired and acknowledged, capacity {capacity}"),
            &format!(
                "{rate:>9.0} a second, {} at once, {} loaded, {} times given back",
                metrics.fire_batches.mean(),
                metrics.loaded,
                metrics.left_to_others
            ),
        );
        claims.shutdown().await;
        claimant.shutdown().await;
    }
    timers.admin().purge().await.expect("it is emptied");
}

/// How late claims are by the clock of this host, while `set` makes timers at its pace.
async fn lateness_of(claims: &mut Claims<u64, String>, timers: usize) -> Vec<Duration> {
    let mut late = Vec::with_capacity(timers);
    let mut acks = FuturesUnordered::new();
    while late.len() < timers {
        tokio::select! {
            Some(()) = acks.next() => {}
            claim = claims.recv() => {
                let claim = claim.expect("the stream goes on");
                // The clock of a local store is the same.
                late.push(SystemTime::now().duration_since(claim.deadline).expect("never early"));
                acks.push(async move { claim.ack().await.expect("it is held") });
            }
        }
    }
    while acks.next().await.is_some() {}
    late
}

/// Timers that were loaded long before they are due, some each second.
pub(crate) async fn lateness<T: Connect>(stores: &T) {
    const TIMERS: u64 = 1_000;
    let timers = writer(stores, "bench-late").await;
    let (claimant, mut claims) = start(stores, settings("bench-late")).await;
    for number in 0..TIMERS {
        let delay = 2 * SECOND + Duration::from_micros(number * 9_973);
        let set = timers.set_timer(&number, &value(number), delay).await;
        set.expect("it is set");
    }
    let late = lateness_of(&mut claims, 1_000).await;
    report_delays("lateness of loaded timers, 100 a second", late);
    claimant.shutdown().await;
}

/// Timers that an instance without claims sets shortly before they are due, one at a time.
pub(crate) async fn hints<T: Connect>(stores: &T) {
    let timers = writer(stores, "bench-hint").await;
    let (claimant, mut claims) = start(stores, settings("bench-hint")).await;
    let mut late = Vec::new();
    for number in 0..200 {
        let set = timers.set_timer(&number, &value(number), SECOND / 50).await;
        set.expect("it is set");
        late.extend(lateness_of(&mut claims, 1).await);
        sleep(SECOND / 100).await;
    }
    report_delays(
        "lateness of timers set by another instance 20 ms ahead",
        late,
    );
    claimant.shutdown().await;
}

/// From starting to delivering, with a million timers pending.
pub(crate) async fn start_with_a_million<T: Connect>(stores: &T) {
    const TIMERS: u64 = 1_000_000;
    let timers = writer(stores, "bench-start").await;
    for pending in [1_000, TIMERS] {
        let due = |number| Due::In(FAR + Duration::from_millis(number * 60));
        let rows = (0..pending).map(|number| (number, json(number), due(number)));
        fill(&stores.connect().await, "bench-start", rows).await;
        let due = Instant::now() + SECOND / 2;
        let set = timers.set_timer(&u64::MAX, &value(0), SECOND / 2).await;
        set.expect("it is set");
        sleep_until(due).await;
        let began = Instant::now();
        let (claimant, mut claims) = start(stores, settings("bench-start")).await;
        let ready = began.elapsed();
        let claim = claims.recv().await.expect("the stream goes on");
        let delivered = began.elapsed();
        claim.ack().await.expect("it is held");
        let on_wheel = claimant.metrics().on_wheel;
        report(
            &format!("start with {pending} pending"),
            &format!(
                "ready in {ready:.1?}, first delivery after {delivered:.1?}, {on_wheel} on the wheel"
            ),
        );
        claims.shutdown().await;
        claimant.shutdown().await;
    }
    timers.admin().purge().await.expect("it is emptied");
}

/// All that is wanted.
pub(crate) async fn measure<T: Connect>(stores: &T) {
    if wanted("sets") {
        sets(stores).await;
    }
    if wanted("fire") {
        fire_and_ack(stores).await;
    }
    if wanted("lateness") {
        lateness(stores).await;
    }
    if wanted("hints") {
        hints(stores).await;
    }
    if wanted("start") {
        start_with_a_million(stores).await;
    }
}
