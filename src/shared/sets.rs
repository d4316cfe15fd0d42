//! The list of a wheel's sets of keyed timers.
//!
//! A set has its key from [`register`](SetList::register) until [`unregister`](SetList::unregister).
//! Everything about it goes into one queue of the mailbox, which its key chooses. Its last command
//! is pushed before the key is given back, so the next set with this key comes after it.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Weak};

use slab::Slab;

use crate::sync::{Mutex, lock};

/// The key of a set in the list of its wheel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetKey(NonZeroU32);

impl SetKey {
    fn new(position: usize) -> Self {
        let position = u32::try_from(position).unwrap_or(u32::MAX);
        SetKey(NonZeroU32::MIN.saturating_add(position))
    }

    /// Keys are dense: they count from zero.
    pub(crate) fn position(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// A set, without the types of its keys and values.
pub(crate) trait TimerSet: Send + Sync + fmt::Debug {
    /// The actor ends: nothing will expire any more.
    fn close(&self);
}

/// See the module. `None` once the actor has ended, and closes no more sets.
#[derive(Debug)]
pub(crate) struct SetList(Mutex<Option<Slab<Weak<dyn TimerSet>>>>);

impl SetList {
    pub(crate) fn new() -> Self {
        SetList(Mutex::new(Some(Slab::new())))
    }

    /// Adds a new set. `None` when the actor has ended and will not close it.
    pub(crate) fn register(&self, set: Weak<dyn TimerSet>) -> Option<SetKey> {
        Some(SetKey::new(lock(&self.0).as_mut()?.insert(set)))
    }

    /// The set was dropped, and has sent its last command.
    pub(crate) fn unregister(&self, key: SetKey) {
        let mut locked = lock(&self.0);
        let Some(sets) = &mut *locked else { return };
        let removed = sets.try_remove(key.position());
        if sets.is_empty() {
            // A slab keeps its memory; a burst of sets should not.
            *sets = Slab::new();
        }
        drop(locked);
        drop(removed);
    }

    /// Every set that is still referred to. None can be [registered](Self::register) after this.
    pub(crate) fn close(&self) -> Vec<Arc<dyn TimerSet>> {
        let sets = lock(&self.0).take().unwrap_or_default();
        sets.iter().filter_map(|(_, set)| set.upgrade()).collect()
    }
}
