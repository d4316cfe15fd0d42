//! The list of a wheel's sets of keyed timers, and the sum of what they have counted.
//!
//! # Invariants
//!
//! 1. A set stays in the list from [`register`](SetList::register) to [`retire`](SetList::retire), which it calls when it
//!    is dropped.
//! 2. `retire` takes the set out and adds its counts to `gone` under one hold of the lock, so a set is always in exactly
//!    one of the two.
//! 3. No reference to a set is dropped while the lock is held: it may be the last one, and then `retire` takes the lock.
//!
//! A reader adds up `gone` and all counters under one hold of the lock: by 2 each set is counted once. It reads only the
//! [counters](KeyedCounters), which lie outside of the sets. So it waits neither for the lock of a set nor for one
//! that is being dropped, and nothing of a user's runs while the lock is held.

use std::sync::{Arc, Weak};

use slab::Slab;

use super::timer_set::TimerSet;
use crate::metrics::{KeyedCounters, KeyedCounts};
use crate::sync::{Mutex, MutexGuard, lock};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SetList {
    sets: Mutex<Sets>,
}

#[derive(Debug, Default)]
struct Sets {
    live: Slab<Listed>,
    /// The sum over the retired sets.
    gone: KeyedCounts,
    /// The actor has ended and takes no more sets.
    closed: bool,
}

#[derive(Debug)]
struct Listed {
    set: Weak<dyn TimerSet>,
    counters: Arc<KeyedCounters>,
}

/// A set's entry in the list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SetKey(usize);

impl SetList {
    /// Adds a new set. `None` when the actor has ended and will not close it.
    pub(crate) fn register(
        &self,
        set: Weak<dyn TimerSet>,
        counters: Arc<KeyedCounters>,
    ) -> Option<SetKey> {
        let mut sets = self.lock();
        (!sets.closed).then(|| SetKey(sets.live.insert(Listed { set, counters })))
    }

    /// Takes out a set that is being dropped, and keeps its counts.
    pub(crate) fn retire(&self, key: SetKey) {
        let mut sets = self.lock();
        let set = sets.live.try_remove(key.0);
        if let Some(set) = &set {
            sets.gone.add(&set.counters.read());
        }
        if sets.live.is_empty() {
            // A slab keeps its memory; a burst of sets should not.
            sets.live = Slab::new();
        }
        drop(sets);
        drop(set);
    }

    /// The counts of all sets, the retired ones included.
    pub(crate) fn counts(&self) -> KeyedCounts {
        let sets = self.lock();
        let mut sum = sets.gone;
        for (_, set) in &sets.live {
            sum.add(&set.counters.read());
        }
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
    fn alive(&self) -> Vec<Arc<dyn TimerSet>> {
        let sets = self.live.iter();
        sets.filter_map(|(_, listed)| listed.set.upgrade())
            .collect()
    }
}
