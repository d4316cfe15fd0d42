//! The mailbox: how commands reach the actor. Sharded queues, the wake rule, and the earliest tick
//! that is needed.
//!
//! # Queues
//!
//! There is a queue for each core, on separate cache lines. Each thread uses one of them for its
//! sleeps, so two cores that arm timers do not contend. A set of keyed timers uses one of them
//! whatever the thread: the commands in a queue stay in order, and so do the notes of a set. The
//! order between queues does not matter: the [entry](super::entry) of a sleep tells which of its
//! nodes count.
//!
//! # The wake rule
//!
//! Pushing a command must not wake the actor each time. The actor publishes the tick at which it
//! runs next, `next_wake`: a tick, [`NEVER`] when it has nothing to wait for, or [`AWAKE`] while it
//! runs.
//!
//! * A **caller** (1) pushes its command under the queue's lock ([`enqueue`](Mailbox::enqueue)),
//!   then (2) reads `next_wake`, and notifies the actor if its tick is earlier, or if the push has
//!   filled its queue ([`wake`](Mailbox::wake)).
//! * The **actor**, before it waits, (3) publishes `next_wake`, then (4) checks every queue under
//!   its lock, and does not wait if one holds anything ([`park`](Mailbox::park)).
//!
//! *No command is missed:* both the push and the actor's check take the queue's lock, so one comes
//! first. If the push (1) came first, the check (4) finds the command. If the check (4) came first,
//! then the publication (3), which precedes it, happens before the push, and so before the read
//! (2): the caller sees the tick that was published, and notifies the actor if it has to. A command
//! that stays in the queue without a notification is not needed before that tick, when the actor
//! wakes by itself and empties the queues first.
//!
//! A push *fills* its queue if it makes that [`QUEUE_BOUND`] long, and so does each
//! [`CHECK_EVERY`]th push after it. While the actor waits, no queue gets that long without such a
//! push: the check (4) has found it empty, so a later push fills it, and its caller reads the tick
//! that was published.
//!
//! A caller may release other locks between (1) and (2), and any number of others may push
//! meanwhile: each of them reads `next_wake` after its own push. A caller that *marks* a command as
//! queued, so that others rely on it, must push it under the same lock: until the push, the actor
//! cannot find the command.
//!
//! The caller that notifies the actor also changes `next_wake` to [`AWAKE`], so that only one of
//! many callers pays for the notification. A notification is a stored permit: one that arrives
//! before the actor waits is not lost. The exchange fails only if the value changed since it was
//! read. Then another caller notifies the actor, or the actor has woken and is about to check the
//! queues again. Either suffices.
//!
//! # No thread in the way
//!
//! A thread may be preempted while it has the lock of a queue. The actor does not wait for it: it
//! leaves a queue that is locked for its next turn, and does not park meanwhile. A caller that has
//! filled its queue yields its processor once it holds no lock. So where threads outnumber cores,
//! callers that flood the mailbox do not keep the actor from emptying it.
//!
//! Two short gaps are left. A caller that is preempted between the exchange and the notification
//! holds back the notification that others rely on, until it runs again. One that has filled its
//! queue, and is preempted before it reads `next_wake`, holds it back for [`CHECK_EVERY`] commands.
//!
//! # The earliest tick
//!
//! Timers fire in the order of their ticks also while commands are left over for later turns (P4),
//! and do not wait for commands that are needed later only (P11). So each command is pushed with
//! the tick by which it is needed. A [`CommandQueue`] knows the [earliest](CommandQueue::earliest)
//! tick of its commands, the mailbox the [earliest](Mailbox::earliest) of those in its queues, and
//! a turn fires timers that are due before both. A command that the turn does not see was pushed
//! after the turn read the clock, so it is not due before the timers that the turn fires, or counts
//! as due when it was pushed, see below. Of a queue that is locked the turn reads the earliest tick
//! without the lock: hence `SeqCst`.
//!
//! A command for a tick that has passed when it is pushed counts as needed by the clock that was
//! last published. What was due before that does not wait for it: it is late by
//! its caller. Otherwise a flood of overdue timers would keep everything from firing.
//!
//! # After the end
//!
//! [`close`](Mailbox::close) closes each queue under its lock; from then on a push returns the
//! command.

use crate::collections::BlockQueue;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{CachePadded, IN_EXPLORER, Mutex, lock, try_lock_with_backoff, yield_now};
use crate::tick::NEVER;

