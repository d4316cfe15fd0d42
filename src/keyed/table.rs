//! The timers of a set, found by key or by index.
//!
//! Slots lie in the chunks of a [slab](crate::collections). A chunk without a slot in use is freed:
//! memory follows the number of timers. A key is stored once, in its slot, with its hash. `Hash`
//! runs once, in the caller, before anything is locked; only `Eq` runs under the lock, before
//! anything is changed.
//!
//! A timer that is [taken out](Table::take) leaves its slot behind, which is [filled](Table::fill)
//! again, or [vacated](Table::vacate).

use std::hash::{BuildHasher, Hash};
use std::num::NonZeroU64;

use super::key_index::KeyIndex;
use crate::collections::{ChunkSlab, SlabCell};
use crate::tick::{NEVER, Ticks, Timestamp};

/// The number of slots of a chunk.
const CHUNK: u32 = 256;

/// A change leaves one chunk unused at most. It is freed if there is another unused one, and with
/// the last timer both are.
const FREED_CHUNKS: usize = 2;

/// A timer, and the generation of its index: each arming in a set has another number.
pub(super) struct Timer<K, S> {
    pub(super) deadline: Timestamp,
    /// Grows with each arming: the order of delivery within a tick.
    pub(super) number: NonZeroU64,
    pub(super) key: K,
    pub(super) value: S,
}

/// Room for one timer.
pub(super) struct Slot<K, S> {
    /// The last note was for the tick of this instant, or for an earlier one. `NEVER`: the reader
    /// has looked at the index since, or there was none.
    pub(super) scheduled: Timestamp,
    /// The hash of the key; without a timer, the slab's next vacant slot.
    pub(super) hash: u32,
    pub(super) timer: Option<Timer<K, S>>,
}

impl<K, S> Slot<K, S> {
    #[inline]
    pub(super) fn of(hash: u32, timer: Timer<K, S>, scheduled: Timestamp) -> Self {
        Slot {
            scheduled,
            hash,
            timer: Some(timer),
        }
    }

    /// Arms the timer again. Returns the tick of the note that it needs, if its reader would look
    /// at it too late (K2).
    #[inline]
    pub(super) fn rearm(
        &mut self,
        deadline: Timestamp,
        number: NonZeroU64,
        ticks: &Ticks,
    ) -> Option<u64> {
        let timer = self.timer.as_mut()?;
        timer.deadline = deadline;
        timer.number = number;
        let scheduled = self.scheduled;
        if scheduled <= deadline {
            return None;
        }
        self.scheduled = deadline;
        let tick = ticks.round_up_timestamp(deadline);
        (tick < ticks.round_up_timestamp(scheduled)).then_some(tick)
    }

    /// Its reader looks at the timer, which is due then, when the wheel has come to the tick
    /// `reached`. The node of the index may be gone.
    #[inline]
    pub(super) fn look(&mut self, due: Timestamp, reached: u64, ticks: &Ticks) -> Look {
        let Some(timer) = &self.timer else {
            return Look::Nothing;
        };
        let tick = ticks.round_up_timestamp(due);
        if tick <= reached {
            self.scheduled = Timestamp::NEVER;
            let number = timer.number;
            return Look::Due { tick, number };
        }
        self.scheduled = due;
        if tick == NEVER {
            Look::Nothing
        } else {
            Look::Later(tick)
        }
    }

    /// Whether a timer that is due then needs no note in this slot.
    #[inline]
    pub(super) fn is_in_time(&self, due: Timestamp) -> bool {
        self.scheduled <= due
    }

    /// Whether the index may be on the wheel, so that its slot can be kept, or has to be taken off.
    #[inline]
    pub(super) fn is_scheduled(&self) -> bool {
        self.scheduled != Timestamp::NEVER
    }
}

/// What a reader finds in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// No timer, or one that is never due.
    Nothing,
    /// A timer that is due at this tick. It counts only with this number.
    Due { tick: u64, number: NonZeroU64 },
    /// A timer that is due later, and needs a note for this tick.
    Later(u64),
}

