//! A loom model of the set's guard, which notifies the actor. [`crate::model`] explains such models.
//!
//! The lock, the mailbox, the bounds and the wheel are the real ones; timers are reduced to what the protocol needs. Each
//! model names changes that make it fail; each change was tried.

use std::sync::Arc;

use loom::thread;

use super::{ActorLink, ActorMutex, Batch, LockMode};
use crate::model::{ActorNotifier, check};
use crate::shared::bound::{ActorAction, Bound, Want};
use crate::shared::mailbox::{Backlog, Mailbox};
use crate::tick::NEVER;
use crate::wheel::BareWheel;

/// A timer, reduced to what the protocol needs.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// The deadline of an armed timer.
    deadline: Option<u64>,
    bound: Bound,
}

/// The timers, and the actor's wheel: only the actor uses it, while it has the lock.
#[derive(Debug)]
struct Slots {
    slots: [Slot; 3],
    wheel: BareWheel<u32>,
}

impl Slots {
    /// The actor took these indices out of a batch.
    fn agree(&mut self, indices: impl IntoIterator<Item = u32>) {
        for index in indices {
            let Slot { deadline, bound } = &mut self.slots[index as usize];
            let want = deadline.map_or(Want::Nothing, Want::At);
            (bound.agree(want, &self.wheel)).apply(&mut self.wheel, index);
        }
    }

    /// The ticks at which the wheel has an index.
    fn on_wheel(&self, index: u32) -> Vec<u64> {
        let nodes = 0..self.wheel.indices();
        let has_it = |&node: &u32| self.wheel.get(node) == Some(&index);
        (nodes.filter(has_it))
            .filter_map(|node| self.wheel.tick_of(node))
            .collect()
    }
}

/// A set and its mailbox. The thread's number chooses the queue.
struct Set {
    timers: ActorMutex<Slots>,
    mailbox: Mailbox<(), ActorNotifier>,
}

struct Link<'a> {
    mailbox: &'a Mailbox<(), ActorNotifier>,
    thread: usize,
}

impl ActorLink for Link<'_> {
    fn enqueue(&self, tick: u64) -> u64 {
        let queued = self.mailbox.enqueue(self.thread, tick, ());
        queued.expect("the mailbox is open")
    }

    fn horizon(&self) -> u64 {
        4
    }

    fn announce(&self, tick: u64) {
        self.mailbox.lower(self.thread, tick);
    }

    fn wake_by(&self, tick: u64) {
        self.mailbox.wake_by(tick);
    }
}

/// The actor after its last attempt to park.
struct Parked {
    waits: bool,
    next_wake: Option<u64>,
}

impl Set {
    /// Timer 1 is on the wheel, at tick 9.
    fn new() -> Arc<Self> {
        let vacant = Slot {
            deadline: None,
            bound: Bound::NEW,
        };
        let mut timers = Slots {
            slots: [vacant; 3],
            wheel: BareWheel::new(16),
        };
        let far = &mut timers.slots[1];
        far.deadline = Some(9);
        assert_eq!(far.bound.require(9), ActorAction::Enqueue(9));
        timers.agree([1]);
        Arc::new(Set {
            timers: ActorMutex::new(timers),
            mailbox: Mailbox::new(2, ActorNotifier::default()),
        })
    }

