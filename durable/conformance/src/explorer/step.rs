//! The steps of a trace, and how a trace is written.

use std::fmt;
use std::str::FromStr;

/// One step of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// An instance makes a call.
    Call {
        /// The number of the instance.
        by: u8,
        /// The call.
        call: Call,
        /// What goes wrong.
        fault: Fault,
    },
    /// An instance dies with all that it knows, and starts again.
    Crash(u8),
    /// An operator retries the dead timers of a key.
    RetryDead(Key),
    /// An operator discards the dead timers of a key.
    DiscardDead(Key),
    /// An operator amends the charter, so that the instances differ from it, or agree again.
    Amend,
    /// A unit of time passes.
    Tick,
    /// The store's clock is turned back by a unit.
    TurnBack,
    /// The store returns to the state that it had so many steps ago, and its connections are cut:
    /// another server takes over, which lacks what those steps have changed.
    Failover(u8),
    /// The same of a file that is restored in place: no connection is cut. It lacks the last load
    /// of each instance.
    Restore(u8),
}

/// A store returns by at most so many steps.
pub(super) const MAX_RETURN: u8 = 3;

/// A call of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Call {
    /// Sets a timer.
    Set(Key, Delay),
    /// Sets a timer if the key has none.
    SetIfAbsent(Key, Delay),
    /// Sets a timer that repeats after each unit.
    SetInterval(Key, Delay),
    /// Sets a timer with a schedule: each unit.
    SetCron(Key, Delay),
    /// Moves a timer.
    Move(Key, Delay),
    /// Removes a timer.
    Remove(Key),
    /// Loads what is due within a unit. Unloads everything instead if an answer was lost.
    Load,
    /// Loads the earliest of these alone.
    LoadOne,
    /// Fires what is due on the wheel. This call, and the next three, unfire the claims of a lost
    /// fire instead, if there was one.
    Fire,
    /// Fires what is due on the wheel, and two rows that no instance has loaded.
    FireBoth,
    /// Fires the earliest row on the wheel before it is due, as by a clock that is fast.
    FireEarly,
    /// Fires one row that is due and that no instance has loaded.
    FireUnloaded,
    /// Leaves the earliest row on the wheel to others.
    Unmark,
    /// Settles the oldest claim.
    Settle(Settling),
}

/// What goes wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Fault {
    /// Nothing.
    None,
    /// The call takes effect, and its answer is lost.
    Lost,
    /// A write reaches the store when its caller has given up, and any other call never does.
    Late,
}

/// The number of a key.
pub(super) type Key = u8;

/// How long until a timer is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Delay {
    /// It has been due for more than two units.
    Past,
    /// It is due at once.
    Zero,
    /// Within the window of a load.
    Near,
    /// Beyond it.
    Far,
}

/// How a claim is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Settling {
    /// It is done.
    Ack,
    /// It is due again at once.
    Release,
    /// It is due again after half a unit.
    Retry,
    /// It is due again at once, and the firing does not count.
    Unfire,
    /// Its lease begins again.
    Extend,
    /// Its lease ends at once.
    Lapse,
    /// The instance cannot decode it, and leaves it to others, due after half a unit.
    Leave,
    /// It has failed for good.
    Dead,
}

impl Step {
    /// Every step there is.
    fn all() -> Vec<Step> {
        let mut steps = vec![Step::Amend, Step::Tick, Step::TurnBack];
        steps.extend((1..=MAX_RETURN).flat_map(|by| [Step::Failover(by), Step::Restore(by)]));
        for number in 0..3 {
            steps.extend([Step::RetryDead(number), Step::DiscardDead(number)]);
            steps.push(Step::Crash(number));
            for call in Call::all(3) {
                let faults = [Fault::None, Fault::Lost, Fault::Late];
                steps.extend(faults.map(|fault| Step::Call {
                    by: number,
                    call,
                    fault,
                }));
            }
        }
        steps
    }

    /// Whether it sets a timer.
    pub(super) fn sets(self) -> bool {
        matches!(self, Step::Call { call, .. } if call.sets_in().is_some())
    }

    /// Whether it is one of those that a trace has few of.
    pub(super) fn is_fault(self) -> bool {
        match self {
            Step::Crash(_) | Step::TurnBack | Step::Failover(_) | Step::Restore(_) => true,
            Step::Call { fault, .. } => fault != Fault::None,
            _ => false,
        }
    }

    /// Whether one call of the store may stand for this step and the next one: writes, or settles
    /// that end claims, of one instance.
    pub(super) fn joins(self, next: Step) -> bool {
        let (Step::Call { by, call, fault }, Step::Call { call: other, .. }) = (self, next) else {
            return false;
        };
        let ends = |call| matches!(call, Call::Settle(how) if !matches!(how, Settling::Extend | Settling::Lapse));
        let alike = fault == Fault::None && ends(call) && ends(other);
        // In all but the call.
        let call = other;
        let same = next == Step::Call { by, call, fault };
        let writes = self.key().is_some() && next.key().is_some();
        same && fault != Fault::Lost && (alike || writes)
    }

