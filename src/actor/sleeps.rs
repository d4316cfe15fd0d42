//! The sleeping futures that are on the wheel, which knows them by their number here.

use std::mem;
use std::sync::Arc;

use crate::shared::SleepEntry;

/// Without sleeps this keeps memory for at most so many.
const KEPT: usize = 1024;

/// A slab of pointers, at eight bytes each; there can be millions.
#[derive(Debug, Default)]
pub(super) struct Sleeps {
    entries: Vec<Option<Arc<SleepEntry>>>,
    vacant: Vec<u32>,
}

impl Sleeps {
    /// The number that the next one will get.
    pub(super) fn next(&self) -> u32 {
        // The wheel has an item for each of them, and holds no more than a u32 counts.
        let fresh = || u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        self.vacant.last().copied().unwrap_or_else(fresh)
    }

    pub(super) fn insert(&mut self, entry: Arc<SleepEntry>) {
        match self.vacant.pop() {
            Some(slot) => self.entries[slot as usize] = Some(entry),
            None => self.entries.push(Some(entry)),
        }
    }

    pub(super) fn get(&self, slot: usize) -> Option<&Arc<SleepEntry>> {
        self.entries.get(slot)?.as_ref()
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<Arc<SleepEntry>> {
        let entry = self.entries.get_mut(slot as usize)?.take()?;
        self.vacant.push(slot);
        if self.vacant.len() == self.entries.len() && self.entries.len() > KEPT {
            *self = Sleeps::default();
        }
        Some(entry)
    }

    /// How many numbers there are, vacant ones included.
    pub(super) fn numbers(&self) -> usize {
        self.entries.len()
    }

    /// Takes all of them out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Arc<SleepEntry>> + use<> {
        mem::take(self).entries.into_iter().flatten()
    }
}
