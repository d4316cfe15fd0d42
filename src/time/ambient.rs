//! Finding the wheel of the current runtime.
//!
//! The current runtime is the one that Tokio has entered on this thread. Each timer asks
//! Tokio for it, as Tokio's own timers do. Each thread keeps a copy of the wheel that it used last,
//! and asks the registry only when it changes to another runtime.
//!
//! 1. *One open wheel for each runtime.* The [`registry`] holds it. An entry ends with its runtime
//!    or its wheel, whichever comes first.
//! 2. *The thread's copy agrees with the registry.* A thread uses its copy only if the id is that
//!    of the current runtime and the wheel is open. The registry has the same wheel under that id:
//!    it exchanges a wheel only after the wheel has ended, and Tokio reuses an id only after its
//!    runtime, and so the wheel, has ended.
//! 3. *The copy keeps no runtime alive.* It holds a wheel's memory until the thread uses another
//!    wheel or ends. The actor ends with the runtime, whatever holds the wheel.
//!
//! A thread must ask Tokio each time before it uses its copy. In between it may have entered
//! another runtime, by `enter`, by a `block_on` within `block_in_place` or `spawn_blocking`, or by
//! the next `block_on` on a plain thread. The timers of a runtime that is driven would then wait on
//! the wheel of one that is not. Nothing cheaper tells runtimes apart: `task::try_id` is the same
//! in a task and in what that blocks on, and `runtime::worker_index` (Tokio 1.54) returns `Some(0)`
//! for worker 0 and in every `current_thread` runtime, and does not see `enter`.

use std::cell::RefCell;
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

use super::registry::{self, Ambient};
use crate::clock::{self, CAN_PAUSE};
use crate::sleep::Reserved;
use crate::timer_wheel::TimerWheel;

#[cfg(test)]
mod tests;

/// The wheel that a thread used last.
struct LastUsed {
    runtime: Id,
    wheel: TimerWheel,
}

impl LastUsed {
    /// Whether it has the wheel of the current runtime.
    #[inline]
    fn is_current(&self) -> bool {
        Handle::try_current().is_ok_and(|runtime| runtime.id() == self.runtime)
            && !self.wheel.is_shutdown()
    }
}

thread_local! {
    static LAST_USED: RefCell<Option<LastUsed>> = const { RefCell::new(None) };
}

/// The wheel of the current runtime. Starts one if it has none.
///
/// # Panics
///
/// Panics as Tokio does outside a runtime, and in one without a time driver.
#[inline]
#[track_caller]
pub(super) fn wheel() -> TimerWheel {
    match with_last_used(TimerWheel::clone) {
        Some(wheel) => wheel,
        None => find(),
    }
}

/// Reserves on the current runtime's wheel what a sleep until `deadline` needs. Starts a wheel if
/// there is none. While the runtime's clock is virtual it starts none and returns `None`, for a
/// sleep of [Tokio's own](crate::sleep), so that a test that counts its runtime's tasks sees only
/// its own.
///
/// # Panics
///
/// Panics as [`wheel`] does.
#[inline]
#[track_caller]
pub(super) fn reserve(deadline: Option<Instant>) -> Option<Reserved> {
    // Not a closure, which would be the caller.
    match with_last_used(|wheel| wheel.reserve(deadline)) {
        None => reserve_first(deadline),
        reserved => reserved,
    }
}

/// Like [`reserve`] where this thread has no copy of the wheel.
#[cold]
#[track_caller]
fn reserve_first(deadline: Option<Instant>) -> Option<Reserved> {
    if CAN_PAUSE && needs_no_wheel() {
        return None;
    }
    Some(find().reserve(deadline))
}

/// Whether the current runtime has no wheel, and a virtual clock.
fn needs_no_wheel() -> bool {
    let runtime = Handle::try_current().ok();
    runtime.is_some_and(|runtime| registry::get(runtime.id()).is_none()) && clock::is_virtual()
}

/// Calls `make` with this thread's copy of the wheel, if that is current.
#[inline]
fn with_last_used<R>(make: impl FnOnce(&TimerWheel) -> R) -> Option<R> {
    let made = LAST_USED.try_with(|last_used| {
        let last_used = last_used.try_borrow().ok()?;
        let last_used = last_used
            .as_ref()
            .filter(|last_used| last_used.is_current())?;
        Some(make(&last_used.wheel))
    });
    made.ok().flatten()
}

/// The wheel of the current runtime: from the registry, or a new one. The thread keeps a copy.
#[cold]
#[track_caller]
fn find() -> TimerWheel {
    let runtime = Handle::current();
    let wheel = match registry::get(runtime.id()) {
        Some(ambient) => ambient.wheel,
        None => start(&runtime),
    };
    let last_used = LastUsed {
        runtime: runtime.id(),
        wheel: wheel.clone(),
    };
    // Errors mean that the thread is ending, or that a call has logged and the subscriber has come
    // back here.
    let replaced = LAST_USED.try_with(|here| Some(here.try_borrow_mut().ok()?.replace(last_used)));
    // Not while it is borrowed: what is dropped here sends a command.
    drop(replaced);
    wheel
}

#[track_caller]
fn start(runtime: &Handle) -> TimerWheel {
    // Without a time driver this panics, with Tokio's message and at the caller's line.
    drop(tokio::time::sleep(Duration::ZERO));
    let wheel = match TimerWheel::builder().start() {
        Ok(wheel) => wheel,
        Err(error) => panic!("the wheel of this runtime could not be started: {error}"),
    };
    let ambient = Ambient {
        wheel,
        is_installed: false,
    };
    match registry::enter(runtime, &ambient) {
        Ok(()) => ambient.wheel,
        // Another thread was quicker. The wheel started here ends, since no handle is left.
        Err(present) => present.wheel,
    }
}
