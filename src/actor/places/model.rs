//! Loom models of notes: two callers change the timer at one index while the actor applies notes,
//! reaches the index, visits its set, and parks. [`crate::model`] explains such models.
//!
//! The mailbox, the places and the wheel are the real ones. The set is reduced to one slot. Each
//! model names changes that make it fail.

use std::num::NonZeroU64;
use std::sync::Arc;

use loom::thread;

use super::{CHUNK, IndexWheel, Places};
use crate::model::{ActorNotifier, check};
use crate::shared::mailbox::{AWAKE, HORIZON, Lanes, Mailbox};
use crate::shared::note::{Note, SetKey};
use crate::sync::{Mutex, lock, try_lock};
use crate::tick::NEVER;

/// In a chunk that is freed.
const INDEX: u32 = CHUNK;

/// Before it a tick is needed soon.
const LATER: u64 = HORIZON + 10;

/// The slot of a set, as the table and the list of kept slots have it.
#[derive(Debug)]
struct Slot {
    /// The deadline of an armed timer.
    deadline: Option<u64>,
    /// The tick of the newest note, or of the node after a visit. `NEVER` if it has no node.
    scheduled: u64,
    /// The number of the last note.
    notes: u64,
    /// The deadlines of the timers that were delivered.
    delivered: Vec<u64>,
}

struct Set {
    slot: Mutex<Slot>,
    mailbox: Mailbox<Note, ActorNotifier>,
}

impl Slot {
    fn next_note(&mut self, tick: u64) -> Note {
        self.notes += 1;
        Note {
            number: NonZeroU64::new(self.notes).unwrap(),
            tick,
            set: SetKey::new(0),
            index: INDEX,
        }
    }
}

/// What a caller does. It uses the queue of its number.
#[derive(Debug, Clone, Copy)]
enum Call {
    /// Sets or moves the timer.
    Arm(u64),
    /// Removes the timer. Its slot is not kept.
    Remove,
    /// Removes the timer, and keeps its slot.
    Keep,
}

impl Set {
    fn new() -> Arc<Self> {
        Arc::new(Set {
            slot: Mutex::new(Slot {
                deadline: None,
                scheduled: NEVER,
                notes: 0,
                delivered: Vec::new(),
            }),
            mailbox: Mailbox::new(2, ActorNotifier::default()),
        })
    }

    fn call(&self, thread: usize, call: Call) {
        let mut slot = lock(&self.slot);
        let tick = match call {
            Call::Arm(tick) => {
                slot.deadline = Some(tick);
                (tick < slot.scheduled).then_some(tick)
            }
            Call::Remove => slot.deadline.take().map(|_| NEVER),
            Call::Keep => {
                slot.deadline = None;
                None
            }
        };
        let Some(tick) = tick else {
            return;
        };
        slot.scheduled = tick;
        let note = slot.next_note(tick);
        let pushed = self.mailbox.enqueue(thread, tick, note, || 0).unwrap();
        drop(slot);
        self.mailbox.wake(pushed);
    }
}

struct Actor {
    set: Arc<Set>,
    places: Places,
    wheel: IndexWheel,
    /// The index was reached, and not visited.
    reached: bool,
}

impl Actor {
    fn new(set: &Arc<Set>) -> Self {
        Actor {
            set: Arc::clone(set),
            places: Places::default(),
            wheel: IndexWheel::new(16),
            reached: false,
        }
    }

    fn scheduled(&mut self) -> Option<u64> {
        let node = self.places.chunk(INDEX).place(INDEX).node()?;
        Some(self.wheel.tick_of(node).expect("it has this node"))
    }

    /// Takes a turn at this tick.
    fn turn(&mut self, now: u64) {
        let mut taken = Lanes::new();
        self.set.mailbox.take_all(&mut taken);
        while let Some(note) = taken.pop() {
            self.places.apply(&note, &mut self.wheel);
        }
        let (mut reached, mut budget) = (Vec::new(), usize::MAX);
        while self.wheel.step(now, &mut reached, &mut budget) {
            for (_, index) in reached.drain(..) {
                self.places.reached(index);
                assert!(!self.reached, "it is reached twice");
                self.reached = true;
            }
        }
        if self.reached {
            self.visit(now);
        }
    }

    /// Tries to visit the set.
    fn visit(&mut self, now: u64) {
        let Some(mut slot) = try_lock(&self.set.slot) else {
            return;
        };
        self.reached = false;
        slot.scheduled = NEVER;
        if let Some(deadline) = slot.deadline {
            if deadline > now {
                slot.scheduled = deadline;
            } else {
                slot.delivered.push(deadline);
                slot.deadline = None;
            }
        }
        let scheduled = slot.scheduled;
        let note = slot.next_note(scheduled);
        drop(slot);
        self.places.visited(&note, &mut self.wheel);
    }

    /// Takes a turn at each of these ticks, and parks after the last. Returns whether it waits.
    fn run(&mut self, ticks: &[u64]) -> bool {
        let mut waits = false;
        for &now in ticks {
            self.set.mailbox.publish_awake();
            self.turn(now);
            waits = !self.reached && self.set.mailbox.park(self.wheel.next_wake());
            if waits {
                self.places.free(INDEX / CHUNK);
            }
        }
        waits
    }

