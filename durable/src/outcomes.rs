//! What became of a timer, as the calls of the handle say it.

use crate::token::Token;

/// The result of [`DurableTimers::set_if_absent`](crate::DurableTimers::set_if_absent).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