#[cfg(all(test, tickwheel_loom))]
mod model;
#[cfg(all(test, not(any(tickwheel_loom, tickwheel_shuttle))))]
mod tests;

/// `next_wake` while the actor runs: before every tick, so no caller notifies it.
pub(crate) const AWAKE: u64 = 0;

/// A queue that grows to this length wakes the actor, however late its commands are needed. That
/// bounds the memory of commands for timers that were cancelled. The models need a lower bound to
/// reach it.
pub(crate) const QUEUE_BOUND: usize = if cfg!(tickwheel_loom) {
    3
} else if IN_EXPLORER {
    8
} else {
    2048
};

/// How many commands a block has.
const BLOCK: usize = if IN_EXPLORER { 2 } else { 512 };

/// How many empty blocks a queue keeps.
const SPARE_BLOCKS: usize = 4;

/// A queue beyond its bound is filled again each time that it has grown by this many commands.
const CHECK_EVERY: usize = if IN_EXPLORER { 2 } else { 32 };

/// Commands in order. The actor takes over a burst of a million block by block, without a copy, and
/// frees their memory a block at a time, so no thread waits until a vector of many megabytes is
/// moved or freed.
pub(crate) type CommandQueue<C> = BlockQueue<C, BLOCK, SPARE_BLOCKS>;

/// When the actor has to run for what a caller has pushed. The least of several serves all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[must_use]
pub(crate) enum WakeBy {
    /// Now: a queue is full. The caller yields its processor.
    Full,
    /// Now.
    Now,
    /// At this tick or before.
    Tick(u64),
}

impl WakeBy {
    /// It need not run.
    pub(crate) const NEVER: WakeBy = WakeBy::Tick(NEVER);
}

/// Wakes the actor.
pub(crate) trait Notifier {
    /// Wakes the actor now, or makes its next wait return at once.
    fn notify(&self);
}

/// See the module. `C` is the command.
#[derive(Debug)]
pub(crate) struct Mailbox<C, S> {
    /// Their number is a power of two.
    shards: Box<[CachePadded<Shard<C>>]>,
    published: CachePadded<Published>,
    notifier: S,
}

/// What the actor says to callers.
#[derive(Debug)]
struct Published {
    next_wake: AtomicU64,
    /// The tick of the actor's last turn: a hint, which decides what an overdue command holds up.
    clock: AtomicU64,
}

#[derive(Debug)]
struct Shard<C> {
    /// `None` once the actor has ended, and will not empty the queue any more.
    queue: Mutex<Option<CommandQueue<C>>>,
    /// The earliest tick of the commands in the queue. Written under its lock, read without.
    earliest: AtomicU64,
}

impl<C, S: Notifier> Mailbox<C, S> {
    /// With a queue for each of `cores`, rounded up to a power of two. The actor counts as awake.
    pub(crate) fn new(cores: usize, notifier: S) -> Self {
        let shard = |_| {
            CachePadded(Shard {
                queue: Mutex::new(Some(CommandQueue::new())),
                earliest: AtomicU64::new(NEVER),
            })
        };
        Mailbox {
            shards: (0..cores.next_power_of_two()).map(shard).collect(),
            published: CachePadded(Published {
                next_wake: AtomicU64::new(AWAKE),
                clock: AtomicU64::new(0),
            }),
            notifier,
        }
    }

    pub(crate) fn notifier(&self) -> &S {
        &self.notifier
    }

    // --- callers ---

    /// Queues a command that is needed by `tick`, without notifying the actor. Commands in the same
    /// `queue` are applied in order. The caller must then [wake](Self::wake) the actor as this
    /// says. Returns the command if the actor has ended.
    ///
    /// A caller that holds a lock queues the command before it releases the lock, and notifies the
    /// actor after.
    pub(crate) fn enqueue(&self, queue: usize, tick: u64, command: C) -> Result<WakeBy, C> {
        let shard = self.shard(queue);
        let needed_by = tick.max(self.published.0.clock.load(Ordering::Relaxed));
        let mut queue = lock(&shard.queue);
        let Some(commands) = &mut *queue else {
            return Err(command);
        };
        if needed_by < shard.earliest.load(Ordering::Relaxed) {
            shard.earliest.store(needed_by, Ordering::SeqCst);
        }
        commands.push(needed_by, command);
        let beyond = commands.len().checked_sub(QUEUE_BOUND);
        let is_full = beyond.is_some_and(|beyond| beyond % CHECK_EVERY == 0);
        Ok(if is_full {
            WakeBy::Full
        } else {
            WakeBy::Tick(tick)
        })
    }

