//! The keys that tell the sets of a wheel apart, in commands and on the wheel.
//!
//! A set draws its key when it is made. The actor gives the key back once nothing of the set is
//! left on the wheel, so a key never names two sets at a time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU32;

use crate::sync::{Mutex, lock_with_backoff, try_lock};

/// The key of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SetKey(NonZeroU32);

impl SetKey {
    /// Keys are dense: they count from zero.
    pub(crate) fn position(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// The keys of a wheel that no set has.
#[derive(Debug)]
pub(crate) struct SetKeys(Mutex<Unused>);

#[derive(Debug)]
struct Unused {
    /// The lowest one is drawn first, so the actor's list of sets can shrink.
    given_back: BinaryHeap<Reverse<SetKey>>,
    /// No set ever had this one, nor any above.
    next: NonZeroU32,
}

impl SetKeys {
    pub(crate) fn new() -> Self {
        SetKeys(Mutex::new(Unused {
            given_back: BinaryHeap::new(),
            next: NonZeroU32::MIN,
        }))
    }

    /// As a caller that is preempted while it draws a key.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Drop + '_ {
        lock_with_backoff(&self.0)
    }

    pub(crate) fn draw(&self) -> SetKey {
        let mut unused = lock_with_backoff(&self.0);
        if let Some(Reverse(key)) = unused.given_back.pop() {
            return key;
        }
        let key = SetKey(unused.next);
        unused.next = key.0.checked_add(1).expect("memory for 2^32 sets");
        key
    }

    /// For the actor: nothing is left of these sets. Leaves them where they are if a caller has
    /// the lock.
    pub(crate) fn give_back(&self, keys: &mut Vec<SetKey>) {
        if let Some(mut unused) = try_lock(&self.0) {
            unused.given_back.extend(keys.drain(..).map(Reverse));
            keys.shrink_to(0);
        }
    }
}
