//! The indices of a set that changed since the actor last took them.

/// Dirty indices.
#[derive(Debug, Default)]
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

impl Batch {
    pub(crate) fn len(&self) -> usize {
        self.urgent.len() + self.rest.len()
    }
}
