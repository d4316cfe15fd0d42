//! Decides what a fire does with a row that is due.

use super::answers::Stored;
use super::ids::Version;
use super::missed::NextOccurrence;
use super::requests::Fire;
use super::schedule::Plan;
use super::time::StoreTime;

/// The fate of a row that is due.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Occurrence {
    /// It fires, and does not repeat.
    Last,
    /// It repeats, or its occurrence is skipped.
    Repeats(NextOccurrence),
    /// It waits until another time, with this deadline.
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

    /// Whether a row that repeats does not fire while its key has a row in flight.
    pub(crate) fn holds_back(&self, row: &Stored) -> bool {
        self.no_overlap && row.repeats()
    }

    /// Decides what becomes of a row that is due now. `waits` if it is held back.
    pub(crate) fn occurrence(&self, row: &Stored, waits: bool, now: StoreTime) -> Occurrence {
        let (next, wait) = match (row.period, &row.schedule) {
            (Some(period), _) => {
                let next = self.missed.next(row.deadline, period, now);
                (next, self.missed.wait(row.deadline, period, now))
            }
            (None, None) => return Occurrence::Last,
            (None, Some(_)) => match self.plan(row.version).filter(|plan| plan.holds(now)) {
                Some(plan) => (plan.next, plan.wait(self.missed, row.deadline)),
                None => return Occurrence::Unplanned,
            },
        };
        if waits {
            let (due, deadline) = wait;
            return Occurrence::Waits { due, deadline };
        }
        Occurrence::Repeats(next)
    }
}
