//! A set of timers as the actor sees it, without the types of its keys and values.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use super::note::{Note, SetKey};
use super::turn::Turn;
use crate::tick::NEVER;

/// The most keyed timers a wheel can have, over all of its sets.
pub(crate) const MAX_KEYED: usize = 1 << 29;

/// The actor's half of a set.
pub(crate) trait TimerSet: Send + Sync + fmt::Debug {
    /// Processes indices that the wheel has reached, and then delivers timers that are due before
    /// tick `before`: at most `limit` of both. Adds the notes that say where the indices belong
    /// now. Returns how many it has processed, or `None` if another thread has locked the set; then
    /// nothing has changed.
    fn visit(
        &self,
        due: &mut DueTimers,
        before: u64,
        limit: usize,
        notes: &mut Vec<Note>,
        turn: &Turn<'_>,
    ) -> Option<usize>;

    /// Gives the actor's reference back. Returns the set's key if this was the last reference. The
    /// actor then forgets the set itself: sending a command could block on the lock of a queue.
    fn give_back(self: Arc<Self>) -> Option<SetKey>;

    /// The clock is virtual: takes the nodes off the wheel that are kept for later timers.
    fn vacate_kept(&self);

    /// The actor ends: nothing will expire any more.
    fn close(&self);
}

/// The timers of a set that the wheel has reached, until a visit delivers them.
#[derive(Debug, Default)]
pub(crate) struct DueTimers {
    /// Indices that the wheel has reached since the last visit. They have no node.
    pub(crate) reached: Vec<u32>,
    /// The tick at which it reached the first of them, if there are any.
    reached_at: u64,
    /// The timers of those that a visit found due, the first to be delivered on top.
    pub(crate) found: BinaryHeap<Reverse<Due>>,
}

/// A timer that a visit found due, ordered by tick and then by arming. The
/// [set](crate::timer_set) says whether it still counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due {
    pub(crate) tick: u64,
    /// The number of its arming.
    pub(crate) number: NonZeroU64,
    pub(crate) index: u32,
}

impl DueTimers {
    pub(crate) fn is_empty(&self) -> bool {
        self.reached.is_empty() && self.found.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.reached.clear();
        self.found.clear();
    }

    /// The wheel has reached an index.
    pub(crate) fn reach(&mut self, index: u32, tick: u64) {
        if self.reached.is_empty() {
            self.reached_at = tick;
        }
        self.reached.push(index);
    }

    /// None of them is due before this tick; `NEVER` if there is none.
    pub(crate) fn earliest(&self) -> u64 {
        let found = self.found.peek().map_or(NEVER, |Reverse(due)| due.tick);
        if self.reached.is_empty() {
            found
        } else {
            found.min(self.reached_at)
        }
    }
}
