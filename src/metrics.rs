//! What a wheel has counted.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::shared::counts::Counts;

/// Sub-buckets for each power of two, as a power of two: a quantile is exact to an eighth.
const SUB_BITS: u32 = 3;
const SUB_BUCKETS: usize = 1 << SUB_BITS;
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUB_BUCKETS;

/// The counters of one wheel.
///
/// Those of sleeps are spread over the threads, see [`cache`](crate::sleep::pool). Those of sets are kept by the sets and
/// added here when a set is dropped. The rest is written by the actor alone, so a load and a store do for adding.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    threads: Mutex<Threads>,
    /// What threads without storage of their own count: those that are coming down.
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
    /// The sum of those that are gone.
    gone: Counts,
}

/// Adds to a counter that this thread alone writes.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

impl Counts {
    fn each(&self) -> [&AtomicU64; 5] {
        let Counts {
            made,
            cancelled,
            elapsed,
            moved,
            handed_over,
        } = self;
        [made, cancelled, elapsed, moved, handed_over]
    }

    fn add_to(&self, sum: &Counts) {
        for (count, sum) in self.each().into_iter().zip(sum.each()) {
            sum.fetch_add(count.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

impl Metrics {
    /// Includes the counts of one more thread.
    pub(crate) fn register(&self, counts: &Arc<Counts>) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let Threads { alive, gone } = &mut *threads;
        alive.retain_mut(|counts| {
            // Unlike a look at the number of references, this also waits for what the thread wrote last.
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

    /// Reads everything; `keyed` is the sum over all sets, `pending_keyed` the timers in them.
    pub(crate) fn read(&self, keyed: KeyedCounts, pending_keyed: usize) -> WheelMetrics {
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
            keyed_pending: pending_keyed as u64,
            keyed_set: keyed.set,
            keyed_fired: keyed.fired,
            keyed_removed: keyed.removed,
            keyed_replaced: keyed.replaced,
            keyed_drained: keyed.drained,
            keyed_moved: keyed.moved,
            rescheduled: get(&self.rescheduled),
            commands: get(&self.commands),
            turns: get(&self.turns),
            wake_ups: get(&self.wake_ups),
            longest_turn: Duration::from_nanos(get(&self.longest_turn)),
            lateness: self.lateness.read(),
        }
    }
}

/// What one set of keyed timers has counted.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct KeyedCounts {
    pub(crate) set: u64,
    pub(crate) fired: u64,
    pub(crate) removed: u64,
    pub(crate) replaced: u64,
    pub(crate) drained: u64,
    pub(crate) moved: u64,
}

impl KeyedCounts {
    pub(crate) fn add(&mut self, other: &KeyedCounts) {
        let KeyedCounts {
            set,
            fired,
            removed,
            replaced,
            drained,
            moved,
        } = other;
        self.set += set;
        self.fired += fired;
        self.removed += removed;
        self.replaced += replaced;
        self.drained += drained;
        self.moved += moved;
    }
}

/// A count for each range of durations, eight ranges to a power of two. Written by the actor alone.
pub(crate) struct Histogram {
    buckets: Box<[AtomicU64]>,
    max: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            max: AtomicU64::new(0),
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
        if nanos > self.max.load(Ordering::Relaxed) {
            self.max.store(nanos, Ordering::Relaxed);
        }
    }

    fn read(&self) -> LatenessHistogram {
        LatenessHistogram {
            counts: (self.buckets.iter())
                .map(|count| count.load(Ordering::Relaxed))
                .collect(),
            max: Duration::from_nanos(self.max.load(Ordering::Relaxed)),
        }
    }
}

/// The bucket of a number of nanoseconds.
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
    // The first number of the next bucket, less one; of the last bucket that wraps to the largest there is.
    (u128::from(mantissa + 1) << exponent)
        .saturating_sub(1)
        .try_into()
        .unwrap_or(u64::MAX)
}

/// What a wheel has counted since it was started, as [`TimerWheel::metrics`](crate::TimerWheel::metrics) read it.
///
/// The counters are read one after the other while the wheel goes on, so sums over them can be off by what happened
/// meanwhile; after [`settle`](crate::TimerWheel::settle) on a quiet wheel they are exact, and then
///
/// ```text
/// sleeps_made = sleeps_pending + sleeps_fired + sleeps_cancelled + sleeps_handed_over
/// keyed_set   = keyed_pending + keyed_fired + keyed_removed + keyed_replaced + keyed_drained
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WheelMetrics {
    /// SleepWheel that exist and have not fired, those of timeouts and intervals included.
    pub sleeps_pending: u64,
    /// SleepWheel that were made; one that is reset after it had fired counts again.
    pub sleeps_made: u64,
    /// SleepWheel whose deadline was reached.
    pub sleeps_fired: u64,
    /// SleepWheel that were dropped, or were part of a timeout that completed, before their deadline.
    pub sleeps_cancelled: u64,
    /// SleepWheel that went on with Tokio's timer, because the wheel had ended.
    pub sleeps_handed_over: u64,
    /// Calls of [`Sleep::reset`](crate::Sleep::reset) on a sleep that was waiting.
    pub sleeps_moved: u64,
    /// Keyed timers that wait now, over all sets.
    pub keyed_pending: u64,
    /// Keyed timers that were set. A repeating timer counts as set again each time it fires.
    pub keyed_set: u64,
    /// Keyed timers that fired.
    pub keyed_fired: u64,
    /// Keyed timers that were removed or taken.
    pub keyed_removed: u64,
    /// Keyed timers whose key was set again.
    pub keyed_replaced: u64,
    /// Keyed timers that were drained, returned as unexpired, or dropped with their set.
    pub keyed_drained: u64,
    /// Keyed timers that were moved.
    pub keyed_moved: u64,
    /// Timers the actor looked at and filed again, since they had been moved to later.
    pub rescheduled: u64,
    /// Messages the actor has received. Most timers cost none.
    pub commands: u64,
    /// Turns the actor has taken.
    pub turns: u64,
    /// How often the actor had been waiting and woke.
    pub wake_ups: u64,
    /// The longest turn by the clock. A clock that is paused shows zero.
    pub longest_turn: Duration,
    /// By how much timers fired after their deadline; for sleeps after the tick of their deadline.
    pub lateness: LatenessHistogram,
}

/// How late timers fired, with quantiles exact to an eighth.
#[derive(Clone)]
pub struct LatenessHistogram {
    counts: Box<[u64]>,
    max: Duration,
}

impl LatenessHistogram {
    /// How many timers are recorded. Never panics.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The greatest lateness of all, exactly. Never panics.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// The lateness that a share `q` of the timers did not exceed: `quantile(0.5)` is the median.
    ///
    /// `q` is clamped to `0.0..=1.0`. Zero when nothing is recorded. Never panics.
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

    #[test]
    fn every_number_lies_in_the_bucket_it_is_counted_in() {
        let mut last_end = None;
        for b in 0..BUCKETS {
            let end = bucket_end(b);
            assert_eq!(bucket(end), b, "the end of bucket {b}");
            if let Some(last) = last_end {
                assert_eq!(bucket(last + 1), b, "the beginning of bucket {b}");
            }
            last_end = Some(end);
        }
        assert_eq!(last_end, Some(u64::MAX));
    }

    #[test]
    fn quantiles_are_exact_to_an_eighth() {
        let histogram = Histogram::default();
        for micros in 1..=1000 {
            histogram.record(Duration::from_micros(micros));
        }
        let read = histogram.read();
        assert_eq!(read.count(), 1000);
        assert_eq!(read.max(), Duration::from_millis(1));
        for (q, exact) in [(0.5, 500.0), (0.99, 990.0), (0.0, 1.0), (1.0, 1000.0)] {
            let micros = read.quantile(q).as_secs_f64() * 1e6;
            assert!(micros >= exact && micros <= exact * 1.13, "{q}: {micros}");
        }
    }

    #[test]
    fn an_empty_histogram_has_quantiles_of_zero() {
        assert_eq!(Histogram::default().read().quantile(0.5), Duration::ZERO);
    }

    #[test]
    fn the_counts_of_a_thread_that_is_gone_are_kept() {
        let metrics = Metrics::default();
        let counts = Arc::<Counts>::default();
        metrics.register(&counts);
        add(&counts.made, 3);
        drop(counts);
        metrics.register(&Arc::default());
        assert_eq!(metrics.threads().made.load(Ordering::Relaxed), 3);
    }
}
