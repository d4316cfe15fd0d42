//! Notes: what the actor is told of a keyed timer. The [set](crate::timer_set) has their
//! invariants.

use std::num::{NonZeroU32, NonZeroU64};

/// Schedules an index of a set for a tick, or takes it off the wheel.
///
/// It carries all that the actor needs, which therefore need not lock the set. Callers push notes
/// into the mailbox, and a visit of the set returns those for the indices that it has processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Note {
    /// The newest note for an index counts: the one with the greatest number.
    pub(crate) number: NonZeroU64,
    /// The tick for which the index is to be scheduled. `NEVER` takes it off the wheel.
    pub(crate) tick: u64,
    pub(crate) set: SetKey,
    pub(crate) index: u32,
}

/// The key of a set in the [list](super::sets) of its wheel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetKey(NonZeroU32);

impl SetKey {
    pub(crate) fn new(position: usize) -> Self {
        let position = u32::try_from(position).unwrap_or(u32::MAX);
        SetKey(NonZeroU32::MIN.saturating_add(position))
    }

    /// Keys are dense: they count from zero.
    pub(crate) fn position(self) -> usize {
        self.0.get() as usize - 1
    }
}
