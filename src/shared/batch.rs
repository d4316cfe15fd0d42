//! The indices of a set that changed since the actor last took them.

/// Dirty indices.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Indices that are needed soon.
    pub(crate) urgent: Vec<u32>,
    /// The others; some of them may be urgent as well by now.
    pub(crate) rest: Vec<u32>,
    /// No index is needed before this tick.
    pub(crate) earliest: u64,
    /// Without the urgent ones, none is needed before this tick.
    pub(crate) rest_earliest: u64,
}

impl Batch {
    pub(crate) fn len(&self) -> usize {
        self.urgent.len() + self.rest.len()
    }
}
