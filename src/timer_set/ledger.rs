//! The books of a set: every timer that was set is pending, or has ended in exactly one way.

use std::sync::Arc;

use crate::metrics::KeyedCounts;
use crate::shared::Shared;
use crate::shared::sets::SetKey;

/// Counts the timers of a set and holds their share of the wheel's limit. Its drop closes the books: timers that are
/// still pending are dropped with the set. It must be dropped before any key or value, see the
/// [list of sets](crate::shared::sets).
pub(super) struct Ledger {
    shared: Arc<Shared>,
    /// The set's entry in the wheel's list; none if the set was made after the actor had ended.
    entry: Option<SetKey>,
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
            entry: None,
            counts: KeyedCounts::default(),
            pending: 0,
        }
    }

    /// The set is in the wheel's list now.
    pub(super) fn registered(&mut self, entry: SetKey) {
        self.entry = Some(entry);
    }

    pub(super) fn counts(&self) -> KeyedCounts {
        self.counts
    }

    /// Counts a new timer. Returns `false`, and counts nothing, if the wheel has as many as it may have.
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
        if let Some(entry) = self.entry {
            self.shared.retire(entry, &self.counts);
        }
    }
}
