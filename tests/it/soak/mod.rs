//! A million live timers of every kind on two workers, for `SOAK_SECS` seconds:
//!
//! ```sh
//! SOAK_SECS=3600 cargo test --release --test it soak -- --ignored
//! ```
//!
//! While it runs no timer may be early, no task may hang, and memory must not grow. At the end the
//! counters add up and nothing is left. The run reports how late timers were, and asserts no bound,
//! because that depends on the machine. `SOAK_TIMERS` sets another number of timers, `SOAK_SEED`
//! repeats a run's random numbers.

mod consumers;
mod drivers;
mod keyed;
mod report;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use self::report::{Buckets, Memory, say};
use crate::support::Numbers;
use tickwheel::TimerWheel;
use tokio::task::JoinSet;
use tokio::time::{self, Instant};

/// A task that is late by this much counts as hanging.
const HANG: Duration = Duration::from_secs(120);

/// The state that all tasks of a run share.
struct World {
    wheel: TimerWheel,
    stop: AtomicBool,
    /// Calls made on timers.
    operations: AtomicU64,
    /// Expirations and completions that a task received.
    seen: AtomicU64,
    /// Values of keyed timers that exist.
    values: Arc<AtomicI64>,
    /// How late sleeping tasks ran.
    late: Buckets,
}

impl World {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn value(&self) -> Value {
        self.values.fetch_add(1, Ordering::Relaxed);
        Value(Arc::clone(&self.values))
    }

    /// An expiration with this deadline was seen.
    fn saw(&self, deadline: Instant) {
        let now = Instant::now();
        assert!(now >= deadline, "early by {:?}", deadline - now);
        self.seen.fetch_add(1, Ordering::Relaxed);
    }
}

/// A keyed timer's value, which is counted.
struct Value(Arc<AtomicI64>);

impl Clone for Value {
    fn clone(&self) -> Self {
        self.0.fetch_add(1, Ordering::Relaxed);
        Value(Arc::clone(&self.0))
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn asked(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| {
        let number = text.parse();
        number.unwrap_or_else(|_| panic!("{name}={text} is not a number"))
    })
}

#[test]
#[ignore = "runs for SOAK_SECS; see the top of the file"]
fn p1_p6_p7_p11_p16_keeps_promises_with_a_million_timers() {
    let seconds = asked("SOAK_SECS", 60);
    let timers = usize::try_from(asked("SOAK_TIMERS", 1_000_000)).expect("fewer");
    let seed = asked("SOAK_SEED", u64::from(std::process::id()));
    say(&format!(
        "soak: {timers} timers for {seconds} s, SOAK_SEED={seed}"
    ));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(soak(timers, Duration::from_secs(seconds), seed));
}

async fn soak(timers: usize, length: Duration, seed: u64) {
    let wheel = TimerWheel::builder().name("soak").start();
    let world = Arc::new(World {
        wheel: wheel.expect("it is within bounds"),
        stop: AtomicBool::new(false),
        operations: AtomicU64::new(0),
        seen: AtomicU64::new(0),
        values: Arc::default(),
        late: Buckets::default(),
    });
    let mut tasks = JoinSet::new();
    let mut numbers = Numbers(seed);
    drivers::start(&world, timers, &mut numbers, &mut tasks);

    let start = Instant::now();
    let every = (length / 20).clamp(Duration::from_secs(1), Duration::from_secs(10));
    let mut memory = Memory::default();
    while start.elapsed() < length {
        time::sleep(every).await;
        if let Some(ended) = tasks.try_join_next() {
            ended.expect("a task panicked");
            panic!("a task ended before its time");
        }
        memory.sample(start.elapsed());
        report::progress(&world, start.elapsed(), memory.last());
    }

    world.stop.store(true, Ordering::Relaxed);
    let stopped = Instant::now();
    while let Some(ended) = time::timeout(HANG, tasks.join_next())
        .await
        .expect("a task hangs: it was not woken")
    {
        ended.expect("a task panicked");
    }
    say(&format!("all tasks came back in {:?}", stopped.elapsed()));
    world.wheel.settle().await;
    report::last(&world, &memory);
    check_books(&world);
    memory.check();
    world.wheel.shutdown().await;
}

/// Asserts that no timer is left, and that each was counted once.
fn check_books(world: &World) {
    let m = world.wheel.metrics();
    let ended = m.sleeps_fired + m.sleeps_cancelled + m.sleeps_handed_over;
    assert_eq!((m.sleeps_pending, m.sleeps_made), (0, ended), "{m:?}");
    let ended = m.keyed_fired + m.keyed_removed + m.keyed_replaced + m.keyed_drained;
    assert_eq!((m.keyed_pending, m.keyed_set), (0, ended), "{m:?}");
    assert_eq!(m.sleeps_handed_over, 0, "the wheel ran all the time");
    let kinds = [m.sleeps_fired, m.sleeps_cancelled, m.sleeps_moved];
    assert!(kinds.iter().all(|&n| n > 0), "{m:?}");
    let kinds = [m.keyed_fired, m.keyed_removed, m.keyed_replaced];
    assert!(kinds.iter().all(|&n| n > 0) && m.keyed_moved > 0, "{m:?}");
    let left = world.values.load(Ordering::Relaxed);
    assert_eq!(left, 0, "values that were not dropped");
}
