//! S17: intervals.

use std::time::{Duration, Instant};

use fastrand::Rng;
use tickwheel::TimerWheel;

use crate::measure::{Meter, Scale, emit, emit_lateness};
use crate::sides::{Side, Timer, Tokio, runtime, wheel_of};

/// The groups of the figures, and the workers.
pub const INTERVALS: [(&str, usize, &str); 2] = [
    (
        "S17 1",
        1,
        "10,000 intervals of 100 ms, a tick, current_thread",
    ),
    ("S17 2", 2, "10,000 intervals of 100 ms, a tick, 2 workers"),
];

/// The sides that take turns.
pub const SIDES: [Side; 3] = [Side::Tokio, Side::Tickwheel, Side::Precise];

const PERIOD: Duration = Duration::from_millis(100);

/// One of the intervals that are compared.
pub trait Ticks: Send + 'static {
    fn tick(&mut self) -> impl Future<Output = tokio::time::Instant> + Send;
}

impl Ticks for tokio::time::Interval {
    fn tick(&mut self) -> impl Future<Output = tokio::time::Instant> + Send {
        tokio::time::Interval::tick(self)
    }
}

impl Ticks for tickwheel::Interval {
    fn tick(&mut self) -> impl Future<Output = tokio::time::Instant> + Send {
        tickwheel::Interval::tick(self)
    }
}

/// Tasks with an interval each, which begin at random.
pub fn run(scale: Scale, side: Side, workers: usize) {
    let runtime = runtime(workers);
    let wheel = wheel_of(side, &runtime);
    let begin = Instant::now() + Duration::from_millis(500);
    let end = begin + Duration::from_millis(scale.pick(1_000, 4_000));
    let mut rng = Rng::new();
    let (spent, late) = runtime.block_on(async {
        let tasks: Vec<_> = (0..10_000)
            .map(|_| {
                let start = Instant::now() + Duration::from_micros(rng.u64(0..100_000));
                spawn(side, &wheel, start, (begin, end))
            })
            .collect();
        Tokio.sleep_until(begin).await;
        let meter = Meter::start();
        Tokio.sleep_until(end).await;
        let spent = meter.stop();
        let mut late = Vec::new();
        for task in tasks {
            late.extend(task.await.expect("it does not panic"));
        }
        (spent, late)
    });
    let cost = spent.per(late.len() as u64);
    emit(side.name(), "cpu", cost.cpu / 1e3);
    emit_lateness(side.name(), late, 0);
}

type Window = (Instant, Instant);

fn spawn(
    side: Side,
    wheel: &TimerWheel,
    start: Instant,
    window: Window,
) -> tokio::task::JoinHandle<Vec<u32>> {
    if side == Side::Tokio {
        tokio::spawn(count(
            tokio::time::interval_at(start.into(), PERIOD),
            window,
        ))
    } else {
        tokio::spawn(count(wheel.interval_at(start.into(), PERIOD), window))
    }
}

/// The latenesses, in microseconds, of the ticks that are due within the window.
async fn count(mut ticks: impl Ticks, (begin, end): Window) -> Vec<u32> {
    let mut late = Vec::new();
    loop {
        let due = ticks.tick().await.into_std();
        if due > end {
            return late;
        }
        if due >= begin {
            late.push(u32::try_from(due.elapsed().as_micros()).unwrap_or(u32::MAX));
        }
    }
}
