//! How commands reach the actor: sharded queues, and the wake rule.
//!
//! # Sharding
//!
//! There is a queue for each core, on a cache line of its own, and each thread has its favourite: two cores that arm
//! timers do not meet. The actor swaps the queues empty, one after the other; commands of one thread stay in order.
//!
//! # The wake rule
//!
//! Submitting must not wake the actor each time. The actor publishes the tick at which it is going to look next,
//! `next_wake`: a tick, [`NEVER`] when it has nothing to wait for, or [`AWAKE`] while it runs.
//!
//! * A **submitter** (1) pushes its command under the queue's lock, then (2) reads `next_wake`, and signals if its
//!   tick is earlier, or if its queue has grown to [`QUEUE_BOUND`].
//! * The **actor**, before it waits, (3) publishes `next_wake`, then (4) looks into every queue under its lock, and
//!   does not wait if one holds anything.
//!
//! *No command is missed:* both the push and the actor's look take the queue's lock, so one comes first. If the push
//! (1) came first, the look (4) finds the command. If the look (4) came first, then the publication (3), which
//! precedes it, happens before the push, and so before the read (2): the submitter sees the tick that was published,
//! and signals if it has to. What it leaves in the queue unsignalled is not needed before that tick, when the actor
//! wakes by itself and empties the queues first.
//!
//! The submitter that signals also claims the signal by changing `next_wake` to [`AWAKE`], so that of many that are
//! early only one pays for it. A signal is a stored permit: one that arrives before the actor waits is not lost.
//! The exchange fails only if the value changed since it was read: then either another submitter has signalled, or
//! the actor has woken and is about to look into the queues again. Both do.
//!
//! # After the end
//!
//! [`close`](Mailbox::close) closes each queue under its lock; from then on a push gives the command back.

#[cfg(all(test, tickwheel_loom))]
mod model;
mod queue;

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{CachePadded, Mutex, lock};
use crate::tick::NEVER;

pub(crate) use queue::Backlog;
use queue::Queue;

/// `next_wake` while the actor runs: before every tick, so nobody signals.
const AWAKE: u64 = 0;

/// A queue that has grown this long is worth waking the actor for, however far the ticks: it bounds the garbage.
/// The models could not fill a real one.
pub(crate) const QUEUE_BOUND: usize = if cfg!(tickwheel_loom) { 3 } else { 512 };

/// What the actor waits for.
pub(crate) trait Notifier {
    /// Wakes the actor now, or makes its next wait return at once.
    fn notify(&self);
}

/// See the module. `C` is what is submitted.
#[derive(Debug)]
pub(crate) struct Mailbox<C, S> {
    /// A power of two of them.
    shards: Box<[Shard<C>]>,
    next_wake: CachePadded<AtomicU64>,
    notifier: S,
}

type Shard<C> = CachePadded<Mutex<Queue<C>>>;

impl<C, S: Notifier> Mailbox<C, S> {
    /// With a queue for each of `cores`, rounded up to a power of two. The actor counts as awake.
    pub(crate) fn new(cores: usize, notifier: S) -> Self {
        let shard = |_| CachePadded(Mutex::new(Queue::new()));
        Mailbox {
            shards: (0..cores.next_power_of_two()).map(shard).collect(),
            next_wake: CachePadded(AtomicU64::new(AWAKE)),
            notifier,
        }
    }

    pub(crate) fn notifier(&self) -> &S {
        &self.notifier
    }

    // --- submitters ---

    /// Queues a command that is needed by `tick`, and wakes the actor if the rule says so. `thread` chooses the
    /// queue. Gives the command back when the actor is gone.
    pub(crate) fn push(&self, thread: usize, tick: u64, command: C) -> Result<(), C> {
        let tick = self.enqueue(thread, tick, command)?;
        self.wake_by(tick);
        Ok(())
    }

    /// Lowers.
    pub(crate) fn lower(&self, _thread: usize, _tick: u64) {}

    /// Queues a command that is needed by `tick`, without notifying the actor. Returns the tick for the wake rule.
    pub(crate) fn enqueue(&self, thread: usize, tick: u64, command: C) -> Result<u64, C> {
        let is_long = {
            let mut queue = lock(&self.shards[thread & (self.shards.len() - 1)].0);
            if queue.closed {
                return Err(command);
            }
            queue.push(command, QUEUE_BOUND)
        };
        Ok(if is_long { AWAKE } else { tick })
    }

    /// The second half of the wake rule: signals if the actor would not look by itself at `tick` or before.
    pub(crate) fn wake_by(&self, tick: u64) {
        let next_wake = self.next_wake.0.load(Ordering::SeqCst);
        if tick < next_wake {
            self.claim(next_wake);
        }
    }

    /// Signals, unless somebody else has.
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

    /// Says that the actor runs: no need to signal.
    pub(crate) fn awake(&self) {
        self.next_wake.0.store(AWAKE, Ordering::SeqCst);
    }

    /// Says that the actor is about to wait until `next_wake`. If a queue holds anything it must not: then this
    /// says it is awake, and returns false.
    pub(crate) fn park(&self, next_wake: Option<u64>) -> bool {
        // A wake-up at tick 0 is as good as one at 1: both have begun, or are about to.
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
        self.shards.iter().all(|shard| lock(&shard.0).is_empty())
    }

    /// Takes everything that was submitted before this call, and perhaps more, and appends it to `backlog`.
    pub(crate) fn take(&self, backlog: &mut Backlog<C>) {
        for shard in &self.shards {
            backlog.take(&mut lock(&shard.0));
        }
    }