    /// Queues a command and follows the wake rule, at tick 0.
    #[cfg(test)]
    pub(crate) fn push(&self, thread: usize, tick: u64, command: C) -> Result<(), C> {
        self.wake(self.enqueue(thread, tick, command)?);
        Ok(())
    }

    /// Locks a queue, as a thread that is preempted while it pushes does.
    #[cfg(test)]
    pub(crate) fn hold_queue(&self, thread: usize) -> impl Drop + '_ {
        lock(&self.shard(thread).queue)
    }

    /// Follows the wake rule: notifies the actor if it would not run by itself in time.
    pub(crate) fn wake(&self, by: WakeBy) {
        let tick = match by {
            WakeBy::Full | WakeBy::Now => AWAKE,
            WakeBy::Tick(tick) => tick,
        };
        let published = &self.published.0.next_wake;
        let next_wake = published.load(Ordering::SeqCst);
        let claim =
            || published.compare_exchange(next_wake, AWAKE, Ordering::SeqCst, Ordering::SeqCst);
        // Otherwise another caller notifies it.
        if tick < next_wake && claim().is_ok() {
            self.notifier.notify();
        }
        if by == WakeBy::Full {
            yield_now();
        }
    }

    fn shard(&self, number: usize) -> &Shard<C> {
        &self.shards[number & (self.shards.len() - 1)].0
    }

    // --- the actor ---

    /// Publishes that the actor runs: no caller notifies it.
    pub(crate) fn publish_awake(&self) {
        self.published.0.next_wake.store(AWAKE, Ordering::SeqCst);
    }

    /// Publishes the current tick.
    pub(crate) fn set_clock(&self, now: u64) {
        self.published.0.clock.store(now, Ordering::Relaxed);
    }

    /// Publishes that the actor is about to wait until `next_wake`. If a queue holds a command the
    /// actor must not wait: then this publishes that it is awake, and returns `false`.
    pub(crate) fn park(&self, next_wake: Option<u64>) -> bool {
        // `AWAKE` is tick 0, so tick 1 stands for it: both have begun, or are about to.
        let next_wake = next_wake.unwrap_or(NEVER).max(AWAKE + 1);
        self.published
            .0
            .next_wake
            .store(next_wake, Ordering::SeqCst);
        if self.is_empty() {
            return true;
        }
        self.publish_awake();
        false
    }

    /// Whether every queue is empty.
    fn is_empty(&self) -> bool {
        for shard in &self.shards {
            // One that is locked is about to hold something.
            let queue = try_lock_with_backoff(&shard.0.queue);
            if !queue.is_some_and(|queue| queue.as_ref().is_none_or(CommandQueue::is_empty)) {
                return false;
            }
        }
        true
    }

    /// Moves every command that was queued before this call, and perhaps some more, to the end of
    /// `taken`. Leaves a queue that another thread has locked, and returns `false` then.
    pub(crate) fn take_all(&self, taken: &mut CommandQueue<C>) -> bool {
        let mut is_complete = true;
        for CachePadded(shard) in &self.shards {
            let Some(mut queue) = try_lock_with_backoff(&shard.queue) else {
                is_complete = false;
                continue;
            };
            shard.earliest.store(NEVER, Ordering::SeqCst);
            if let Some(commands) = &mut *queue {
                taken.append(commands);
            }
        }
        is_complete
    }

    /// No command in a queue is needed before this tick. `NEVER` when all are empty.
    pub(crate) fn earliest(&self) -> u64 {
        let mut earliest = NEVER;
        for CachePadded(shard) in &self.shards {
            earliest = earliest.min(shard.earliest.load(Ordering::SeqCst));
        }
        earliest
    }

    /// Closes the queues: pushes fail from now on. Moves the commands in them to the end of
    /// `taken`.
    pub(crate) fn close(&self, taken: &mut CommandQueue<C>) {
        for shard in &self.shards {
            if let Some(mut commands) = lock(&shard.0.queue).take() {
                taken.append(&mut commands);
            }
        }
    }
}
