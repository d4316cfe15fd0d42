//! Finds a timer's index by the hash of its key.
//!
//! The indices lie in *parts*, hash tables of some hundreds. Their number grows and shrinks one by
//! one: spiral storage (Martin, 1979). A single large table would move all of its indices when it
//! grows, tens of milliseconds for a million of them, while the set is locked. Here no step moves
//! more than those of one part. Nothing ever hashes a key again: the hash is stored beside the
//! timer.
//!
//! # Which part
//!
//! *n* parts have the addresses *n* to 2*n* - 1. When another one is added, the part with address
//! *n* is split, and its halves get the addresses 2*n* and 2*n* + 1. A hash is mapped to a fraction
//! from 1 to 2, and that times a power of two gives the address. The fractions are not spread
//! evenly: the part that is split next is the largest, the one split last half as large, with every
//! size in between. So, whatever the number of indices, some parts are almost full and others have
//! just doubled: an index takes 8 to 9 bytes. Parts of two sizes, as in linear hashing, would take
//! 6 bytes or 11 together.

use std::mem;

use hashbrown::HashTable;

#[cfg(all(test, not(any(tickwheel_loom, tickwheel_shuttle))))]
mod tests;

/// How many indices a part has, on average over all parts, before another part is added. The
/// largest have half as many more, and a few by chance.
const PART_LEN: usize = 256;

/// How many bits of a hash choose its part. There are fewer parts than two to this power.
const BITS: u32 = 24;

/// A part is made smaller when it has fewer indices than its capacity divided by this.
const SPARSE: usize = 3;

/// See the module. It never holds equal keys: the timer table finds a key before it adds one.
#[derive(Debug)]
pub(super) struct KeyIndex {
    /// At least one.
    parts: Vec<HashTable<u32>>,
    len: usize,
}

impl KeyIndex {
    pub(super) fn new() -> Self {
        KeyIndex {
            parts: vec![HashTable::new()],
            len: 0,
        }
    }

    /// The index with this hash for which `matches` is true.
    #[inline]
    pub(super) fn find(&self, hash: u32, mut matches: impl FnMut(u32) -> bool) -> Option<u32> {
        let part = &self.parts[self.part_of(hash)];
        part.find(spread(hash), |&index| matches(index)).copied()
    }

    /// Adds an index; `hash_of` gives the hash of one that was added before.
    pub(super) fn insert(&mut self, hash: u32, index: u32, hash_of: impl Fn(u32) -> u32) {
        if self.len >= self.parts.len() * PART_LEN {
            self.split(&hash_of);
        }
        self.len += 1;
        let part = self.part_of(hash);
        insert(&mut self.parts[part], hash, index, hash_of);
    }

    /// Removes an index that was added with this hash.
    pub(super) fn remove(&mut self, hash: u32, index: u32, hash_of: impl Fn(u32) -> u32) {
        let part = self.part_of(hash);
        let part = &mut self.parts[part];
        let Ok(found) = part.find_entry(spread(hash), |&other| other == index) else {
            debug_assert!(false, "index {index} was added with this hash");
            return;
        };
        found.remove();
        self.len -= 1;
        if part.len() < part.capacity() / SPARSE {
            part.shrink_to(part.len(), |&index| spread(hash_of(index)));
        }
        if self.len < (self.parts.len() - 1) * (PART_LEN / 4) {
            self.merge(&hash_of);
        }
    }

    /// The position of the part for a hash.
    #[inline]
    fn part_of(&self, hash: u32) -> usize {
        // From 1 to 2, as a fixed-point number: about two to the power of the hash's fraction.
        let fraction = u64::from(hash >> (u32::BITS - BITS));
        let power = (1 << BITS) + ((fraction * ((11 << BITS) + 5 * fraction)) >> (BITS + 4));
        let levels = self.parts.len().ilog2();
        let address = power >> (BITS - levels);
        if address < self.parts.len() as u64 {
            position(power >> (BITS - levels - 1))
        } else {
            position(address)
        }
    }

    /// Adds a part, to which about half of the indices of the largest go.
    #[cold]
    fn split(&mut self, hash_of: impl Fn(u32) -> u32) {
        let other = position(self.parts.len() as u64);
        let half = || HashTable::with_capacity(self.parts[other].len() / 2);
        let halves = (half(), half());
        let indices = mem::replace(&mut self.parts[other], halves.0);
        self.parts.push(halves.1);
        for index in indices {
            let hash = hash_of(index);
            let part = self.part_of(hash);
            insert(&mut self.parts[part], hash, index, &hash_of);
        }
    }

    /// Takes the last of several parts away. Its indices go to the part from which it was split.
    #[cold]
    fn merge(&mut self, hash_of: impl Fn(u32) -> u32) {
        let last = self.parts.pop().unwrap_or_default();
        let other = position(self.parts.len() as u64);
        for index in last {
            insert(&mut self.parts[other], hash_of(index), index, &hash_of);
        }
        if self.parts.len() < self.parts.capacity() / 4 {
            self.parts.shrink_to(self.parts.len() * 2);
        }
    }
}

/// The position of the part with this address: one half of a part stays where that was, the other
/// one comes last.
#[inline]
#[allow(clippy::cast_possible_truncation)] // less than the number of parts
fn position(address: u64) -> usize {
    (address >> address.trailing_zeros() >> 1) as usize
}

/// Adds an index to a part.
fn insert(part: &mut HashTable<u32>, hash: u32, index: u32, hash_of: impl Fn(u32) -> u32) {
    if part.len() == part.capacity() {
        // It may be full of places of removed indices: then it need not become larger.
        let mut new = HashTable::with_capacity(part.len() + part.len() / 8 + 1);
        for other in mem::take(part) {
            new.insert_unique(spread(hash_of(other)), other, |_| unreachable!());
        }
        *part = new;
    }
    part.insert_unique(spread(hash), index, |&other| spread(hash_of(other)));
}

/// The hash for a part: other bits choose the position there than chose the part.
#[inline]
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 48 | u64::from(hash)
}