    /// Asserts, once the callers have ended, that an actor that waits will wake in time. Then it
    /// takes more turns: the timer is scheduled in time, and fires; an index without a timer has
    /// left the wheel, unless its slot is kept.
    fn assert_in_time(mut self, waits: bool, now: u64) {
        let deadline = lock(&self.set.slot).deadline;
        let wakes = self.wheel.next_wake().unwrap_or(NEVER);
        if let Some(deadline) = deadline {
            let in_time = wakes <= deadline.max(now + 1) && wakes != AWAKE;
            let is_notified = self.set.mailbox.notifier().has_permit();
            assert!(
                !waits || in_time || is_notified,
                "{deadline}, it wakes at {wakes}"
            );
        }
        self.turn(now);
        let scheduled = self.scheduled();
        let slot = lock(&self.set.slot);
        let expected = slot
            .deadline
            .or(Some(slot.scheduled))
            .filter(|&at| at != NEVER);
        assert_eq!(
            scheduled.is_some(),
            expected.is_some(),
            "{slot:?}: {scheduled:?}"
        );
        assert!(
            scheduled <= expected,
            "{slot:?}, on the wheel at {scheduled:?}"
        );
        assert!(
            slot.delivered.iter().all(|&due| due <= now),
            "early: {slot:?}"
        );
        let (deadline, before) = (slot.deadline, slot.delivered.len());
        drop(slot);
        if let Some(deadline) = deadline {
            self.turn(deadline);
            let slot = lock(&self.set.slot);
            assert_eq!(slot.delivered.len(), before + 1, "late: {slot:?}");
        }
    }
}

/// The calls of two callers, one after the other each, against an actor that takes a turn at each
/// of `ticks`. Before, it has applied the calls in `first`.
fn check_calls(
    preemptions: usize,
    first: &'static [Call],
    callers: [&'static [Call]; 2],
    ticks: &'static [u64],
) {
    check(Some(preemptions), move || {
        let set = Set::new();
        let mut actor = Actor::new(&set);
        first.iter().for_each(|&call| set.call(0, call));
        actor.run(&[0]);
        set.mailbox.notifier().take_permit();
        let actor = thread::spawn(move || {
            let waits = actor.run(ticks);
            (actor, waits)
        });
        let other = thread::spawn({
            let set = Arc::clone(&set);
            move || callers[1].iter().for_each(|&call| set.call(1, call))
        });
        callers[0].iter().for_each(|&call| set.call(0, call));
        other.join().unwrap();
        let (actor, waits) = actor.join().unwrap();
        actor.assert_in_time(waits, *ticks.last().unwrap());
    });
}

/// One caller sets the timer for late, the other moves it to soon: a note overtakes the other in
/// its lane.
///
/// Fails without the comparison of numbers in [`Places::apply`], and if a note is pushed after the
/// lock is released.
#[test]
fn set_late_against_set_soon() {
    check_calls(3, &[], [&[Call::Arm(LATER)], &[Call::Arm(3)]], &[0, 1]);
}

/// A caller sets and removes the timer, the other one sets it soon: taking the index off the wheel
/// may come last.
///
/// Fails without the comparison of numbers in [`Places::apply`].
#[test]
fn remove_against_set() {
    check_calls(
        2,
        &[Call::Arm(LATER)],
        [&[Call::Remove], &[Call::Arm(3)]],
        &[0, 1],
    );
    check_calls(
        2,
        &[],
        [&[Call::Arm(LATER), Call::Remove], &[Call::Arm(3)]],
        &[0],
    );
}

/// The chunk of the index is freed while a note about it is on its way, which may be older than one
/// that was applied.
///
/// Fails if the chunk is freed after a complete [`Mailbox::take`], before the actor parks.
#[test]
fn free_against_set_and_remove() {
    check_calls(3, &[], [&[Call::Arm(LATER)], &[Call::Remove]], &[0, 1]);
}

/// The wheel reaches the index while callers move the timer later and earlier, and remove it.
///
/// Fails if [`Places::visited`] does not write the number of the note, and if a note from the
/// mailbox schedules an index that waits for its visit.
#[test]
fn reach_against_moves() {
    check_calls(
        2,
        &[Call::Arm(2)],
        [&[Call::Arm(9)], &[Call::Arm(5)]],
        &[2, 3],
    );
    check_calls(
        2,
        &[Call::Arm(2)],
        [&[Call::Arm(9), Call::Arm(4)], &[Call::Remove]],
        &[2],
    );
    check_calls(
        2,
        &[Call::Arm(9), Call::Arm(2)],
        [&[Call::Arm(1)], &[Call::Arm(5)]],
        &[2, 3],
    );
}

/// A slot is kept and taken over, with its node or the note for it, while the wheel reaches the
/// index.
///
/// Fails if [`Places::visited`] does not write the number of the note.
#[test]
fn reach_against_keep_and_reuse() {
    check_calls(
        2,
        &[Call::Arm(2)],
        [&[Call::Keep, Call::Arm(5)], &[Call::Arm(4)]],
        &[2, 3],
    );
    check_calls(
        2,
        &[],
        [&[Call::Arm(2), Call::Keep], &[Call::Arm(3)]],
        &[2, 3],
    );
}
