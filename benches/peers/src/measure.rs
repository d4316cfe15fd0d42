//! The meters of the workloads, and the messages in which a child process sends its figures to its
//! parent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::resource::{Usage, UsageWho, getrusage};

/// How large the workloads are.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    pub quick: bool,
}

impl Scale {
    /// How often sides that alternate within one process take their turn.
    pub fn repetitions(self) -> usize {
        if self.quick { 3 } else { 7 }
    }

    /// How long one turn lasts, about.
    pub fn slice(self) -> Duration {
        Duration::from_millis(if self.quick { 60 } else { 350 })
    }

    /// The one of two figures that fits.
    pub fn pick<T>(self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }
}

fn usage() -> Usage {
    getrusage(UsageWho::RUSAGE_SELF).expect("a process may ask for its own usage")
}

/// The CPU time that all threads of this process have used, in the kernel too.
#[allow(clippy::useless_conversion)] // microseconds have another type on other systems
pub fn cpu() -> Duration {
    let usage = usage();
    let micros = |time: nix::sys::time::TimeVal| {
        Duration::from_micros(
            u64::try_from(time.tv_sec() * 1_000_000 + i64::from(time.tv_usec())).unwrap_or(0),
        )
    };
    micros(usage.user_time()) + micros(usage.system_time())
}

/// The most memory this process has had, in bytes.
pub fn max_rss() -> f64 {
    // macOS alone counts bytes.
    let unit = if cfg!(target_os = "macos") {
        1.0
    } else {
        1024.0
    };
    usage().max_rss() as f64 * unit
}

/// How often threads of this process gave up their core to wait.
pub fn waits() -> i64 {
    usage().voluntary_context_switches()
}

/// Wall and CPU time.
#[derive(Debug, Clone, Copy)]
pub struct Spent {
    pub wall: Duration,
    pub cpu: Duration,
}

impl Spent {
    /// Nanoseconds for each of `n`.
    pub fn per(self, n: u64) -> Cost {
        let nanos = |time: Duration| time.as_secs_f64() * 1e9 / n as f64;
        Cost {
            wall: nanos(self.wall),
            cpu: nanos(self.cpu),
        }
    }
}

/// Nanoseconds of wall and CPU time for one operation.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    pub wall: f64,
    pub cpu: f64,
}

impl Cost {
    #[must_use]
    pub fn above(self, floor: Cost) -> Cost {
        Cost {
            wall: self.wall - floor.wall,
            cpu: self.cpu - floor.cpu,
        }
    }
}

/// A stop watch for both.
#[derive(Debug)]
pub struct Meter {
    wall: Instant,
    cpu: Duration,
}

impl Meter {
    pub fn start() -> Self {
        Meter {
            cpu: cpu(),
            wall: Instant::now(),
        }
    }

    pub fn stop(&self) -> Spent {
        let wall = self.wall.elapsed();
        Spent {
            wall,
            cpu: cpu().saturating_sub(self.cpu),
        }
    }
}

/// Begins a line that is a figure.
pub const FIGURE: char = '=';

/// Tells the parent one figure.
pub fn emit(series: &str, metric: &str, value: f64) {
    println!("{FIGURE}{series}\t{metric}\t{value}");
}

pub fn emit_cost(series: &str, cost: Cost) {
    emit(series, "wall", cost.wall);
    emit(series, "cpu", cost.cpu);
}

/// Lets the sides take turns, each time in another order, and returns what each turn cost: by
/// repetition, by side.
///
/// Before that each side is run until it is known how many rounds fill a turn, which also warms it
/// up.
pub fn alternate(
    scale: Scale,
    sides: usize,
    mut run: impl FnMut(usize, u64) -> Spent,
) -> Vec<Vec<Cost>> {
    let rounds: Vec<u64> = (0..sides)
        .map(|side| rounds_for(scale.slice(), |rounds| run(side, rounds)))
        .collect();
    (0..scale.repetitions())
        .map(|repetition| {
            let mut costs = vec![None; sides];
            for turn in 0..sides {
                let side = (turn + repetition) % sides;
                costs[side] = Some(run(side, rounds[side]).per(rounds[side]));
            }
            costs.into_iter().flatten().collect()
        })
        .collect()
}

/// The number of rounds that takes about so long, on a machine that others use too.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn rounds_for(slice: Duration, mut run: impl FnMut(u64) -> Spent) -> u64 {
    let mut rounds = 2_000;
    loop {
        let spent = run(rounds);
        let used = spent.wall.min(spent.cpu);
        if used * 8 >= slice || spent.wall >= slice * 4 {
            let estimate = rounds as f64 * slice.as_secs_f64() / used.as_secs_f64();
            return (estimate as u64).clamp(1_000, rounds * 8);
        }
        rounds *= 4;
    }
}

/// Lateness of many sleeps, in microseconds.
pub fn emit_lateness(series: &str, mut micros: Vec<u32>, early: usize) {
    assert!(!micros.is_empty(), "nothing slept");
    micros.sort_unstable();
    let quantile = |share: usize| micros[(micros.len() - 1) * share / 1000];
    let sum: u64 = micros.iter().map(|&m| u64::from(m)).sum();
    emit(series, "mean", sum as f64 / micros.len() as f64 / 1e3);
    for (metric, share) in [
        ("p50", 500),
        ("p90", 900),
        ("p99", 990),
        ("p99.9", 999),
        ("max", 1000),
    ] {
        emit(series, metric, f64::from(quantile(share)) / 1e3);
    }
    emit(series, "early", early as f64);
    let mut counts = vec![0_u32; LATENESS_BUCKETS];
    for &m in &micros {
        counts[lateness_bucket(m)] += 1;
    }
    for (bucket, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let share = f64::from(count) / micros.len() as f64;
        emit(series, &format!("{LATENESS_SHARE}{bucket}"), share);
    }
}

/// Begins the name of a metric that is the share of sleeps in one bucket of lateness.
pub const LATENESS_SHARE: &str = "share:";

/// Buckets of lateness: a quarter of an octave each.
pub const LATENESS_BUCKETS: usize = 4 * 32 + 1;

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn lateness_bucket(micros: u32) -> usize {
    ((f64::from(micros) + 1.0).log2() * 4.0) as usize
}

/// The lateness at which a bucket begins, in milliseconds.
pub fn bucket_start(bucket: usize) -> f64 {
    ((bucket as f64 / 4.0).exp2() - 1.0) / 1e3
}

/// How long a cache line takes to the core of another thread and back, in nanoseconds: the median
/// of several.
///
/// On a virtual machine that changes while a process runs, and with it the price of all that
/// several cores write.
pub fn round_trip_of_a_line() -> f64 {
    const TRIPS: u64 = 1_000;
    let mut trips: Vec<_> = (0..21)
        .map(|_| nanos_of_trips(TRIPS) / TRIPS as f64)
        .collect();
    trips.sort_by(f64::total_cmp);
    trips[trips.len() / 2]
}

fn nanos_of_trips(trips: u64) -> f64 {
    let line = AtomicU64::new(0);
    let pass = |from: u64, to: u64| {
        while line.load(Ordering::Acquire) != from {
            std::hint::spin_loop();
        }
        line.store(to, Ordering::Release);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| (0..trips).for_each(|n| pass(2 * n + 1, 2 * n + 2)));
        // Until the other thread runs.
        pass(0, 1);
        pass(2, 3);
        let start = Instant::now();
        (2..trips).for_each(|n| pass(2 * n, 2 * n + 1));
        start.elapsed().as_secs_f64() * 1e9
    })
}
