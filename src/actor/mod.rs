//! The actor: the one task, or thread, that owns the wheels.

#[cfg(not(tickwheel_loom))]
mod backlog;
pub(crate) mod hosted;
#[cfg(not(tickwheel_loom))]
mod lateness;
#[cfg(not(tickwheel_loom))]
#[cfg_attr(
    not(all(feature = "precise", target_os = "linux")),
    path = "no_precise_timer.rs"
)]
mod precise_timer;
pub(crate) mod sleep_wheel;
#[cfg(not(tickwheel_loom))]
mod task;
#[cfg(not(tickwheel_loom))]
mod timer;

#[cfg(not(tickwheel_loom))]
pub(crate) use task::Actor;
#[cfg(all(test, tickwheel_shuttle))]
pub(crate) use task::Step;
#[cfg(not(tickwheel_loom))]
pub(crate) use timer::ActorTimer;
