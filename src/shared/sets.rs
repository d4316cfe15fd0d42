//! The list of a wheel's sets of keyed timers.
//!
//! A set has its key from [`register`](SetList::register) until the actor
//! [unregisters](SetList::try_unregister) it, which it does when the set was dropped and no note
//! about it is left. So the key in a note never names another set. No reference to a set is dropped
//! while the lock is held: it may be the last one, and its drop runs code of a user.
//!
//! A thread that makes a set may be preempted while it has the lock. Until its end the actor does
//! not wait for it: it [tries](SetList::try_get), and comes back in its next turn.

use std::sync::{Arc, Weak};

use slab::Slab;

use super::note::SetKey;
use super::timer_set::TimerSet;
use crate::sync::{Mutex, lock, try_lock_with_backoff};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SetList(Mutex<Sets>);

#[derive(Debug, Default)]
struct Sets {
    registered: Slab<Weak<dyn TimerSet>>,
    /// The actor has ended and takes no more sets.
    closed: bool,
}

impl Sets {
    fn all(&self) -> Vec<Arc<dyn TimerSet>> {
        let registered = self.registered.iter();
        registered.filter_map(|(_, set)| set.upgrade()).collect()
    }
}

impl SetList {
    /// Adds a new set. `None` when the actor has ended and will not close it.
    pub(crate) fn register(&self, set: Weak<dyn TimerSet>) -> Option<SetKey> {
        let mut sets = lock(&self.0);
        (!sets.closed).then(|| SetKey::new(sets.registered.insert(set)))
    }

    /// The set with this key, which may have been dropped. `None` if another thread has locked the
    /// list.
    pub(crate) fn try_get(&self, key: SetKey) -> Option<Weak<dyn TimerSet>> {
        let sets = try_lock_with_backoff(&self.0)?;
        Some(Weak::clone(&sets.registered[key.position()]))
    }

    /// The set was dropped, and the actor has forgotten it. Another set may get its key. Returns
    /// `false` if another thread has locked the list.
    pub(crate) fn try_unregister(&self, key: SetKey) -> bool {
        let Some(mut sets) = try_lock_with_backoff(&self.0) else {
            return false;
        };
        sets.registered.try_remove(key.position());
        if sets.registered.is_empty() {
            // A slab keeps its memory; a burst of sets should not.
            sets.registered = Slab::new();
        }
        true
    }

    /// Locks the list, as a thread that is preempted while it makes a set does.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Drop + '_ {
        lock(&self.0)
    }

    /// How many sets have a key.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).registered.len()
    }

    /// Every set that is still referred to.
    pub(crate) fn all(&self) -> Vec<Arc<dyn TimerSet>> {
        lock(&self.0).all()
    }

    /// Every set that is still referred to. None can be [registered](Self::register) after
    /// this.
    pub(crate) fn close(&self) -> Vec<Arc<dyn TimerSet>> {
        let mut sets = lock(&self.0);
        sets.closed = true;
        sets.all()
    }
}
