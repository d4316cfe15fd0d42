//! A mutex whose guard notifies the actor of changes.
//!
//! A caller that changes a timer may have to notify the actor. It must never forget that, delay it, or overwrite one
//! notification with another. So callers only mark indices as dirty through the guard, and the guard does the rest when
//! it is dropped:
//!
//! 1. while the lock is still held, it pushes the set's command into the mailbox, unless one is queued already;
//! 2. it releases the lock;
//! 3. it follows the [wake rule](crate::shared::mailbox) for the earliest tick that was marked under this hold.
//!
//! # Invariants
//!
//! * **L1** `queued` implies that the set's command lies in the mailbox, or was taken by an actor that is awake and
//!   will call [`take_dirty`](ActorMutex::take_dirty) before it parks. The flag is raised under the lock by the thread
//!   that pushes the command under the same hold, and is cleared by `take_dirty` alone.
//! * **L2** An index is in `dirty` only while `queued` is true.
//! * **L3** While `queued` is true, the mailbox knows a tick that is not later than `announced`, and no index in `dirty`
//!   is needed before `announced`.
//! * **L4** No index is needed before the `horizon` unless it is among the urgent ones.
//!
//! L4 keeps timers on time under a flood of commands: the actor processes the urgent indices first. The rest delays no
//! timer that is due before the horizon.
//!
//! # No change is missed
//!
//! Thread B marks an index that is needed by tick *t* and finds `queued` set by thread A. By L1 the command is in the
//! mailbox already, however long A is paused from here on. If the actor took it, it is awake and locks the set after B.
//! If it did not, then the actor either sees the command when it checks the queues before parking, or it checked them
//! before A pushed. In the second case it had published `next_wake` before the check. A's push comes after the check, and
//! B's hold of the lock after A's. So B reads that value or a later one in step 3, and notifies the actor if *t* is earlier.

#[cfg(all(test, tickwheel_loom))]
mod model;

use std::mem;
use std::ops::{Deref, DerefMut};

use crate::shared::batch::Batch;
use crate::shared::mailbox::QUEUE_BOUND;
use crate::sync::{Mutex, MutexGuard, lock_with_backoff};
use crate::tick::NEVER;

/// How a set reaches its actor.
pub(crate) trait ActorLink {
    /// Pushes the set's command, needed by `tick`, without notifying the actor. Returns the tick for the wake rule.
    fn enqueue(&self, tick: u64) -> u64;

    /// Tells the mailbox that the command pushed before is needed by `tick`, without notifying the actor.
    fn announce(&self, tick: u64);

    /// Follows the wake rule for `tick`.
    fn wake_by(&self, tick: u64);
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ActorMutex<T> {
    contents: Mutex<Contents<T>>,
}

#[derive(Debug)]
struct Contents<T> {
    value: T,
    outbox: Outbox,
}

/// The changes that the actor has not taken, and the state of its notification.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// L2: indices that changed since the actor last took them.
    dirty: Batch,
    /// L1: the command is queued.
    queued: bool,
    /// L3: the earliest tick the mailbox knows of for that command.
    announced: u64,
    /// L4: an index that is needed before this tick is urgent. The actor sets it when it takes the indices.
    horizon: u64,
    /// The earliest tick by which the actor is needed since this hold of the lock began; `None` if it is not.
    needed: Option<u64>,
}

/// Unlocks the set and notifies the actor of the marked indices, as the module describes.
pub(crate) struct ActorGuard<'a, T, L: ActorLink> {
    /// `Some` until the drop.
    contents: Option<MutexGuard<'a, Contents<T>>>,
    link: &'a L,
}

impl<T> ActorMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        ActorMutex {
            contents: Mutex::new(Contents {
                value,
                outbox: Outbox {
                    dirty: Batch::default(),
                    queued: false,
                    announced: NEVER,
                    horizon: 0,
                    needed: None,
                },
            }),
        }
    }

    #[inline]
    pub(crate) fn lock<'a, L: ActorLink>(&'a self, link: &'a L) -> ActorGuard<'a, T, L> {
        ActorGuard {
            contents: Some(lock_with_backoff(&self.contents)),
            link,
        }
    }

    /// The actor has the command: takes the dirty indices and clears `queued`. From now on indices that are needed before
    /// `horizon` are urgent. `batch` must be empty; its memory serves the next changes.
    pub(crate) fn take_dirty(&self, batch: &mut Batch, horizon: u64) {
        debug_assert_eq!(batch.len(), 0, "the last batch was processed");
        let mut contents = lock_with_backoff(&self.contents);
        let outbox = &mut contents.outbox;
        mem::swap(batch, &mut outbox.dirty);
        outbox.queued = false;
        batch.earliest = mem::replace(&mut outbox.announced, NEVER);
        batch.rest_earliest = mem::replace(&mut outbox.horizon, horizon).max(batch.earliest);
    }

    /// Reads the value. Nothing can be marked meanwhile.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&lock_with_backoff(&self.contents).value)
    }
}

impl Outbox {
    /// Marks an index that was clean: the actor must process it by `tick`.
    #[inline]
    pub(crate) fn mark(&mut self, index: u32, tick: u64) {
        if tick < self.horizon {
            self.dirty.urgent.push(index);
        } else {
            self.dirty.rest.push(index);
        }
        self.need(tick);
    }

    /// A dirty index is needed by `tick` now, and no longer by `before`.
    #[inline]
    pub(crate) fn hasten(&mut self, index: u32, before: u64, tick: u64) {
        // An index crosses the horizon once, since the tick only falls while it is dirty.
        if tick < self.horizon && before >= self.horizon {
            self.dirty.urgent.push(index);
        }
        self.need(tick);
    }

    /// The actor must take a turn for the set by `tick`.
    #[inline]
    pub(crate) fn need(&mut self, tick: u64) {
        self.needed = Some(self.needed.map_or(tick, |needed| needed.min(tick)));
    }
}

impl<T, L: ActorLink> ActorGuard<'_, T, L> {
    /// The value, and the outbox to mark what is changed.
    #[inline]
    pub(crate) fn split(&mut self) -> (&mut T, &mut Outbox) {
        let contents = self.contents.as_deref_mut();
        let Contents { value, outbox } = contents.expect("the guard holds the lock until its drop");
        (value, outbox)
    }
}

impl<T, L: ActorLink> Deref for ActorGuard<'_, T, L> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        let contents = self.contents.as_deref();
        &contents
            .expect("the guard holds the lock until its drop")
            .value
    }
}

impl<T, L: ActorLink> DerefMut for ActorGuard<'_, T, L> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.split().0
    }
}

impl<T, L: ActorLink> Drop for ActorGuard<'_, T, L> {
    #[inline]
    fn drop(&mut self) {
        let Some(mut contents) = self.contents.take() else {
            return;
        };
        let Some(needed) = contents.outbox.needed.take() else {
            return;
        };
        let tick = push(&mut contents.outbox, needed, self.link);
        drop(contents);
        self.link.wake_by(tick);
    }
}

/// Pushes the command, unless it is queued. Returns the tick for the wake rule.
fn push(outbox: &mut Outbox, needed: u64, link: &impl ActorLink) -> u64 {
    // A long list is worth a turn of its own: that bounds how long removed timers stay on the wheel.
    let tick = if outbox.dirty.len() >= QUEUE_BOUND {
        0
    } else {
        needed
    };
    if !mem::replace(&mut outbox.queued, true) {
        outbox.announced = tick;
        return link.enqueue(tick);
    }
    if tick < outbox.announced {
        outbox.announced = tick;
        link.announce(tick);
    }
    tick
}