    /// Whether the row that it makes is due at the call, or half a unit from it. As repeating
    /// timers are due a unit later, two steps of one call that say the same may make them due at
    /// the same instant.
    pub(super) fn is_due_at_call(self) -> Option<bool> {
        let Step::Call { call, .. } = self else {
            return None;
        };
        match call {
            Call::Settle(Settling::Release | Settling::Unfire | Settling::Dead) => Some(true),
            Call::Settle(Settling::Retry | Settling::Leave) => Some(false),
            _ => call.due_in().map(|delay| delay == Delay::Zero),
        }
    }

    /// The key that it writes.
    pub(super) fn key(self) -> Option<Vec<u8>> {
        use Call::{Move, Remove, Set, SetCron, SetIfAbsent, SetInterval};
        let (Step::RetryDead(key)
        | Step::DiscardDead(key)
        | Step::Call {
            call:
                Set(key, _)
                | SetIfAbsent(key, _)
                | SetInterval(key, _)
                | SetCron(key, _)
                | Move(key, _)
                | Remove(key),
            ..
        }) = self
        else {
            return None;
        };
        Some(key_bytes(key))
    }
}

impl Settling {
    /// The error that it is sent with.
    pub(super) fn error(self) -> Option<String> {
        let keeps_one = matches!(
            self,
            Settling::Retry | Settling::Dead | Settling::Leave | Settling::Extend
        );
        keeps_one.then(|| format!("{self:?}"))
    }
}

impl Call {
    /// Every call there is, on that number of keys.
    pub(super) fn all(keys: Key) -> Vec<Call> {
        use Call::{Fire, FireBoth, FireEarly, FireUnloaded, Load, LoadOne, Unmark};
        use Settling::{Ack, Dead, Extend, Lapse, Leave, Release, Retry, Unfire};
        let mut calls = vec![
            Load,
            LoadOne,
            Fire,
            FireBoth,
            FireEarly,
            FireUnloaded,
            Unmark,
        ];
        let ends = [Ack, Release, Retry, Unfire, Extend, Lapse, Leave, Dead];
        calls.extend(ends.map(Call::Settle));
        for key in 0..keys {
            calls.push(Call::Remove(key));
            for delay in [Delay::Past, Delay::Zero, Delay::Near, Delay::Far] {
                calls.extend([Call::Set(key, delay), Call::SetIfAbsent(key, delay)]);
                calls.extend([Call::SetInterval(key, delay), Call::SetCron(key, delay)]);
                calls.push(Call::Move(key, delay));
            }
        }
        calls
    }

    /// How long until the timer that it sets is due.
    pub(super) fn sets_in(self) -> Option<Delay> {
        match self {
            Call::Set(_, delay)
            | Call::SetIfAbsent(_, delay)
            | Call::SetInterval(_, delay)
            | Call::SetCron(_, delay) => Some(delay),
            _ => None,
        }
    }

    /// How long until the timer that it sets or moves is due.
    pub(super) fn due_in(self) -> Option<Delay> {
        match self {
            Call::Move(_, delay) => Some(delay),
            _ => self.sets_in(),
        }
    }

    /// Whether it fires timers.
    pub(super) fn fires(self) -> bool {
        use Call::{Fire, FireBoth, FireEarly, FireUnloaded};
        matches!(self, Fire | FireBoth | FireEarly | FireUnloaded)
    }
}

/// A key as it is stored.
pub(super) fn key_bytes(key: Key) -> Vec<u8> {
    vec![b'a' + key]
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Step::Crash(by) => write!(f, "{by} Crash"),
            Step::Call { by, call, fault } => {
                write!(f, "{by} {call:?}")?;
                match fault {
                    Fault::None => Ok(()),
                    fault => write!(f, " {fault:?}"),
                }
            }
            step => write!(f, "{step:?}"),
        }
    }
}

/// Steps, in their order. It prints as `0 Set(0, Near); Tick; 0 Fire Lost`, which [`FromStr`]
/// reads.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Trace(pub(super) Vec<Step>);

impl Trace {
    /// How many timers it sets.
    pub(super) fn sets(&self) -> usize {
        self.0.iter().filter(|step| step.sets()).count()
    }

    pub(super) fn faults(&self) -> usize {
        self.0.iter().filter(|step| step.is_fault()).count()
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<_> = self.0.iter().map(Step::to_string).collect();
        f.write_str(&steps.join("; "))
    }
}

impl FromStr for Trace {
    /// The text that is no step.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = Step::all();
        let steps = text.split(';').map(str::trim);
        let steps = steps.filter(|text| !text.is_empty()).map(|text| {
            let step = all.iter().find(|step| step.to_string() == text);
            step.copied().ok_or_else(|| text.to_owned())
        });
        steps.collect::<Result<_, _>>().map(Trace)
    }
}
