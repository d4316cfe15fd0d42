//! State that callers and the actor both touch.
//!
//! Everything a caller and the actor agree on: the [commands](command) and the [mailbox] that
//! carries them, the half of a sleeping future that the actor sees ([`entry`]), the nodes that
//! dropped sleeps leave behind ([`stale`]), the activity that touches record ([`activity`],
//! [`idle_clock`]), the [signal] that wakes the actor, the wakers of a stream's operations
//! ([`pending`]), the list of a wheel's sets of keyed timers ([`sets`]), and the state that all
//! handles of one wheel share ([`state`]). Callers and the actor depend on this module, never on
//! each other.

pub(crate) mod activity;
pub(crate) mod entry;
pub(crate) mod idle_clock;
pub(crate) mod mailbox;
pub(crate) mod note;
pub(crate) mod signal;
pub(crate) mod stale;

#[cfg(not(tickwheel_loom))]
pub(crate) mod command;
#[cfg(not(tickwheel_loom))]
pub(crate) mod end;
#[cfg(not(tickwheel_loom))]
pub(crate) mod notifier;
#[cfg(not(tickwheel_loom))]
pub(crate) mod pending;
#[cfg(not(tickwheel_loom))]
pub(crate) mod sets;
#[cfg(not(tickwheel_loom))]
pub(crate) mod sleep_context;
#[cfg(not(tickwheel_loom))]
pub(crate) mod state;
#[cfg(not(tickwheel_loom))]
pub(crate) mod timer_set;
#[cfg(not(tickwheel_loom))]
pub(crate) mod turn;

#[cfg(not(tickwheel_loom))]
pub(crate) use sleep_context::SleepContext;
#[cfg(not(tickwheel_loom))]
pub(crate) use state::{Alive, Config, Shared, SleepEntry};
