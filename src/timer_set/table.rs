//! The timers of a set, found by key or by index.
//!
//! Slots lie in chunks of [`CHUNK`], so that growing moves the slots of one chunk at most. A chunk without a slot in use
//! goes back to the allocator: memory follows the number of timers. A key is stored once, in its slot, with its hash.
//! `Hash` runs once, in the caller, before anything is locked; only `Eq` runs under the lock, before anything is changed.
//!
//! A slot outlives its timer for as long as the actor knows it. The next timer may take the slot before that, and finds it
//! on the wheel already.

use std::hash::{BuildHasher, Hash};
use std::num::NonZeroU64;

use hashbrown::DefaultHashBuilder;

use super::key_index::KeyIndex;
use crate::shared::bound::Bound;
use crate::tick::Timestamp;

/// The number of slots of a chunk.
const CHUNK: u32 = 256;

/// A timer, and the generation of its index: each arming in a set has another `order`.
pub(super) struct Timer<K, S> {
    pub(super) deadline: Timestamp,
    /// Grows with each arming: the order of delivery within a tick.
    pub(super) order: NonZeroU64,
    pub(super) key: K,
    pub(super) value: S,
}

/// Room for one timer. The [set](super) says which of its fields may change together.
pub(super) struct Slot<K, S> {
    pub(super) bound: Bound,
    /// The hash of the key.
    hash: u32,
    pub(super) timer: Option<Timer<K, S>>,
}

impl<K, S> Slot<K, S> {
    fn new() -> Self {
        Slot {
            bound: Bound::NEW,
            hash: 0,
            timer: None,
        }
    }

    /// Whether it holds a timer, or the actor knows it, or is going to.
    fn is_in_use(&self) -> bool {
        self.timer.is_some() || self.bound.is_in_use()
    }
}

/// See the module.
pub(super) struct Table<K, S> {
    keys: KeyIndex,
    /// The slots of each chunk; none of a chunk that was given back.
    slots: Slots<K, S>,
    /// The chunks, apart from their slots: looking a timer up needs the slots alone.
    chunks: Vec<Option<Chunk>>,
    /// Chunks with a vacant slot, and perhaps some that are full by now.
    roomy: Vec<u32>,
    /// Numbers of chunks that were given back.
    absent: Vec<u32>,
    /// A chunk that was kept although none of its slots was in use. It may be in use again.
    spare: Option<u32>,
    len: usize,
}

type Slots<K, S> = Vec<Vec<Slot<K, S>>>;

struct Chunk {
    /// A bit for each slot that holds no timer.
    vacant: [u64; CHUNK as usize / 64],
    /// How many slots are in use.
    in_use: u32,
    /// It is in `roomy`.
    is_roomy: bool,
}

impl Chunk {
    fn new() -> Self {
        Chunk {
            vacant: [0; CHUNK as usize / 64],
            in_use: 0,
            is_roomy: true,
        }
    }

    /// The lowest of its slots without a timer; a new one if there is none.
    fn take_vacant<K, S>(&mut self, slots: &mut Vec<Slot<K, S>>) -> Option<u32> {
        for (word, bits) in (0..).zip(&mut self.vacant) {
            if *bits != 0 {
                let bit = bits.trailing_zeros();
                *bits &= *bits - 1;
                return Some(word * 64 + bit);
            }
        }
        let next = u32::try_from(slots.len()).ok()?;
        if next == CHUNK {
            return None;
        }
        slots.push(Slot::new());
        Some(next)
    }
}

fn split(index: u32) -> (usize, usize) {
    ((index / CHUNK) as usize, (index % CHUNK) as usize)
}

impl<K, S> Table<K, S> {
    pub(super) fn new() -> Self {
        Table {
            keys: KeyIndex::new(),
            slots: Vec::new(),
            chunks: Vec::new(),
            roomy: Vec::new(),
            absent: Vec::new(),
            spare: None,
            len: 0,
        }
    }

    /// How many timers there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether no slot is in use.
    pub(super) fn is_unused(&self) -> bool {
        let idle = usize::from(self.spare.is_some_and(|number| self.is_idle(number)));
        self.absent.len() + idle == self.chunks.len()
    }

