//! One level of the wheel: its buckets, and a bitmap of those that hold anything.

use super::arena::{Gap, List};

const WORD_BITS: usize = u64::BITS as usize;

/// A row of `slots` buckets and their occupancy.
///
/// Invariant: bit *i* of `words` is set exactly when bucket *i* is not empty.
#[derive(Debug, Clone)]
pub(super) struct Level {
    /// How far a tick is shifted to give its unit at this level: log2 of the width of a bucket.
    pub(super) shift: u32,
    pub(super) buckets: Box<[List]>,
    pub(super) words: Box<[u64]>,
}

impl Level {
    pub(super) fn new(slots: usize, shift: u32) -> Self {
        Level {
            shift,
            buckets: vec![List::EMPTY; slots].into(),
            words: vec![0; slots.div_ceil(WORD_BITS)].into(),
        }
    }

    pub(super) fn bucket(&self, slot: usize) -> List {
        self.buckets[slot]
    }

    /// The slot of the bucket that stands for `tick`.
    #[allow(clippy::cast_possible_truncation)] // masked
    #[inline]
    pub(super) fn slot(&self, tick: u64) -> usize {
        (tick >> self.shift) as usize & (self.buckets.len() - 1)
    }

    /// The bucket that stands for `tick`, which is about to get an item.
    pub(super) fn occupy(&mut self, tick: u64) -> &mut List {
        let slot = self.slot(tick);
        self.words[slot / WORD_BITS] |= 1 << (slot % WORD_BITS);
        &mut self.buckets[slot]
    }

    /// A node has left its bucket, at one or both of its ends.
    pub(super) fn close(&mut self, gap: Gap) {
        let slot = self.slot(gap.tick);
        self.buckets[slot].close(gap);
        if self.buckets[slot].is_empty() {
            self.words[slot / WORD_BITS] &= !(1 << (slot % WORD_BITS));
        }
    }

    /// The non-empty bucket that starts first, as its start and its slot. A bucket that has started
    /// counts as starting `now`: the items left in it are due or cascade now.
    #[inline]
    pub(super) fn first(&self, now: u64) -> Option<(u64, usize)> {
        let here = self.slot(now);
        let slot = match self.occupied_from(here) {
            None => self.occupied_from(0)?,
            Some(slot) => slot,
        };
        let distance = slot.wrapping_sub(here) & (self.buckets.len() - 1);
        let start = ((now >> self.shift) + distance as u64) << self.shift;
        Some((if start < now { now } else { start }, slot))
    }

    /// When the first non-empty bucket starts of those after the bucket of `tick`. The wheel is at
    /// `now`.
    pub(super) fn first_after(&self, tick: u64, now: u64) -> Option<u64> {
        let last_of_bucket = tick | ((1 << self.shift) - 1);
        let next = last_of_bucket.checked_add(1)?;
        let (start, _) = self.first(next)?;
        // Buckets before `tick` are found as if they came round again.
        let units = (start >> self.shift) - (now >> self.shift);
        (units < self.buckets.len() as u64).then_some(start)
    }

    /// The first non-empty bucket at `slot` or after it, up to the last.
    #[inline]
    fn occupied_from(&self, slot: usize) -> Option<usize> {
        let word = slot / WORD_BITS;
        let here = self.words[word] & (u64::MAX << (slot % WORD_BITS));
        if here != 0 {
            return Some(word * WORD_BITS + here.trailing_zeros() as usize);
        }
        let word = (word + 1..self.words.len()).find(|&word| self.words[word] != 0)?;
        Some(word * WORD_BITS + self.words[word].trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wheel::arena::Arena;

    fn occupy(level: &mut Level, arena: &mut Arena<()>, slot: usize) -> u32 {
        let index = arena.insert(());
        let tick = slot as u64;
        arena.push_back(level.occupy(tick), 0, tick, index);
        index
    }

    #[test]
    fn finds_the_next_occupied_bucket_from_every_slot() {
        for bits in 1..=12 {
            let slots = 1 << bits;
            for occupied in [0, slots / 2, slots - 1] {
                let (mut level, mut arena) = (Level::new(slots, 0), Arena::new());
                occupy(&mut level, &mut arena, occupied);
                for slot in 0..slots {
                    let start = slot + (occupied + slots - slot) % slots;
                    assert_eq!(level.first(slot as u64), Some((start as u64, occupied)));
                }
            }
        }
    }

    #[test]
    fn finds_the_nearer_of_two_occupied_buckets() {
        let (mut level, mut arena) = (Level::new(256, 0), Arena::new());
        occupy(&mut level, &mut arena, 3);
        occupy(&mut level, &mut arena, 200);
        assert_eq!(level.first(0), Some((3, 3)));
        assert_eq!(level.first(3), Some((3, 3)));
        assert_eq!(level.first(4), Some((200, 200)));
        assert_eq!(level.first(200), Some((200, 200)));
        assert_eq!(level.first(201), Some((259, 3)));
    }

    #[test]
    fn does_not_find_an_emptied_bucket() {
        let (mut level, mut arena) = (Level::new(64, 0), Arena::new());
        let nodes = [(); 2].map(|()| occupy(&mut level, &mut arena, 9));
        level.close(arena.unlink(nodes[0]));
        assert_eq!(level.first(0), Some((9, 9)), "it was not empty");
        level.close(arena.unlink(nodes[1]));
        assert_eq!(level.first(0), None);
    }
}
