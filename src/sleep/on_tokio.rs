//! A sleep that is one of Tokio's.
//!
//! # Why
//!
//! *The wheel has ended.* The sleep keeps its deadline with a timer of the runtime in which it is
//! polled.
//!
//! *The clock is virtual.* A test that passes with `tokio::time` has to pass with
//! [`tickwheel::time`](crate::time): at the same instants, with the same tasks woken in the same
//! order, and the clock moved as far. Tokio rounds deadlines to milliseconds of its own, fires
//! timers in an order that follows from when each was registered, and moves a paused clock to the
//! earliest timer that exists. A wheel cannot imitate that: Tokio does not tell when its driver
//! started and last ran, the actor is one more task between the driver and the tasks it wakes, and
//! cancelled entries kept for reuse are timers to which the clock is moved. So while the clock is
//! virtual each sleep, also that of a timeout or an interval, *is* one of Tokio's, made, registered
//! and reset at the points where Tokio does so.
//!
//! The price is that a test under a paused clock does not test the wheel. This crate's own tests
//! keep their sleeps on the wheel, by the setting `sleeps_on_wheel`.
//!
//! # When the clock counts as virtual
//!
//! The clock of a runtime can be virtual only if it is a `current_thread` runtime, in a build with
//! Tokio's `test-util` ([`CAN_PAUSE`](crate::clock::CAN_PAUSE)): other builds have none of this. It
//! counts as virtual once it is first found paused, and stays so after `resume`. Each poll and each
//! reset checks.
//!
//! `pause` may come when sleeps lie on the wheel. The first check that finds the virtual clock
//! sends the actor a command, and the actor evicts them: those that are armed are woken, poll and
//! go to Tokio's timer; it drops those that are cancelled. This happens before the clock moves on
//! its own, because the clock waits for all tasks. [`tickwheel::time::pause`](crate::time) checks
//! at once; after Tokio's own `pause` the next sleep does.
//!
//! These stay on the wheel: idle timers, keyed timers, sleeps that never fire, and sleeps that are
//! polled outside the wheel's runtime, since Tokio's timers belong to the runtime in which they are
//! made.

use std::future::{Future, pending};
use std::io;
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::task::coop;
use tokio::time::{self, Instant};

use crate::clock;
use crate::panic::{drop_replaced, wake};
use crate::tick::far_future;

/// A sleep of Tokio's never fires if its deadline is further away than this, as far as a wheel's
/// ticks reach.
const FAR: Duration = Duration::from_nanos(i64::MAX.unsigned_abs());

/// See the module.
pub(super) struct OnTokio {
    pub(super) deadline: Instant,
    /// The deadline means nothing.
    is_never: bool,
    sleep: Pin<Box<time::Sleep>>,
    /// It has another deadline, which Tokio's timer does not know yet.
    is_unarmed: bool,
    /// The task that waits for a sleep that never completes. None of Tokio's timers is registered
    /// for it, to which a paused clock would move, unless a reset has made it so, as with Tokio.
    waiting: Option<Waker>,
}

impl OnTokio {
    /// A timer of the current Tokio runtime, which the next poll registers.
    ///
    /// # Panics
    ///
    /// Panics outside a runtime, and within one that has no time driver.
    #[track_caller]
    pub(super) fn new(deadline: Instant, is_never: bool) -> Self {
        OnTokio {
            deadline,
            is_never,
            sleep: Box::pin(time::sleep_until(tokio_deadline(deadline, is_never))),
            is_unarmed: false,
            waiting: None,
        }
    }

