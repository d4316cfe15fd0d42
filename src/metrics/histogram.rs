//! A histogram of durations, and the one that the actor records into.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::tick::nanos;

/// The logarithm of the number of buckets for each power of two. Eight buckets make a quantile
/// exact to an eighth.
const SUB_BITS: u32 = 3;
const SUB_BUCKETS: usize = 1 << SUB_BITS;
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUB_BUCKETS;

/// A histogram of durations with their count, sum and maximum.
///
/// Eight buckets cover each power of two, so a bucket's bounds are at most an eighth apart. A
/// duration above 584 years counts as 584 years.
///
/// # Examples
///
/// Exporting one as a Prometheus histogram, with bounds of your own:
///
/// ```
/// use std::time::Duration;
/// use tickwheel::DurationHistogram;
///
/// let mut lateness = DurationHistogram::default();
/// lateness.record(Duration::from_millis(3));
/// lateness.record(Duration::from_millis(40));
///
/// let mut page = String::new();
/// for millis in [1, 10, 100, 1000] {
///     let bound = Duration::from_millis(millis);
///     let within = lateness.buckets().filter(|bucket| *bucket.bounds.end() <= bound);
///     let count: u64 = within.map(|bucket| bucket.count).sum();
///     page += &format!("lateness_seconds_bucket{{le=\"{}\"}} {count}\n", bound.as_secs_f64());
/// }
/// page += &format!("lateness_seconds_bucket{{le=\"+Inf\"}} {}\n", lateness.count());
/// page += &format!("lateness_seconds_sum {}\n", lateness.sum().as_secs_f64());
/// page += &format!("lateness_seconds_count {}\n", lateness.count());
/// assert!(page.contains("lateness_seconds_bucket{le=\"0.01\"} 1\n"));
/// assert!(page.contains("lateness_seconds_sum 0.043\n"));
/// ```
#[doc(alias = "latency")]
#[doc(alias = "lateness")]
#[derive(Clone, PartialEq, Eq)]
pub struct DurationHistogram {
    counts: Box<[u64]>,
    sum_nanos: u64,
    max_nanos: u64,
}

/// One bucket of a [`DurationHistogram`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DurationBucket {
    /// The smallest and the largest duration that the bucket counts, in whole nanoseconds.
    pub bounds: RangeInclusive<Duration>,
    /// How many durations the bucket counts.
    pub count: u64,
}

impl Default for DurationHistogram {
    fn default() -> Self {
        DurationHistogram {
            counts: Box::new([0; BUCKETS]),
            sum_nanos: 0,
            max_nanos: 0,
        }
    }
}

impl DurationHistogram {
    /// Adds a duration.
    pub fn record(&mut self, duration: Duration) {
        let nanos = nanos(duration);
        self.counts[bucket(nanos)] += 1;
        self.sum_nanos = self.sum_nanos.saturating_add(nanos);
        self.max_nanos = self.max_nanos.max(nanos);
    }

    /// How many durations are recorded.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All durations added up. Stops at 584 years.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_nanos)
    }

    /// The mean; zero when nothing is recorded.
    #[doc(alias = "average")]
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.sum_nanos.checked_div(self.count()).unwrap_or(0))
    }

    /// The largest duration, exactly; zero when nothing is recorded.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max_nanos)
    }

    /// The buckets that are not empty, the lowest first. Their bounds do not overlap.
    pub fn buckets(&self) -> impl Iterator<Item = DurationBucket> + '_ {
        let counted = self.counts.iter().enumerate().filter(|(_, n)| **n > 0);
        counted.map(|(bucket, &count)| DurationBucket {
            bounds: Duration::from_nanos(bucket_start(bucket))
                ..=Duration::from_nanos(bucket_end(bucket)),
            count,
        })
    }

    /// The duration that a share `q` of the recorded ones did not exceed: `quantile(0.5)` is the
    /// median.
    ///
    /// The result is never too low, and at most an eighth too high. `q` is clamped to `0.0..=1.0`.
    /// Zero when nothing is recorded.
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
                return Duration::from_nanos(bucket_end(bucket)).min(self.max());
            }
        }
        Duration::ZERO
    }
}

