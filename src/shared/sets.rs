//! The list of a wheel's sets of keyed timers, and the sum of what they have counted.
//!
//! # Invariants
//!
//! 1. A set stays in the list from [`register`](SetList::register) to [`retire`](SetList::retire), which it calls when it
//!    is dropped.
//! 2. `retire` takes the set out and adds its counts to `gone` under one hold of the lock, so a set is always in exactly
//!    one of the two.
//! 3. A set that is dropped retires before it drops a key or a value, so no user code runs between its last reference and
//!    `retire`.
//! 4. No reference to a set is dropped while the lock is held: it may be the last one, and then `retire` takes the lock.
//!
//! A reader takes a reference to every set and a copy of `gone` under one hold of the lock, and keeps the references
//! until it has added up all counts: by 2 each set is counted once. A set whose last reference is gone cannot be read, so
//! the reader waits until it retires. By 3 that takes a few instructions, and never happens on the reader's own thread.

use std::sync::{Arc, PoisonError, Weak};

use slab::Slab;

use super::timer_set::TimerSet;
use crate::metrics::KeyedCounts;
use crate::sync::{Condvar, Mutex, MutexGuard, lock};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SetList {
    sets: Mutex<Sets>,
    /// Notified when a set retires.
    retired: Condvar,
}

#[derive(Debug, Default)]
struct Sets {
    live: Slab<Weak<dyn TimerSet>>,
    /// The sum over the retired sets.
    gone: KeyedCounts,
    /// The actor has ended and takes no more sets.
    closed: bool,
}

/// A set's entry in the list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SetKey(usize);

impl SetList {
    /// Adds a new set. `None` when the actor has ended and will not close it.
    pub(crate) fn register(&self, set: Weak<dyn TimerSet>) -> Option<SetKey> {
        let mut sets = self.lock();
        (!sets.closed).then(|| SetKey(sets.live.insert(set)))
    }

    /// Takes out a set that is being dropped, and keeps its counts.
    pub(crate) fn retire(&self, key: SetKey, counts: &KeyedCounts) {
        let mut sets = self.lock();
        sets.gone.add(counts);
        let set = sets.live.try_remove(key.0);
        if sets.live.is_empty() {
            // A slab keeps its memory; a burst of sets should not.
            sets.live = Slab::new();
        }
        drop(sets);
        self.retired.notify_all();
        drop(set);
    }

    /// The counts of all sets, the retired ones included.
    pub(crate) fn counts(&self) -> KeyedCounts {
        // The references of attempts that found a set without its last reference are kept: see invariant 4.
        let mut earlier = Vec::new();
        let mut live = Vec::new();
        let mut sets = self.lock();
        while !sets.hold_all(&mut live) {
            earlier.append(&mut live);
            sets = (self.retired.wait(sets)).unwrap_or_else(PoisonError::into_inner);
        }
        let mut sum = sets.gone;
        drop(sets);
        for set in &live {
            sum.add(&set.counts());
        }
        // The references are dropped last: a set that retired before its counts were read would be in neither sum.
        drop((live, earlier));
        sum
    }

    /// Every set whose last reference is not gone. None can be [registered](Self::register) after this.
    pub(crate) fn close(&self) -> Vec<Arc<dyn TimerSet>> {
        let mut sets = self.lock();
        sets.closed = true;
        sets.alive()
    }

    /// Every set whose last reference is not gone.
    #[cfg(test)]
    pub(crate) fn all(&self) -> Vec<Arc<dyn TimerSet>> {
        self.lock().alive()
    }

    fn lock(&self) -> MutexGuard<'_, Sets> {
        lock(&self.sets)
    }
}

impl Sets {
    /// Takes a reference to every set. Returns `false` if the last reference of one is gone and it has not retired.
    fn hold_all(&self, held: &mut Vec<Arc<dyn TimerSet>>) -> bool {
        self.live.iter().all(|(_, set)| {
            let set = set.upgrade();
            let is_alive = set.is_some();
            held.extend(set);
            is_alive
        })
    }

    fn alive(&self) -> Vec<Arc<dyn TimerSet>> {
        let sets = self.live.iter();
        sets.filter_map(|(_, set)| set.upgrade()).collect()
    }
}
