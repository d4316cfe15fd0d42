//! Decides what a fire does with a row that is due.

use super::answers::Stored;
use super::ids::Version;
use super::missed::{Missed, NextOccurrence};
use super::requests::Fire;
use super::schedule::Plan;
use super::time::StoreTime;

/// The fate of a row that is due.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Occurrence {
    /// It fires, and may repeat.
    Fires(Option<NextOccurrence>),
    /// It waits until another time, with this deadline and no attempts: it is held back, or its
    /// occurrence is skipped.
    Waits { due: StoreTime, deadline: StoreTime },
    /// It has a schedule, and no plan for it holds.
    Unplanned,
}

impl Fire {
    /// The plan for a row.
    pub fn plan(&self, version: Version) -> Option<&Plan> {
        let at = self
            .plans
            .binary_search_by_key(&version, |plan| plan.version);
        Some(&self.plans[at.ok()?])
    }

    /// Decides what becomes of a row that is due now. `waits` if it is held back, since it repeats
    /// and its key has a row in flight.
    pub(crate) fn occurrence(&self, row: &Stored, waits: bool, now: StoreTime) -> Occurrence {
        let (next, until) = match (row.period, &row.schedule) {
            (Some(period), _) => {
                let next = |missed: Missed| missed.next(row.deadline, period, now);
                (next(self.missed), next(Missed::Skip).due)
            }
            (None, None) => return Occurrence::Fires(None),
            (None, Some(_)) => match self.plan(row.version).filter(|plan| plan.holds(now)) {
                Some(plan) => (plan.next, plan.until),
                None => return Occurrence::Unplanned,
            },
        };
        if waits {
            let deadline = match self.missed {
                Missed::FireAll | Missed::FireOnce => row.deadline,
                Missed::Skip => until,
            };
            let due = until;
            return Occurrence::Waits { due, deadline };
        }
        if next.fires {
            return Occurrence::Fires(Some(next));
        }
        Occurrence::Waits {
            due: next.due,
            deadline: next.due,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::{State, Terms};

    #[test]
    fn occurrence_that_may_not_fire_waits_for_the_next_time() {
        let at = StoreTime::from_micros;
        for (missed, expected) in [
            (Missed::FireAll, 100),
            (Missed::FireOnce, 100),
            (Missed::Skip, 140),
        ] {
            let mut row = Stored::new(Version(1), State::Waiting, vec![], vec![], at(100));
            row.period = Some(Duration::from_micros(10));
            let mut fire = Fire::new(vec![row.version], None, Terms::NONE);
            fire.missed = missed;
            let waits = |fire: &Fire, row: &Stored| match fire.occurrence(row, true, at(135)) {
                Occurrence::Waits { due, deadline, .. } => (due, deadline),
                other => panic!("{other:?}"),
            };
            assert_eq!(waits(&fire, &row), (at(140), at(expected)), "{missed:?}");
            // As by a plan until then.
            (row.period, row.schedule) = (None, Some("by tens".to_owned()));
            let next = NextOccurrence::new(true, 0, at(140));
            fire.plans = vec![Plan::new(row.version, at(130), at(140), next)];
            assert_eq!(waits(&fire, &row), (at(140), at(expected)), "{missed:?}");
        }
    }
}
