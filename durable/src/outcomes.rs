//! What became of a timer, as the calls of the handle say it.

use crate::error::Error;
use crate::store::WriteOutcome;
use crate::token::Token;

/// The result of [`DurableTimers::set_if_absent`](crate::DurableTimers::set_if_absent).
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum SetIfAbsent {
    /// It is set.
    Done,
    /// The key has a timer already.
    Present,
    /// The key has a timer that has fired and is not settled.
    InFlight(Token),
}

/// The result of [`DurableTimers::move_timer`](crate::DurableTimers::move_timer).
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Moved {
    /// It is moved. Its old deadline will never be delivered.
    Done,
    /// There is no such timer.
    Absent,
    /// It has fired and is not settled. Nothing was changed.
    InFlight(Token),
}

/// The result of [`DurableTimers::remove_timer`](crate::DurableTimers::remove_timer).
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Removed<V> {
    /// It is removed and will never be delivered. Its value.
    Done(V),
    /// There is no such timer.
    Absent,
    /// It has fired and is not settled. Nothing was changed.
    InFlight(Token),
}

impl SetIfAbsent {
    /// From the outcome of a write to a key of this part.
    pub(crate) fn of(written: &WriteOutcome, part: usize) -> Self {
        match *written {
            WriteOutcome::Armed { .. } => SetIfAbsent::Done,
            WriteOutcome::InFlight(version) => SetIfAbsent::InFlight(Token { version, part }),
            _ => SetIfAbsent::Present,
        }
    }
}

impl Moved {
    /// From the outcome of a write to a key of this part.
    pub(crate) fn of(written: &WriteOutcome, part: usize) -> Self {
        match *written {
            WriteOutcome::Armed { .. } => Moved::Done,
            WriteOutcome::InFlight(version) => Moved::InFlight(Token { version, part }),
            _ => Moved::Absent,
        }
    }
}

impl<V> Removed<V> {
    /// From the outcome of a write to a key of this part, and what decodes a value.
    pub(crate) fn of(
        written: WriteOutcome,
        part: usize,
        decode: impl FnOnce(&[u8]) -> Result<V, Error>,
    ) -> Result<Self, Error> {
        Ok(match written {
            WriteOutcome::Removed { value, .. } => Removed::Done(decode(&value)?),
            WriteOutcome::InFlight(version) => Removed::InFlight(Token { version, part }),
            _ => Removed::Absent,
        })
    }
}
