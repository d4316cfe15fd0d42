//! An instant by the store's clock.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An instant by the store's clock: microseconds since the Unix epoch.
///
/// It prints as a time, `2026-11-22T09:17:47.443053Z`, also for debugging.
///
/// The greatest is [`NEVER`](Self::NEVER), which is small enough for engines that count in double
/// precision.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StoreTime(i64);

impl StoreTime {
    /// An instant that no clock reaches: 2^53 - 1 microseconds, in the year 2255. Everything later
    /// counts as this.
    pub const NEVER: StoreTime = StoreTime((1 << 53) - 1);

    /// The instant with this many microseconds since the epoch, but not before the epoch and not
    /// after [`NEVER`](Self::NEVER).
    pub const fn from_micros(micros: i64) -> Self {
        match micros {
            ..0 => StoreTime(0),
            micros if micros < Self::NEVER.0 => StoreTime(micros),
            _ => Self::NEVER,
        }
    }

    /// The microseconds since the epoch.
    pub fn as_micros(self) -> i64 {
        self.0
    }

    /// That long after this instant. A part of a microsecond counts as a whole one, so that nothing
    /// is early.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self::from_micros(self.0.saturating_add(micros(delay)))
    }

    /// That long before this instant, or the epoch. A part of a microsecond counts as a whole one.
    #[must_use]
    pub fn before(self, age: Duration) -> Self {
        Self::from_micros(self.0.saturating_sub(micros(age)))
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

/// A duration in microseconds, rounded up: what stores keep a delay, lease or period as. It is
/// [`NEVER`](StoreTime::NEVER) at most, and so small enough for sums.
pub fn micros(duration: Duration) -> i64 {
    let micros = i64::try_from(duration.as_nanos().div_ceil(1_000));
    micros.unwrap_or(i64::MAX).min(StoreTime::NEVER.0)
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
            return f.write_str("never");
        }
        humantime::format_rfc3339_micros((*self).into()).fmt(f)
    }
}

impl fmt::Debug for StoreTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
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
        assert_eq!(now.before(Duration::from_micros(2)).as_micros(), 3);
        assert_eq!(now.before(Duration::MAX), StoreTime::from_micros(0));
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

    /// `StoreTime(1795339067443053)` told an operator nothing.
    #[test]
    fn prints_as_a_time() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_001, "2000-02-29T00:00:00.000001Z"),
            (951_868_799_999_999, "2000-02-29T23:59:59.999999Z"),
            (951_868_800_000_000, "2000-03-01T00:00:00.000000Z"),
            (1_795_339_067_443_053, "2026-11-22T09:17:47.443053Z"),
            (1_798_761_599_000_000, "2026-12-31T23:59:59.000000Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z"),
            (9_007_199_254_740_990, "2255-06-05T23:47:34.740990Z"),
            (i64::MAX, "never"),
        ] {
            let time = StoreTime::from_micros(micros);
            assert_eq!(time.to_string(), text);
            assert_eq!(format!("{time:?}"), text);
        }
    }

    #[test]
    fn has_no_negative_distances() {
        let (early, late) = (StoreTime::from_micros(1), StoreTime::from_micros(4));
        assert_eq!(late.since(early), Duration::from_micros(3));
        assert_eq!(early.since(late), Duration::ZERO);
    }
}