    /// Like [`new`](Self::new), but outside a runtime the timer belongs to a thread of the process
    /// that starts at first use and stays.
    ///
    /// # Panics
    ///
    /// Panics within a runtime that has no time driver, and if the thread cannot be started.
    pub(super) fn anywhere(deadline: Instant, is_never: bool) -> Self {
        let Err(outside) = Handle::try_current() else {
            return Self::new(deadline, is_never);
        };
        let of_process = move || {
            let _within = process_runtime().enter();
            Self::new(deadline, is_never)
        };
        if !outside.is_thread_local_destroyed() {
            return of_process();
        }
        // A thread without its thread-locals can enter no runtime: Tokio panics there, which
        // aborts the process. So a thread that lasts no longer makes the timer. The one that fires
        // timers would not do: its wakers may wait for locks that this thread holds.
        let maker = thread::Builder::new().spawn(of_process);
        let maker = maker.unwrap_or_else(|error| not_started(&error));
        maker.join().unwrap_or_else(|panic| resume_unwind(panic))
    }

    pub(super) fn is_elapsed(&self) -> bool {
        !self.is_unarmed && !self.is_never && self.sleep.is_elapsed()
    }

    /// Another deadline, or none if it never completes. A task that waits goes on waiting, for
    /// that.
    #[cold]
    pub(super) fn reset(&mut self, deadline: Option<Instant>) {
        self.set(deadline);
        self.register();
    }

    fn set(&mut self, deadline: Option<Instant>) {
        self.is_never = deadline.is_none_or(is_far);
        self.deadline = deadline.unwrap_or_else(far_future);
    }

    /// Registers the deadline.
    pub(super) fn register(&mut self) {
        self.is_unarmed = false;
        let deadline = tokio_deadline(self.deadline, self.is_never);
        self.sleep.as_mut().reset(deadline);
        if let Some(waker) = self.waiting.take() {
            self.wait(waker);
        }
    }

    /// Makes `waker` the one that waits. It is woken now if the deadline has passed.
    pub(super) fn wait(&mut self, waker: Waker) {
        if self.is_never {
            drop_replaced(self.waiting.replace(waker));
            return;
        }
        let mut cx = Context::from_waker(&waker);
        let sleep = self.sleep.as_mut();
        if pin!(coop::unconstrained(sleep)).poll(&mut cx).is_ready() {
            wake(Some(waker));
        }
    }

    /// A sleep that has just completed has another deadline. The next poll registers it, not this
    /// call, as for the next tick of Tokio's intervals.
    pub(super) fn rearm_when_polled(&mut self, deadline: Option<Instant>) {
        self.set(deadline);
        self.is_unarmed = true;
        // Takes the task's waker out: the reset must not wake the task that is about to poll.
        let mut cx = Context::from_waker(Waker::noop());
        let sleep = self.sleep.as_mut();
        let _elapsed = pin!(coop::unconstrained(sleep)).poll(&mut cx);
    }

    /// Polls Tokio's timer, which takes care of the budget.
    #[cold]
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_never {
            self.wait(cx.waker().clone());
            return Poll::Pending;
        }
        if self.is_unarmed {
            if !coop::has_budget_remaining() {
                return coop::poll_proceed(cx).map(|_| ());
            }
            self.register();
        }
        self.sleep.as_mut().poll(cx)
    }
}

/// The deadline for Tokio's timer. Tokio panics at an instant that is nearly the last one there is.
fn tokio_deadline(deadline: Instant, is_never: bool) -> Instant {
    if is_never { far_future() } else { deadline }
}

/// Whether a sleep without a wheel never completes.
pub(super) fn is_far(deadline: Instant) -> bool {
    deadline.saturating_duration_since(clock::now()) > FAR
}

/// The runtime, one for the process, that drives the timers of tasks outside any runtime.
fn process_runtime() -> &'static Handle {
    static RUNTIME: OnceLock<Handle> = OnceLock::new();
    RUNTIME.get_or_init(|| start().unwrap_or_else(|error| not_started(&error)))
}

fn not_started(error: &io::Error) -> ! {
    panic!(
        "a sleep was polled outside a Tokio runtime after its `TimerWheel` had ended, and the thread with whose \
         timer it would go on could not be started: {error}. Keep the wheel running, or poll within a runtime."
    )
}

fn start() -> io::Result<Handle> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name(String::from("tickwheel-fallback"))
        .spawn(move || runtime.block_on(pending::<()>()))?;
    Ok(handle)
}
