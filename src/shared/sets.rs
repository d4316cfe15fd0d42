//! The list of a wheel's sets of keyed timers.
//!
//! A set has its key from [`register`](SetList::register) until the actor
//! [unregisters](SetList::try_unregister) it, which it does when the set was dropped and no note
//! about it is left. So the key in a note never names another set. No reference to a set is dropped
//! while the lock is held: it may be the last one, and its drop sends a command.
//!
//! A thread that makes a set may be preempted while it has the lock. Until its end the actor does
//! not wait for it: it [tries](SetList::try_get), and comes back in its next turn.

use std::sync::{Arc, Weak};

use slab::Slab;

use super::note::SetKey;
use super::timer_set::TimerSet;
use crate::sync::{Mutex, lock, try_lock_with_backoff};

/// See the module. `None` once the actor has ended, and takes no more sets.
#[derive(Debug)]
pub(crate) struct SetList(Mutex<Option<Registered>>);

type Registered = Slab<Weak<dyn TimerSet>>;

fn all(registered: &Registered) -> Vec<Arc<dyn TimerSet>> {
    registered
        .iter()
        .filter_map(|(_, set)| set.upgrade())
        .collect()
}

impl SetList {
    pub(crate) fn new() -> Self {
        SetList(Mutex::new(Some(Slab::new())))
    }

    /// Adds a new set. `None` when the actor has ended and will not close it.
    pub(crate) fn register(&self, set: Weak<dyn TimerSet>) -> Option<SetKey> {
        let mut registered = lock(&self.0);
        Some(SetKey::new(registered.as_mut()?.insert(set)))
    }

    /// The set with this key, which may have been dropped. `None` if another thread has locked the
    /// list.
    pub(crate) fn try_get(&self, key: SetKey) -> Option<Weak<dyn TimerSet>> {
        let registered = try_lock_with_backoff(&self.0)?;
        Some(Weak::clone(&registered.as_ref()?[key.position()]))
    }

    /// The set was dropped, and the actor has forgotten it. Another set may get its key. Returns
    /// `false` if another thread has locked the list.
    pub(crate) fn try_unregister(&self, key: SetKey) -> bool {
        let Some(mut locked) = try_lock_with_backoff(&self.0) else {
            return false;
        };
        if let Some(registered) = &mut *locked {
            registered.try_remove(key.position());
            if registered.is_empty() {
                // A slab keeps its memory; a burst of sets should not.
                *registered = Slab::new();
            }
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
        lock(&self.0).as_ref().map_or(0, Slab::len)
    }

    /// Every set that is still referred to.
    pub(crate) fn all(&self) -> Vec<Arc<dyn TimerSet>> {
        lock(&self.0).as_ref().map_or_else(Vec::new, all)
    }

    /// Every set that is still referred to. None can be [registered](Self::register) after
    /// this.
    pub(crate) fn close(&self) -> Vec<Arc<dyn TimerSet>> {
        let registered = lock(&self.0).take();
        registered.as_ref().map_or_else(Vec::new, all)
    }
}
