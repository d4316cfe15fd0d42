//! The actor: the one task, or thread, that owns the wheels.

#[cfg(not(tickwheel_loom))]
mod barrier;
#[cfg(not(tickwheel_loom))]
mod keyed_wheel;
#[cfg(not(tickwheel_loom))]
mod lateness;
pub(crate) mod sleep_wheel;
#[cfg(not(tickwheel_loom))]
mod task;

#[cfg(not(tickwheel_loom))]
pub(crate) use task::Actor;
#[cfg(all(test, tickwheel_shuttle))]
pub(crate) use task::Step;
