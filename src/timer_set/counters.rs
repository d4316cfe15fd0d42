//! The counters of a set: every timer that was set is pending, or has ended in exactly one way.

use std::sync::Arc;

use crate::console::LenChange;
use crate::metrics::{Event, OwnCounters};
use crate::shared::Shared;
use crate::shared::sets::SetKey;

/// Counts the timers of a set and holds their share of the wheel's limit. When it is dropped, timers that are still pending
/// count as dropped with the set. It must be dropped before any key or value, so that none is still counted as pending
/// while it is dropped.
pub(super) struct SetCounters {
    shared: Arc<Shared>,
    /// The set's entry in the wheel's list; none if the set was made after the actor had ended.
    entry: Option<SetKey>,
    counters: OwnCounters,
    len_change: LenChange,
}

impl SetCounters {
    pub(super) fn new(shared: &Arc<Shared>, len_change: LenChange) -> Self {
        SetCounters {
            shared: Arc::clone(shared),
            entry: None,
            counters: shared.metrics.0.register(),
            len_change,
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
            self.count(Event::KeyedAdded);
            self.len_change.add();
        }
        has_room
    }

    /// Counts what leaves the number of timers as it is.
    pub(super) fn count(&mut self, event: Event) {
        self.counters.add(event, 1);
    }

    /// Counts the end of a timer, which left the set.
    pub(super) fn ended(&mut self, event: Event) {
        self.end_many(event, 1);
    }

    fn end_many(&mut self, event: Event, n: usize) {
        self.counters.add(event, n as u64);
        self.len_change.subtract(n);
        self.shared.free(n);
    }
}

impl Drop for SetCounters {
    fn drop(&mut self) {
        let pending = usize::try_from(self.counters.read().keyed_pending());
        // At most `MAX_KEYED`, so it fits.
        self.end_many(Event::KeyedDrained, pending.unwrap_or(usize::MAX));
        if let Some(entry) = self.entry {
            self.shared.sets.retire(entry);
        }
    }
}
