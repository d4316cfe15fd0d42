//! The timers of a set, found by key or by slot: a hash table of slot numbers, and the slots.
//!
//! Each key is stored once, in its slot. Timers that nobody looks up by key are left out of the table. The wheel names a timer by its slot too, so a slot outlives its timer for as
//! long as the wheel knows it: `place` says where.
//!
//! A key's `Hash` and `Eq` are called through the [shield](crate::panic). If one panics its key is not found; the
//! table stays whole.

use std::hash::{BuildHasher, Hash};
use std::mem;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::panic::catch_panic;
use crate::tick::Timestamp;

const NO_SLOT: u32 = u32::MAX;

/// An empty book keeps at most this many slots of memory.
const KEPT_SLOTS: usize = 1024;

/// When a timer fires, and what the actor knows of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timer {
    pub(super) deadline: Timestamp,
    /// The actor looks at this tick or before it, as in an [entry](crate::shared::entry).
    pub(super) scheduled: u64,
    /// Grows with each arming in the set: the order of delivery within a tick.
    pub(super) order: u64,
}

/// Where the actor has a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(u32);

impl Place {
    /// The actor is not going to look at it.
    pub(super) const NOWHERE: Place = Place(u32::MAX);
    /// It came off the wheel and waits to be delivered.
    pub(super) const RIPE: Place = Place(u32::MAX - 1);

    pub(super) fn on_wheel(node: u32) -> Self {
        Place(node)
    }

    /// The wheel's node, if it is on the wheel.
    pub(super) fn node(self) -> Option<u32> {
        (self != Self::NOWHERE && self != Self::RIPE).then_some(self.0)
    }
}

/// One timer, or room for one. The fields lie flat so that the enum's tag fits beside the small ones: 48 bytes with
/// a `u64` key and value.
#[derive(Debug)]
enum Slot<K, V> {
    Armed {
        key: K,
        value: V,
        timer: Timer,
        place: Place,
        noted: bool,
    },
    Vacant {
        next: u32,
        place: Place,
        noted: bool,
    },
}

/// See the module.
pub(super) struct Book<K, V> {
    hasher: DefaultHashBuilder,
    table: HashTable<u32>,
    slots: Vec<Slot<K, V>>,
    vacant: u32,
    len: usize,
}

impl<K: Hash + Eq, V> Book<K, V> {
    pub(super) fn new(hasher: DefaultHashBuilder) -> Self {
        Book {
            hasher,
            table: HashTable::new(),
            slots: Vec::new(),
            vacant: NO_SLOT,
            len: 0,
        }
    }

    /// How many timers there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the memory of a large book without timers. The actor must know none of its slots.
    pub(super) fn give_back_if_empty(&mut self) {
        if self.len() == 0 && self.slots.len() > KEPT_SLOTS {
            self.slots = Vec::new();
            self.vacant = NO_SLOT;
            self.table = HashTable::new();
        }
    }

    /// How many slots there are, vacant ones included.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The slot of the timer with this key.
    pub(super) fn find(&self, hash: u64, key: &K) -> Option<u32> {
        let is_it = |&slot: &u32| match &self.slots[slot as usize] {
            Slot::Armed { key: other, .. } => {
                catch_panic("the Eq of a key", || other == key).unwrap_or(false)
            }
            Slot::Vacant { .. } => false,
        };
        self.table.find(hash, is_it).copied()
    }

    /// Adds a timer under a key that has none.
    ///
    /// # Panics
    ///
    /// When there are 2^32 - 1 timers already.
    pub(super) fn insert(&mut self, hash: u64, key: K, value: V, timer: Timer) -> u32 {
        let slot = self.insert_unkeyed(key, value, timer);
        let Book {
            hasher,
            table,
            slots,
            ..
        } = self;
        // If a hash panics while the table grows, that key is not found any more; the others are.
        table.insert_unique(hash, slot, |&slot| match &slots[slot as usize] {
            Slot::Armed { key, .. } => hash_of(hasher, key).unwrap_or(0),
            Slot::Vacant { .. } => 0,
        });
        slot
    }

    /// The slot that the next timer will get.
    pub(super) fn next_slot(&self) -> u32 {
        if self.vacant == NO_SLOT {
            u32::try_from(self.slots.len()).unwrap_or(NO_SLOT)
        } else {
            self.vacant
        }
    }

