//! What the actor tells the reader of a set: the indices that the wheel has reached.
//!
//! The reader only takes the list, so the actor's wait for the lock is that for a few instructions.

use std::mem;
use std::task::Waker;

use crate::panic::{drop_replaced, wake};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, lock_with_backoff};

/// An emptied list keeps memory for so many indices.
const KEPT_CAPACITY: usize = 256;

/// See the module.
#[derive(Debug)]
pub(crate) struct Reached {
    list: Mutex<List>,
    has_some: AtomicBool,
}

#[derive(Debug)]
struct List {
    indices: Vec<u32>,
    until: Until,
    /// The task of a reader that has found nothing due.
    reader: Option<Waker>,
}

/// How far the wheel has come, as the reader knows it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Until {
    /// A timer is due if it is due by this tick.
    pub(crate) reached: u64,
    /// All that is reached before this tick was added: so far the order is known.
    pub(crate) before: u64,
}

impl Reached {
    pub(crate) fn new() -> Self {
        Reached {
            list: Mutex::new(List {
                indices: Vec::new(),
                until: Until::default(),
                reader: None,
            }),
            has_some: AtomicBool::new(false),
        }
    }

    /// For the actor: the wheel has reached these indices at this tick.
    pub(crate) fn add(&self, indices: impl Iterator<Item = u32>, tick: u64) {
        let mut list = lock_with_backoff(&self.list);
        list.indices.extend(indices);
        list.until.reached = tick;
    }

    /// For the actor: all indices were added that the wheel reaches before this tick.
    pub(crate) fn publish(&self, before: u64) {
        let mut list = lock_with_backoff(&self.list);
        let reached = list.until.reached.max(before.saturating_sub(1));
        list.until = Until { reached, before };
        self.has_some.store(true, Ordering::Release);
        let reader = list.reader.take();
        drop(list);
        wake(reader);
    }

    /// For the reader: moves the list into `indices`, which is empty. Returns how far
    /// that goes; `None` if nothing is new.
    pub(crate) fn take(&self, indices: &mut Vec<u32>) -> Option<Until> {
        if !self.has_some() {
            return None;
        }
        indices.shrink_to(KEPT_CAPACITY);
        let mut list = lock_with_backoff(&self.list);
        mem::swap(&mut list.indices, indices);
        self.has_some.store(false, Ordering::Relaxed);
        Some(list.until)
    }

    pub(crate) fn has_some(&self) -> bool {
        self.has_some.load(Ordering::Acquire)
    }

    /// For the reader: it waits. It is woken when more is reached from now on, or by a
    /// [`wake`](Self::wake).
    pub(crate) fn wait(&self, reader: &Waker) {
        let list = lock_with_backoff(&self.list);
        let knows = |registered: &Waker| registered.will_wake(reader);
        if list.reader.as_ref().is_some_and(knows) {
            return;
        }
        drop(list);
        let reader = reader.clone();
        let replaced = lock_with_backoff(&self.list).reader.replace(reader);
        drop_replaced(replaced);
    }

    /// Wakes the reader, to see that the stream has ended.
    pub(crate) fn wake(&self) {
        let reader = lock_with_backoff(&self.list).reader.take();
        wake(reader);
    }
}
