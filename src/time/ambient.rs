//! Finding the wheel of the current runtime.
//!
//! The current runtime is the one whose handle Tokio has entered on this thread. Asking for it clones and drops the
//! handle, which is one reference count for all workers of a runtime: 20 ns alone, 100 ns on two busy workers, where a
//! whole timeout takes 60. So each thread keeps in a slot the wheel that it used last, and asks Tokio as seldom as it
//! can while the answer still is right.
//!
//! 1. *One open wheel for each runtime.* The [`registry`] has it. An entry ends with its runtime or its wheel, whichever
//!    comes first.
//! 2. *Asking is right.* If a thread asks Tokio, finds the current runtime's id in its slot, and the slot's wheel is open,
//!    that is the wheel which the registry has under the id. The registry exchanges a wheel only after it has ended, and
//!    Tokio uses an id again only after its runtime has ended, with which the wheel ends.
//!    On a miss the registry is asked, and if it has none, a wheel is started.
//! 3. *A slot is trusted, and Tokio not asked, only where that cannot cost liveness.* All of this has to hold:
//!    - The slot's runtime is a multi-thread one: its workers drive its wheel, whatever this thread goes on to do. The
//!      wheel of a `current_thread` runtime moves only while somebody drives that runtime, and the next runtime on the
//!      thread may be the one that is driven. For such a runtime Tokio is asked each time. Its handle is
//!      uncontended: nearly all clones come from one thread.
//!    - No clock of this build [can be paused](CAN_PAUSE): all runtimes have the same clock, so any of them may
//!      keep the deadline. A build whose clocks can be paused, which is one of tests, always asks.
//!    - The thread asked within the last [`TRUST`].
//!    - The thread is within a task, so that there is a runtime. Outside of one the call has to panic.
//! 4. *What trust can get wrong.* Within [`TRUST`] of asking, the thread may have come to another runtime: by an `enter`
//!    in a task, or a `block_on` in `block_in_place` or `spawn_blocking`. A timer made then is on the wheel of the
//!    runtime it came from, and stays there when it is reset, as an interval is with each tick. It fires on time as long
//!    as that runtime has a free worker. If that runtime ends, it goes on with Tokio's timer, as after any shutdown. A
//!    thread that stays in the other runtime makes the right timers after [`TRUST`]. If the other runtime has no time
//!    driver, the panic comes after [`TRUST`] too.
//! 5. *Nothing is kept alive.* A slot holds a wheel's memory until the thread uses another wheel or ends, but not its
//!    runtime. The actor ends with the runtime, whoever holds the wheel.
//!
//! Nothing cheaper tells more. `task::try_id` is the same in a task and in what that blocks on;
//! `runtime::worker_index` (Tokio 1.54) answers `Some(0)` for worker 0 and in every `current_thread` runtime, and in a
//! multi-thread `block_on` within `block_in_place` the index of the worker around it. Neither sees `enter`.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::task;
use tokio::time::Instant;

use super::registry::{self, Ambient};
use crate::clock::{self, CAN_PAUSE};
use crate::timer_wheel::TimerWheel;

#[cfg(test)]
mod tests;

/// For how long a thread need not ask again. It then asks a thousand times a second at most, which is nothing, and seldom
/// at the same time as another.
const TRUST: Duration = Duration::from_millis(1);

/// The wheel that a thread used last.
struct Slot {
    runtime: Id,
    wheel: TimerWheel,
    /// Until when Tokio need not be asked. `None` if it has to be asked each time.
    trusted_until: Cell<Option<Instant>>,
}

impl Slot {
    fn new(runtime: &Handle, wheel: TimerWheel, now: Instant) -> Self {
        let may_be_trusted = runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
        let trusted_until = may_be_trusted.then(|| now.checked_add(TRUST)).flatten();
        Slot {
            runtime: runtime.id(),
            wheel,
            trusted_until: Cell::new(trusted_until),
        }
    }

    /// Whether it has the wheel of the current runtime, without asking Tokio which that is.
    #[inline]
    fn is_trusted(&self, now: Instant) -> bool {
        (self.trusted_until.get()).is_some_and(|until| now < until)
            && !self.wheel.is_shutdown()
            && task::try_id().is_some()
    }

    /// Whether it has the wheel of the current runtime, which Tokio is asked for.
    fn is_current(&self, now: Instant) -> bool {
        let is_current = Handle::try_current().is_ok_and(|runtime| runtime.id() == self.runtime)
            && !self.wheel.is_shutdown();
        if is_current && self.trusted_until.get().is_some() {
            self.trusted_until.set(now.checked_add(TRUST));
        }
        is_current
    }
}

thread_local! {
    static SLOT: RefCell<Option<Slot>> = const { RefCell::new(None) };
}

/// Calls `make` with the wheel of the current runtime. Starts one if it has none.
///
/// # Panics
///
/// Panics as Tokio does outside a runtime, and in one without a time driver.
#[inline]
#[track_caller]
pub(super) fn with_wheel<R>(now: Instant, make: impl FnOnce(&TimerWheel) -> R) -> R {
    match with_slot(make, |slot| {
        (!CAN_PAUSE && slot.is_trusted(now)) || slot.is_current(now)
    }) {
        Ok(made) => made,
        Err(make) => make(&find(now)),
    }
}

/// The wheel of the current runtime, whatever the slot says.
///
/// # Panics
///
/// Panics as [`with_wheel`] does.
#[track_caller]
pub(super) fn wheel() -> TimerWheel {
    let now = clock::now();
    match with_slot(TimerWheel::clone, |slot| slot.is_current(now)) {
        Ok(wheel) => wheel,
        Err(_) => find(now),
    }
}

/// Calls `make` with the wheel in this thread's slot, if `is_right`. Gives `make` back otherwise.
#[inline]
fn with_slot<R, F>(make: F, is_right: impl FnOnce(&Slot) -> bool) -> Result<R, F>
where
    F: FnOnce(&TimerWheel) -> R,
{
    let mut make = Some(make);
    let made = SLOT.try_with(|slot| {
        let slot = slot.try_borrow().ok()?;
        let slot = slot.as_ref().filter(|slot| is_right(slot))?;
        make.take().map(|make| make(&slot.wheel))
    });
    match (made, make) {
        (Ok(Some(made)), _) => Ok(made),
        (_, Some(make)) => Err(make),
        (_, None) => unreachable!("it is taken only to be called"),
    }
}

/// The wheel of the current runtime: from the registry, or a new one. It goes into the slot.
#[cold]
#[track_caller]
fn find(now: Instant) -> TimerWheel {
    let runtime = Handle::current();
    let wheel = match registry::get(runtime.id()) {
        Some(ambient) => ambient.wheel,
        None => start(&runtime),
    };
    let slot = Slot::new(&runtime, wheel.clone(), now);
    // Errors mean that the thread is ending, or that `make` has logged and the subscriber has come back here.
    let replaced = SLOT.try_with(|here| Some(here.try_borrow_mut().ok()?.replace(slot)));
    // Not while the slot is borrowed: what is dropped here sends a command.
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
        // Another thread was quicker. The wheel started here ends, since nobody holds it.
        Err(present) => present.wheel,
    }
}
