//! The list of a wheel's sets of keyed timers.
//!
//! A set stays in the list from [`register`](SetList::register) to [`retire`](SetList::retire), which it calls when it is
//! dropped. No reference to a set is dropped while the lock is held: it may be the last one, and then `retire` takes the
//! lock.

use std::sync::{Arc, Weak};

use slab::Slab;

use super::timer_set::TimerSet;
use crate::sync::{Mutex, lock};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SetList(Mutex<Sets>);

#[derive(Debug, Default)]
struct Sets {
    live: Slab<Weak<dyn TimerSet>>,
    /// The actor has ended and takes no more sets.
    closed: bool,
}

/// A set's entry in the list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SetKey(usize);

impl SetList {
    /// Adds a new set. `None` when the actor has ended and will not close it.
    pub(crate) fn register(&self, set: Weak<dyn TimerSet>) -> Option<SetKey> {
        let mut sets = lock(&self.0);
        (!sets.closed).then(|| SetKey(sets.live.insert(set)))
    }

    /// Takes out a set that is being dropped.
    pub(crate) fn retire(&self, key: SetKey) {
        let mut sets = lock(&self.0);
        sets.live.try_remove(key.0);
        if sets.live.is_empty() {
            // A slab keeps its memory; a burst of sets should not.
            sets.live = Slab::new();
        }
    }

    /// Every set whose last reference is not gone. None can be [registered](Self::register) after this.
    pub(crate) fn close(&self) -> Vec<Arc<dyn TimerSet>> {
        let mut sets = lock(&self.0);
        sets.closed = true;
        sets.alive()
    }

    /// Every set whose last reference is not gone.
    #[cfg(test)]
    pub(crate) fn all(&self) -> Vec<Arc<dyn TimerSet>> {
        lock(&self.0).alive()
    }
}

impl Sets {
    fn alive(&self) -> Vec<Arc<dyn TimerSet>> {
        self.live
            .iter()
            .filter_map(|(_, set)| set.upgrade())
            .collect()
    }
}
