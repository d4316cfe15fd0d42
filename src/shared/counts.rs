//! Counters that one thread writes for one wheel, and the thread's number.
//!
//! A counter with one writer needs no atomic addition, and threads that count never share a cache line. Reading adds up
//! the counters of all threads.

#[cfg(not(tickwheel_shuttle))]
use std::cell::Cell;
use std::sync::atomic::AtomicU64;
#[cfg(not(tickwheel_shuttle))]
use std::sync::atomic::{AtomicUsize, Ordering};

/// The counters of one thread for one wheel. Only that thread writes it.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Sleeps that were made, or reset after they had fired.
    pub(crate) made: AtomicU64,
    /// Sleeps that were dropped before they fired.
    pub(crate) cancelled: AtomicU64,
    /// Sleeps that were polled when they were due by the clock and the actor had not fired them.
    pub(crate) elapsed: AtomicU64,
    /// Waiting sleeps that were given another deadline.
    pub(crate) moved: AtomicU64,
    /// Sleeps that went on with Tokio's timer.
    pub(crate) handed_over: AtomicU64,
}

#[cfg(not(tickwheel_shuttle))]
thread_local! {
    static THREAD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// A small number for this thread. Threads started one after the other have different ones.
#[cfg(not(tickwheel_shuttle))]
pub(crate) fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    THREAD
        .try_with(|thread| {
            if thread.get() == usize::MAX {
                thread.set(NEXT.fetch_add(1, Ordering::Relaxed));
            }
            thread.get()
        })
        // The thread is ending.
        .unwrap_or(0)
}

/// Under the explorer it is the same each time a schedule is replayed.
#[cfg(tickwheel_shuttle)]
pub(crate) fn thread_number() -> usize {
    shuttle::current::me().into()
}