    fn link(&self, thread: usize) -> Link<'_> {
        Link {
            mailbox: &self.mailbox,
            thread,
        }
    }

    fn arm(&self, thread: usize, index: u32, tick: u64) {
        let link = self.link(thread);
        let mut guard = self.timers.lock(&link);
        let (timers, outbox) = guard.split();
        let slot = &mut timers.slots[index as usize];
        slot.deadline = Some(tick);
        outbox.require(index, &mut slot.bound, tick);
    }

    fn remove(&self, thread: usize, index: u32) {
        let link = self.link(thread);
        let mut guard = self.timers.lock(&link);
        let (timers, outbox) = guard.split();
        let slot = &mut timers.slots[index as usize];
        slot.deadline = None;
        outbox.release(index, &mut slot.bound);
    }

    /// A turn of the actor.
    fn turn(&self) {
        let mut backlog = Backlog::new();
        self.mailbox.take(&mut backlog);
        while backlog.pop().is_some() {
            let mut batch = Batch::default();
            let taken = self.timers.take_dirty(&mut batch, LockMode::Block, |_| ());
            assert!(taken.is_ok());
            let link = self.link(0);
            let mut timers = self.timers.lock(&link);
            timers.agree(batch.urgent.into_iter().chain(batch.rest));
        }
    }

    /// The actor takes a turn and parks, this many times.
    fn park(&self, times: usize) -> Parked {
        let mut parked = Parked {
            waits: false,
            next_wake: None,
        };
        for _ in 0..times {
            self.mailbox.awake();
            self.turn();
            parked.next_wake = self.timers.read(|timers| timers.wheel.next_wake());
            parked.waits = self.mailbox.park(parked.next_wake);
        }
        parked
    }

    /// Asserts, once the other threads have ended, that an actor that waits will wake by the tick of every armed timer, or
    /// was notified.
    fn assert_none_missed(&self, actor: &Parked) {
        if !actor.waits || self.mailbox.notifier().has_permit() {
            // It takes another turn, after which it knows every timer.
            self.turn();
            self.timers.read(|timers| {
                for (index, slot) in (0..).zip(&timers.slots) {
                    assert!(!slot.bound.is_queued(), "{slot:?}");
                    let scheduled = slot.deadline.map(|_| slot.bound.scheduled());
                    assert!(scheduled <= slot.deadline, "{slot:?}");
                    assert!(scheduled.into_iter().eq(timers.on_wheel(index)), "{slot:?}");
                }
            });
            return;
        }
        let wakes = actor.next_wake.unwrap_or(NEVER);
        self.timers.read(|timers| {
            for slot in &timers.slots {
                let deadline = slot.deadline.unwrap_or(NEVER);
                assert!(wakes <= deadline, "{slot:?}, it wakes at {wakes}");
            }
        });
    }
}

/// Runs another thread's change of the set beside the arming of timer 0 for tick 3, while the actor parks `times` times.
/// No timer may be missed, under any interleaving with that many preemptions.
fn check_beside(
    preemptions: usize,
    times: usize,
    change: impl Fn(&Set) + Copy + Send + Sync + 'static,
) {
    check(Some(preemptions), move || {
        let set = Set::new();
        let actor = thread::spawn({
            let set = Arc::clone(&set);
            move || set.park(times)
        });
        let other = thread::spawn({
            let set = Arc::clone(&set);
            move || change(&set)
        });
        set.arm(0, 0, 3);
        other.join().unwrap();
        set.assert_none_missed(&actor.join().unwrap());
    });
}

/// A thread removes a far timer, another arms a near one, and the actor parks. The near timer is not lost, wherever a
/// thread is paused between marking, pushing and notifying.
///
/// Fails if the guard pushes the command after it has released the lock, if it does not follow the wake rule when the
/// command is queued already, and if `take_dirty` does not clear `queued`.
#[test]
fn loses_no_near_timer_beside_a_removal() {
    check_beside(3, 1, |set| set.remove(1, 1));
}

/// Two threads arm timers, one of them later than the actor wakes by itself, while the actor parks twice.
///
/// Fails if the guard pushes the command after it has released the lock.
#[test]
fn loses_no_near_timer_beside_a_far_one() {
    check_beside(2, 2, |set| set.arm(1, 2, 20));
}

/// Both threads change the same timer: the earlier tick counts.
///
/// Fails if an index that is dirty already is not announced with its earlier tick (`mark` does nothing for `Wake`).
#[test]
fn loses_no_earlier_tick_of_a_shared_timer() {
    check_beside(3, 1, |set| set.arm(1, 0, 20));
}
