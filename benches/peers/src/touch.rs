//! S4 and S5: moving a deadline later, again and again, as traffic on a connection does.

use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tickwheel::IdleHandle;
use tokio::time::Instant;
use tokio_util::time::DelayQueue;

use crate::churn::LONG;
use crate::measure::{Meter, Scale, Spent, alternate, emit_cost};
use crate::sides::{runtime, wheel_on};

/// S4: one task resets a sleep that another waits for.
pub fn reset(scale: Scale, workers: usize) {
    let runtime = runtime(workers);
    let wheel = wheel_on(&runtime);
    let series = ["tokio::time", "tickwheel"];
    let costs = alternate(scale, series.len(), |side, rounds| {
        let wheel = wheel.clone();
        let task = async move {
            if side == 0 {
                let mut sleep = pin!(tokio::time::sleep(LONG));
                poll_once(sleep.as_mut()).await;
                let meter = Meter::start();
                for _ in 0..rounds {
                    sleep.as_mut().reset(Instant::now() + LONG);
                }
                meter.stop()
            } else {
                let mut sleep = wheel.sleep(LONG);
                poll_once(Pin::new(&mut sleep)).await;
                let meter = Meter::start();
                for _ in 0..rounds {
                    Pin::new(&mut sleep).reset(Instant::now() + LONG);
                }
                meter.stop()
            }
        };
        // On a worker, where a service runs.
        runtime.block_on(async { tokio::spawn(task).await.expect("it does not panic") })
    });
    for costs in costs {
        for (series, cost) in series.iter().zip(costs) {
            emit_cost(series, cost);
        }
    }
}

async fn poll_once(mut future: Pin<&mut impl Future<Output = ()>>) {
    poll_fn(|cx| {
        assert!(future.as_mut().poll(cx).is_pending(), "30 s are not over");
        Poll::Ready(())
    })
    .await;
}

/// How many instants are made in advance.
const INSTANTS: usize = 4096;

/// S5: what it takes to say that there was traffic.
pub fn touch(scale: Scale) {
    let series = [
        "touch_at(now)",
        "touch_at, ticks apart",
        "touch()",
        "Instant::now()",
        "tokio Sleep::reset",
        "DelayQueue::reset",
        "the loop over instants",
    ];
    let runtime = runtime(1);
    let wheel = wheel_on(&runtime);
    let costs = runtime.block_on(async {
        let mut timer = wheel.idle_timer(LONG);
        poll_once(Pin::new(&mut timer)).await;
        let handle = timer.handle();
        let mut sleep = Box::pin(tokio::time::sleep(LONG));
        poll_once(sleep.as_mut()).await;
        let mut queue = DelayQueue::new();
        let key = queue.insert(7_u64, LONG);
        let mut at = Instant::now();
        let costs = alternate(scale, series.len(), |side, rounds| {
            let meter = Meter::start();
            match side {
                0 => return touch_at(&handle, rounds, Duration::from_micros(1), &mut at),
                1 => return touch_at(&handle, rounds, Duration::from_millis(2), &mut at),
                6 => return over_instants(rounds, Duration::from_micros(1), &mut at, |_| true),
                2 => {
                    for _ in 0..rounds {
                        black_box(handle.touch());
                    }
                }
                3 => {
                    for _ in 0..rounds {
                        black_box(Instant::now());
                    }
                }
                4 => {
                    for _ in 0..rounds {
                        sleep.as_mut().reset(Instant::now() + LONG);
                    }
                }
                _ => {
                    for _ in 0..rounds {
                        queue.reset(&key, LONG);
                    }
                }
            }
            meter.stop()
        });
        drop(timer);
        costs
    });
    for costs in costs {
        // The cost of the loop itself is subtracted.
        let floor = costs[6];
        for (side, (series, cost)) in series.iter().zip(costs).enumerate() {
            emit_cost(series, if side < 2 { cost.above(floor) } else { cost });
        }
    }
}

fn touch_at(handle: &IdleHandle, rounds: u64, step: Duration, at: &mut Instant) -> Spent {
    over_instants(rounds, step, at, |instant| handle.touch_at(instant))
}

/// Runs `f` at instants that go forward in steps, as time does; making them is not counted.
///
/// The system's account of CPU time is too coarse for blocks of microseconds. Nothing here waits,
/// so the median block stands for both: what other processes took away is in a few blocks only.
fn over_instants(
    rounds: u64,
    step: Duration,
    at: &mut Instant,
    f: impl Fn(Instant) -> bool,
) -> Spent {
    let mut instants = vec![*at; INSTANTS];
    let mut blocks: Vec<Duration> = (0..rounds.div_ceil(INSTANTS as u64))
        .map(|_| {
            for instant in &mut instants {
                *at += step;
                *instant = *at;
            }
            let start = std::time::Instant::now();
            for &instant in &instants {
                black_box(f(black_box(instant)));
            }
            start.elapsed()
        })
        .collect();
    blocks.sort_unstable();
    let median = blocks[blocks.len() / 2];
    let wall = median.mul_f64(rounds as f64 / INSTANTS as f64);
    Spent { wall, cpu: wall }
}
