//! The indices of a set that changed since the actor last took them, and how it takes them.

use crate::tick::NEVER;

/// Dirty indices.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Indices that are needed soon.
    pub(crate) urgent: Vec<u32>,
    /// The others. Some of them may have become urgent and are listed twice.
    pub(crate) rest: Vec<u32>,
    /// No index is needed before this tick.
    pub(crate) earliest: u64,
    /// No index but the urgent ones is needed before this tick.
    pub(crate) rest_earliest: u64,
}

impl Default for Batch {
    fn default() -> Self {
        Batch {
            urgent: Vec::new(),
            rest: Vec::new(),
            earliest: NEVER,
            rest_earliest: NEVER,
        }
    }
}

impl Batch {
    pub(crate) fn len(&self) -> usize {
        self.urgent.len() + self.rest.len()
    }

    /// Lowers the bounds of this batch to those of a later one.
    pub(crate) fn lower(&mut self, later: &Batch) {
        self.earliest = self.earliest.min(later.earliest);
        self.rest_earliest = self.rest_earliest.min(later.rest_earliest);
    }

    /// Empties it, and keeps memory for `kept` indices in each list.
    pub(crate) fn clear(&mut self, kept: usize) {
        for list in [&mut self.urgent, &mut self.rest] {
            list.clear();
            list.shrink_to(kept);
        }
        self.earliest = NEVER;
        self.rest_earliest = NEVER;
    }
}

/// How the actor takes the lock of a set.
///
/// A thread may be preempted while it holds the lock, and an actor that blocks on it delays every
/// timer of the wheel. So the actor tries, and on failure leaves the set for its next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockMode {
    Try,
    Block,
}

/// Another thread held the lock of the set, and the actor did not block. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contended;
