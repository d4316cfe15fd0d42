//! The one place where the crate reads the time.
//!
//! It is Tokio's clock, which tests can pause, or under the explorer (`--cfg tickwheel_shuttle`) a
//! virtual clock that only the explorer moves.

#[cfg(tickwheel_shuttle)]
mod model;
mod pausable;
#[cfg(not(tickwheel_loom))]
mod policy;

#[cfg(not(tickwheel_shuttle))]
use tokio::{
    runtime::{Handle, TryCurrentError},
    time::Instant,
};

#[cfg(tickwheel_shuttle)]
pub(crate) use model::*;
pub(crate) use pausable::CAN_PAUSE;
#[cfg(not(tickwheel_loom))]
pub(crate) use policy::ClockPolicy;

/// The current time.
///
/// A Tokio with a clock that can be paused asks for the thread's runtime, and panics in a thread
/// that ends once its thread-local storage is gone. Pools, and what users keep in thread-locals,
/// are dropped there. Such a thread has no runtime any more, so its clock is the real one.
#[cfg(not(tickwheel_shuttle))]
#[inline]
pub(crate) fn now() -> Instant {
    let ends = |error: TryCurrentError| error.is_thread_local_destroyed();
    if CAN_PAUSE && Handle::try_current().is_err_and(ends) {
        return Instant::from_std(std::time::Instant::now());
    }
    Instant::now()
}

/// Whether this thread's Tokio clock differs from the real one because it is paused, or has been.
///
/// A clock that stands still differs from the real one at any instant, also where both show the
/// same. A resumed clock counts as the real one only if it differs by less than the time that two
/// readings take, so that no caller can tell them apart.
#[cfg(not(tickwheel_shuttle))]
pub(crate) fn is_virtual() -> bool {
    while CAN_PAUSE {
        let before = now().into_std();
        let real = std::time::Instant::now();
        let after = now().into_std();
        // A clock that follows the real one gives readings before and after it.
        if real < before || after < real {
            return true;
        }
        if before < after {
            return false;
        }
        // All readings are the same. The real clock moves on, and a clock that stands still does
        // not.
    }
    false
}
