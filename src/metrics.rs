//! The counters of a wheel, and the snapshot of them.

mod counts;
mod keyed_counts;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(crate) use counts::Counts;
pub(crate) use keyed_counts::{KeyedCounters, KeyedCounts, KeyedEvent};

/// The logarithm of the number of histogram buckets for each power of two. Eight buckets make a quantile exact to an
/// eighth.
const SUB_BITS: u32 = 3;
const SUB_BUCKETS: usize = 1 << SUB_BITS;
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUB_BUCKETS;

/// The counters of one wheel.
///
/// Each thread counts its own sleeps, see [`counts`], and each set its own timers, see [`keyed_counts`]. The actor alone
/// writes everything else, so it adds with a load and a store.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    threads: Mutex<Threads>,
    /// The counts of threads that are ending, whose thread-local storage is gone.
    elsewhere: Counts,
    pub(crate) fired_sleeps: AtomicU64,
    pub(crate) rescheduled: AtomicU64,
    pub(crate) turns: AtomicU64,
    pub(crate) wake_ups: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) longest_turn: AtomicU64,
    pub(crate) lateness: Histogram,
}

#[derive(Debug, Default)]
struct Threads {
    alive: Vec<Arc<Counts>>,
    /// The sum over the threads that have ended.
    gone: Counts,
}

/// Adds to a counter that this thread alone writes.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

impl Metrics {
    /// Includes the counts of one more thread.
    pub(crate) fn register(&self, counts: &Arc<Counts>) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let Threads { alive, gone } = &mut *threads;
        alive.retain_mut(|counts| {
            // Unlike reading the number of references, this also synchronizes with the thread's last writes.
            match Arc::get_mut(counts) {
                Some(counts) => {
                    counts.add_to(gone);
                    false
                }
                None => true,
            }
        });
        alive.push(Arc::clone(counts));
    }

    /// The counts for a thread whose thread-local storage is gone.
    pub(crate) fn elsewhere(&self) -> &Counts {
        &self.elsewhere
    }

    /// The counts of all threads.
    fn threads(&self) -> Counts {
        let sum = Counts::default();
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.gone.add_to(&sum);
        for counts in &threads.alive {
            counts.add_to(&sum);
        }
        self.elsewhere.add_to(&sum);
        sum
    }

    /// A snapshot; `keyed` is the sum over all sets.
    pub(crate) fn read(&self, keyed: &KeyedCounts) -> WheelMetrics {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let sleeps = self.threads();
        let sleeps_fired = get(&self.fired_sleeps) + get(&sleeps.elapsed);
        let sleeps_cancelled = get(&sleeps.cancelled);
        let sleeps_made = get(&sleeps.made);
        let sleeps_handed_over = get(&sleeps.handed_over);
        WheelMetrics {
            sleeps_pending: sleeps_made
                .saturating_sub(sleeps_fired + sleeps_cancelled + sleeps_handed_over),
            sleeps_made,
            sleeps_fired,
            sleeps_cancelled,
            sleeps_handed_over,
            sleeps_moved: get(&sleeps.moved),
            keyed_pending: keyed.pending(),
            keyed_set: keyed.set(),
            keyed_fired: keyed.fired(),
            keyed_removed: keyed.get(KeyedEvent::Removed),
            keyed_replaced: keyed.get(KeyedEvent::Replaced),
            keyed_drained: keyed.get(KeyedEvent::Drained),
            keyed_moved: keyed.get(KeyedEvent::Moved),
            rescheduled: get(&self.rescheduled),
            commands: get(&self.commands),
            turns: get(&self.turns),
            wake_ups: get(&self.wake_ups),
            longest_turn: Duration::from_nanos(get(&self.longest_turn)),
            lateness: self.lateness.read(),
        }
    }
}

/// Counts for ranges of durations, eight ranges to a power of two. Written by the actor alone.
pub(crate) struct Histogram {
    buckets: Box<[AtomicU64]>,
    sum_nanos: AtomicU64,
    max_nanos: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            sum_nanos: AtomicU64::new(0),
            max_nanos: AtomicU64::new(0),
        }
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read().fmt(f)
    }
}

