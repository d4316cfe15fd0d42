//! The mailbox: how commands reach the actor. Sharded queues, the wake rule, and the earliest tick that is needed.
//!
//! # Sharding
//!
//! There is a queue for each core, on a cache line of its own, and each thread uses one of them:
//! two cores that arm timers do not contend. When its [`Backlog`] is empty, the actor moves the
//! commands of all queues there; those of one queue stay in order. Under a flood of commands,
//! emptying the queues at every turn would take more time for their locks than for the commands.
//!
//! # The wake rule
//!
//! Pushing a command must not wake the actor each time. The actor publishes the tick at which it runs next, `next_wake`:
//! a tick, [`NEVER`] when it has nothing to wait for, or [`AWAKE`] while it runs.
//!
//! * A **caller** (1) pushes its command under the queue's lock ([`enqueue`](Mailbox::enqueue)), then (2) reads
//!   `next_wake`, and notifies the actor if its tick is earlier, or if its queue has grown to [`QUEUE_BOUND`]
//!   ([`wake_by`](Mailbox::wake_by)).
//! * The **actor**, before it waits, (3) publishes `next_wake`, then (4) checks every queue under its lock, and does not
//!   wait if one holds anything ([`park`](Mailbox::park)).
//!
//! *No command is missed:* both the push and the actor's check take the queue's lock, so one comes first. If the push
//! (1) came first, the check (4) finds the command. If the check (4) came first, then the publication (3), which
//! precedes it, happens before the push, and so before the read (2): the caller sees the tick that was published, and
//! notifies the actor if it has to. A command that stays in the queue without a notification is not needed before that
//! tick, when the actor wakes by itself and empties the queues first.
//!
//! A caller may release other locks between (1) and (2), and any number of others may push meanwhile: each of them reads
//! `next_wake` after its own push. A caller that *marks* a command as queued, so that others rely on it, must push it under
//! the same lock: until the push, the actor cannot find the command.
//!
//! The caller that notifies the actor also changes `next_wake` to [`AWAKE`], so that only one of many callers pays for
//! the notification. A notification is a stored permit: one that arrives before the actor waits is not lost. The exchange
//! fails only if the value changed since it was read. Then another caller has notified the actor, or the actor has woken
//! and is about to check the queues again. Either suffices.
//!
//! # The earliest tick
//!
//! Timers fire in the order of their ticks also while commands are left over for later turns (P4), and do not wait for
//! commands that are needed later only (P11). So each command is pushed with the tick by which it is needed. The
//! [`Backlog`] knows the [earliest](Backlog::earliest) tick of its commands, the mailbox the
//! [earliest](Mailbox::earliest) of those in its queues, and a turn fires timers that are due before both. A command that
//! the turn does not see was pushed after the turn read the clock, so it is not due before the timers that the turn fires.
//!
//! A timer whose command is queued already may be moved earlier. Its command stays where it is, in whichever queue, or
//! in the backlog; the caller [announces](Mailbox::announce) the earlier tick, and then follows the wake rule with it.
//!
//! *No announcement is forgotten too soon:* the mailbox knows the tick until the actor empties the queues, and the
//! command was pushed before the tick was announced. The actor collects the announcements before it empties the queues. So
//! the command of each is in the backlog by the end of [`take`](Mailbox::take), or was applied before. The backlog keeps
//! the tick until every command that it holds at that point is applied.
//!
//! # After the end
//!
//! [`close`](Mailbox::close) closes each queue under its lock; from then on a push returns the command.

#[cfg(all(test, tickwheel_loom))]
mod model;
#[cfg(all(test, not(tickwheel_loom)))]
mod tests;

use crate::collections::BlockQueue;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{CachePadded, EXPLORED, Mutex, lock};
use crate::tick::NEVER;

/// `next_wake` while the actor runs: before every tick, so no caller notifies it.
pub(crate) const AWAKE: u64 = 0;

/// A queue of this length wakes the actor, however late its commands are needed. That bounds the memory of commands for
/// timers that were cancelled. The models need a lower bound to reach it.
pub(crate) const QUEUE_BOUND: usize = if cfg!(tickwheel_loom) {
    3
} else if EXPLORED {
    8
} else {
    512
};

/// How many commands a block has.
const BLOCK: usize = if EXPLORED { 4 } else { 512 };

/// How many empty blocks the backlog keeps for the queues.
const SPARE_BLOCKS: usize = 4;

/// The commands that the actor has taken and not applied. It takes over a burst of a million block
/// by block, without a copy, and frees their memory a block at a time, so no thread waits until a
/// vector of many megabytes is moved or freed.
pub(crate) type Backlog<C> = BlockQueue<C, BLOCK, SPARE_BLOCKS>;

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
    next_wake: CachePadded<AtomicU64>,
    notifier: S,
}

#[derive(Debug)]
struct Shard<C> {
    queue: Mutex<Queue<C>>,
    /// The earliest tick of the commands in the queue. Written under its lock, read without.
    earliest: AtomicU64,
    /// The earliest tick that was announced and not collected by the actor.
    announced: AtomicU64,
}

#[derive(Debug)]
struct Queue<C> {
    commands: Backlog<C>,
    /// The actor has ended, and will not empty the queue any more.
    closed: bool,
}

impl<C, S: Notifier> Mailbox<C, S> {
    /// With a queue for each of `cores`, rounded up to a power of two. The actor counts as awake.
    pub(crate) fn new(cores: usize, notifier: S) -> Self {
        let shard = |_| {
            CachePadded(Shard {
                queue: Mutex::new(Queue {
                    commands: Backlog::new(),
                    closed: false,
                }),
                earliest: AtomicU64::new(NEVER),
                announced: AtomicU64::new(NEVER),
            })
        };
        Mailbox {
            shards: (0..cores.next_power_of_two()).map(shard).collect(),
            next_wake: CachePadded(AtomicU64::new(AWAKE)),
            notifier,
        }
    }

