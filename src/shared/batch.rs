//! The indices of a set that changed since the actor last took them.

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
