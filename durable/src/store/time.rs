//! An instant by the store's clock.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An instant by the store's clock: microseconds since the Unix epoch.
///
/// The greatest is [`NEVER`](Self::NEVER), which is small enough for engines that count in double precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StoreTime(i64);

impl StoreTime {
    /// An instant that no clock reaches: 2^53 - 1 microseconds, in the year 2255. Everything later counts as this.
    pub const NEVER: StoreTime = StoreTime((1 << 53) - 1);

    /// The instant with this many microseconds since the epoch, which is the epoch at least and never at most.
    pub fn from_micros(micros: i64) -> Self {
        StoreTime(micros.clamp(0, Self::NEVER.0))
    }

    /// The instant that many seconds after the epoch, for constants. Panics beyond never.
    #[cfg(feature = "conformance")]
    pub(crate) const fn from_secs(secs: i64) -> Self {
        assert!(secs <= Self::NEVER.0 / 1_000_000);
        StoreTime(secs * 1_000_000)
    }

    /// The microseconds since the epoch.
    pub fn as_micros(self) -> i64 {
        self.0
    }

    /// That long after this instant. A part of a microsecond counts as a whole one, so that nothing is early.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self::from_micros(self.0.saturating_add(micros(delay)))
    }

    /// How long this instant is after an earlier one; zero if it is not.
    pub fn since(self, earlier: StoreTime) -> Duration {
        Duration::from_micros(u64::try_from(self.0 - earlier.0).unwrap_or(0))
    }

    /// Whether it is [`NEVER`](Self::NEVER).
    pub fn is_never(self) -> bool {
        self == Self::NEVER
    }
}

/// A duration in microseconds, rounded up: what stores keep a delay, lease or period as. One too long is the greatest.
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(i64::MAX)
}

impl From<SystemTime> for StoreTime {
    fn from(time: SystemTime) -> Self {
        time.duration_since(UNIX_EPOCH)
            .map_or(StoreTime(0), |since| StoreTime(0).after(since))
    }
}

impl From<StoreTime> for SystemTime {
    fn from(time: StoreTime) -> Self {
        UNIX_EPOCH + time.since(StoreTime(0))
    }
}

impl fmt::Display for StoreTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_never() {
            f.write_str("never")
        } else {
            write!(f, "{}.{:06} s", self.0 / 1_000_000, self.0 % 1_000_000)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saturates_at_never() {
        let now = StoreTime::from_micros(5);
        assert_eq!(now.after(Duration::MAX), StoreTime::NEVER);
        assert_eq!(StoreTime::from_micros(i64::MAX), StoreTime::NEVER);
        assert_eq!(StoreTime::from_micros(-1), StoreTime::from_micros(0));
        assert!(SystemTime::from(StoreTime::NEVER) > SystemTime::now());
    }

    #[test]
    fn rounds_a_part_of_a_microsecond_up() {
        let now = StoreTime::from_micros(5);
        assert_eq!(now.after(Duration::from_nanos(1)).as_micros(), 6);
        assert_eq!(now.after(Duration::from_micros(1)).as_micros(), 6);
        let time = UNIX_EPOCH + Duration::from_nanos(1_500);
        assert_eq!(StoreTime::from(time).as_micros(), 2);
    }

    #[test]
    fn has_no_negative_distances() {
        let (early, late) = (StoreTime::from_micros(1), StoreTime::from_micros(4));
        assert_eq!(late.since(early), Duration::from_micros(3));
        assert_eq!(early.since(late), Duration::ZERO);
    }
}