    /// Ends it: pushes fail from now on. Appends what was left to `backlog`.
    pub(crate) fn close(&self, backlog: &mut Backlog<C>) {
        for shard in &self.shards {
            let mut queue = lock(&shard.0);
            queue.closed = true;
            backlog.take(&mut queue);
        }
    }
}

#[cfg(all(test, not(tickwheel_loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Notifier for Count {
        fn notify(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn drain<C>(backlog: &mut Backlog<C>) -> Vec<C> {
        std::iter::from_fn(|| backlog.pop()).collect()
    }

    fn signals<C>(submit: &Mailbox<C, Count>) -> usize {
        submit.notifier.0.load(Ordering::Relaxed)
    }

    #[test]
    fn only_a_tick_before_the_next_wake_signals_and_only_once() {
        let submit = Mailbox::new(2, Count::default());
        assert!(submit.park(Some(10)));
        for tick in [10, 11, NEVER] {
            assert_eq!(submit.push(0, tick, ()), Ok(()));
        }
        assert_eq!(signals(&submit), 0);
        for tick in [9, 0] {
            assert_eq!(submit.push(1, tick, ()), Ok(()));
        }
        assert_eq!(signals(&submit), 1, "the second finds it awake");
    }

    #[test]
    fn a_full_queue_signals_whatever_the_tick() {
        let submit = Mailbox::new(1, Count::default());
        assert!(submit.park(None));
        for n in 1..=QUEUE_BOUND {
            assert_eq!(signals(&submit), 0, "after {} commands", n - 1);
            assert_eq!(submit.push(0, NEVER, n), Ok(()));
        }
        assert_eq!(signals(&submit), 1);
    }

    #[test]
    fn the_actor_does_not_wait_while_a_queue_holds_anything() {
        let submit = Mailbox::new(4, Count::default());
        assert_eq!(submit.push(3, 5, 'x'), Ok(()));
        assert!(!submit.park(Some(1)));
        let mut taken = Backlog::new();
        submit.take(&mut taken);
        assert_eq!(drain(&mut taken), ['x']);
        assert!(submit.park(Some(1)));
    }

    #[test]
    fn there_is_a_queue_for_each_core_up_to_a_power_of_two_and_each_thread_has_its_own() {
        for (cores, queues) in [(0, 1), (1, 1), (2, 2), (3, 4), (4, 4), (5, 8)] {
            let submit = Mailbox::new(cores, Count::default());
            assert_eq!(submit.shards.len(), queues);
            for thread in 0..16 {
                assert_eq!(submit.push(thread, 5, thread), Ok(()));
            }
            for (n, queue) in submit.shards.iter().enumerate() {
                let threads: Vec<_> = (n..16).step_by(queues).collect();
                let mut taken = Backlog::new();
                taken.take(&mut lock(&queue.0));
                assert_eq!(drain(&mut taken), threads);
            }
        }
    }

    #[test]
    fn what_is_taken_comes_behind_what_was_there_and_in_order() {
        let submit = Mailbox::new(4, Count::default());
        for (thread, command) in [(3, 'f'), (1, 'c'), (1, 'd'), (3, 'g'), (2, 'e')] {
            assert_eq!(submit.push(thread, 5, command), Ok(()));
        }
        let mut taken = Backlog::new();
        taken.append(&mut vec!['a', 'b']);
        submit.take(&mut taken);
        submit.take(&mut taken);
        assert_eq!(drain(&mut taken), ['a', 'b', 'c', 'd', 'e', 'f', 'g']);
    }

    #[test]
    fn an_actor_that_looks_at_once_is_signalled_for_tick_zero_alone() {
        let submit = Mailbox::new(1, Count::default());
        assert!(submit.park(Some(0)));
        submit.wake_by(1);
        assert_eq!(signals(&submit), 0);
        submit.wake_by(0);
        assert_eq!(signals(&submit), 1);
        submit.wake_by(0);
        assert_eq!(signals(&submit), 1, "it is awake");
        assert!(submit.park(Some(8)));
        submit.awake();
        submit.wake_by(0);
        assert_eq!(signals(&submit), 1, "it says that it is awake");
        assert_eq!(submit.push(0, 9, ()), Ok(()));
        assert!(!submit.park(Some(8)));
        submit.wake_by(0);
        assert_eq!(signals(&submit), 1, "it goes on at once");
    }

    #[test]
    fn a_queue_that_is_longer_than_full_signals_too() {
        let submit = Mailbox::new(1, Count::default());
        assert!(submit.park(Some(1)));
        for _ in 0..=QUEUE_BOUND {
            assert_eq!(submit.push(0, NEVER, ()), Ok(()));
        }
        assert_eq!(signals(&submit), 1);
        submit.take(&mut Backlog::new());
        for _ in 0..QUEUE_BOUND {
            assert_eq!(submit.push(0, NEVER, ()), Ok(()));
        }
        assert_eq!(signals(&submit), 1);
        submit.next_wake.0.store(1, Ordering::SeqCst);
        assert_eq!(submit.push(0, NEVER, ()), Ok(()));
        assert_eq!(signals(&submit), 2, "it did not wait to be asked again");
    }

    #[test]
    fn after_the_end_a_command_comes_back() {
        let submit = Mailbox::new(2, Count::default());
        assert_eq!(submit.push(0, 5, 'a'), Ok(()));
        assert_eq!(submit.push(1, 5, 'c'), Ok(()));
        let mut left = Backlog::new();
        left.append(&mut vec!['x']);
        submit.close(&mut left);
        assert_eq!(drain(&mut left), ['x', 'a', 'c']);
        assert_eq!(submit.push(0, 5, 'b'), Err('b'));
    }
}
