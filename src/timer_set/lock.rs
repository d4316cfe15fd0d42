//! A mutex whose guard tells the actor what changed.
//!
//! A caller that changes a timer may have to tell the actor, and must never forget it, delay it, or tell it twice in a
//! contradictory way. So no caller carries that duty. It marks indices as dirty through the guard, and the guard does
//! the rest when it is dropped:
//!
//! 1. while the lock is still held, it pushes the set's command into the mailbox, unless one is on its way already;
//! 2. it releases the lock;
//! 3. it follows the [wake rule](crate::shared::mailbox) for the earliest tick that was marked under this hold.
//!
//! # Invariants
//!
//! * **L1** `queued` implies that the set's command lies in the mailbox, or in the hands of an actor that is awake and
//!   will call [`take_dirty`](ActorMutex::take_dirty) before it parks. The flag is raised under the lock by the thread
//!   that pushes the command under the same hold, and is cleared by `take_dirty` alone.
//! * **L2** An index is in `dirty` only while `queued` is true.
//! * **L3** While `queued` is true, the mailbox knows a tick that is not later than `announced`, and no index in `dirty`
//!   is needed before `announced`.
//! * **L4** No index is needed before the `horizon` unless it is among the urgent ones.
//!
//! L4 keeps timers on time under a flood of commands: the actor processes the urgent indices first, and the rest holds
//! nothing up that is due before the horizon.
//!
//! # No change is missed
//!
//! Thread B marks an index that is needed by tick *t* and finds `queued` set by thread A. By L1 the command is in the
//! mailbox already, however long A is paused from here on. If the actor took it, it is awake and locks the set after B.
//! If it did not, then the actor either sees the command when it looks into the queues before parking, or it looked
//! before A pushed. In the second case it had published `next_wake` before it looked; A's push comes after the look, B's
//! hold of the lock after A's, so B reads that value or a later one in step 3 and notifies the actor if *t* is earlier.

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
    inner: Mutex<Inner<T>>,
}

#[derive(Debug)]
struct Inner<T> {
    outbox: Outbox,
    value: T,
}

/// The message that waits for the actor.
#[derive(Debug)]
struct Outbox {
    /// L2: indices that changed since the actor last took them.
    dirty: Batch,
    /// L1: the command is on its way.
    queued: bool,
    /// L3: the earliest tick the mailbox knows of for that command.
    announced: u64,
    /// L4: what is needed before this tick is urgent. The actor sets it when it takes the indices.
    horizon: u64,
}

/// Unlocks the set and tells the actor what was marked, in that order of effects that the module describes.
pub(crate) struct ActorGuard<'a, T, L: ActorLink> {
    /// `Some` until the drop.
    inner: Option<MutexGuard<'a, Inner<T>>>,
    link: &'a L,
    /// The earliest tick by which the actor is needed; `None` if it need not be told.
    needed: Option<u64>,
}

impl<T> ActorMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        ActorMutex {
            inner: Mutex::new(Inner {
                outbox: Outbox {
                    dirty: Batch::default(),
                    queued: false,
                    announced: NEVER,
                    horizon: 0,
                },
                value,
            }),
        }
    }

    pub(crate) fn lock<'a, L: ActorLink>(&'a self, link: &'a L) -> ActorGuard<'a, T, L> {
        ActorGuard {
            inner: Some(lock_with_backoff(&self.inner)),
            link,
            needed: None,
        }
    }

    /// The actor has the command: takes the dirty indices and clears `queued`. From now on indices that are needed before
    /// `horizon` are urgent. `batch` must be empty; its memory serves the next changes.
    pub(crate) fn take_dirty(&self, batch: &mut Batch, horizon: u64) {
        debug_assert_eq!(batch.len(), 0, "the last batch was processed");
        let mut inner = lock_with_backoff(&self.inner);
        let outbox = &mut inner.outbox;
        mem::swap(batch, &mut outbox.dirty);
        outbox.queued = false;
        batch.earliest = mem::replace(&mut outbox.announced, NEVER);
        batch.rest_earliest = mem::replace(&mut outbox.horizon, horizon).max(batch.earliest);
    }

    /// Reads the value without the means to tell the actor anything.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&lock_with_backoff(&self.inner).value)
    }
}

impl<T, L: ActorLink> ActorGuard<'_, T, L> {
    /// Marks an index that was clean: the actor must process it by `tick`.
    pub(crate) fn mark(&mut self, index: u32, tick: u64) {
        if let Some(inner) = &mut self.inner {
            let Outbox { dirty, horizon, .. } = &mut inner.outbox;
            if tick < *horizon {
                dirty.urgent.push(index);
            } else {
                dirty.rest.push(index);
            }
        }
        self.need(tick);
    }

    /// An index that is dirty is needed by `tick` now, where it was needed by `before`.
    pub(crate) fn hasten(&mut self, index: u32, before: u64, tick: u64) {
        if let Some(inner) = &mut self.inner {
            let Outbox { dirty, horizon, .. } = &mut inner.outbox;
            // An index crosses the horizon once, since the tick only falls while it is dirty.
            if tick < *horizon && before >= *horizon {
                dirty.urgent.push(index);
            }
        }
        self.need(tick);
    }

    /// The actor must look at the set by `tick`.
    pub(crate) fn need(&mut self, tick: u64) {
        self.needed = Some(self.needed.map_or(tick, |needed| needed.min(tick)));
    }
}

impl<T, L: ActorLink> Deref for ActorGuard<'_, T, L> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.inner {
            Some(inner) => &inner.value,
            None => unreachable!("the guard is taken only by its drop"),
        }
    }
}

impl<T, L: ActorLink> DerefMut for ActorGuard<'_, T, L> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.inner {
            Some(inner) => &mut inner.value,
            None => unreachable!("the guard is taken only by its drop"),
        }
    }
}

impl<T, L: ActorLink> Drop for ActorGuard<'_, T, L> {
    fn drop(&mut self) {
        let (Some(mut inner), Some(needed)) = (self.inner.take(), self.needed) else {
            return;
        };
        let outbox = &mut inner.outbox;
        // A long list is worth a turn of its own: that bounds how long removed timers stay on the wheel.
        let mut tick = if outbox.dirty.len() >= QUEUE_BOUND {
            0
        } else {
            needed
        };
        if !mem::replace(&mut outbox.queued, true) {
            outbox.announced = tick;
            tick = self.link.enqueue(tick);
        } else if tick < outbox.announced {
            outbox.announced = tick;
            self.link.announce(tick);
        }
        drop(inner);
        self.link.wake_by(tick);
    }
}
