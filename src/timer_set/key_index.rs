//! Finds a timer's index by the hash of its key.
//!
//! An extendible hash table (Fagin, Nievergelt, Pippenger and Strong, 1979): a directory of small hash tables, each of
//! which splits in two when it is full. A single large table would rehash all of its keys when it grows, tens of
//! milliseconds for a million of them, while the set is locked. Here no step moves more than [`PART_LEN`] indices,
//! and nothing ever hashes a key again: the hash is stored beside the timer.

use hashbrown::HashTable;

/// A part splits when it would grow beyond this number, the capacity of a table of 512 buckets.
const PART_LEN: usize = 448;

/// Below this capacity a part does not give memory back.
const KEPT_CAPACITY: usize = 28;

/// See the module. It never holds equal keys: the timer table finds a key before it adds one.
#[derive(Debug)]
pub(super) struct KeyIndex {
    /// The number of leading bits of a hash that choose a part.
    bits: u32,
    /// A part's number for each value of those bits.
    directory: Vec<u32>,
    parts: Vec<Part>,
    len: usize,
}

#[derive(Debug, Default)]
struct Part {
    /// The number of leading bits that all hashes in it share; at most `bits`.
    bits: u32,
    table: HashTable<u32>,
}

impl KeyIndex {
    pub(super) fn new() -> Self {
        KeyIndex {
            bits: 0,
            directory: vec![0],
            parts: vec![Part::default()],
            len: 0,
        }
    }

    /// The index with this hash for which `is_it` is true.
    #[inline]
    pub(super) fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let part = &self.parts[self.part_of(hash)];
        part.table
            .find(spread(hash), |&index| is_it(index))
            .copied()
    }

    /// Adds an index; `hash_of` gives the hash of one that was added before.
    pub(super) fn insert(&mut self, hash: u32, index: u32, hash_of: impl Fn(u32) -> u32) {
        self.len += 1;
        let mut part = self.part_of(hash);
        while self.parts[part].is_full() && self.parts[part].bits < self.most_bits() {
            self.split(part, &hash_of);
            part = self.part_of(hash);
        }
        let table = &mut self.parts[part].table;
        table.insert_unique(spread(hash), index, |&index| spread(hash_of(index)));
    }

    /// Removes the index with this hash for which `is_it` is true.
    pub(super) fn remove(
        &mut self,
        hash: u32,
        mut is_it: impl FnMut(u32) -> bool,
        hash_of: impl Fn(u32) -> u32,
    ) -> Option<u32> {
        let part = self.part_of(hash);
        let table = &mut self.parts[part].table;
        let found = table.find_entry(spread(hash), |&index| is_it(index));
        let (index, _) = found.ok()?.remove();
        self.len -= 1;
        if table.len() < table.capacity() / 8 && table.capacity() > KEPT_CAPACITY {
            table.shrink_to(table.len() * 2, |&index| spread(hash_of(index)));
        }
        if self.len == 0 && self.parts.len() > 1 {
            *self = KeyIndex::new();
        }
        Some(index)
    }

    #[inline]
    fn part_of(&self, hash: u32) -> usize {
        self.directory[leading(hash, self.bits)] as usize
    }

    /// How many bits a part may have. Without a bound, thousands of equal hashes would double the directory again and
    /// again.
    fn most_bits(&self) -> u32 {
        self.len.ilog2().saturating_sub(6)
    }

    /// Splits a part by the next bit of its hashes.
    fn split(&mut self, part: usize, hash_of: impl Fn(u32) -> u32) {
        let Ok(number) = u32::try_from(self.parts.len()) else {
            return;
        };
        let old = std::mem::take(&mut self.parts[part]);
        let bits = old.bits + 1;
        if bits > self.bits {
            self.directory = (self.directory.iter())
                .flat_map(|&part| [part; 2])
                .collect();
            self.bits = bits;
        }
        let mut halves = [(); 2].map(|()| Part {
            bits,
            table: HashTable::with_capacity(PART_LEN),
        });
        let mut one = 0;
        for index in old.table {
            let hash = hash_of(index);
            one = hash;
            let half = &mut halves[leading(hash, bits) & 1].table;
            half.insert_unique(spread(hash), index, |&index| spread(hash_of(index)));
        }
        let [low, high] = halves;
        self.parts[part] = low;
        self.parts.push(high);
        // The entries of a part lie side by side in the directory; the upper half of them names the new part.
        let width = 1 << (self.bits - bits);
        let first = (leading(one, bits) | 1) * width;
        self.directory[first..first + width].fill(number);
    }
}

