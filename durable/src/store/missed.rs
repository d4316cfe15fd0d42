//! The rules for missed occurrences.

use std::time::Duration;

use super::time::{StoreTime, micros};

/// The rule for occurrences of a repeating timer that were missed, because no instance ran or had
/// capacity.
///
/// An occurrence is missed once the next one is due too. A store need not match the rules:
/// [`next`](Self::next) applies them.
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

impl Missed {
    /// Applies the rule to an occurrence with this deadline that is due at `now`.
    ///
    /// In microseconds: with `late = now - deadline` and `behind = late / period`, rounded down,
    /// the next deadline is `deadline + period` under `FireAll` and
    /// `deadline + (behind + 1) * period` under the others, never at most. `Skip` fires only if
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
            Missed::FireAll => NextOccurrence {
                fires: true,
                missed: 0,
                due: after(1),
            },
            Missed::FireOnce => NextOccurrence {
                fires: true,
                missed: behind.unsigned_abs(),
                due: after(behind + 1),
            },
            Missed::Skip => NextOccurrence {
                fires: behind == 0,
                missed: 0,
                due: after(behind + 1),
            },
        }
    }
}

impl Missed {
    /// Until when an occurrence with this deadline waits that is due at `now` and may not fire, and
    /// the deadline that it has then.
    ///
    /// It waits until the next time of its schedule, `deadline + (behind + 1) * period` with
    /// `behind` as in [`next`](Self::next). Its deadline stays, so that the rule applies to it as
    /// to any that is late, but under `Skip` it is that time.
    pub fn wait(
        self,
        deadline: StoreTime,
        period: Duration,
        now: StoreTime,
    ) -> (StoreTime, StoreTime) {
        let due = Missed::Skip.next(deadline, period, now).due;
        match self {
            Missed::FireAll | Missed::FireOnce => (due, deadline),
            Missed::Skip => (due, due),
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
    fn occurrence_that_may_not_fire_waits_for_the_next_time() {
        let at = StoreTime::from_micros;
        for (missed, deadline) in [
            (Missed::FireAll, 100),
            (Missed::FireOnce, 100),
            (Missed::Skip, 140),
        ] {
            let waits = missed.wait(at(100), PERIOD, at(135));
            assert_eq!(waits, (at(140), at(deadline)), "{missed:?}");
        }
    }

    #[test]
    fn ends_at_never() {
        let at = StoreTime::from_micros;
        let next = Missed::FireOnce.next(at(100), Duration::MAX, at(200));
        assert_eq!(next.due, StoreTime::NEVER);
    }
}
