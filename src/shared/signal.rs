//! A signal to one task: a flag, and the waker of the task.
//!
//! Neither party waits for the other, whichever is preempted (P11). Tokio's `Notify` has a lock for
//! its list of waiters, which a preempted caller may hold.
//!
//! No signal is lost: the task registers its waker, and looks at the flag after that; a caller sets
//! the flag first, and wakes the task after that. Whichever comes later sees what the other did. A
//! signal that comes while the task does not wait is kept, and several are one.
//!
//! A task that has ended its wait by other means is still registered, so the next signal may wake
//! it for nothing, once.

#[cfg(all(test, tickwheel_loom))]
mod model;

use std::task::{Context, Poll, Waker};

use crate::sync::AtomicWaker;
use crate::sync::atomic::{AtomicBool, Ordering};

/// See the module. The waker is that of a task of Tokio's, so its drop does not panic, for which
/// the `AtomicWaker` is not made.
#[derive(Debug)]
pub(crate) struct Signal {
    is_set: AtomicBool,
    waker: AtomicWaker,
}

impl Signal {
    pub(crate) fn new() -> Self {
        Signal {
            is_set: AtomicBool::new(false),
            waker: AtomicWaker::default(),
        }
    }

    pub(crate) fn set(&self) {
        // An exchange, as each look at the flag is: they have one order, and none overlooks
        // another.
        self.is_set.swap(true, Ordering::SeqCst);
        self.waker.wake();
    }

    /// Takes the signal, or registers the task.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.take() {
            return Poll::Ready(());
        }
        self.waker.register(cx.waker());
        if self.take() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    fn take(&self) -> bool {
        self.is_set.swap(false, Ordering::SeqCst)
    }

    /// The task waits no more.
    pub(crate) fn unregister(&self) -> Option<Waker> {
        self.waker.take()
    }
}
