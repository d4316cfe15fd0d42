//! The policy of a wheel where clocks differ: whose time a timer goes by, and whether its sleeps
//! stay on the wheel.
//!
//! A paused clock belongs to one runtime, and deadlines from another clock are meaningless on it.
//!
//! 1. *The actor goes by the clock of its runtime*, or by the real one if it has none.
//! 2. *A thread outside that runtime has a foreign clock* if one of the two is virtual. It decides
//!    no deadline by its own: the actor does.
//! 3. *A clock that was found virtual stays so*, also after `resume`: its instants go on to differ
//!    from the real ones.
//! 4. *In the runtime of a virtual clock, sleeps are Tokio's.* [`on_tokio`](crate::sleep) says why.

use tokio::runtime::{Handle, Id};

use super::{CAN_PAUSE, is_virtual};
use crate::sync::atomic::{AtomicBool, Ordering};

/// See the module.
#[derive(Debug)]
pub(crate) struct ClockPolicy {
    /// The actor's runtime, if it runs on one.
    runtime: Option<Id>,
    /// Whether the clock of that runtime can be paused.
    can_pause: bool,
    /// Whether it has been found to be virtual.
    found_virtual: AtomicBool,
    /// Whether sleeps stay on the wheel even then, and indices of removed timers are kept, as in
    /// tests of the wheel.
    sleeps_on_wheel: bool,
}

impl ClockPolicy {
    /// For an actor on this runtime, which reads the clock that this thread has.
    pub(crate) fn new(runtime: Option<Id>, can_pause: bool, sleeps_on_wheel: bool) -> Self {
        ClockPolicy {
            runtime,
            can_pause,
            found_virtual: AtomicBool::new(is_virtual()),
            sleeps_on_wheel,
        }
    }

    /// Whether the clock of the actor's runtime can be paused.
    pub(crate) fn can_pause(&self) -> bool {
        CAN_PAUSE && self.can_pause
    }

    pub(crate) fn sleeps_on_wheel(&self) -> bool {
        self.sleeps_on_wheel
    }

    /// Whether the clock of the actor's runtime was found to be virtual, by any thread.
    pub(crate) fn was_found_virtual(&self) -> bool {
        self.can_pause() && self.found_virtual.load(Ordering::Relaxed)
    }

    /// Whether this thread has another clock than the actor: one of the two is paused, or has been,
    /// and this is not the actor's runtime.
    pub(crate) fn is_foreign(&self) -> bool {
        CAN_PAUSE
            && !self.is_actors_runtime()
            && (self.found_virtual.load(Ordering::Relaxed) || is_virtual())
    }

    /// Whether this is the actor's runtime, and its clock is virtual or has been. Calls `first`
    /// when it is first found to be.
    pub(crate) fn find_virtual(&self, first: impl FnOnce()) -> bool {
        if !self.can_pause() || !self.is_actors_runtime() {
            return false;
        }
        if !self.found_virtual.load(Ordering::Relaxed) {
            if !is_virtual() {
                return false;
            }
            if !self.found_virtual.swap(true, Ordering::Relaxed) {
                first();
            }
        }
        true
    }

    fn is_actors_runtime(&self) -> bool {
        let here = Handle::try_current().ok().map(|runtime| runtime.id());
        here.is_some() && here == self.runtime
    }
}