impl Histogram {
    pub(crate) fn record(&self, lateness: Duration) {
        let nanos = u64::try_from(lateness.as_nanos()).unwrap_or(u64::MAX);
        add(&self.buckets[bucket(nanos)], 1);
        let sum = self.sum_nanos.load(Ordering::Relaxed).saturating_add(nanos);
        self.sum_nanos.store(sum, Ordering::Relaxed);
        if nanos > self.max_nanos.load(Ordering::Relaxed) {
            self.max_nanos.store(nanos, Ordering::Relaxed);
        }
    }

    fn read(&self) -> LatenessHistogram {
        LatenessHistogram {
            counts: (self.buckets.iter())
                .map(|count| count.load(Ordering::Relaxed))
                .collect(),
            sum: Duration::from_nanos(self.sum_nanos.load(Ordering::Relaxed)),
            max: Duration::from_nanos(self.max_nanos.load(Ordering::Relaxed)),
        }
    }
}

/// The bucket that counts this number of nanoseconds.
fn bucket(nanos: u64) -> usize {
    if nanos < SUB_BUCKETS as u64 {
        return usize::try_from(nanos).unwrap_or(0);
    }
    let exponent = nanos.ilog2() - SUB_BITS;
    // The leading one and the bits after it: from SUB_BUCKETS to 2 * SUB_BUCKETS - 1.
    let mantissa = usize::try_from(nanos >> exponent).unwrap_or(0);
    exponent as usize * SUB_BUCKETS + mantissa
}

/// The largest number of nanoseconds in a bucket.
fn bucket_end(bucket: usize) -> u64 {
    if bucket < SUB_BUCKETS {
        return bucket as u64;
    }
    let exponent = bucket / SUB_BUCKETS - 1;
    let mantissa = (bucket % SUB_BUCKETS + SUB_BUCKETS) as u64;
    // The first number of the next bucket, less one. For the last bucket that is the largest number there is.
    (u128::from(mantissa + 1) << exponent)
        .saturating_sub(1)
        .try_into()
        .unwrap_or(u64::MAX)
}

/// The smallest number of nanoseconds in a bucket.
fn bucket_start(bucket: usize) -> u64 {
    match bucket {
        0 => 0,
        _ => bucket_end(bucket - 1) + 1,
    }
}

/// A snapshot of a wheel's counts since it started. Made by [`TimerWheel::metrics`](crate::TimerWheel::metrics).
///
/// Every count but `sleeps_pending` and `keyed_pending` only grows. The counters add up. The sum of keyed timers holds
/// in every snapshot. The sum of sleeps can be off by changes made during the snapshot; after
/// [`settle`](crate::TimerWheel::settle) on a quiet wheel it is exact:
///
/// ```text
/// sleeps_made = sleeps_pending + sleeps_fired + sleeps_cancelled + sleeps_handed_over
/// keyed_set   = keyed_pending + keyed_fired + keyed_removed + keyed_replaced + keyed_drained
/// ```
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// # let wheel = tickwheel::TimerWheel::new();
/// let (timers, _expirations) = wheel.keyed::<u32, ()>();
/// timers.set_timer(1, (), Duration::from_secs(5)).unwrap();
/// timers.set_timer(2, (), Duration::from_secs(5)).unwrap();
/// timers.remove_timer(&1).unwrap();
///
/// let metrics = wheel.metrics();
/// assert_eq!((metrics.keyed_set, metrics.keyed_removed, metrics.keyed_pending), (2, 1, 1));
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WheelMetrics {
    /// Sleeps that have not fired yet, polled or not, including those inside timeouts, intervals, idle timers and idle
    /// streams.
    pub sleeps_pending: u64,
    /// Sleeps that were made. A sleep that is reset after it fired counts again, as an interval's does at each tick.
    pub sleeps_made: u64,
    /// Sleeps that reached their deadline.
    pub sleeps_fired: u64,
    /// Sleeps that were dropped before their deadline, including those of timeouts whose future completed in time.
    pub sleeps_cancelled: u64,
    /// Sleeps that went on with Tokio's own timer, because the wheel had shut down or the clock is virtual.
    pub sleeps_handed_over: u64,
    /// How often a waiting sleep was given another deadline, by [`Sleep::reset`](crate::Sleep::reset), by an interval or
    /// by an idle timer.
    pub sleeps_moved: u64,
    /// Keyed timers that are pending now, over all sets. A watch of a [`Reaper`](crate::Reaper) counts as a keyed
    /// timer, here and below.
    pub keyed_pending: u64,
    /// Keyed timers that were set. A repeating timer counts again each time it fires.
    pub keyed_set: u64,
    /// Keyed timers that fired.
    pub keyed_fired: u64,
    /// Keyed timers that were removed.
    pub keyed_removed: u64,
    /// Keyed timers that were replaced because their key was set again.
    pub keyed_replaced: u64,
    /// Keyed timers that were drained, returned as unexpired, or dropped with their set.
    pub keyed_drained: u64,
    /// Calls that moved a keyed timer.
    pub keyed_moved: u64,
    /// Timers that the actor reached, found due later, and put on the wheel again.
    pub rescheduled: u64,
    /// Commands that the actor has applied. Most timers need none.
    pub commands: u64,
    /// Turns the actor has taken.
    pub turns: u64,
    /// How often the actor began to wait: its wake-ups, and a wait that goes on.
    pub wake_ups: u64,
    /// The longest turn, by the runtime's clock: zero under a paused one.
    pub longest_turn: Duration,
    /// How late the actor fired timers.
    pub lateness: LatenessHistogram,
}

