//! The timers of a set, found by key or by index.
//!
//! Slots lie in the chunks of a [slab](crate::collections). A chunk without a slot in use is freed:
//! memory follows the number of timers. A key is stored once, in its slot, with its hash. `Hash`
//! runs once, in the caller, before anything is locked; only `Eq` runs under the lock, before
//! anything is changed.
//!
//! A slot outlives its timer for as long as the actor knows it. The next timer may take the slot
//! before that, and finds it on the wheel already.

use std::hash::{BuildHasher, Hash};
use std::num::NonZeroU64;

use hashbrown::DefaultHashBuilder;

use super::key_index::KeyIndex;
use crate::collections::{Cell, ChunkSlab};
use crate::shared::bound::Bound;
use crate::tick::Timestamp;

/// The number of slots of a chunk.
const CHUNK: u32 = 256;

/// A change leaves one chunk unused at most. It is freed if there is another unused one, and with
/// the last timer both are.
const FREED_CHUNKS: usize = 2;

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
    /// The hash of the key; without a timer, the slab's next vacant slot.
    hash: u32,
    pub(super) timer: Option<Timer<K, S>>,
}

impl<K, S> Cell for Slot<K, S> {
    fn new() -> Self {
        Slot {
            bound: Bound::NEW,
            hash: 0,
            timer: None,
        }
    }

    /// Whether it holds a timer, or the actor knows it, or is going to.
    #[inline]
    fn is_in_use(&self) -> bool {
        self.timer.is_some() || self.bound.is_in_use()
    }

    #[inline]
    fn next_vacant(&self) -> u32 {
        self.hash
    }

    #[inline]
    fn set_next_vacant(&mut self, place: u32) {
        self.hash = place;
    }
}

type Slots<K, S> = ChunkSlab<Slot<K, S>, CHUNK>;

/// See the module.
pub(super) struct Table<K, S> {
    keys: KeyIndex,
    /// Those without a timer are vacant.
    slots: Slots<K, S>,
    len: usize,
}

impl<K, S> Table<K, S> {
    pub(super) fn new() -> Self {
        Table {
            keys: KeyIndex::new(),
            slots: Slots::new(),
            len: 0,
        }
    }

    /// How many timers there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether no slot is in use.
    pub(super) fn is_unused(&self) -> bool {
        self.slots.in_use() == 0
    }

    /// An index above all that were used.
    pub(super) fn end(&self) -> u32 {
        self.slots.indices()
    }

    pub(super) fn get(&self, index: u32) -> Option<&Slot<K, S>> {
        self.slots.get(index)
    }

    pub(super) fn timer(&self, index: u32) -> Option<&Timer<K, S>> {
        timer_at(&self.slots, index)
    }

    /// The slot, to change its timer or to put it on the wheel. Changes after which it may be unused go through
    /// [`change`](Self::change).
    #[inline]
    pub(super) fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<K, S>> {
        self.slots.get_mut(index)
    }

    /// Changes a slot. Its chunk goes back to the allocator when that leaves nothing in use in it.
    pub(super) fn change<R>(
        &mut self,
        index: u32,
        change: impl FnOnce(&mut Slot<K, S>) -> R,
    ) -> Option<R> {
        let result = self.slots.change(index, change);
        self.slots.free_spare(FREED_CHUNKS);
        result
    }

    /// The index that the next timer will have.
    pub(super) fn next_index(&self) -> u32 {
        self.slots.next_index()
    }

    /// Adds a timer, under no key, and changes its slot. Returns its index.
    #[inline]
    pub(super) fn insert(
        &mut self,
        hash: u32,
        timer: Timer<K, S>,
        change: impl FnOnce(u32, &mut Slot<K, S>),
    ) -> u32 {
        self.len += 1;
        self.slots.take(|index, slot| {
            slot.hash = hash;
            slot.timer = Some(timer);
            change(index, slot);
        })
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
        let taken = self.slots.vacate(index, |slot| {
            let timer = slot.timer.take()?;
            change(slot);
            Some((timer, slot.hash))
        })?;
        self.len -= 1;
        self.slots.free_spare(FREED_CHUNKS);
        Some(taken)
    }

    /// How many chunks there are.
    #[cfg(test)]
    pub(super) fn chunks(&self) -> usize {
        self.slots.chunks()
    }
}

impl<K, S> Table<K, S> {
    /// The index of the timer whose key has this hash and for which `matches` is true.
    #[inline]
    pub(super) fn find(&self, hash: u32, mut matches: impl FnMut(&K) -> bool) -> Option<u32> {
        let matches = |index| self.timer(index).is_some_and(|timer| matches(&timer.key));
        self.keys.find(hash, matches)
    }

    /// Adds a timer under a key that has none, and changes its slot. Returns its index.
    pub(super) fn insert_keyed(
        &mut self,
        hash: u32,
        timer: Timer<K, S>,
        change: impl FnOnce(u32, &mut Slot<K, S>),
    ) -> u32 {
        let index = self.insert(hash, timer, change);
        let Table { keys, slots, .. } = self;
        keys.insert(hash, index, |index| hash_at(slots, index));
        index
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

    /// Takes the timer out whose key has this hash and for which `matches` is true, and changes its slot. Returns its
    /// index.
    pub(super) fn find_and_remove(
        &mut self,
        hash: u32,
        mut matches: impl FnMut(&K) -> bool,
        change: impl FnOnce(u32, &mut Slot<K, S>),
    ) -> Option<(u32, Timer<K, S>)> {
        let Table { keys, slots, .. } = self;
        let matches = |index| timer_at(slots, index).is_some_and(|timer| matches(&timer.key));
        let index = keys.remove(hash, matches, |index| hash_at(slots, index))?;
        let (timer, _) = self.take(index, |slot| change(index, slot))?;
        Some((index, timer))
    }
}

#[inline]
fn timer_at<K, S>(slots: &Slots<K, S>, index: u32) -> Option<&Timer<K, S>> {
    slots.get(index)?.timer.as_ref()
}

fn hash_at<K, S>(slots: &Slots<K, S>, index: u32) -> u32 {
    slots.get(index).expect("a key has a slot").hash
}

/// Half of the hash of a key. Unwinds if `Hash` does.
pub(super) fn hash_of<Q: Hash + ?Sized>(hasher: &DefaultHashBuilder, key: &Q) -> u32 {
    let hash = hasher.hash_one(key);
    #[allow(clippy::cast_possible_truncation)] // half of a good hash is a good hash
    let half = (hash ^ (hash >> 32)) as u32;
    half
}
