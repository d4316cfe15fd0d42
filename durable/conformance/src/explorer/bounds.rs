//! What is explored: the calls and other steps of a few instances.

use tickwheel_durable::Charter;
use tickwheel_durable::store::Missed;

use super::DEEPER;
use super::step::{Call, Fault, How, Step, Trace};

/// What is explored.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// How many instances there are.
    pub(super) instances: u8,
    /// Whether the last instance can decode no timer.
    pub(super) last_is_blind: bool,
    /// Whether the last instance knows no schedule.
    pub(super) last_has_no_calendar: bool,
    /// The charter of the namespace.
    pub(super) charter: Charter,
    /// The rule for missed occurrences.
    pub(super) missed: Missed,
    /// The calls that each of them makes.
    pub(super) calls: Vec<Call>,
    /// What else happens, besides ticks and crashes.
    pub(super) others: Vec<Step>,
    /// The most steps of a trace.
    pub(super) depth: usize,
    /// The most faults of a trace: calls that fail, instances that die, and steps of the clock.
    pub(super) faults: usize,
    /// The most timers that are set in a trace.
    pub(super) sets: usize,
}

/// Reads calls, which are written as in a [trace](super::Trace).
fn read(calls: &str) -> Vec<Call> {
    let all = Call::all(2);
    let read = calls.split("; ").map(|text| {
        let call = all.iter().find(|call| format!("{call:?}") == text);
        *call.unwrap_or_else(|| panic!("{text} is no call"))
    });
    read.collect()
}

impl Bounds {
    fn new(instances: u8, calls: &str) -> Self {
        Bounds {
            instances,
            last_is_blind: false,
            last_has_no_calendar: false,
            charter: Charter::new("test"),
            missed: Missed::FireOnce,
            calls: read(&format!("Load; Fire; FireUnloaded; {calls}")),
            others: Vec::new(),
            depth: 5,
            faults: 1,
            sets: 2,
        }
    }

    /// One key: set, moved, removed and delivered by two instances.
    pub fn one_key() -> Self {
        Bounds::new(
            2,
            "Set(0, Zero); Set(0, Near); Set(0, Far); SetIfAbsent(0, Near); Move(0, Near); \
                Move(0, Far); Remove(0); FireEarly; Unmark; Settle(Ack); Settle(Release); \
                Settle(Retry); Settle(Unfire); Settle(Extend)",
        )
    }

    /// Timers that die, and that are retried or discarded while others of their key live.
    pub fn dead() -> Self {
        Bounds {
            others: vec![Step::RetryDead(0), Step::DiscardDead(0)],
            ..Bounds::new(
                2,
                "Set(0, Zero); Set(0, Near); SetIfAbsent(0, Zero); Move(0, Near); Remove(0); \
                    Settle(Ack); Settle(Retry); Settle(Dead)",
            )
        }
    }

    /// A repeating timer beside others of its key, while the clock steps back.
    pub fn repeating() -> Self {
        Bounds {
            others: vec![Step::TurnBack],
            ..Bounds::new(
                2,
                "SetInterval(0, Near); Set(0, Near); Remove(0); Settle(Ack); Settle(Release); \
                    Settle(Dead)",
            )
        }
    }

    /// The same where occurrences do not overlap.
    pub fn one_at_a_time() -> Self {
        let mut bounds = Bounds::repeating();
        bounds.charter.no_overlap = true;
        bounds
    }

    /// Occurrences that were missed, under a rule, of timers with a period and with a schedule.
    fn missing(missed: Missed) -> Self {
        Bounds {
            missed,
            ..Bounds::new(
                2,
                "SetInterval(0, Past); SetInterval(0, Near); SetCron(0, Past); FireBoth; \
                    Settle(Ack); Settle(Release)",
            )
        }
    }

    /// Missed occurrences of which each is delivered.
    pub fn each_missed() -> Self {
        Bounds::missing(Missed::FireAll)
    }

    /// Missed occurrences of which none is delivered, and none beside another.
    pub fn none_missed() -> Self {
        let mut bounds = Bounds::missing(Missed::Skip);
        bounds.charter.no_overlap = true;
        bounds
    }

