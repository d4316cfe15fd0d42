//! The report of the soak test, and the readings of the machine.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::World;

/// Memory may vary by this much, and by a twentieth of it.
const SWING_KIB: u64 = 48 * 1024;

/// Writes a line at once: what tests print is otherwise kept until they have ended.
pub(crate) fn say(line: &str) {
    // A closed pipe does not end the run.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Counts durations by powers of two of microseconds.
#[derive(Debug)]
pub(crate) struct Buckets([AtomicU64; 40]);

impl Default for Buckets {
    fn default() -> Self {
        Buckets(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Buckets {
    pub(crate) fn record(&self, late: Duration) {
        let micros = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
        let bits = (u64::BITS - micros.leading_zeros()) as usize;
        self.0[bits.min(39)].fetch_add(1, Ordering::Relaxed);
    }

    /// The share `permille` of all is under this.
    fn quantile(&self, permille: u64) -> Duration {
        let counts = self.0.iter().map(|n| n.load(Ordering::Relaxed));
        let all: u64 = counts.clone().sum();
        let mut sum = 0;
        for (bits, n) in counts.enumerate() {
            sum += n;
            if sum * 1000 >= all * permille {
                return Duration::from_micros(1 << bits);
            }
        }
        Duration::MAX
    }
}

/// The process's resident memory over time.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Seconds and KiB.
    samples: Vec<(f64, u64)>,
}

impl Memory {
    /// Takes a sample. On systems without `/proc` there are none.
    pub(crate) fn sample(&mut self, at: Duration) {
        let Ok(status) = std::fs::read_to_string("/proc/self/status") else {
            return;
        };
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        self.samples.extend(kib.map(|kib| (at.as_secs_f64(), kib)));
    }

    pub(crate) fn last(&self) -> u64 {
        self.samples.last().map_or(0, |&(_, kib)| kib)
    }

    /// Without the first third, in which buffers grow to their size.
    fn settled(&self) -> &[(f64, u64)] {
        &self.samples[self.samples.len() / 3..]
    }

    /// KiB a second, by least squares.
    #[allow(clippy::cast_precision_loss)] // a fraction of a KiB does not matter
    fn slope(&self) -> f64 {
        let settled = self.settled();
        let n = settled.len().max(1) as f64;
        let mean_at = settled.iter().map(|&(at, _)| at).sum::<f64>() / n;
        let mean = settled.iter().map(|&(_, kib)| kib as f64).sum::<f64>() / n;
        let both = (settled.iter()).map(|&(at, kib)| (at - mean_at) * (kib as f64 - mean));
        let square = settled.iter().map(|&(at, _)| (at - mean_at).powi(2));
        let square: f64 = square.sum();
        if square > 0.0 {
            both.sum::<f64>() / square
        } else {
            0.0
        }
    }

    /// The last part's median is about the first part's.
    pub(crate) fn check(&self) {
        let settled = self.settled();
        if settled.len() < 8 {
            return;
        }
        let median = |part: &[(f64, u64)]| {
            let mut part: Vec<u64> = part.iter().map(|&(_, kib)| kib).collect();
            part.sort_unstable();
            part[part.len() / 2]
        };
        let quarter = settled.len() / 4;
        let before = median(&settled[..quarter]);
        let after = median(&settled[settled.len() - quarter..]);
        let most = before + before / 20 + SWING_KIB;
        assert!(
            after <= most,
            "memory grows: from {before} to {after} KiB, {:.1} KiB/s",
            self.slope()
        );
    }
}

pub(crate) fn progress(world: &World, at: Duration, kib: u64) {
    let m = world.wheel.metrics();
    say(&format!(
        "{:>6.1} s  live {:>8}  operations {:>11}  fired {:>10}  RSS {:>5} MiB  late p50 {:?} p99 {:?} max {:?}",
        at.as_secs_f64(),
        m.sleeps_pending + m.keyed_pending,
        world.operations.load(Ordering::Relaxed),
        m.sleeps_fired + m.keyed_fired,
        kib / 1024,
        m.lateness.quantile(0.5),
        m.lateness.quantile(0.99),
        m.lateness.max(),
    ));
}

pub(crate) fn last(world: &World, memory: &Memory) {
    let m = world.wheel.metrics();
    let quantiles = [0.5, 0.9, 0.99, 0.999, 1.0].map(|q| m.lateness.quantile(q));
    say(&format!(
        "lateness of {} timers at the wheel, p50 p90 p99 p99.9 max: {quantiles:?}",
        m.lateness.count()
    ));
    let quantiles = [500, 900, 990, 999, 1000].map(|permille| world.late.quantile(permille));
    say(&format!(
        "lateness of sleeping tasks, each under a power of two: {quantiles:?}"
    ));
    say(&format!(
        "memory: {} MiB at last, slope {:.1} KiB/s",
        memory.last() / 1024,
        memory.slope()
    ));
    say(&format!(
        "sleeps: {} made = {} fired + {} cancelled + {} pending; {} moved",
        m.sleeps_made, m.sleeps_fired, m.sleeps_cancelled, m.sleeps_pending, m.sleeps_moved
    ));
    say(&format!(
        "keyed: {} set = {} fired + {} removed + {} replaced + {} drained + {} pending; {} moved",
        m.keyed_set,
        m.keyed_fired,
        m.keyed_removed,
        m.keyed_replaced,
        m.keyed_drained,
        m.keyed_pending,
        m.keyed_moved
    ));
    say(&format!(
        "actor: {} turns, {} commands, {} wake-ups, {} rescheduled, longest turn {:?}; {} expirations seen",
        m.turns,
        m.commands,
        m.wake_ups,
        m.rescheduled,
        m.longest_turn,
        world.seen.load(Ordering::Relaxed)
    ));
}
