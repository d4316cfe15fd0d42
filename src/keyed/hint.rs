//! The way from the actor to the reader of a set: the indices that the wheel has reached.
//!
//! A *hint* is such an index: the reader should look at its timer. The list is locked for a few
//! instructions at a time. The actor only tries to lock it, and tells the reader in its next turn
//! if the reader has it just then.
//!
//! The reader waits only while there are no news: it registers its waker, and the actor, or
//! whoever has something else to tell, sets `has_news`, under the lock of the list. So one of the
//! two sees the other.
//!
//! All readers share one word, [`ToldBefore`]: the wheel goes on while it has nothing to tell a
//! set. A reader that comes late, or looks at a timer that was moved later, goes by that word too.

use std::mem;
use std::task::Waker;

use crate::panic::{drop_replaced, wake};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, lock_with_backoff, try_lock_with_backoff};
use crate::tick::Timestamp;

/// See the module.
#[derive(Debug)]
pub(crate) struct Hints {
    list: Mutex<List>,
    /// There is something that the reader does not know. Written under the lock of the list.
    has_news: AtomicBool,
    /// The actor has ended: nothing is reached any more.
    is_ended: AtomicBool,
}

#[derive(Debug)]
struct List {
    indices: Vec<u32>,
    reach: Reach,
    /// The task of a reader that has found nothing due.
    reader: Option<Waker>,
    /// The tick at which the actor has woken that task. The reader has not been polled since.
    woken: Option<u64>,
}

/// How far the wheel has come, as the reader of a set knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reach {
    /// A timer is due if its deadline's tick is this one or an earlier one.
    pub(crate) tick: u64,
    /// The reader was told everything that was reached before this tick. So the order of the timers
    /// that are due before it is known.
    pub(crate) before: u64,
    /// A timer of which it was told, and that has an earlier deadline, was [armed
    /// after](crate::actor) this instant: it is late since then.
    pub(crate) armed_after: Timestamp,
}

/// The readers of all sets were told everything that was reached before this tick.
#[derive(Debug, Default)]
pub(crate) struct ToldBefore(AtomicU64);

impl ToldBefore {
    /// For the actor: it is about to tell more for this tick and later ones.
    pub(crate) fn lower(&self, before: u64) {
        if before < self.get() {
            self.set(before);
        }
    }

    /// For the actor: everything before this tick is told.
    pub(crate) fn set(&self, before: u64) {
        self.0.store(before, Ordering::Release);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// The wheel had come to this tick when it told something last.
    pub(crate) fn tick(&self) -> u64 {
        self.get().saturating_sub(1)
    }
}

impl Default for Reach {
    fn default() -> Self {
        Reach {
            tick: 0,
            before: 0,
            armed_after: Timestamp::MIN,
        }
    }
}

impl Reach {
    fn raise(&mut self, told_before: u64) {
        if told_before > self.before {
            self.before = told_before;
            self.tick = self.tick.max(told_before - 1);
        }
    }

    /// Nothing more follows of its last tick, but what is set for that tick from now on.
    fn is_complete(self) -> bool {
        self.before > self.tick
    }
}

impl Hints {
    pub(crate) fn new() -> Self {
        Hints {
            list: Mutex::new(List {
                indices: Vec::new(),
                reach: Reach::default(),
                reader: None,
                woken: None,
            }),
            has_news: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
        }
    }

    // --- the actor ---

    /// The wheel has come so far, and has reached these indices. Returns `false`, and does nothing,
    /// if another thread has the lock.
    #[must_use]
    pub(crate) fn tell(&self, indices: impl Iterator<Item = u32>, reach: Reach) -> bool {
        let Some(mut list) = try_lock_with_backoff(&self.list) else {
            return false;
        };
        let is_further = reach.before > list.reach.before;
        let armed_after = if list.indices.is_empty() {
            reach.armed_after
        } else {
            list.reach.armed_after
        };
        list.indices.extend(indices);
        list.reach = Reach {
            armed_after,
            ..reach
        };
        let reader = if is_further || reach.is_complete() {
            self.has_news.store(true, Ordering::Release);
            let reader = list.reader.take();
            if reader.is_some() {
                list.woken = Some(reach.tick);
            }
            reader
        } else {
            // More indices of the same tick follow; the reader can take none of them out before.
            None
        };
        drop(list);
        wake(reader);
        true
    }

    /// The actor has ended. This alone waits for the lock.
    pub(crate) fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
        self.wake();
    }

    // --- everybody ---

    /// Locks the list, as a reader that is preempted in [`take`](Self::take) does.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Drop + '_ {
        lock_with_backoff(&self.list)
    }

    /// Wakes the reader, which looks at its set again.
    pub(crate) fn wake(&self) {
        let mut list = lock_with_backoff(&self.list);
        self.has_news.store(true, Ordering::Release);
        let reader = list.reader.take();
        drop(list);
        wake(reader);
    }

    #[inline]
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    // --- the reader ---

    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.has_news.load(Ordering::Acquire)
    }

    /// Moves the hints into `indices`, which is empty, and writes how far the wheel had come with
    /// the last of them, and at which tick the actor woke the reader that waited. Returns `false`
    /// if nothing is new.
    #[inline]
    pub(crate) fn take(
        &self,
        indices: &mut Vec<u32>,
        reach: &mut Reach,
        told_before: &ToldBefore,
        woken: &mut Option<u64>,
    ) -> bool {
        // In this order: without news the reader has taken all that was told before.
        let before = told_before.get();
        if !self.has_news() {
            let is_further = before > reach.before;
            reach.raise(before);
            return is_further;
        }
        let mut list = lock_with_backoff(&self.list);
        mem::swap(&mut list.indices, indices);
        self.has_news.store(false, Ordering::Relaxed);
        *reach = list.reach;
        // Under the lock: it is lowered before anything of that tick is added to the list.
        reach.raise(told_before.get());
        *woken = list.woken.take();
        true
    }

    /// Registers the waker of the reader, which has found nothing due. Returns `false`, and does
    /// not, if there are news.
    pub(crate) fn wait(&self, waker: &Waker) -> bool {
        let list = lock_with_backoff(&self.list);
        if self.has_news() {
            return false;
        }
        let knows = |reader: &Waker| reader.will_wake(waker);
        if list.reader.as_ref().is_some_and(knows) {
            return true;
        }
        // Wakers are cloned and dropped while nothing is locked.
        drop(list);
        let waker = waker.clone();
        let mut list = lock_with_backoff(&self.list);
        if self.has_news() {
            drop(list);
            drop_replaced(Some(waker));
            return false;
        }
        let replaced = list.reader.replace(waker);
        drop(list);
        drop_replaced(replaced);
        true
    }

    /// The stream is dropped: so is the waker of its last reader.
    pub(crate) fn forget_reader(&self) {
        let mut list = lock_with_backoff(&self.list);
        let reader = list.reader.take();
        drop(list);
        drop_replaced(reader);
    }
}
