//! The oracle of a sleep, and of the wheel's counters.

use super::ops::TASKS;
use crate::support::script_time::Nanos;

/// The deadline of a sleep that never completes: the library's range is 292 years.
pub(crate) const NEVER: Nanos = i64::MAX as Nanos;

/// The state of a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Made, and not polled.
    New,
    /// Reset while it did not wait, and not polled since.
    Reset,
    /// It has the waker of this task.
    Waiting(usize),
    /// Its task has been woken, and it has not been polled since.
    Fired,
    Done,
}

#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) deadline: Nanos,
    pub(crate) stage: Stage,
    /// Which tasks have been woken since they last polled.
    pub(crate) woken: [bool; TASKS],
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) made: u64,
    pub(crate) fired: u64,
    pub(crate) cancelled: u64,
    pub(crate) moved: u64,
}

/// The result that a poll has to return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Polled {
    Ready,
    Pending,
}

/// The start of the tick at which something with this deadline fires: rounded up.
pub(crate) fn fires_at(deadline: Nanos, tick: Nanos) -> Nanos {
    let deadline = deadline.max(0);
    (deadline.div_euclid(tick) + Nanos::from(deadline % tick != 0)) * tick
}

impl Model {
    pub(crate) fn new(deadline: Nanos) -> Self {
        Model {
            deadline,
            stage: Stage::New,
            woken: [false; TASKS],
        }
    }

    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        self.deadline < NEVER && self.deadline <= now
    }

    pub(crate) fn poll(&self, now: Nanos) -> Polled {
        match self.stage {
            Stage::Fired | Stage::Done => Polled::Ready,
            _ if self.is_due(now) => Polled::Ready,
            _ => Polled::Pending,
        }
    }

    /// Whether it counts as fired.
    pub(crate) fn is_elapsed(&self) -> bool {
        matches!(self.stage, Stage::Fired | Stage::Done)
    }

    /// The answer of `is_elapsed`: by the clock, if the sleep was reset and not polled since.
    pub(crate) fn shows_elapsed(&self, now: Nanos) -> bool {
        self.is_elapsed() || self.stage == Stage::Reset && self.is_due(now)
    }

    /// The task that it wakes.
    pub(crate) fn waits(&self) -> Option<usize> {
        match self.stage {
            Stage::Waiting(task) => Some(task),
            _ => None,
        }
    }
}