impl Part {
    fn is_full(&self) -> bool {
        self.table.len() >= PART_LEN
    }
}

/// The leading bits of a hash, as a number.
#[inline]
fn leading(hash: u32, bits: u32) -> usize {
    // The shift has 64 bits, so that `bits` may be zero.
    #[allow(clippy::cast_possible_truncation)] // at most `bits` bits
    let leading = ((u64::from(hash) << bits) >> u32::BITS) as usize;
    leading
}

/// A hash for [`HashTable`], which uses the lowest bits and the highest seven. All hashes of a part share their leading
/// bits, so the multiplication mixes these with the rest.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher;

    use hashbrown::DefaultHashBuilder;

    /// Hashes as the table makes them.
    fn hashes(n: u32) -> Vec<u32> {
        let hasher = DefaultHashBuilder::default();
        let low = |n: u32| u32::try_from(hasher.hash_one(n) >> 32).expect("a half");
        (0..n).map(low).collect()
    }

    fn fill(hashes: &[u32]) -> KeyIndex {
        let mut map = KeyIndex::new();
        for (index, &hash) in (0..).zip(hashes) {
            map.insert(hash, index, |other| hashes[other as usize]);
        }
        map
    }

    #[test]
    fn finds_every_index_and_none_that_was_removed() {
        let hashes = hashes(50_000);
        let mut map = fill(&hashes);
        let hash_of = |index: u32| hashes[index as usize];
        for index in 0..50_000 {
            assert_eq!(
                map.find(hash_of(index), |other| other == index),
                Some(index)
            );
            if index % 3 == 0 {
                assert!(
                    map.remove(hash_of(index), |other| other == index, hash_of)
                        .is_some()
                );
            }
        }
        for index in 0..50_000 {
            let found = map.find(hash_of(index), |other| other == index);
            assert_eq!(found, (index % 3 != 0).then_some(index));
        }
        for index in (0..50_000).filter(|index| index % 3 != 0) {
            assert!(
                map.remove(hash_of(index), |other| other == index, hash_of)
                    .is_some()
            );
        }
        assert_eq!((map.len, map.parts.len()), (0, 1));
    }

    #[test]
    fn no_part_grows_beyond_its_bound() {
        let map = fill(&hashes(200_000));
        assert!(map.parts.iter().all(|part| part.table.len() <= PART_LEN));
        assert!(map.parts.len() < 200_000 / 100, "{} parts", map.parts.len());
        for part in &map.parts {
            assert!(part.table.capacity() <= PART_LEN);
        }
    }

    #[test]
    fn equal_hashes_share_a_part_without_growing_the_directory() {
        let hashes = vec![7; 5_000];
        let mut map = fill(&hashes);
        assert!(map.directory.len() <= 256, "{}", map.directory.len());
        for index in 0..5_000 {
            assert_eq!(map.find(7, |other| other == index), Some(index));
            assert!(map.remove(7, |other| other == index, |_| 7).is_some());
        }
        assert_eq!(map.len, 0);
    }

    #[test]
    fn parts_give_memory_back() {
        let hashes = hashes(20_000);
        let mut map = fill(&hashes);
        let hash_of = |index: u32| hashes[index as usize];
        for index in 100..20_000 {
            assert!(
                map.remove(hash_of(index), |other| other == index, hash_of)
                    .is_some()
            );
        }
        for Part { table, .. } in &map.parts {
            let capacity = table.capacity();
            assert!(capacity <= KEPT_CAPACITY || table.len() >= capacity / 8);
        }
    }
}