/// How late the actor fired timers: keyed timers after their deadline, sleeps after the tick at which they were due. A timer
/// whose deadline had passed when it was armed is late from then on.
///
/// Eight buckets cover each power of two, so a bucket's bounds are at most an eighth apart.
///
/// # Examples
///
/// Exporting it as a Prometheus histogram, with bounds of your own:
///
/// ```
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// # let wheel = tickwheel::TimerWheel::new();
/// # wheel.sleep(Duration::from_millis(1)).await;
/// let lateness = wheel.metrics().lateness;
/// for millis in [1, 10, 100, 1000] {
///     let bound = Duration::from_millis(millis);
///     let within = lateness.buckets().filter(|bucket| *bucket.bounds.end() <= bound);
///     let count: u64 = within.map(|bucket| bucket.count).sum();
///     println!("lateness_bucket{{le=\"{}\"}} {count}", bound.as_secs_f64());
/// }
/// println!("lateness_bucket{{le=\"+Inf\"}} {}", lateness.count());
/// println!("lateness_sum {}", lateness.sum().as_secs_f64());
/// println!("lateness_count {}", lateness.count());
/// # }
/// ```
#[doc(alias = "latency")]
#[derive(Clone)]
pub struct LatenessHistogram {
    counts: Box<[u64]>,
    sum: Duration,
    max: Duration,
}

/// One bucket of a [`LatenessHistogram`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LatenessBucket {
    /// The smallest and the largest lateness that the bucket counts, in whole nanoseconds.
    pub bounds: RangeInclusive<Duration>,
    /// How many timers were that late.
    pub count: u64,
}

impl LatenessHistogram {
    /// How many timers are recorded.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The lateness of all timers added up. Stops at 584 years.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// The largest lateness, exactly.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// The buckets that are not empty, the lowest first. Their bounds do not overlap.
    pub fn buckets(&self) -> impl Iterator<Item = LatenessBucket> + '_ {
        let counted = self.counts.iter().enumerate().filter(|(_, n)| **n > 0);
        counted.map(|(bucket, &count)| LatenessBucket {
            bounds: Duration::from_nanos(bucket_start(bucket))
                ..=Duration::from_nanos(bucket_end(bucket)),
            count,
        })
    }

    /// The lateness that a share `q` of the timers did not exceed: `quantile(0.5)` is the median.
    ///
    /// The result is never too low, and at most an eighth too high. `q` is clamped to `0.0..=1.0`. Zero when nothing is
    /// recorded.
    #[doc(alias = "percentile")]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss
    )] // a rank that is off by one part in 2^52 is the same quantile
    pub fn quantile(&self, q: f64) -> Duration {
        let count = self.count();
        let rank = ((count as f64 * q.clamp(0.0, 1.0)).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        for (bucket, &n) in self.counts.iter().enumerate() {
            seen += n;
            if seen >= rank {
                return Duration::from_nanos(bucket_end(bucket)).min(self.max);
            }
        }
        Duration::ZERO
    }
}

