//! Measurements on timers with numbers as keys and values.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use tickwheel::TimerWheel;
use tickwheel_durable::store::Due;
use tickwheel_durable::{Claims, DurableTimers, builder};
use tokio::time::sleep;

use crate::support::{Connect, fill, report};

pub(crate) type Instance = (DurableTimers<u64, u64>, Claims<u64, u64>);

pub(crate) const FAR: Duration = Duration::from_secs(1_000_000);

/// How long what is done again and again is measured.
pub(crate) const RUN: Duration = Duration::from_secs(4);

pub(crate) async fn start(stores: &impl Connect, space: &str) -> Instance {
    let store = stores.connect().await;
    let started = builder(space).start(&TimerWheel::new(), store).await;
    started.expect("it starts")
}

/// The row of a table for what was done so often in that time.
#[expect(clippy::cast_precision_loss, reason = "it is a figure for a table")]
pub(crate) fn report_rate(what: &str, count: u64, took: Duration) {
    let (took, rate) = (took.as_secs_f64(), count as f64 / took.as_secs_f64());
    let figure = format!("{rate:>9.0} a second, {count} in {took:.3} s");
    report(what, &figure);
}

/// Durable sets by so many concurrent tasks.
pub(crate) async fn sets(stores: &impl Connect, tasks: u64) {
    let (timers, _claims) = start(stores, &format!("bench-sets-{tasks}")).await;
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
    let took = began.elapsed();
    let count = next.load(Ordering::Relaxed);
    report_rate(&format!("durable sets, {tasks} tasks"), count, took);
    println!("  writes at once: {}", timers.metrics().write_batches);
    timers.admin().purge().await.expect("it is emptied");
}

/// So many timers due at once, for so many instances with so many handlers at once each. They are
/// due so long after the call, or overdue when the instances start.
pub(crate) async fn storm(
    stores: &impl Connect,
    count: u64,
    instances: usize,
    handlers: usize,
    ahead: Duration,
) {
    let space = format!("bench-storm-{instances}-{handlers}");
    let at = SystemTime::now() + ahead;
    let due = Due::At(at.into());
    let timers = (0..count).map(|key| (key, "0".to_owned(), due));
    fill(&stores.connect().await, &space, timers).await;
    let delivered: Arc<Vec<AtomicU64>> = Arc::new((0..count).map(|_| AtomicU64::new(0)).collect());
    let mut began = Instant::now();
    let mut running = Vec::new();
    for _ in 0..instances {
        let (timers, mut claims) = start(stores, &space).await;
        let delivered = Arc::clone(&delivered);
        let run = tokio::spawn(async move {
            claims
                .dispatch(handlers, async |claim| {
                    let key = usize::try_from(claim.key).expect("it is small");
                    delivered[key].fetch_add(1, Ordering::Relaxed);
                    Ok(())
                })
                .await;
        });
        running.push((timers, run));
    }
    if let Ok(left) = at.duration_since(SystemTime::now()) {
        sleep(left).await;
        began = Instant::now();
    }
    let acknowledged = || -> u64 {
        let settled = running
            .iter()
            .map(|(timers, _)| timers.metrics().settle_batches.sum);
        settled.sum()
    };
    while acknowledged() < count && began.elapsed() < Duration::from_secs(120) {
        sleep(Duration::from_millis(5)).await;
    }
    let took = began.elapsed();
    let what = format!("fired and acknowledged, {instances} instances of {handlers} handlers");
    report_rate(&what, acknowledged(), took);
    sleep(Duration::from_secs(1)).await;
    let once = delivered
        .iter()
        .filter(|times| times.load(Ordering::Relaxed) == 1);
    println!("  delivered exactly once: {} of {count}", once.count());
    for (timers, run) in running {
        timers.shutdown().await;
        run.await.expect("it ends");
    }
}

/// An instance that starts on so many timers, all of them far.
pub(crate) async fn start_with(stores: &impl Connect, count: u64) {
    let space = "bench-start";
    let began = Instant::now();
    let timers = (0..count).map(|key| (key, "0".to_owned(), Due::In(FAR)));
    fill(&stores.connect().await, space, timers).await;
    report_rate(
        "written by the store in batches of 1,000",
        count,
        began.elapsed(),
    );
    let before = resident();
    let began = Instant::now();
    let (timers, mut claims) = start(stores, space).await;
    let ready = began.elapsed();
    let set = timers.set_timer(&count, &0, Duration::ZERO).await;
    set.expect("it is set");
    let claim = claims.recv().await.expect("it comes");
    claim.ack().await.expect("it is held");
    let delivered = began.elapsed();
    let memory = resident().saturating_sub(before);
    report(
        &format!("start with {count} pending"),
        &format!(
            "ready in {ready:.1?}, first delivery after {delivered:.1?}; {memory} KiB more memory"
        ),
    );
    timers.admin().purge().await.expect("it is emptied");
}

/// The resident memory of this process in KiB; zero where that is not known.
pub(crate) fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let word = line.and_then(|line| line.split_whitespace().next());
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}
