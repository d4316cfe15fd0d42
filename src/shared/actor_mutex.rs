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
//! * **L4** No index in `dirty` is needed before `rest_earliest` unless it is among the urgent ones, and `rest_earliest` is
//!   not before the `horizon`. The [bound](Bound) of an index says whether it is urgent; each is listed at most twice.
//!
//! L4 keeps timers on time under a flood of commands: the actor processes the urgent indices first. The rest delays no
//! timer that is due before the first tick by which one of the rest is needed. Debug builds assert it of each index that
//! the actor processes.
//!
//! A short list is urgent as a whole. A long one is divided at the horizon, which follows the clock
//! as far as L4 allows: otherwise the timers set soonest would not be urgent when the actor is
//! late. The *length* of the list wakes the actor, and does not change the tick by which the
//! command is needed.
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

use crate::shared::bound::{ActorAction, Bound};
use crate::shared::mailbox::{AWAKE, QUEUE_BOUND};
use crate::sync::{EXPLORED, Mutex, MutexGuard, lock_with_backoff, try_lock_with_backoff};
use crate::tick::NEVER;

/// A list of dirty indices this long is divided into urgent ones and the rest. Each time it has grown by as much, the
/// horizon follows the clock.
const SHORT: usize = if EXPLORED { 2 } else { 256 };

/// The indices of a set that changed since the actor last took them.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Indices that are needed soon.
    pub(crate) urgent: Vec<u32>,
    /// The others. Some of them may have become urgent and are listed twice.
    pub(crate) rest: Vec<u32>,
    /// No index is needed before this tick.
    pub(crate) earliest: u64,
    /// No index but the urgent ones is needed before this tick.
    pub(crate) rest_earliest: u64,
}

impl Default for Batch {
    fn default() -> Self {
        Batch {
            urgent: Vec::new(),
            rest: Vec::new(),
            earliest: NEVER,
            rest_earliest: NEVER,
        }
    }
}

impl Batch {
    pub(crate) fn len(&self) -> usize {
        self.urgent.len() + self.rest.len()
    }

    /// Lowers the bounds of this batch to those of a later one.
    pub(crate) fn lower(&mut self, later: &Batch) {
        self.earliest = self.earliest.min(later.earliest);
        self.rest_earliest = self.rest_earliest.min(later.rest_earliest);
    }

    /// Empties it, and keeps memory for `kept` indices in each list.
    pub(crate) fn clear(&mut self, kept: usize) {
        for list in [&mut self.urgent, &mut self.rest] {
            list.clear();
            list.shrink_to(kept);
        }
        self.earliest = NEVER;
        self.rest_earliest = NEVER;
    }
}

/// How the actor takes the lock of a set.
///
/// A thread may be preempted while it holds the lock, and an actor that blocks on it delays every
/// timer of the wheel. So the actor tries, and on failure leaves the set for its next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockMode {
    Try,
    Block,
}

/// Another thread held the lock of the set, and the actor did not block. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contended;

/// How a set reaches its actor.
pub(crate) trait ActorLink {
    /// Indices that are needed before this tick are urgent now.
    fn horizon(&self) -> u64;

    /// Pushes the set's command, needed by `tick`, without notifying the actor. Returns the tick for the wake rule.
    fn enqueue(&self, tick: u64) -> u64;

    /// Tells the mailbox that the command pushed before is needed by `tick`, without notifying the actor.
    fn announce(&self, tick: u64);

    /// Follows the wake rule for `tick`.
    fn wake_by(&self, tick: u64);

    /// The set has been unlocked.
    fn unlocked(&self) {}
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
    /// L4: an index that is needed before this tick is urgent. `NEVER` while the list is short.
    horizon: u64,
    /// The horizon follows the clock when the list is this long.
    follow_at: usize,
    /// The earliest tick by which the actor is needed since this hold of the lock began; `None` if it is not.
    needed: Option<u64>,
}

/// Unlocks the set and notifies the actor of the marked indices, as the module describes.
pub(crate) struct ActorGuard<'a, T, L: ActorLink> {
    contents: MutexGuard<'a, Contents<T>>,
    /// The last field: its drop comes after the unlocking.
    after: AfterUnlock<'a, L>,
}

