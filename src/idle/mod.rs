//! Idle timers: activity is recorded in a word, which the actor reads when the timer would be due.
//!
//! There are three kinds: a [future](IdleTimer), a [stream wrapper](IdleStream), and a
//! [reaper](Reaper) for many connections.
//!
//! [`Activity`](crate::shared::activity) explains the word. A future and a stream are each one
//! sleep. Its deadline is a lower bound of the instant at which they are idle:
//!
//! 1. When the wheel reaches the sleep's scheduled tick, the actor reads the
//!    [clock](crate::shared::idle_clock::IdleClock::due) and reschedules the sleep if there was
//!    activity. Otherwise it fires the sleep. That wakes the future, but decides nothing.
//! 2. The future, when polled, decides by one compare-and-exchange. If activity comes first, it
//!    arms the sleep again.
//! 3. A touch or guard before that decision succeeds; a later one returns `false`.
//! 4. An [`IdleTimer`] that has completed begins a new period when it is restarted. An
//!    [`IdleStream`] stays idle: the operation that decides wakes the one that is pending in the
//!    other direction.

mod idle_limits;
mod idle_stream;
mod idle_timer;
mod reaper;
mod watched;

pub(crate) use idle_timer::assert_not_zero;
pub(crate) use reaper::reaper;
pub use {
    idle_limits::IdleLimits,
    idle_stream::IdleStream,
    idle_timer::{BusyGuard, IdleHandle, IdleTimer},
    reaper::{Reaper, WatchGuard, WatchOptions, WeakReaper},
};
