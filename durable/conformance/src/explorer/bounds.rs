//! What is explored: the calls and other steps of a few instances.

use tickwheel_durable::Charter;
use tickwheel_durable::store::Missed;

use super::DEEPER;
use super::step::{Call, Fault, Settling, Step, Trace};

/// The most timers that are set in a trace.
const MAX_SETS: usize = 2;

/// What is explored.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
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
}

impl Bounds {
    /// Those whose traces any store replays.
    pub(super) const REPLAYED: [&str; 9] = [
        "one-key",
        "dead",
        "repeating",
        "charters",
        "blind",
        "each-missed",
        "none-missed",
        "calendar",
        "at-most-once",
    ];

    /// The bounds with this name and number of steps, and more steps if the environment says so.
    pub(super) fn named(name: &str, depth: usize) -> Self {
        // Besides loads and fires, as in a trace.
        let steps = match name {
            // Set, moved, removed and delivered by two instances.
            "one-key" => {
                "Set(0, Zero); Set(0, Near); Set(0, Far); SetIfAbsent(0, Near); Move(0, Near); \
                    Move(0, Far); Remove(0); FireEarly; Unmark; Settle(Ack); Settle(Release); \
                    Settle(Retry); Settle(Unfire); Settle(Extend)"
            }
            // Timers that die, and that are retried or discarded while others of their key live.
            "dead" => {
                "Set(0, Zero); Set(0, Near); SetIfAbsent(0, Zero); Move(0, Near); Remove(0); \
                    Settle(Ack); Settle(Retry); Settle(Dead); RetryDead(0); DiscardDead(0)"
            }
            // A repeating timer beside others of its key, while the clock steps back: with
            // occurrences that overlap, and one at a time.
            "repeating" | "one-at-a-time" => {
                "SetInterval(0, Near); Set(0, Near); Remove(0); Settle(Ack); Settle(Release); \
                    Settle(Dead); TurnBack"
            }
            // Timers with a period and with a schedule, of which each occurrence that was missed is
            // delivered, or none, and none beside another.
            "each-missed" | "none-missed" => {
                "SetInterval(0, Past); SetInterval(0, Near); SetCron(0, Past); FireBoth; \
                    Settle(Ack); Settle(Release)"
            }
            // A timer with a schedule that one of two instances knows, while the clock steps back.
            "calendar" => {
                "SetCron(0, Zero); SetCron(0, Near); Move(0, Near); Remove(0); Settle(Ack); \
                    Settle(Retry); TurnBack"
            }
            // Timers that are delivered once or never.
            "at-most-once" => {
                "Set(0, Zero); Set(0, Near); SetInterval(0, Past); SetCron(0, Zero); \
                    Move(0, Near); Remove(0); FireEarly"
            }
            // A charter that is amended, so that instances and namespace differ for a while.
            "charters" => {
                "Set(0, Zero); Set(0, Near); Move(0, Near); Remove(0); Settle(Ack); \
                    Settle(Release); Settle(Extend); Amend"
            }
            // An instance that can decode no timer beside one that can.
            "blind" => {
                "Set(0, Zero); SetInterval(0, Near); Move(0, Near); Remove(0); Settle(Ack); \
                    Settle(Leave)"
            }
            // A store that returns to an earlier state. Calls that fail are in the other bounds.
            "returning" => {
                "Set(0, Zero); Set(0, Near); SetInterval(0, Near); Remove(0); Unmark; \
                    Settle(Ack); Failover(1); Failover(2); Failover(3); Restore(2); Restore(3)"
            }
            // Three instances: what one of them does to the timers of another.
            "two-keys" => {
                "Set(0, Near); Set(1, Far); Move(1, Near); LoadOne; FireBoth; Unmark; Settle(Ack)"
            }
            // With every call of three instances on two keys, for traces that are taken at random.
            "everything" => "Amend; RetryDead(0); DiscardDead(0); RetryDead(1); DiscardDead(1)",
            _ => panic!("there are no bounds {name}"),
        };
        let (mut calls, mut others) =
            (vec![Call::Load, Call::Fire, Call::FireUnloaded], Vec::new());
        for text in steps.split("; ") {
            let steps: Result<Trace, _> = text.parse().or_else(|_| format!("0 {text}").parse());
            match steps.unwrap_or_else(|text| panic!("{text} is no step")).0[0] {
                Step::Call { call, .. } => calls.push(call),
                other => others.push(other),
            }
        }
        if name == "everything" {
            calls = Call::all(2);
        }
        let deeper = std::env::var(DEEPER).ok();
        let deeper = deeper.map(|deeper| deeper.parse().expect("EXPLORE_DEEPER is a number"));
        let mut charter = Charter::new("test");
        charter.no_overlap = matches!(name, "one-at-a-time" | "none-missed");
        charter.at_most_once = name == "at-most-once";
        Bounds {
            instances: if matches!(name, "two-keys" | "everything") {
                3
            } else {
                2
            },
            last_is_blind: name == "blind",
            last_has_no_calendar: name == "calendar",
            charter,
            missed: match name {
                "each-missed" => Missed::FireAll,
                "none-missed" => Missed::Skip,
                _ => Missed::FireOnce,
            },
            calls,
            others,
            depth: depth + deeper.unwrap_or(0),
            faults: 1,
        }
    }

    /// Whether a trace may go on with this step.
    pub(super) fn allow(&self, trace: &Trace, step: Step) -> bool {
        trace.faults() + usize::from(step.is_fault()) <= self.faults
            && trace.sets() + usize::from(step.sets()) <= MAX_SETS
    }

    /// Whether the store may return to an earlier state.
    pub(super) fn returns(&self) -> bool {
        let mut others = self.others.iter();
        others.any(|step| matches!(step, Step::Failover(_) | Step::Restore(_)))
    }

    /// Whether the instance with this number can decode no timer.
    pub(super) fn is_blind(&self, by: u8) -> bool {
        self.last_is_blind && by + 1 == self.instances
    }

    /// Whether the instance with this number knows schedules.
    pub(super) fn has_calendar(&self, by: usize) -> bool {
        !self.last_has_no_calendar || by + 1 < usize::from(self.instances)
    }

    /// How many instances, from the first, are alike.
    pub(super) fn alike(&self) -> usize {
        usize::from(self.instances) - usize::from(self.last_is_blind || self.last_has_no_calendar)
    }

    pub(super) fn all_steps(&self) -> Vec<Step> {
        let mut steps = [&[Step::Tick], &*self.others].concat();
        for by in 0..self.instances {
            for &call in &self.calls {
                let leaves = call == Call::Settle(Settling::Leave);
                let may_settle = !matches!(call, Call::Settle(_)) || leaves == self.is_blind(by);
                let may_set =
                    !matches!(call, Call::SetCron(..)) || self.has_calendar(usize::from(by));
                if !may_settle || !may_set {
                    continue;
                }
                let mut faults = vec![Fault::None, Fault::Lost, Fault::Late];
                faults.retain(|&fault| fault == Fault::None || !self.returns());
                let faults = faults.into_iter();
                steps.extend(faults.map(|fault| Step::Call { by, call, fault }));
            }
            steps.push(Step::Crash(by));
        }
        steps
    }
}