/// Runs when a guard is dropped and the set is unlocked.
struct AfterUnlock<'a, L: ActorLink> {
    link: &'a L,
    /// The tick for the wake rule, if something was pushed.
    wake_by: Option<u64>,
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
                    horizon: NEVER,
                    follow_at: SHORT,
                    needed: None,
                },
            }),
        }
    }

    #[inline]
    pub(crate) fn lock<'a, L: ActorLink>(&'a self, link: &'a L) -> ActorGuard<'a, T, L> {
        ActorGuard::new(lock_with_backoff(&self.contents), link)
    }

    /// Like [`lock`](Self::lock), for the actor, which need not wait.
    pub(crate) fn lock_for_actor<'a, L: ActorLink>(
        &'a self,
        link: &'a L,
        lock_mode: LockMode,
    ) -> Result<ActorGuard<'a, T, L>, Contended> {
        Ok(ActorGuard::new(self.contents_for_actor(lock_mode)?, link))
    }

    fn contents_for_actor(
        &self,
        lock_mode: LockMode,
    ) -> Result<MutexGuard<'_, Contents<T>>, Contended> {
        match lock_mode {
            LockMode::Block => Ok(lock_with_backoff(&self.contents)),
            LockMode::Try => try_lock_with_backoff(&self.contents).ok_or(Contended),
        }
    }

    /// The actor has the command: takes the dirty indices and clears `queued`. `batch` must be empty; its memory serves the
    /// next changes. Returns what `read` says of the value.
    pub(crate) fn take_dirty<R>(
        &self,
        batch: &mut Batch,
        lock_mode: LockMode,
        read: impl FnOnce(&T) -> R,
    ) -> Result<R, Contended> {
        debug_assert_eq!(batch.len(), 0, "the last batch was processed");
        let mut contents = self.contents_for_actor(lock_mode)?;
        let outbox = &mut contents.outbox;
        mem::swap(batch, &mut outbox.dirty);
        batch.earliest = mem::replace(&mut outbox.announced, NEVER);
        outbox.queued = false;
        outbox.horizon = NEVER;
        outbox.follow_at = SHORT;
        Ok(read(&contents.value))
    }

    /// Reads the value. Nothing can be marked meanwhile.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&lock_with_backoff(&self.contents).value)
    }
}

impl Outbox {
    /// The timer at an index was armed or moved: the actor must process it by `tick`.
    #[inline]
    pub(crate) fn require(&mut self, index: u32, bound: &mut Bound, tick: u64) {
        let action = bound.require(tick);
        self.mark(index, bound, action);
    }

    /// The timer at an index was taken out: the index has to leave the wheel.
    #[inline]
    pub(crate) fn release(&mut self, index: u32, bound: &mut Bound) {
        let action = bound.release();
        self.mark(index, bound, action);
    }

    /// Marks an index as its bound asks for.
    #[inline]
    fn mark(&mut self, index: u32, bound: &mut Bound, action: ActorAction) {
        let (ActorAction::Wake(tick) | ActorAction::Enqueue(tick)) = action else {
            return;
        };
        self.need(tick);
        if bound.is_urgent() {
            return;
        }
        if tick < self.horizon {
            bound.set_urgent();
            self.dirty.urgent.push(index);
            return;
        }
        self.dirty.rest_earliest = self.dirty.rest_earliest.min(tick);
        if action == ActorAction::Enqueue(tick) {
            self.dirty.rest.push(index);
        }
    }

    /// The actor must take a turn for the set by `tick`.
    #[inline]
    pub(crate) fn need(&mut self, tick: u64) {
        self.needed = Some(self.needed.map_or(tick, |needed| needed.min(tick)));
    }

    /// No index that was marked since the actor took the last ones is needed before this tick.
    pub(crate) fn earliest(&self) -> u64 {
        self.announced
    }
}

impl<'a, T, L: ActorLink> ActorGuard<'a, T, L> {
    #[inline]
    fn new(contents: MutexGuard<'a, Contents<T>>, link: &'a L) -> Self {
        let after = AfterUnlock {
            link,
            wake_by: None,
        };
        ActorGuard { contents, after }
    }

    /// The value, and the outbox to mark what is changed.
    #[inline]
    pub(crate) fn split(&mut self) -> (&mut T, &mut Outbox) {
        let Contents { value, outbox } = &mut *self.contents;
        (value, outbox)
    }
}

impl<T, L: ActorLink> Deref for ActorGuard<'_, T, L> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.contents.value
    }
}

impl<T, L: ActorLink> DerefMut for ActorGuard<'_, T, L> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.contents.value
    }
}

impl<T, L: ActorLink> Drop for ActorGuard<'_, T, L> {
    #[inline]
    fn drop(&mut self) {
        let outbox = &mut self.contents.outbox;
        if let Some(needed) = outbox.needed.take() {
            self.after.wake_by = Some(push(outbox, needed, self.after.link));
        }
    }
}

impl<L: ActorLink> Drop for AfterUnlock<'_, L> {
    #[inline]
    fn drop(&mut self) {
        if let Some(tick) = self.wake_by {
            self.link.wake_by(tick);
        }
        self.link.unlocked();
    }
}

/// Pushes the command, unless it is queued. Returns the tick for the wake rule.
fn push(outbox: &mut Outbox, needed: u64, link: &impl ActorLink) -> u64 {
    let length = outbox.dirty.len();
    if length >= outbox.follow_at {
        outbox.follow_at = length + SHORT;
        outbox.horizon = link.horizon().min(outbox.dirty.rest_earliest);
    }
    let mut wake_by = needed;
    if !mem::replace(&mut outbox.queued, true) {
        outbox.announced = needed;
        wake_by = link.enqueue(needed);
    } else if needed < outbox.announced {
        outbox.announced = needed;
        link.announce(needed);
    }
    // A long list wakes the actor: that bounds how long removed timers stay on the wheel.
    if length >= QUEUE_BOUND {
        AWAKE
    } else {
        wake_by
    }
}