    /// Whether no slot of this chunk is in use.
    fn is_idle(&self, number: u32) -> bool {
        let chunk = self.chunks[number as usize].as_ref();
        chunk.is_some_and(|chunk| chunk.in_use == 0)
    }

    /// An index above all that were used.
    pub(super) fn end(&self) -> u32 {
        u32::try_from(self.chunks.len()).map_or(u32::MAX, |chunks| chunks.saturating_mul(CHUNK))
    }

    pub(super) fn get(&self, index: u32) -> Option<&Slot<K, S>> {
        let (chunk, at) = split(index);
        self.slots.get(chunk)?.get(at)
    }

    pub(super) fn timer(&self, index: u32) -> Option<&Timer<K, S>> {
        timer_at(&self.slots, index)
    }

    /// The slot, to change its timer or to put it on the wheel. Changes after which it may be unused go through
    /// [`change`](Self::change).
    #[inline]
    pub(super) fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<K, S>> {
        let (chunk, at) = split(index);
        self.slots.get_mut(chunk)?.get_mut(at)
    }

    /// Changes a slot. Its chunk goes back to the allocator when that leaves nothing in use in it.
    pub(super) fn change<R>(
        &mut self,
        index: u32,
        change: impl FnOnce(&mut Slot<K, S>) -> R,
    ) -> Option<R> {
        let (number, at) = split(index);
        let slot = self.slots.get_mut(number)?.get_mut(at)?;
        let was_in_use = slot.is_in_use();
        let result = change(slot);
        let is_in_use = slot.is_in_use();
        if was_in_use != is_in_use {
            let chunk = self.chunks.get_mut(number)?.as_mut()?;
            if is_in_use {
                chunk.in_use += 1;
            } else {
                chunk.in_use -= 1;
                if chunk.in_use == 0 {
                    self.give_back(index / CHUNK);
                }
            }
        }
        Some(result)
    }

    /// Puts a timer into a slot from [`take_vacant`](Self::take_vacant).
    pub(super) fn fill(&mut self, index: u32, hash: u32, timer: Timer<K, S>) -> &mut Slot<K, S> {
        self.len += 1;
        let (number, at) = split(index);
        let chunk = self.chunks[number].as_mut();
        let chunk = chunk.expect("a chunk with a vacant slot is there");
        let slot = &mut self.slots[number][at];
        if !slot.is_in_use() {
            chunk.in_use += 1;
        }
        slot.hash = hash;
        slot.timer = Some(timer);
        slot
    }

    /// Takes a timer out, and changes its slot. An actor that knows the slot still does.
    pub(super) fn remove_unkeyed(
        &mut self,
        index: u32,
        change: impl FnOnce(&mut Slot<K, S>),
    ) -> Option<Timer<K, S>> {
        Some(self.take(index, change)?.0)
    }

    /// Takes a timer out with the hash of its key.
    fn take(
        &mut self,
        index: u32,
        change: impl FnOnce(&mut Slot<K, S>),
    ) -> Option<(Timer<K, S>, u32)> {
        let (number, at) = split(index);
        let chunk = self.chunks.get_mut(number)?.as_mut()?;
        let slot = self.slots.get_mut(number)?.get_mut(at)?;
        let timer = slot.timer.take()?;
        let hash = slot.hash;
        change(slot);
        let is_in_use = slot.is_in_use();
        chunk.vacant[at / 64] |= 1 << (at % 64);
        if !std::mem::replace(&mut chunk.is_roomy, true) {
            self.roomy.push(index / CHUNK);
        }
        self.len -= 1;
        if !is_in_use {
            chunk.in_use -= 1;
            if chunk.in_use == 0 {
                self.give_back(index / CHUNK);
            }
        }
        Some((timer, hash))
    }

    /// The index of a slot without a timer, which the caller [fills](Self::fill) at once.
    pub(super) fn take_vacant(&mut self) -> u32 {
        loop {
            let number = match self.roomy.last() {
                Some(&number) => number,
                None => self.add_chunk(),
            };
            if let Some(chunk) = &mut self.chunks[number as usize] {
                if let Some(at) = chunk.take_vacant(&mut self.slots[number as usize]) {
                    return number * CHUNK + at;
                }
                chunk.is_roomy = false;
            }
            self.roomy.pop();
        }
    }

