//! Idle timers: a touch is a store, and the wheel finds out when it looks.
//!
//! Three of them, for three kinds of user: a [future](IdleTimer), a [stream wrapper](IdleStream), and a
//! [reaper](Reaper) for servers that keep their connections in one place.

mod idle_stream;
mod idle_timer;
mod reaper;

pub(crate) use idle_timer::assert_not_zero;
pub(crate) use reaper::reaper;
pub use {
    idle_stream::{IdleLimits, IdleStream},
    idle_timer::{Busy, IdleHandle, IdleTimer},
    reaper::{Reaper, Watch, WatchOptions},
};
