//! The steps of a trace, and how a trace is written.

use std::fmt;
use std::str::FromStr;

/// One step of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// An instance makes a call.
    Call {
        /// The number of the instance.
        by: u8,
        /// The call.
        call: Call,
        /// Whether the call takes effect and its answer is lost.
        lost: bool,
    },
    /// An instance dies with all that it knows, and starts again.
    Crash {
        /// The number of the instance.
        by: u8,
    },
    /// A unit of time passes.
    Tick,
}

/// A call of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// Sets a timer.
    Set(Key, Delay),
    /// Sets a timer if the key has none.
    SetIfAbsent(Key, Delay),
    /// Sets a timer that repeats after each unit.
    SetInterval(Key),
    /// Moves a timer.
    Move(Key, Delay),
    /// Removes a timer.
    Remove(Key),
    /// Loads what is due within a unit; unloads everything first if an answer was lost.
    Load,
    /// Fires what is due on the wheel.
    Fire,
    /// Fires one row that is due and that no instance has loaded.
    FireUnloaded,
    /// Leaves the earliest row on the wheel to others.
    Unmark,
    /// Settles the oldest claim.
    Settle(How),
}

/// The number of a key.
pub type Key = u8;

/// How long until a timer is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Delay {
    /// It is due at once.
    Zero,
    /// Within the window of a load.
    Near,
    /// Beyond it.
    Far,
}

/// How a claim is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum How {
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
    /// The instance cannot decode it, and leaves it to others.
    Leave,
    /// It has failed for good.
    Dead,
}

const DELAYS: [(&str, Delay); 3] = [
    ("now", Delay::Zero),
    ("near", Delay::Near),
    ("far", Delay::Far),
];

const SETTLES: [(&str, How); 7] = [
    ("ack", How::Ack),
    ("release", How::Release),
    ("retry", How::Retry),
    ("unfire", How::Unfire),
    ("extend", How::Extend),
    ("leave", How::Leave),
    ("dead", How::Dead),
];

fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: &T) -> &'static str {
    let named = names.iter().find(|(_, named)| named == value);
    named.map_or("?", |(name, _)| name)
}

fn named<T: Copy>(names: &[(&str, T)], name: &str) -> Option<T> {
    let named = names.iter().find(|(known, _)| *known == name);
    named.map(|&(_, value)| value)
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (by, call, lost) = match *self {
            Step::Tick => return f.write_str("tick"),
            Step::Crash { by } => return write!(f, "{by} crash"),
            Step::Call { by, call, lost } => (by, call, lost),
        };
        write!(f, "{by} ")?;
        match call {
            Call::Set(key, delay) => write!(f, "set {key} {}", name_of(&DELAYS, &delay))?,
            Call::SetIfAbsent(key, delay) => {
                write!(f, "set_if_absent {key} {}", name_of(&DELAYS, &delay))?;
            }
            Call::SetInterval(key) => write!(f, "set_interval {key}")?,
            Call::Move(key, delay) => write!(f, "move {key} {}", name_of(&DELAYS, &delay))?,
            Call::Remove(key) => write!(f, "remove {key}")?,
            Call::Load => f.write_str("load")?,
            Call::Fire => f.write_str("fire")?,
            Call::FireUnloaded => f.write_str("fire_unloaded")?,
            Call::Unmark => f.write_str("unmark")?,
            Call::Settle(how) => f.write_str(name_of(&SETTLES, &how))?,
        }
        f.write_str(if lost { " lost" } else { "" })
    }
}

/// A text is no step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepError(String);

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no step of a trace", self.0)
    }
}

impl std::error::Error for StepError {}

impl FromStr for Step {
    type Err = StepError;

    fn from_str(text: &str) -> Result<Self, StepError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        parse(&words).ok_or_else(|| StepError(text.to_owned()))
    }
}

fn parse(words: &[&str]) -> Option<Step> {
    if words == ["tick"] {
        return Some(Step::Tick);
    }
    let (by, words) = words.split_first()?;
    let by = by.parse().ok()?;
    if words == ["crash"] {
        return Some(Step::Crash { by });
    }
    let (words, lost) = match words {
        [words @ .., "lost"] => (words, true),
        words => (words, false),
    };
    let key = |key: &str| key.parse().ok();
    let call = match *words {
        ["set", k, delay] => Call::Set(key(k)?, named(&DELAYS, delay)?),
        ["set_if_absent", k, delay] => Call::SetIfAbsent(key(k)?, named(&DELAYS, delay)?),
        ["set_interval", k] => Call::SetInterval(key(k)?),
        ["move", k, delay] => Call::Move(key(k)?, named(&DELAYS, delay)?),
        ["remove", k] => Call::Remove(key(k)?),
        ["load"] => Call::Load,
        ["fire"] => Call::Fire,
        ["fire_unloaded"] => Call::FireUnloaded,
        ["unmark"] => Call::Unmark,
        [how] => Call::Settle(named(&SETTLES, how)?),
        _ => return None,
    };
    Some(Step::Call { by, call, lost })
}

/// Steps, in their order; it prints as `0 set 0 near; tick; 0 fire`, which [`FromStr`] reads.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Trace(pub Vec<Step>);

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.0.iter().enumerate() {
            write!(f, "{}{step}", if number == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl FromStr for Trace {
    type Err = StepError;

    fn from_str(text: &str) -> Result<Self, StepError> {
        let steps = text.split(';').filter(|step| !step.trim().is_empty());
        steps.map(str::parse).collect::<Result<_, _>>().map(Trace)
    }
}
