//! S18: many wheels in one process.

use std::time::{Duration, Instant};

use fastrand::Rng;
use tickwheel::TimerWheel;

use crate::measure::{Meter, Scale, emit, emit_lateness, max_rss};
use crate::rates::sleep_until;
use crate::sides::{Tickwheel, runtime};

/// The series.
pub const MANY: &str = "many wheels";
pub const ONE: &str = "one wheel";

/// So many sleepers share a wheel, if each has not the same.
const SLEEPERS: u64 = 100;

/// Tasks that sleep for 1 to 3 s again and again, on many wheels or on one. The wheels have the
/// default settings.
pub fn run(scale: Scale, is_many: bool) {
    let (series, wheels) = if is_many {
        (MANY, scale.pick(100, 1_000))
    } else {
        (ONE, 1)
    };
    let tasks = scale.pick(100, 1_000) * SLEEPERS;
    let runtime = runtime(2);
    let before = max_rss();
    let meter = Meter::start();
    let wheels: Vec<_> = runtime.block_on(async {
        let wheels: Vec<_> = (0..wheels).map(|_| TimerWheel::new()).collect();
        for wheel in &wheels {
            wheel.settle().await;
        }
        wheels
    });
    let made = meter.stop().per(wheels.len() as u64);
    emit(series, "made", made.cpu / 1e3);
    emit(series, "bytes", (max_rss() - before) / wheels.len() as f64);
    let begin = Instant::now() + Duration::from_secs(scale.pick(1, 3));
    let end = begin + Duration::from_secs(scale.pick(2, 5));
    let mut rng = Rng::new();
    let tasks: Vec<_> = (wheels.iter().cycle())
        .zip(0..tasks)
        .map(|(wheel, _)| {
            let timer = Tickwheel(wheel.clone());
            let lengths = 1_000_000..=3_000_000;
            runtime.spawn(sleep_until(timer, rng.fork(), lengths, begin, end))
        })
        .collect();
    // On this thread, which is no worker.
    let rest = |until: Instant| std::thread::sleep(until - Instant::now());
    rest(begin);
    let meter = Meter::start();
    rest(end);
    let spent = meter.stop();
    let mut late = Vec::new();
    for task in tasks {
        late.extend(runtime.block_on(task).expect("it does not panic").0);
    }
    emit(series, "cpu", spent.per(late.len() as u64).cpu / 1e3);
    emit_lateness(series, late, 0);
}
