//! S14 and S15: heartbeats beside a flood of other timers, and many sets that are due at once.

use std::future::Future;
use std::hint::black_box;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use tickwheel::{KeyedTimers, Sleep, TimerWheel};
use tokio::runtime::Runtime;

use crate::measure::{Scale, emit, emit_lateness};
use crate::sides::{Side, Tickwheel, Timer, Tokio, runtime, wheel_on};
use crate::table::{Check, Series};

/// Far beyond the run.
const FAR: Duration = Duration::from_secs(5_000);

const BEAT: Duration = Duration::from_millis(5);

/// The timers of the wheel beside which hearts beat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flood {
    /// One task sets 10^6 far keyed timers in one poll, again and again.
    Far,
    /// So many threads set and remove 20,000 far keyed timers at a time, each in its own set, and
    /// so many others only compute.
    Changed { threads: u64, busy: u64 },
    /// A task on the only thread arms and drops 10,000 sleeps in each poll.
    Cancelled,
    /// A task arms so many far sleeps in one poll, and drops them in the next.
    Armed { sleeps: usize },
}

/// All floods, and the groups of their figures.
pub const FLOODS: [(&str, Flood, &str); 8] = [
    (
        "S14 far",
        Flood::Far,
        "sleeps of 5 ms beside a task that sets 10^6 far keyed timers in a poll, 2 workers",
    ),
    (
        "S14 2 threads",
        Flood::Changed {
            threads: 2,
            busy: 0,
        },
        "sleeps of 5 ms beside 2 threads that set and remove 20,000 keyed timers at a time",
    ),
    (
        "S14 4 threads",
        Flood::Changed {
            threads: 4,
            busy: 0,
        },
        "sleeps of 5 ms beside 4 threads that set and remove 20,000 keyed timers at a time",
    ),
    (
        "S14 8 threads",
        Flood::Changed {
            threads: 8,
            busy: 0,
        },
        "sleeps of 5 ms beside 8 threads that set and remove 20,000 keyed timers at a time",
    ),
    (
        "S14 under load",
        Flood::Changed {
            threads: 1,
            busy: 8,
        },
        "sleeps of 5 ms beside a thread that sets and removes 20,000 keyed timers at a time, and 8 busy threads",
    ),
    (
        "S14 armed 10^5",
        Flood::Armed { sleeps: 100_000 },
        "sleeps of 5 ms beside a task that arms 10^5 far sleeps in a poll, 2 workers",
    ),
    (
        "S14 armed 10^6",
        Flood::Armed { sleeps: 1_000_000 },
        "sleeps of 5 ms beside a task that arms 10^6 far sleeps in a poll, 2 workers",
    ),
    (
        "S14 one thread",
        Flood::Cancelled,
        "sleeps of 5 ms beside a task that arms and drops 10,000 sleeps in each poll, current_thread",
    ),
];

const MANY: &str = "many sets";
const ONE: &str = "one set";

/// The rows of the table.
pub fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    for (group, _, what) in FLOODS {
        for (metric, bar) in [("p50", None), ("p90", Some(2.0)), ("max", Some(2.0))] {
            checks.push(Check {
                id: "S14",
                what,
                metric,
                unit: "ms",
                ours: Series(group, Side::Tickwheel.name()),
                theirs: Some(Series(group, Side::Tokio.name())),
                bar,
            });
        }
    }
    checks.push(Check {
        id: "S15",
        what: "10^5 keyed timers due at once, each in its own set",
        metric: "wall",
        unit: "ms",
        ours: Series("S15", MANY),
        theirs: Some(Series("S15", ONE)),
        bar: Some(2.0),
    });
    checks
}

/// S14: two hearts beat beside the flood, one by the wheel and one by Tokio, on the same runtime
/// and at the same time.
pub fn beside(scale: Scale, flood: Flood) {
    let runtime = runtime(if flood == Flood::Cancelled { 1 } else { 2 });
    let wheel = wheel_on(&runtime);
    for _ in 0..scale.pick(2, 5) {
        let stop = Arc::<AtomicBool>::default();
        let ours = runtime.spawn(beat(Tickwheel(wheel.clone()), Arc::clone(&stop)));
        let tokio = runtime.spawn(beat(Tokio, Arc::clone(&stop)));
        let until = Instant::now() + scale.pick(Duration::from_millis(500), Duration::from_secs(2));
        run(flood, &runtime, &wheel, until);
        stop.store(true, Ordering::Relaxed);
        let (ours, tokio) = runtime.block_on(async { (ours.await, tokio.await) });
        emit_lateness(Side::Tickwheel.name(), ours.expect("it beats"), 0);
        emit_lateness(Side::Tokio.name(), tokio.expect("it beats"), 0);
    }
}