impl<K, S> SlabCell for Slot<K, S> {
    fn new() -> Self {
        Slot {
            scheduled: Timestamp::NEVER,
            hash: 0,
            timer: None,
        }
    }

    #[inline]
    fn is_in_use(&self) -> bool {
        self.timer.is_some()
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
    /// Those without a timer are vacant, or wait to be filled again.
    slots: Slots<K, S>,
}

impl<K, S> Table<K, S> {
    pub(super) fn new() -> Self {
        Table {
            keys: KeyIndex::new(),
            slots: Slots::new(),
        }
    }

    /// How many slots are not vacant.
    pub(super) fn in_use(&self) -> usize {
        self.slots.in_use()
    }

    /// An index above all that were used.
    pub(super) fn end(&self) -> u32 {
        self.slots.indices()
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&Slot<K, S>> {
        self.slots.get(index)
    }

    pub(super) fn timer(&self, index: u32) -> Option<&Timer<K, S>> {
        self.get(index)?.timer.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Slot<K, S>> {
        self.slots.get_mut(index)
    }

    pub(super) fn timer_mut(&mut self, index: u32) -> Option<&mut Timer<K, S>> {
        self.get_mut(index)?.timer.as_mut()
    }

    /// Adds a timer, under no key. Returns its index.
    #[inline]
    pub(super) fn insert(&mut self, hash: u32, timer: Timer<K, S>, scheduled: Timestamp) -> u32 {
        let new = Slot::of(hash, timer, scheduled);
        self.slots.take(|slot| *slot = new)
    }

    /// Fills a slot again that a timer has left.
    #[inline]
    pub(super) fn fill(&mut self, index: u32, hash: u32, timer: Timer<K, S>) {
        let slot = self.slots.get_mut(index).expect("it waits to be filled");
        debug_assert!(slot.timer.is_none(), "a timer has left it");
        *slot = Slot::of(hash, timer, slot.scheduled);
    }

    /// Takes a timer out, which is under a key or not. Its slot waits to be filled again or
    /// vacated.
    #[inline]
    pub(super) fn take(&mut self, index: u32, has_key: bool) -> Option<Timer<K, S>> {
        let slot = self.slots.get_mut(index)?;
        let timer = slot.timer.take()?;
        if has_key {
            self.keys.remove(slot.hash, index);
        }
        Some(timer)
    }

    /// All timers. Their memory is freed bit by bit.
    pub(super) fn into_timers(self) -> impl Iterator<Item = Timer<K, S>> {
        self.slots.into_cells().filter_map(|slot| slot.timer)
    }

    /// A slot that a timer has left is not filled again. Its chunk goes back to the allocator when
    /// that leaves nothing in use in it.
    #[inline]
    pub(super) fn vacate(&mut self, index: u32) {
        debug_assert!(self.timer(index).is_none(), "its timer was taken out");
        self.slots.vacate(index, |_| Some(()));
        self.slots.free_spare(FREED_CHUNKS);
    }

    /// The index of the timer with this hash and a key for which `matches` is true.
    #[inline]
    pub(super) fn find(&self, hash: u32, mut matches: impl FnMut(&K) -> bool) -> Option<u32> {
        let matches = |index| self.timer(index).is_some_and(|timer| matches(&timer.key));
        self.keys.find(hash, matches)
    }

    /// Puts a timer that has no key under a key that has no timer.
    #[inline]
    pub(super) fn add_key(&mut self, hash: u32, index: u32) {
        self.keys.insert(hash, index);
    }
}

/// Half of the hash of a key. Unwinds if `Hash` does.
#[inline]
pub(super) fn hash_of<Q: Hash + ?Sized>(hasher: &impl BuildHasher, key: &Q) -> u32 {
    let hash = hasher.hash_one(key);
    #[allow(clippy::cast_possible_truncation)] // half of a good hash is a good hash
    let half = (hash ^ (hash >> 32)) as u32;
    half
}
