//! The rules for missed occurrences.

use std::time::Duration;

use super::time::{StoreTime, micros};

/// The rule for occurrences of a repeating timer that were missed, because no instance ran or had
/// capacity.
///
/// An occurrence is missed once the next one is due too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Missed {
    /// Every occurrence is delivered, one after the other.
    FireAll,
    /// One delivery stands for all that were missed, and counts them.
    #[default]
    FireOnce,
    /// Those missed are not delivered.
    Skip,
}

/// The decision of the rule about an occurrence that has come due. From [`Missed::next`] or a
/// [`Plan`](super::Plan).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextOccurrence {
    /// Whether the occurrence fires.
    pub fires: bool,
    /// How many occurrences after it are missed and will not be delivered.
    pub missed: u64,
    /// The deadline of the next occurrence.
    pub due: StoreTime,
}

impl NextOccurrence {
    /// An occurrence that fires or not, how many after it are missed, and the deadline of the next
    /// one.
    pub fn new(fires: bool, missed: u64, due: StoreTime) -> Self {
        NextOccurrence { fires, missed, due }
    }
}

/// For a [store](crate::store) of your own. Like that module, it may change in any version.
impl Missed {
    /// Applies the rule to an occurrence with this deadline that is due at `now`.
    ///
    /// In microseconds: with `late = now - deadline` and `behind = late / period`, rounded down,
    /// the next deadline is `deadline + period` under `FireAll` and `deadline + (behind + 1) *
    /// period` under the others, but not later than [`StoreTime::NEVER`]. `Skip` fires only if
    /// `behind` is zero. `FireOnce` has missed `behind`.
    pub fn next(self, deadline: StoreTime, period: Duration, now: StoreTime) -> NextOccurrence {
        let period = micros(period).max(1);
        let late = (now.as_micros() - deadline.as_micros()).max(0);
        let behind = late / period;
        let after = |periods: i64| {
            let later = periods.saturating_mul(period);
            StoreTime::from_micros(deadline.as_micros().saturating_add(later))
        };
        match self {
            Missed::FireAll => NextOccurrence::new(true, 0, after(1)),
            Missed::FireOnce => NextOccurrence::new(true, behind.unsigned_abs(), after(behind + 1)),
            Missed::Skip => NextOccurrence::new(behind == 0, 0, after(behind + 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_micros(10);

    fn next(missed: Missed, now: i64) -> (bool, u64, i64) {
        let at = StoreTime::from_micros;
        let next = missed.next(at(100), PERIOD, at(now));
        (next.fires, next.missed, next.due.as_micros())
    }

    #[test]
    fn keeps_the_cadence_when_nothing_is_missed() {
        for missed in [Missed::FireAll, Missed::FireOnce, Missed::Skip] {
            assert_eq!(next(missed, 100), (true, 0, 110));
            assert_eq!(next(missed, 109), (true, 0, 110));
        }
    }

    #[test]
    fn applies_each_rule_to_missed_occurrences() {
        assert_eq!(next(Missed::FireAll, 135), (true, 0, 110));
        assert_eq!(next(Missed::FireOnce, 135), (true, 3, 140));
        assert_eq!(next(Missed::Skip, 135), (false, 0, 140));
        assert_eq!(next(Missed::Skip, 110), (false, 0, 120));
    }

    #[test]
    fn ends_at_never() {
        let at = StoreTime::from_micros;
        let next = Missed::FireOnce.next(at(100), Duration::MAX, at(200));
        assert_eq!(next.due, StoreTime::NEVER);
    }
}