impl fmt::Debug for DurationHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurationHistogram")
            .field("count", &self.count())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.max())
            .finish_non_exhaustive()
    }
}

/// A [`DurationHistogram`] that the actor alone writes, and any thread reads.
///
/// The actor stores the sum and the maximum before it counts a duration, and readers read them
/// after the counts. So they cover every duration that a reader finds counted.
pub(crate) struct AtomicHistogram {
    counts: Box<[AtomicU64]>,
    sum_nanos: AtomicU64,
    max_nanos: AtomicU64,
}

impl Default for AtomicHistogram {
    fn default() -> Self {
        AtomicHistogram {
            counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            sum_nanos: AtomicU64::new(0),
            max_nanos: AtomicU64::new(0),
        }
    }
}

impl fmt::Debug for AtomicHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read().fmt(f)
    }
}

impl AtomicHistogram {
    pub(crate) fn record(&self, duration: Duration) {
        let nanos = nanos(duration);
        let add = |sum: u64| Some(sum.saturating_add(nanos));
        let _ = (self.sum_nanos).fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        self.max_nanos.fetch_max(nanos, Ordering::Relaxed);
        self.counts[bucket(nanos)].fetch_add(1, Ordering::Release);
    }

    pub(super) fn read(&self) -> DurationHistogram {
        let count = |count: &AtomicU64| count.load(Ordering::Acquire);
        let counts = self.counts.iter().map(count).collect();
        DurationHistogram {
            counts,
            sum_nanos: self.sum_nanos.load(Ordering::Relaxed),
            max_nanos: self.max_nanos.load(Ordering::Relaxed),
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
    // The first number of the next bucket, less one. For the last bucket that is the largest number
    // there is.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// A histogram of this many microseconds each. What the actor records into reads the same.
    fn recorded(micros: impl IntoIterator<Item = u64>) -> DurationHistogram {
        let (mut histogram, atomic) = <(DurationHistogram, AtomicHistogram)>::default();
        for duration in micros.into_iter().map(Duration::from_micros) {
            histogram.record(duration);
            atomic.record(duration);
        }
        assert_eq!(atomic.read(), histogram);
        histogram
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
        assert_eq!(
            [empty.sum(), empty.mean(), empty.max()],
            [Duration::ZERO; 3]
        );
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
            let duration = Duration::from_micros(micros);
            let same = micros.max(1);
            let bucket = buckets.iter().find(|b| b.bounds.contains(&duration));
            let bucket = bucket.expect("it was recorded");
            let width = bucket.bounds.end().abs_diff(*bucket.bounds.start());
            assert!(width <= Duration::from_micros(same) / 8, "{bucket:?}");
        }
        assert_eq!(buckets[1].count, 2);
        assert_eq!(read.sum(), Duration::from_micros(90_507));
        assert_eq!(read.mean(), Duration::from_nanos(90_507_000 / 6));
    }

    #[test]
    fn maximum_that_is_read_covers_every_duration_counted() {
        const COUNT: u64 = 200_000;
        let histogram = AtomicHistogram::default();
        // All in the bucket that is read last.
        let first = bucket_start(BUCKETS - 1);
        thread::scope(|scope| {
            scope.spawn(|| {
                for nanos in first..first + COUNT {
                    histogram.record(Duration::from_nanos(nanos));
                }
            });
            let mut count = 0;
            while count < COUNT {
                let read = histogram.read();
                count = read.count();
                assert!(
                    count == 0 || read.max_nanos >= first + (count - 1),
                    "{read:?}"
                );
            }
        });
    }

    #[test]
    fn sum_does_not_overflow() {
        let read = recorded([u64::MAX, u64::MAX]);
        assert_eq!(read.sum(), Duration::from_nanos(u64::MAX));
        assert_eq!(read.max(), Duration::from_nanos(u64::MAX));
        assert_eq!(read.buckets().map(|b| b.count).sum::<u64>(), 2);
    }
}
