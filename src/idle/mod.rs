//! Idle timers: a touch is a store, and the wheel finds out when it looks.
//!
//! Three of them, for three kinds of user: a [future](IdleTimer), a [stream wrapper](IdleStream), and a
//! [reaper](Reaper) for servers that keep their connections in one place.

pub(crate) mod activity;
#[cfg(not(tickwheel_loom))]
mod clock;
#[cfg(not(tickwheel_loom))]
mod reaper;
#[cfg(not(tickwheel_loom))]
mod stream;
#[cfg(not(tickwheel_loom))]
mod timer;

#[cfg(not(tickwheel_loom))]
pub(crate) use clock::IdleClock;
#[cfg(not(tickwheel_loom))]
pub(crate) use reaper::reaper;
#[cfg(not(tickwheel_loom))]
pub(crate) use timer::assert_not_zero;
#[cfg(not(tickwheel_loom))]
pub use {
    reaper::{Reaper, Watch, WatchOptions},
    stream::{IdleLimits, IdleStream},
    timer::{Busy, IdleHandle, IdleTimer},
};
