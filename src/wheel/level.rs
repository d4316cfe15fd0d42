//! One level of the wheel: its buckets, and a bitmap of those that hold anything.

use super::arena::List;

const WORD_BITS: usize = u64::BITS as usize;

/// A row of `slots` buckets and their occupancy.
///
/// Invariant: bit *i* of `words` is set exactly when bucket *i* is not empty, and bit *w* of
/// `summary` exactly when word *w* is not zero. With 4096 slots at most there are at most 64 words,
/// so finding the next bucket is two look-ups whatever the size.
#[derive(Debug, Clone)]
pub(super) struct Level {
    buckets: Box<[List]>,
    words: Box<[u64]>,
    summary: u64,
}

impl Level {
    pub(super) fn new(slots: usize) -> Self {
        Level {
            buckets: vec![List::EMPTY; slots].into(),
            words: vec![0; slots.div_ceil(WORD_BITS)].into(),
            summary: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.summary == 0
    }

    pub(super) fn bucket(&self, slot: usize) -> List {
        self.buckets[slot]
    }

    pub(super) fn bucket_mut(&mut self, slot: usize) -> &mut List {
        &mut self.buckets[slot]
    }

    pub(super) fn mark(&mut self, slot: usize) {
        let word = slot / WORD_BITS;
        self.words[word] |= 1 << (slot % WORD_BITS);
        self.summary |= 1 << word;
    }

    /// Records that the bucket is empty, if it is.
    pub(super) fn unmark_if_empty(&mut self, slot: usize) {
        if self.buckets[slot].is_empty() {
            let word = slot / WORD_BITS;
            self.words[word] &= !(1 << (slot % WORD_BITS));
            if self.words[word] == 0 {
                self.summary &= !(1 << word);
            }
        }
    }

    /// The first non-empty bucket at `slot` or after it, going round once.
    pub(super) fn next_occupied(&self, slot: usize) -> Option<usize> {
        self.occupied_from(slot).or_else(|| self.occupied_from(0))
    }

    /// The first non-empty bucket at `slot` or after it, up to the last.
    fn occupied_from(&self, slot: usize) -> Option<usize> {
        let word = slot / WORD_BITS;
        let here = self.words[word] & (u64::MAX << (slot % WORD_BITS));
        if here != 0 {
            return Some(word * WORD_BITS + here.trailing_zeros() as usize);
        }
        // These are the words after this one. The shift is split in two because a shift by 64 is
        // not allowed.
        let later = self.summary & (u64::MAX << word << 1);
        if later == 0 {
            return None;
        }
        let word = later.trailing_zeros() as usize;
        Some(word * WORD_BITS + self.words[word].trailing_zeros() as usize)
    }

    /// Whether bitmap and buckets agree.
    #[cfg(any(test, fuzzing))]
    pub(super) fn is_consistent(&self) -> bool {
        let bit = |slot: usize| self.words[slot / WORD_BITS] >> (slot % WORD_BITS) & 1 == 1;
        (0..self.buckets.len()).all(|slot| bit(slot) != self.buckets[slot].is_empty())
            && (0..self.words.len()).all(|w| (self.summary >> w & 1 == 1) == (self.words[w] != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wheel::arena::Arena;

    fn occupy(level: &mut Level, arena: &mut Arena<()>, slot: usize) {
        let index = arena.insert(());
        arena.push_back(level.bucket_mut(slot), 0, 0, index);
        level.mark(slot);
    }

    #[test]
    fn finds_the_next_occupied_bucket_from_every_slot() {
        for bits in 1..=12 {
            let slots = 1 << bits;
            for occupied in [0, slots / 2, slots - 1] {
                let (mut level, mut arena) = (Level::new(slots), Arena::new());
                occupy(&mut level, &mut arena, occupied);
                for slot in 0..slots {
                    assert_eq!(level.next_occupied(slot), Some(occupied));
                }
            }
        }
    }

    #[test]
    fn finds_the_nearer_of_two_occupied_buckets() {
        let (mut level, mut arena) = (Level::new(256), Arena::new());
        occupy(&mut level, &mut arena, 3);
        occupy(&mut level, &mut arena, 200);
        assert_eq!(level.next_occupied(0), Some(3));
        assert_eq!(level.next_occupied(3), Some(3));
        assert_eq!(level.next_occupied(4), Some(200));
        assert_eq!(level.next_occupied(200), Some(200));
        assert_eq!(level.next_occupied(201), Some(3));
    }

    #[test]
    fn does_not_find_an_emptied_bucket() {
        let (mut level, mut arena) = (Level::new(64), Arena::new());
        let index = arena.insert(());
        arena.push_back(level.bucket_mut(9), 0, 0, index);
        level.mark(9);
        level.unmark_if_empty(9);
        assert_eq!(level.next_occupied(0), Some(9), "it was not empty");
        let gap = arena.unlink(index);
        level.bucket_mut(9).close(gap);
        level.unmark_if_empty(9);
        assert!(level.is_empty());
        assert_eq!(level.next_occupied(0), None);
    }
}
