//! The timers that a reader has found due, in the order in which they are received (K5).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::num::NonZeroU64;

/// Emptied lists keep memory for this many.
const KEPT_CAPACITY: usize = 256;

/// A timer that was found due. It counts if it still has this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    pub(super) tick: u64,
    pub(super) number: NonZeroU64,
    pub(super) index: u32,
}

/// Timers that were found due, in the order in which they are received. Nearly all come in that
/// order.
#[derive(Debug, Default)]
pub(super) struct DueTimers {
    in_order: VecDeque<Due>,
    others: BinaryHeap<Reverse<Due>>,
}

impl DueTimers {
    pub(super) fn reserve(&mut self, more: usize) {
        self.in_order.reserve(more);
        self.others.reserve(more);
    }

    pub(super) fn push(&mut self, due: Due) {
        if self.in_order.back().is_none_or(|last| *last < due) {
            self.in_order.push_back(due);
        } else {
            self.others.push(Reverse(due));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.in_order.is_empty() && self.others.is_empty()
    }

    /// Whether there is one whose tick is before this one.
    pub(super) fn is_any(&self, before: u64) -> bool {
        let other = self.others.peek().map(|Reverse(due)| due);
        (self.in_order.front().into_iter().chain(other)).any(|due| due.tick < before)
    }

    /// Takes the first one, if its tick is before this one.
    pub(super) fn pop(&mut self, before: u64) -> Option<Due> {
        let other = self.others.peek().map(|Reverse(due)| due);
        let is_other =
            other.is_some_and(|other| self.in_order.front().is_none_or(|first| other < first));
        let first = if is_other {
            other
        } else {
            self.in_order.front()
        };
        if first?.tick >= before {
            return None;
        }
        if is_other {
            Some(self.others.pop()?.0)
        } else {
            self.in_order.pop_front()
        }
    }

    pub(super) fn free_spare(&mut self) {
        if self.in_order.is_empty() {
            self.in_order.shrink_to(KEPT_CAPACITY);
        }
        if self.others.is_empty() {
            self.others.shrink_to(KEPT_CAPACITY);
        }
    }
}
