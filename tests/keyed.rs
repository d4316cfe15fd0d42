//! Keyed timers through the public interface, under the paused clock: what they do, one subject to a module.

#[path = "keyed/basics.rs"]
mod basics;
#[path = "keyed/dispatch.rs"]
mod dispatch;
#[path = "keyed/far.rs"]
mod far;
#[path = "keyed/interval.rs"]
mod interval;
#[path = "keyed/limit.rs"]
mod limit;
#[path = "keyed/load.rs"]
mod load;
#[path = "keyed/sets.rs"]
mod sets;
#[path = "keyed/shutdown.rs"]
mod shutdown;
#[path = "keyed/stream.rs"]
mod stream;
#[path = "keyed/support.rs"]
mod support;
