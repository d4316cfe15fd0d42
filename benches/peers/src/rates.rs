//! S12b: sleeps that fire at a steady rate, and what each of them costs.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::measure::{Meter, Scale, emit, emit_lateness};
use crate::sides::{Side, Timer, runtime, wheel_of, with_side};

/// The groups of the figures, and how many sleeps a second.
pub const RATES: [(&str, u64); 3] = [
    ("S12b 1,000", 1_000),
    ("S12b 10,000", 10_000),
    ("S12b 100,000", 100_000),
];

/// Precise wheels with shorter ticks.
pub const VARIANTS: [Side; 3] = [Side::Precise50, Side::Precise20, Side::Precise10];

/// Other precise timers.
pub const PEERS: [Side; 3] = [Side::FuturesTimer, Side::AsyncIo, Side::TokioTimerfd];

/// The shortest and the longest sleep, in microseconds.
const SLEEPS: RangeInclusive<u64> = 50_000..=150_000;

/// A task sleeps this often each second, on average.
const SLEEPS_PER_SECOND: u64 = 10;

/// The latenesses of one task, in microseconds, and how many of its sleeps were early.
pub(crate) type Slept = (Vec<u32>, usize);

/// Tasks that sleep for a random time again and again, so many sleeps a second together.
pub fn run(scale: Scale, side: Side, per_second: u64) {
    let runtime = runtime(2);
    let wheel = wheel_of(side, &runtime);
    let begin = Instant::now() + Duration::from_millis(300);
    let end = begin + Duration::from_millis(scale.pick(1_000, 4_000));
    let mut rng = Rng::new();
    let tasks: Vec<_> = (0..per_second / SLEEPS_PER_SECOND)
        .map(|_| {
            let rng = rng.fork();
            with_side!(side, wheel, |timer| runtime
                .spawn(sleep_until(timer, rng, SLEEPS, begin, end)))
        })
        .collect();
    // On this thread, which is no worker.
    let rest = |until: Instant| {
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    };
    rest(begin);
    let meter = Meter::start();
    rest(end);
    let spent = meter.stop();
    let (mut late, mut early) = (Vec::new(), 0);
    for task in tasks {
        let slept = runtime.block_on(task).expect("it does not panic");
        late.extend(slept.0);
        early += slept.1;
    }
    let cost = spent.per(late.len() as u64);
    emit(side.name(), "cpu", cost.cpu / 1e3);
    emit_lateness(side.name(), late, early);
}

/// Sleeps again and again, for so many microseconds. Notes the sleeps that are due between the two
/// instants.
pub(crate) async fn sleep_until<T: Timer>(
    timer: T,
    mut rng: Rng,
    lengths: RangeInclusive<u64>,
    begin: Instant,
    end: Instant,
) -> Slept {
    let (mut late, mut early) = (Vec::new(), 0);
    loop {
        let length = Duration::from_micros(rng.u64(lengths.clone()));
        let due = Instant::now() + length;
        if due > end {
            return (late, early);
        }
        timer.sleep(length).await;
        let now = Instant::now();
        if due < begin {
            continue;
        }
        early += usize::from(now < due);
        let micros = now.saturating_duration_since(due).as_micros();
        late.push(u32::try_from(micros).unwrap_or(u32::MAX));
    }
}