    /// A timer with a schedule that one of two instances knows, while the clock steps back.
    pub fn calendar() -> Self {
        Bounds {
            last_has_no_calendar: true,
            others: vec![Step::TurnBack],
            ..Bounds::new(
                2,
                "SetCron(0, Zero); SetCron(0, Near); Move(0, Near); Remove(0); Settle(Ack); \
                    Settle(Retry)",
            )
        }
    }

    /// Timers that are delivered once or never.
    pub fn at_most_once() -> Self {
        let mut bounds = Bounds::new(
            2,
            "Set(0, Zero); Set(0, Near); SetInterval(0, Past); SetCron(0, Zero); Move(0, Near); \
                Remove(0); FireEarly",
        );
        bounds.charter.at_most_once = true;
        bounds
    }

    /// A charter that is amended, so that instances and namespace differ for a while.
    pub fn charters() -> Self {
        Bounds {
            others: vec![Step::Amend],
            ..Bounds::new(
                2,
                "Set(0, Zero); Set(0, Near); Move(0, Near); Remove(0); Settle(Ack); \
                    Settle(Release); Settle(Extend)",
            )
        }
    }

    /// An instance that can decode no timer beside one that can.
    pub fn blind() -> Self {
        Bounds {
            last_is_blind: true,
            ..Bounds::new(
                2,
                "Set(0, Zero); SetInterval(0, Near); Move(0, Near); Remove(0); Settle(Ack); \
                    Settle(Leave)",
            )
        }
    }

    /// Two keys and three instances: what one of them does to the timers of another.
    pub fn two_keys() -> Self {
        Bounds::new(
            3,
            "Set(0, Near); Set(1, Far); Move(1, Near); LoadOne; FireBoth; Unmark; Settle(Ack)",
        )
    }

    /// Every call of three instances on two keys, for traces that are taken at random.
    pub(super) fn everything() -> Self {
        let mut others = vec![Step::Amend];
        for key in 0..2 {
            others.extend([Step::RetryDead(key), Step::DiscardDead(key)]);
        }
        Bounds {
            calls: Call::all(2),
            others,
            ..Bounds::new(3, "Load")
        }
    }

    /// These bounds with so many steps, and more if the environment asks for them.
    #[must_use]
    pub fn steps(mut self, depth: usize) -> Self {
        let deeper = std::env::var(DEEPER).ok();
        let deeper = deeper.and_then(|deeper| deeper.parse().ok());
        self.depth = depth + deeper.unwrap_or(0);
        self
    }

    /// Whether a trace may go on with this step.
    pub(super) fn allow(&self, trace: &Trace, step: Step) -> bool {
        trace.faults() + usize::from(step.is_fault()) <= self.faults
            && trace.sets() + usize::from(step.sets()) <= self.sets
    }

    /// Whether the instance with this number can decode no timer.
    pub(super) fn is_blind(&self, by: u8) -> bool {
        self.last_is_blind && by + 1 == self.instances
    }

    /// Whether the instance with this number knows schedules.
    pub(super) fn has_calendar(&self, by: usize) -> bool {
        !self.last_has_no_calendar || by + 1 < usize::from(self.instances)
    }

    /// So many instances, from the first, are alike.
    pub(super) fn alike(&self) -> usize {
        usize::from(self.instances) - usize::from(self.last_is_blind || self.last_has_no_calendar)
    }

    pub(super) fn all_steps(&self) -> Vec<Step> {
        let mut steps = [&[Step::Tick], &*self.others].concat();
        for by in 0..self.instances {
            for &call in &self.calls {
                let leaves = call == Call::Settle(How::Leave);
                let may_settle = !matches!(call, Call::Settle(_)) || leaves == self.is_blind(by);
                let may_set =
                    !matches!(call, Call::SetCron(..)) || self.has_calendar(usize::from(by));
                if !may_settle || !may_set {
                    continue;
                }
                let faults = [Fault::None, Fault::Lost, Fault::Late];
                steps.extend(faults.map(|fault| Step::Call { by, call, fault }));
            }
            steps.push(Step::Crash(by));
        }
        steps
    }
}