impl fmt::Debug for LatenessHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatenessHistogram")
            .field("count", &self.count())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reading after this many microseconds have been recorded.
    fn recorded(micros: impl IntoIterator<Item = u64>) -> LatenessHistogram {
        let histogram = Histogram::default();
        for micros in micros {
            histogram.record(Duration::from_micros(micros));
        }
        histogram.read()
    }

    #[test]
    fn every_number_is_counted_in_its_bucket() {
        let mut last_end = None;
        for b in 0..BUCKETS {
            let (start, end) = (bucket_start(b), bucket_end(b));
            assert_eq!(bucket(end), b, "the end of bucket {b}");
            assert_eq!(bucket(start), b, "the start of bucket {b}");
            assert_eq!(start, last_end.map_or(0, |last: u64| last + 1));
            last_end = Some(end);
        }
        assert_eq!(last_end, Some(u64::MAX));
    }

    #[test]
    fn quantiles_are_exact_to_an_eighth() {
        let read = recorded(1..=1000);
        assert_eq!(read.count(), 1000);
        assert_eq!(read.max(), Duration::from_millis(1));
        for (q, exact) in [(0.5, 500.0), (0.99, 990.0), (0.0, 1.0), (1.0, 1000.0)] {
            let micros = read.quantile(q).as_secs_f64() * 1e6;
            assert!(micros >= exact && micros <= exact * 1.13, "{q}: {micros}");
        }
    }

    #[test]
    fn rank_of_a_quantile_is_rounded_up() {
        let read = recorded([1, 1_000, 1_000_000]);
        let exact = |micros| Duration::from_micros(micros)..=Duration::from_micros(micros * 9 / 8);
        assert!(exact(1_000).contains(&read.quantile(0.5)), "{read:?}");
        assert!(exact(1_000).contains(&read.quantile(0.34)), "{read:?}");
        assert!(exact(1_000).contains(&read.quantile(0.66)), "{read:?}");
        assert_eq!(read.quantile(0.67), Duration::from_secs(1));
        assert!(read.quantile(0.33) < Duration::from_micros(2), "{read:?}");
    }

    #[test]
    fn quantiles_are_clamped_and_zero_when_empty() {
        let read = recorded([7]);
        for q in [-1.0, 0.0, 1.0, 2.0, f64::NAN] {
            assert_eq!(read.quantile(q), Duration::from_micros(7), "{q}");
        }
        let empty = recorded([]);
        assert_eq!(empty.quantile(0.5), Duration::ZERO);
        assert_eq!(empty.buckets().next(), None);
        assert_eq!((empty.sum(), empty.max()), (Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn buckets_are_listed_in_ascending_order() {
        let micros = [0, 3, 3, 250, 251, 90_000];
        let read = recorded(micros);
        let buckets: Vec<_> = read.buckets().collect();
        assert!(
            buckets
                .windows(2)
                .all(|pair| pair[0].bounds.end() < pair[1].bounds.start())
        );
        assert_eq!(buckets.iter().map(|bucket| bucket.count).sum::<u64>(), 6);
        for micros in micros {
            let lateness = Duration::from_micros(micros);
            let same = micros.max(1);
            let bucket = buckets.iter().find(|b| b.bounds.contains(&lateness));
            let bucket = bucket.expect("it was recorded");
            let width = bucket.bounds.end().abs_diff(*bucket.bounds.start());
            assert!(width <= Duration::from_micros(same) / 8, "{bucket:?}");
        }
        assert_eq!(buckets[1].count, 2);
        assert_eq!(read.sum(), Duration::from_micros(90_507));
    }

    #[test]
    fn sum_does_not_overflow() {
        let histogram = Histogram::default();
        histogram.record(Duration::MAX);
        histogram.record(Duration::MAX);
        assert_eq!(histogram.read().sum(), Duration::from_nanos(u64::MAX));
        assert_eq!(histogram.read().buckets().map(|b| b.count).sum::<u64>(), 2);
    }

    #[test]
    fn counts_of_an_ended_thread_are_kept() {
        let metrics = Metrics::default();
        let counts = Arc::<Counts>::default();
        metrics.register(&counts);
        add(&counts.made, 3);
        drop(counts);
        metrics.register(&Arc::default());
        assert_eq!(metrics.threads().made.load(Ordering::Relaxed), 3);
    }
}
