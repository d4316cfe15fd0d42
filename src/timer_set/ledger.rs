//! The books of a set: every timer that was set is pending, or has ended in exactly one way.

use std::sync::{Arc, PoisonError};

use crate::metrics::KeyedCounts;
use crate::shared::Shared;

/// Counts what happens to the timers of a set and holds their share of the wheel's limit. It closes the books when it
/// is dropped: what is still pending then was dropped with the set.
pub(super) struct Ledger {
    shared: Arc<Shared>,
    counts: KeyedCounts,
    pending: usize,
}

/// How a timer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Fired,
    Removed,
    Drained,
}

impl Ledger {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Ledger {
            shared: Arc::clone(shared),
            counts: KeyedCounts::default(),
            pending: 0,
        }
    }

    pub(super) fn counts(&self) -> KeyedCounts {
        self.counts
    }

    /// A new timer; false, and nothing is counted, when the wheel has as many as it may have.
    #[must_use]
    pub(super) fn set(&mut self) -> bool {
        let has_room = self.shared.reserve();
        if has_room {
            self.pending += 1;
            self.counts.set += 1;
        }
        has_room
    }

    /// A timer was set again under its key.
    pub(super) fn replaced(&mut self) {
        self.counts.set += 1;
        self.counts.replaced += 1;
    }

    pub(super) fn moved(&mut self) {
        self.counts.moved += 1;
    }

    /// A repeating timer fired and is pending again.
    pub(super) fn repeated(&mut self) {
        self.counts.set += 1;
        self.counts.fired += 1;
    }

    /// A timer left the set.
    pub(super) fn ended(&mut self, how: Ended) {
        self.end_many(how, 1);
    }

    fn end_many(&mut self, how: Ended, n: usize) {
        let count = match how {
            Ended::Fired => &mut self.counts.fired,
            Ended::Removed => &mut self.counts.removed,
            Ended::Drained => &mut self.counts.drained,
        };
        *count += n as u64;
        self.pending -= n;
        self.shared.free(n);
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.end_many(Ended::Drained, self.pending);
        let gone = &self.shared.metrics.0.gone_sets;
        let mut gone = gone.lock().unwrap_or_else(PoisonError::into_inner);
        gone.add(&self.counts);
    }
}