/// The lateness of each beat in microseconds.
async fn beat<T: Timer>(timer: T, stop: Arc<AtomicBool>) -> Vec<u32> {
    let mut late = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let due = Instant::now() + BEAT;
        timer.sleep(BEAT).await;
        late.push(u32::try_from(due.elapsed().as_micros()).unwrap_or(u32::MAX));
    }
    late
}

fn run(flood: Flood, runtime: &Runtime, wheel: &TimerWheel, until: Instant) {
    match flood {
        Flood::Far => {
            let wheel = wheel.clone();
            let flooding = runtime.spawn(async move {
                while Instant::now() < until {
                    let (timers, _stream) = wheel.keyed();
                    set(&timers, 0..1_000_000);
                    tokio::task::yield_now().await;
                }
            });
            runtime.block_on(flooding).expect("it does not panic");
        }
        Flood::Changed { threads, busy } => std::thread::scope(|scope| {
            for _ in 0..busy {
                scope.spawn(|| {
                    while Instant::now() < until {
                        black_box(until);
                    }
                });
            }
            for _ in 0..threads {
                scope.spawn(|| {
                    let (timers, _stream) = wheel.keyed();
                    while Instant::now() < until {
                        set(&timers, 0..20_000);
                        for key in 0..20_000 {
                            timers.remove_timer(&key).expect("it is open");
                        }
                    }
                });
            }
        }),
        Flood::Cancelled => {
            let wheel = wheel.clone();
            let flooding = runtime.spawn(async move {
                while Instant::now() < until {
                    drop(armed(&wheel, 10_000));
                    tokio::task::yield_now().await;
                }
            });
            runtime.block_on(flooding).expect("it does not panic");
        }
        Flood::Armed { sleeps } => {
            let wheel = wheel.clone();
            let flooding = runtime.spawn(async move {
                while Instant::now() < until {
                    let armed = armed(&wheel, sleeps);
                    tokio::task::yield_now().await;
                    drop(armed);
                    tokio::task::yield_now().await;
                }
            });
            runtime.block_on(flooding).expect("it does not panic");
        }
    }
}

fn set(timers: &KeyedTimers<u64, u64>, keys: Range<u64>) {
    for key in keys {
        timers.set_timer(key, key, FAR).expect("there is room");
    }
}

/// So many far sleeps that were polled.
fn armed(wheel: &TimerWheel, sleeps: usize) -> Vec<Sleep> {
    let mut cx = Context::from_waker(Waker::noop());
    let sleeps = (0..sleeps).map(|_| {
        let mut sleep = wheel.sleep(FAR);
        assert!(pin!(&mut sleep).poll(&mut cx).is_pending());
        sleep
    });
    black_box(sleeps.collect())
}

/// S15: how long it takes until all of many timers are delivered that are due at once.
pub fn sets(scale: Scale) {
    let timers = scale.pick(10_000, 100_000);
    for repetition in 0..scale.pick(2, 5) {
        let mut series = [(MANY, timers, 1), (ONE, 1, timers)];
        series.rotate_left(repetition % 2);
        for (name, sets, in_each) in series {
            emit(name, "wall", deliver(sets, in_each).as_secs_f64() * 1e3);
        }
    }
}

fn deliver(sets: u64, in_each: u64) -> Duration {
    let runtime = runtime(2);
    let wheel = wheel_on(&runtime);
    runtime.block_on(async {
        let mut time_to_arm = Duration::from_secs(1);
        loop {
            let due = Instant::now() + time_to_arm;
            let mut sets: Vec<_> = (0..sets)
                .map(|_| {
                    let (timers, stream) = wheel.keyed();
                    for key in 0..in_each {
                        let set = timers.set_timer_at(key, key, due.into());
                        set.expect("there is room");
                    }
                    (timers, stream)
                })
                .collect();
            wheel.settle().await;
            // Timers that are armed after their deadline are not due at once.
            if Instant::now() < due {
                Tokio.sleep_until(due).await;
                wheel.settle().await;
                let mut received = 0;
                for (_, stream) in &mut sets {
                    received += std::iter::from_fn(|| stream.try_recv().ok()).count() as u64;
                }
                let took = due.elapsed();
                assert_eq!(received, sets.len() as u64 * in_each, "all are received");
                return took;
            }
            drop(sets);
            time_to_arm *= 2;
        }
    })
}