    fn add_chunk(&mut self) -> u32 {
        let number = self.absent.pop().unwrap_or_else(|| {
            self.slots.push(Vec::new());
            self.chunks.push(None);
            // `MAX_KEYED` bounds the number of chunks.
            u32::try_from(self.chunks.len() - 1).unwrap_or(u32::MAX)
        });
        self.chunks[number as usize] = Some(Chunk::new());
        self.roomy.push(number);
        number
    }

    /// No slot of this chunk is in use: keeps it as the spare one, or gives its memory back.
    fn give_back(&mut self, number: u32) {
        let other = self.spare.filter(|&other| other != number);
        if !other.is_some_and(|other| self.is_idle(other)) {
            self.spare = Some(number);
            return;
        }
        if self.absent.len() + 2 == self.chunks.len() {
            // These two are the only chunks left.
            self.slots = Vec::new();
            self.chunks = Vec::new();
            self.absent = Vec::new();
            self.roomy = Vec::new();
            self.spare = None;
            return;
        }
        // `roomy` may still list this chunk, which is skipped then. A chunk is added only when `roomy` is empty, so none
        // is listed twice.
        self.slots[number as usize] = Vec::new();
        self.chunks[number as usize] = None;
        self.absent.push(number);
    }

    /// How many chunks there are.
    #[cfg(test)]
    pub(super) fn chunks(&self) -> usize {
        self.chunks.iter().flatten().count()
    }
}

impl<K, S> Table<K, S> {
    /// The index of the timer whose key has this hash and for which `is_it` is true.
    #[inline]
    pub(super) fn find(&self, hash: u32, mut is_it: impl FnMut(&K) -> bool) -> Option<u32> {
        let is_it = |index| self.timer(index).is_some_and(|timer| is_it(&timer.key));
        self.keys.find(hash, is_it)
    }

    /// Adds a timer under a key that has none; returns its index and slot.
    pub(super) fn insert_keyed(&mut self, hash: u32, timer: Timer<K, S>) -> (u32, &mut Slot<K, S>) {
        let index = self.take_vacant();
        let Table { keys, slots, .. } = self;
        keys.insert(hash, index, |index| hash_at(slots, index));
        (index, self.fill(index, hash, timer))
    }

    /// Takes a timer out that was added under a key, and changes its slot.
    pub(super) fn remove_keyed(
        &mut self,
        index: u32,
        change: impl FnOnce(&mut Slot<K, S>),
    ) -> Option<Timer<K, S>> {
        let (timer, hash) = self.take(index, change)?;
        let Table { keys, slots, .. } = self;
        let removed = keys.remove(hash, |other| other == index, |i| hash_at(slots, i));
        debug_assert!(removed.is_some(), "index {index} was added with this hash");
        Some(timer)
    }

    /// Takes the timer out whose key has this hash and for which `is_it` is true, and changes its slot. Returns its
    /// index.
    pub(super) fn find_and_remove(
        &mut self,
        hash: u32,
        mut is_it: impl FnMut(&K) -> bool,
        change: impl FnOnce(u32, &mut Slot<K, S>),
    ) -> Option<(u32, Timer<K, S>)> {
        let Table { keys, slots, .. } = self;
        let is_it = |index| timer_at(slots, index).is_some_and(|timer| is_it(&timer.key));
        let index = keys.remove(hash, is_it, |index| hash_at(slots, index))?;
        let (timer, _) = self.take(index, |slot| change(index, slot))?;
        Some((index, timer))
    }
}

#[inline]
fn timer_at<K, S>(slots: &Slots<K, S>, index: u32) -> Option<&Timer<K, S>> {
    let (chunk, at) = split(index);
    slots.get(chunk)?.get(at)?.timer.as_ref()
}

fn hash_at<K, S>(slots: &Slots<K, S>, index: u32) -> u32 {
    let (chunk, at) = split(index);
    slots[chunk][at].hash
}

/// Half of the hash of a key. Unwinds if `Hash` does.
pub(super) fn hash_of<Q: Hash + ?Sized>(hasher: &DefaultHashBuilder, key: &Q) -> u32 {
    let hash = hasher.hash_one(key);
    #[allow(clippy::cast_possible_truncation)] // half of a good hash is a good hash
    let half = (hash ^ (hash >> 32)) as u32;
    half
}