    /// Adds a timer that is not looked up by its key.
    ///
    /// # Panics
    ///
    /// When there are 2^32 - 1 timers already.
    pub(super) fn insert_unkeyed(&mut self, key: K, value: V, timer: Timer) -> u32 {
        let slot = self.next_slot();
        assert!(slot != NO_SLOT, "a set holds at most 2^32 - 1 timers");
        self.len += 1;
        match self.slots.get_mut(slot as usize) {
            None => self.slots.push(Slot::Armed {
                key,
                value,
                timer,
                place: Place::NOWHERE,
                noted: false,
            }),
            Some(room) => {
                if let Slot::Vacant { next, place, noted } = *room {
                    self.vacant = next;
                    *room = Slot::Armed {
                        key,
                        value,
                        timer,
                        place,
                        noted,
                    };
                }
            }
        }
        slot
    }

    /// Takes a timer out. The slot stays known to the actor; its place says where.
    pub(super) fn remove(&mut self, slot: u32) -> Option<(K, V, Timer)> {
        let room = &mut self.slots[slot as usize];
        let (Slot::Armed { place, noted, .. } | Slot::Vacant { place, noted, .. }) = *room;
        let vacant = Slot::Vacant {
            next: self.vacant,
            place,
            noted,
        };
        let Slot::Armed { .. } = room else {
            return None;
        };
        let Slot::Armed {
            key, value, timer, ..
        } = mem::replace(room, vacant)
        else {
            return None;
        };
        self.vacant = slot;
        self.len -= 1;
        if self.table.is_empty() {
            return Some((key, value, timer));
        }
        let hash = hash_of(&self.hasher, &key);
        let found = hash.and_then(|hash| self.table.find_entry(hash, |&other| other == slot).ok());
        match found {
            Some(entry) => {
                entry.remove();
            }
            // Its hash panics, or is not what it was: look everywhere.
            None => self.table.retain(|&mut other| other != slot),
        }
        Some((key, value, timer))
    }

    /// The value under a slot that has a timer, put in exchange for another.
    pub(super) fn replace_value(&mut self, slot: u32, new: V) -> Option<V> {
        match &mut self.slots[slot as usize] {
            Slot::Armed { value, .. } => Some(mem::replace(value, new)),
            Slot::Vacant { .. } => None,
        }
    }

    /// The key and value in a slot; `None` too when there is no such slot any more.
    pub(super) fn get(&self, slot: u32) -> Option<(&K, &V)> {
        match self.slots.get(slot as usize)? {
            Slot::Armed { key, value, .. } => Some((key, value)),
            Slot::Vacant { .. } => None,
        }
    }

    pub(super) fn timer(&mut self, slot: u32) -> Option<&mut Timer> {
        match &mut self.slots[slot as usize] {
            Slot::Armed { timer, .. } => Some(timer),
            Slot::Vacant { .. } => None,
        }
    }

    pub(super) fn place(&mut self, slot: u32) -> &mut Place {
        let (Slot::Armed { place, .. } | Slot::Vacant { place, .. }) =
            &mut self.slots[slot as usize];
        place
    }

    /// Whether the slot is noted down for the actor to attend to.
    pub(super) fn noted(&mut self, slot: u32) -> &mut bool {
        let (Slot::Armed { noted, .. } | Slot::Vacant { noted, .. }) =
            &mut self.slots[slot as usize];
        noted
    }
}

/// The hash of a key, unless its `Hash` panics.
pub(super) fn hash_of<K: Hash>(hasher: &DefaultHashBuilder, key: &K) -> Option<u64> {
    catch_panic("the Hash of a key", || hasher.hash_one(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timer() -> Timer {
        Timer {
            deadline: Timestamp::NEVER,
            scheduled: 0,
            order: 0,
        }
    }

    #[test]
    fn a_slot_with_a_u64_key_and_value_takes_48_bytes() {
        assert_eq!(size_of::<Slot<u64, u64>>(), 48);
    }

    #[test]
    fn what_is_inserted_is_found_until_it_is_removed_and_its_slot_is_used_again() {
        let mut book = Book::<u64, u64>::new(DefaultHashBuilder::default());
        let hasher = book.hasher.clone();
        let hash = |key: u64| hash_of(&hasher, &key).expect("does not panic");
        for key in 0..1000 {
            let slot = book.insert(hash(key), key, key * 2, timer());
            assert_eq!(book.find(hash(key), &key), Some(slot));
        }
        assert_eq!(book.len(), 1000);
        for key in 0..1000 {
            let slot = book.find(hash(key), &key).expect("was inserted");
            let (k, v, _) = book.remove(slot).expect("was inserted");
            assert_eq!((k, v), (key, key * 2));
            assert!(book.remove(slot).is_none());
            assert_eq!(book.find(hash(key), &key), None);
        }
        assert_eq!(book.len(), 0);
        book.insert(hash(5), 5, 5, timer());
        assert_eq!(book.slots(), 1000);
    }
}