    pub(crate) fn notifier(&self) -> &S {
        &self.notifier
    }

    // --- callers ---

    /// Queues a command that is needed by `tick`, and notifies the actor if the wake rule says so. `thread` chooses the
    /// queue. Returns the command if the actor has ended.
    pub(crate) fn push(&self, thread: usize, tick: u64, command: C) -> Result<(), C> {
        let wake_by = self.enqueue(thread, tick, command)?;
        self.wake_by(wake_by);
        Ok(())
    }

    /// The first half of [`push`](Self::push): queues the command without notifying the actor. The
    /// caller must then call [`wake_by`](Self::wake_by) with the tick that is returned: the
    /// command's own, or [`AWAKE`] when the queue has grown to its bound.
    ///
    /// A caller that holds a lock queues the command before it releases the lock, and notifies the actor after.
    pub(crate) fn enqueue(&self, thread: usize, tick: u64, command: C) -> Result<u64, C> {
        let shard = self.shard(thread);
        let mut queue = lock(&shard.queue);
        if queue.closed {
            return Err(command);
        }
        if tick < shard.earliest.load(Ordering::Relaxed) {
            shard.earliest.store(tick, Ordering::SeqCst);
        }
        queue.commands.push(tick, command);
        let is_long = queue.commands.len() >= QUEUE_BOUND;
        Ok(if is_long { AWAKE } else { tick })
    }

    /// The second half: notifies the actor if it would not run by itself at `tick` or before.
    pub(crate) fn wake_by(&self, tick: u64) {
        let next_wake = self.next_wake.0.load(Ordering::SeqCst);
        if tick < next_wake {
            self.claim(next_wake);
        }
    }

    /// A command that was pushed, by any thread, is needed earlier than was said: by `tick`.
    pub(crate) fn announce(&self, thread: usize, tick: u64) {
        self.lower(thread, tick);
        self.wake_by(tick);
    }

    /// The first half of [`announce`](Self::announce), without a notification;
    /// [`wake_by`](Self::wake_by) must follow.
    pub(crate) fn lower(&self, thread: usize, tick: u64) {
        let announced = &self.shard(thread).announced;
        announced.fetch_min(tick, Ordering::SeqCst);
    }

    fn shard(&self, thread: usize) -> &Shard<C> {
        &self.shards[thread & (self.shards.len() - 1)].0
    }

    /// Notifies the actor, unless another caller has.
    fn claim(&self, next_wake: u64) {
        let claimed =
            self.next_wake
                .0
                .compare_exchange(next_wake, AWAKE, Ordering::SeqCst, Ordering::SeqCst);
        if claimed.is_ok() {
            self.notifier.notify();
        }
    }

    // --- the actor ---

    /// Publishes that the actor runs: no caller notifies it.
    pub(crate) fn awake(&self) {
        self.next_wake.0.store(AWAKE, Ordering::SeqCst);
    }

    /// Publishes that the actor is about to wait until `next_wake`. If a queue holds a command the actor must not wait:
    /// then this publishes that it is awake, and returns `false`.
    pub(crate) fn park(&self, next_wake: Option<u64>) -> bool {
        // `AWAKE` is tick 0, so tick 1 stands for it: both have begun, or are about to.
        let next_wake = next_wake.unwrap_or(NEVER).max(AWAKE + 1);
        self.next_wake.0.store(next_wake, Ordering::SeqCst);
        if self.is_empty() {
            return true;
        }
        self.awake();
        false
    }

    /// Whether every queue is empty.
    fn is_empty(&self) -> bool {
        for shard in &self.shards {
            if !lock(&shard.0.queue).commands.is_empty() {
                return false;
            }
        }
        true
    }

    /// Moves every command that was queued before this call, and perhaps some more, to the end of `backlog`.
    pub(crate) fn take(&self, backlog: &mut Backlog<C>) {
        // Before the queues: the command that was announced is in one of them, or has been taken earlier.
        let mut announced = NEVER;
        for CachePadded(shard) in &self.shards {
            // There is seldom one, and a load leaves the cache line with its core.
            if shard.announced.load(Ordering::SeqCst) != NEVER {
                announced = announced.min(shard.announced.swap(NEVER, Ordering::SeqCst));
            }
        }
        for CachePadded(shard) in &self.shards {
            let mut queue = lock(&shard.queue);
            shard.earliest.store(NEVER, Ordering::SeqCst);
            backlog.append(&mut queue.commands);
        }
        if announced < NEVER {
            backlog.lower_bound(announced);
        }
    }

    /// No command in a queue is needed before this tick, and none was announced to be. `NEVER` when all are empty.
    pub(crate) fn earliest(&self) -> u64 {
        let mut earliest = NEVER;
        for CachePadded(shard) in &self.shards {
            earliest = earliest.min(shard.earliest.load(Ordering::SeqCst));
            earliest = earliest.min(shard.announced.load(Ordering::SeqCst));
        }
        earliest
    }

    /// Closes the queues: pushes fail from now on. Moves the commands in them to the end of `backlog`.
    pub(crate) fn close(&self, backlog: &mut Backlog<C>) {
        for shard in &self.shards {
            let mut queue = lock(&shard.0.queue);
            queue.closed = true;
            backlog.append(&mut queue.commands);
        }
    }
}
