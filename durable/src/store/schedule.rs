//! Rows with a schedule: an instance computes the next deadline, and a store writes it.

use super::ids::Version;
use super::missed::NextOccurrence;
use super::time::StoreTime;

/// A loaded row with a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheduled {
    /// Its version.
    pub version: Version,
    /// Its deadline, from which the next one is computed.
    pub deadline: StoreTime,
    /// Its schedule, as it was set.
    pub schedule: String,
}

/// The schedules that an instance can compute. It leaves rows with others to other instances.
///
/// A store may match this exhaustively.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schedules {
    /// None at all.
    None,
    /// All but these.
    AllBut(Vec<String>),
}

impl Schedules {
    /// All of them.
    pub const ALL: Schedules = Schedules::AllBut(Vec::new());

    /// Whether a row with this schedule, or without one, is for the instance.
    pub fn include(&self, schedule: Option<&str>) -> bool {
        match (schedule, self) {
            (None, _) => true,
            (Some(_), Schedules::None) => false,
            (Some(schedule), Schedules::AllBut(unknown)) => {
                unknown.iter().all(|unknown| unknown != schedule)
            }
        }
    }
}

/// How a row with a schedule repeats when it fires, as its instance has computed it.
///
/// The instance knows the store's time only roughly. So a plan says for which times it holds, and
/// the store compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The row.
    pub version: Version,
    /// The plan holds from this time on.
    pub from: StoreTime,
    /// The plan holds before this time, which is the next of the schedule.
    pub until: StoreTime,
    /// Decides what becomes of the row if it is due at a time for which the plan holds.
    pub next: NextOccurrence,
}

impl Plan {
    /// A plan for this row that holds from a time on, and before another.
    pub fn new(version: Version, from: StoreTime, until: StoreTime, next: NextOccurrence) -> Self {
        Plan {
            version,
            from,
            until,
            next,
        }
    }

    /// Whether it holds at that time.
    pub fn holds(&self, now: StoreTime) -> bool {
        self.from <= now && now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_holds_between_two_times_of_its_schedule() {
        let at = StoreTime::from_micros;
        let next = NextOccurrence::new(true, 0, at(20));
        let plan = Plan::new(Version(1), at(10), at(20), next);
        let holds = [9, 10, 19, 20].map(|micros| plan.holds(at(micros)));
        assert_eq!(holds, [false, true, true, false]);
    }

    #[test]
    fn unknown_schedules_are_for_other_instances() {
        let known = Schedules::AllBut(vec!["* * * * * Mars/Olympus".to_owned()]);
        assert!(known.include(None) && known.include(Some("* * * * * UTC")));
        assert!(!known.include(Some("* * * * * Mars/Olympus")));
        assert!(Schedules::None.include(None));
        assert!(!Schedules::None.include(Some("* * * * * UTC")));
    }
}
