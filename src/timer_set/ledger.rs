//! The books of a set: every timer that was set is pending, or has ended in exactly one way.

use std::sync::Arc;

use crate::metrics::{KeyedCounters, KeyedEvent};
use crate::shared::Shared;
use crate::shared::sets::SetKey;

/// Counts the timers of a set and holds their share of the wheel's limit. Its drop closes the books: timers that are
/// still pending are dropped with the set. It must be dropped before any key or value, so that none is still counted as
/// pending while it is dropped.
pub(super) struct Ledger {
    shared: Arc<Shared>,
    /// The set's entry in the wheel's list; none if the set was made after the actor had ended.
    entry: Option<SetKey>,
    counters: Arc<KeyedCounters>,
}

/// How a timer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Fired,
    Removed,
    Drained,
}

impl Ledger {
    pub(super) fn new(shared: &Arc<Shared>, counters: Arc<KeyedCounters>) -> Self {
        Ledger {
            shared: Arc::clone(shared),
            entry: None,
            counters,
        }
    }

    /// The set is in the wheel's list now.
    pub(super) fn registered(&mut self, entry: SetKey) {
        self.entry = Some(entry);
    }

    /// Counts a new timer. Returns `false`, and counts nothing, if the wheel has as many as it may have.
    #[must_use]
    pub(super) fn set(&mut self) -> bool {
        let has_room = self.shared.reserve();
        if has_room {
            self.counters.add(KeyedEvent::Added, 1);
        }
        has_room
    }

    /// A timer was set again under its key.
    pub(super) fn replaced(&mut self) {
        self.counters.add(KeyedEvent::Replaced, 1);
    }

    pub(super) fn moved(&mut self) {
        self.counters.add(KeyedEvent::Moved, 1);
    }

    /// A repeating timer fired and is pending again.
    pub(super) fn repeated(&mut self) {
        self.counters.add(KeyedEvent::Repeated, 1);
    }

    /// A timer left the set.
    pub(super) fn ended(&mut self, how: Ended) {
        self.end_many(how, 1);
    }

    fn end_many(&mut self, how: Ended, n: usize) {
        let event = match how {
            Ended::Fired => KeyedEvent::Fired,
            Ended::Removed => KeyedEvent::Removed,
            Ended::Drained => KeyedEvent::Drained,
        };
        self.counters.add(event, n as u64);
        self.shared.free(n);
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let pending = usize::try_from(self.counters.read().pending());
        // At most `MAX_KEYED`, so it fits.
        self.end_many(Ended::Drained, pending.unwrap_or(usize::MAX));
        if let Some(entry) = self.entry {
            self.shared.retire(entry);
        }
    }
}

#[cfg(all(test, not(tickwheel_shuttle)))]
mod tests {
    use std::sync::Weak;

    use super::super::{Plain, Set};
    use super::*;
    use crate::shared::sets::SetList;

    // Reading waited on a condition variable until the thread that dropped the set went on.
    #[test]
    fn counts_a_set_whose_drop_has_begun_and_not_gone_on() {
        let list = SetList::default();
        let counters = Arc::new(KeyedCounters::new());
        counters.add(KeyedEvent::Added, 2);
        // A set whose last reference is gone.
        let set = Weak::<Set<u32, Plain<u32>>>::new();
        let key = list.register(set, Arc::clone(&counters)).unwrap();
        let counts = list.counts();
        assert_eq!((counts.set(), counts.pending()), (2, 2));
        counters.add(KeyedEvent::Drained, 2);
        let drained = list.counts();
        assert_eq!((drained.set(), drained.pending()), (2, 0));
        list.retire(key);
        assert_eq!(list.counts(), drained);
    }
}
