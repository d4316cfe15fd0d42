//! Finds a timer's index by the hash of its key.
//!
//! A hash table of pairs. When it is full, a larger one takes its place, and each change moves a
//! few pairs from the old one: no hold of the set's lock moves more than [`MOVED`].

use std::mem;

use hashbrown::HashTable;

#[cfg(all(test, not(any(tickwheel_loom, tickwheel_shuttle))))]
mod tests;

/// How many buckets of the old table a change empties; a removal, twice as many.
const MOVED: usize = 8;

/// A table with fewer pairs than its capacity divided by this is replaced by a smaller one.
const SPARSE: usize = 4;

#[derive(Debug, Clone, Copy)]
struct Pair {
    hash: u32,
    index: u32,
}

/// See the module. It never holds equal keys: the timer table finds a key before it adds one.
#[derive(Debug)]
pub(super) struct KeyIndex {
    pairs: HashTable<Pair>,
    old: HashTable<Pair>,
    /// The buckets of the old table before this one are empty.
    moved: usize,
}

impl KeyIndex {
    pub(super) fn new() -> Self {
        KeyIndex {
            pairs: HashTable::new(),
            old: HashTable::new(),
            moved: 0,
        }
    }

    /// The index with this hash for which `matches` is true.
    #[inline]
    pub(super) fn find(&self, hash: u32, mut matches: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut is = |pair: &Pair| pair.hash == hash && matches(pair.index);
        let found = self.pairs.find(spread(hash), &mut is);
        if found.is_none() && !self.old.is_empty() {
            return Some(self.old.find(spread(hash), is)?.index);
        }
        Some(found?.index)
    }

    pub(super) fn insert(&mut self, hash: u32, index: u32) {
        if self.pairs.len() == self.pairs.capacity() {
            self.replace(self.pairs.len() + 1);
        }
        self.pairs
            .insert_unique(spread(hash), Pair { hash, index }, |pair| spread(pair.hash));
        self.step();
    }

    /// Removes an index that was added with this hash.
    pub(super) fn remove(&mut self, hash: u32, index: u32) {
        let is = |pair: &Pair| pair.index == index;
        if let Ok(found) = self.pairs.find_entry(spread(hash), is) {
            found.remove();
        } else if let Ok(found) = self.old.find_entry(spread(hash), is) {
            found.remove();
        } else {
            debug_assert!(false, "index {index} was added with this hash");
        }
        // Twice: a smaller table has to be complete before a yet smaller one takes its place.
        self.step();
        self.step();
        if self.old.is_empty() && self.pairs.len() < self.pairs.capacity() / SPARSE {
            self.replace(self.pairs.len() * 2);
        }
    }

    #[cold]
    fn replace(&mut self, capacity: usize) {
        while !self.old.is_empty() {
            self.step();
        }
        self.old = mem::replace(&mut self.pairs, HashTable::with_capacity(capacity));
        self.moved = 0;
    }

    /// Moves some pairs from the old table.
    #[inline]
    fn step(&mut self) {
        if self.old.num_buckets() > 1 || !self.old.is_empty() {
            self.move_some();
        }
    }

    fn move_some(&mut self) {
        let end = self.old.num_buckets().min(self.moved + MOVED);
        while self.moved < end {
            if let Ok(entry) = self.old.get_bucket_entry(self.moved) {
                let (pair, _) = entry.remove();
                self.pairs
                    .insert_unique(spread(pair.hash), pair, |pair| spread(pair.hash));
            }
            self.moved += 1;
        }
        if self.old.is_empty() {
            self.old = HashTable::new();
        }
    }
}

/// The hash for a table, which chooses a bucket by the lowest bits, and compares the highest seven
/// before it looks at the pair: those must be others.
#[inline]
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}
