//! Counters that one thread writes for one wheel.
//!
//! A counter with one writer needs no atomic addition, and threads that count never share a cache line. Reading adds up
//! the counters of all threads.

use std::sync::atomic::{AtomicU64, Ordering};

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

impl Counts {
    fn each(&self) -> [&AtomicU64; 5] {
        let Counts {
            made,
            cancelled,
            elapsed,
            moved,
            handed_over,
        } = self;
        [made, cancelled, elapsed, moved, handed_over]
    }

    /// Adds these counts to a sum.
    pub(super) fn add_to(&self, sum: &Counts) {
        for (count, sum) in self.each().into_iter().zip(sum.each()) {
            sum.fetch_add(count.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}
