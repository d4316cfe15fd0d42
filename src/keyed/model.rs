//! Loom models of the way of a keyed timer: two callers, the actor and the reader on the slots of
//! one set. [`crate::model`] explains such models.
//!
//! The table with its slots, the order of what is due, the hints, the nodes with their wheel, and
//! the mailbox are the real ones. [`World`] stands for the set around them: each of its calls does
//! in one hold of the lock what its namesake does. The clock is a tick that the model passes.
//!
//! After the threads have ended a model goes on tick by tick: a timer that is armed is received at
//! the tick of its deadline, not before and not after, and each arming ends once. So what a change
//! relied on (K2) brought the timer to its reader (K3), whatever came between.
//!
//! Each model names changes that make it fail; each change was tried.

pub(crate) mod hint;
pub(crate) mod node;
pub(crate) mod set_key;

mod due;
mod key_index;
mod table;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use loom::thread;
use tokio::time::Instant;

use crate::model::{ActorNotifier, Wakes, check};
use crate::shared::mailbox::{CommandQueue, Mailbox, WakeBy};
use crate::sync::{Mutex, MutexGuard, lock};
use crate::tick::{NEVER, Ticks, Timestamp};
use due::{Due, DueTimers};
use hint::{Hints, Reach, ToldBefore};
use node::KeyedWheel;
use set_key::{SetKey, SetKeys};
use table::{Look, Slot, Table, Timer};

/// The time at which the threads of a model run. Ticks after it come when they have ended.
const NOW: u64 = 3;

/// The tick after the last deadline.
const END: u64 = 8;

/// A note: schedule this index for this tick.
type Note = (u32, u64);

/// What became of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// It was armed under this number, for this tick.
    Armed(u64, u64),
    Removed(u64),
    Received(u64),
}

struct World {
    mailbox: Mailbox<Note, ActorNotifier>,
    ticks: Ticks,
    key: SetKey,
    hints: Arc<Hints>,
    told: ToldBefore,
    set: Mutex<State>,
}

struct State {
    table: Table<u32, ()>,
    kept: Vec<u32>,
    number: u64,
    /// In the order of the holds.
    events: Vec<Event>,
}

/// The reader of the set.
struct Reader {
    reach: Reach,
    due: DueTimers,
}

impl World {
    fn new() -> (Arc<Self>, KeyedWheel, Reader) {
        let (hints, key) = (Arc::new(Hints::new()), SetKeys::new().draw());
        let mut wheel = KeyedWheel::new(8);
        wheel.register(key, Arc::clone(&hints));
        let nanosecond = Duration::from_nanos(1);
        let world = World {
            mailbox: Mailbox::new(1, ActorNotifier::default()),
            ticks: Ticks::new(Instant::now(), nanosecond).expect("not zero"),
            key,
            hints,
            told: ToldBefore::default(),
            set: Mutex::new(State {
                table: Table::new(),
                kept: Vec::new(),
                number: 0,
                events: Vec::new(),
            }),
        };
        let reader = Reader {
            reach: Reach::default(),
            due: DueTimers::default(),
        };
        (Arc::new(world), wheel, reader)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.set)
    }

    /// Pushes a note, while the set is locked.
    fn note(&self, index: u32, tick: u64) -> WakeBy {
        let pushed = self
            .mailbox
            .enqueue(self.key.position(), tick, (index, tick));
        pushed.expect("the actor runs")
    }

    // --- callers ---

    /// Sets the timer of a key, or moves it: both arm it.
    fn set(&self, key: u32, tick: u64) {
        let mut state = self.lock();
        let wake_by = self.arm(&mut state, key, tick);
        drop(state);
        self.mailbox.wake(wake_by);
    }

    fn arm(&self, state: &mut State, key: u32, tick: u64) -> WakeBy {
        state.number += 1;
        state.events.push(Event::Armed(state.number, tick));
        let number = NonZeroU64::new(state.number).expect("it counts from one");
        let deadline = Timestamp::at(tick);
        if let Some(index) = state.table.find(key, |other| *other == key) {
            let slot = state.table.get_mut(index).expect("it was found");
            let note = slot.rearm(deadline, number, &self.ticks);
            return note.map_or(WakeBy::NEVER, |tick| self.note(index, tick));
        }
        let timer = Timer {
            deadline,
            number,
            key,
            value: (),
        };
        let slot = |index| state.table.get(index).expect("it is kept");
        let kept = (state.kept.iter()).position(|&index| slot(index).is_in_time(deadline));
        let (index, wake_by) = if let Some(kept) = kept {
            let index = state.kept.remove(kept);
            state.table.fill(index, key, timer);
            (index, WakeBy::NEVER)
        } else {
            let index = state.table.insert(key, timer, deadline);
            (index, self.note(index, tick))
        };
        state.table.add_key(key, index);
        wake_by
    }

    /// Removes the timer of a key. Its slot is kept if it can be, or vacated.
    fn remove(&self, key: u32, is_kept: bool) {
        let mut state = self.lock();
        let Some(index) = state.table.find(key, |other| *other == key) else {
            return;
        };
        let timer = state.table.take(index, true).expect("it was found");
        state.events.push(Event::Removed(timer.number.get()));
        let is_scheduled = state.table.get(index).is_some_and(Slot::is_scheduled);
        let mut wake_by = WakeBy::NEVER;
        if is_scheduled && is_kept {
            state.kept.push(index);
        } else {
            state.table.vacate(index);
            if is_scheduled {
                wake_by = self.note(index, NEVER);
            }
        }
        drop(state);
        self.mailbox.wake(wake_by);
    }

    // --- the actor ---

    /// A turn at this time, which reaches at most `limit` indices. Returns the tick before which
    /// everything is told.
    fn turn(&self, wheel: &mut KeyedWheel, now: u64, limit: usize) -> u64 {
        self.mailbox.publish_awake();
        self.mailbox.set_clock(now);
        let mut taken = CommandQueue::new();
        self.mailbox.take_all(&mut taken);
        let earliest = self.mailbox.earliest();
        while let Some((index, tick)) = taken.pop() {
            wheel.apply(self.key, index, tick);
        }
        let Some(until) = earliest.min(now + 1).checked_sub(1) else {
            return 0;
        };
        wheel.fire(until, limit, Timestamp::MIN, &self.told).0
    }

    /// Takes turns until the reader was told, which may have the list locked.
    fn turn_until_told(&self, wheel: &mut KeyedWheel) {
        while self.turn(wheel, NOW, usize::MAX) <= NOW {
            thread::yield_now();
        }
    }

    // --- the reader ---

    /// Looks at what was reached, in one hold of the lock, and receives what is due, each timer in
    /// a hold of its own.
    fn receive(&self, reader: &mut Reader) {
        let (mut hints, mut woken) = (Vec::new(), None);
        self.hints
            .take(&mut hints, &mut reader.reach, &self.told, &mut woken);
        let mut state = self.lock();
        let mut wake_by = WakeBy::NEVER;
        let mut look = |state: &mut State, index| {
            let Some(slot) = state.table.get_mut(index) else {
                return None;
            };
            if slot.timer.is_none() {
                if let Some(kept) = state.kept.iter().position(|kept| *kept == index) {
                    state.kept.remove(kept);
                    state.table.vacate(index);
                }
                return None;
            }
            let deadline = slot.timer.as_ref().map(|timer| timer.deadline)?;
            match slot.look(deadline, reader.reach.tick, &self.ticks) {
                Look::Due { tick, number } => Some(Due {
                    tick,
                    number,
                    index,
                }),
                Look::Later(tick) => {
                    wake_by = wake_by.min(self.note(index, tick));
                    None
                }
                Look::Nothing => None,
            }
        };
        for index in hints {
            if let Some(due) = look(&mut state, index) {
                reader.due.push(due);
            }
        }
        drop(state);
        self.mailbox.wake(wake_by);
        while let Some(due) = reader.due.pop(reader.reach.before) {
            let mut state = self.lock();
            let timer = state.table.timer(due.index);
            if timer.is_some_and(|timer| timer.number == due.number) {
                let timer = state.table.take(due.index, true).expect("it is there");
                state.table.vacate(due.index);
                assert!(timer.deadline <= Timestamp::at(reader.reach.tick), "early");
                state.events.push(Event::Received(timer.number.get()));
            }
        }
    }

    /// Goes on tick by tick, and checks that everything that is armed is received in time.
    fn finish(&self, wheel: &mut KeyedWheel, reader: &mut Reader) {
        for now in NOW..END {
            loop {
                let told = self.turn(wheel, now, usize::MAX);
                self.receive(reader);
                if told > now && self.mailbox.park(None) {
                    break;
                }
            }
            let state = self.lock();
            let timers = (0..state.table.end()).filter_map(|index| state.table.timer(index));
            for timer in timers {
                let is_later = timer.deadline > Timestamp::at(now);
                assert!(is_later, "not received at {now}: {:?}", state.events);
            }
        }
        self.check();
    }

    /// Each arming ended once.
    fn check(&self) {
        let events = &self.lock().events;
        let mut armed = Vec::new();
        for event in events {
            match *event {
                Event::Armed(number, _) => armed.push(number),
                Event::Removed(number) | Event::Received(number) => {
                    // A timer that is armed again has another number.
                    assert!(armed.contains(&number), "{events:?}");
                    armed.clear();
                }
            }
        }
        let last = events.iter().rev().find_map(|event| match event {
            Event::Armed(number, _) => Some(*number),
            _ => None,
        });
        let is_ended = |number| {
            let ends = [Event::Removed(number), Event::Received(number)];
            events.iter().filter(|event| ends.contains(event)).count() == 1
        };
        assert!(last.is_none_or(is_ended), "{events:?}");
    }
}

/// A call of a caller.
#[derive(Debug, Clone, Copy)]
enum Call {
    Set(u64),
    /// Removes the timer, and keeps its slot.
    Keep,
    /// Removes the timer, and vacates its slot.
    Vacate,
}

impl Call {
    fn call(self, world: &World) {
        match self {
            Call::Set(tick) => world.set(0, tick),
            Call::Keep => world.remove(0, true),
            Call::Vacate => world.remove(0, false),
        }
    }
}

use Call::{Keep, Set, Vacate};

/// A timer of one key, set for `first`, is known to the actor, or not if `first` is `None`. Then
/// two callers make these calls, while the actor takes a turn at [`NOW`] and the reader receives.
fn run(
    preemptions: Option<usize>,
    first: Option<u64>,
    one: &'static [Call],
    other: &'static [Call],
) {
    check(preemptions, move || {
        let (world, mut wheel, mut reader) = World::new();
        if let Some(first) = first {
            world.set(0, first);
            world.turn(&mut wheel, 0, usize::MAX);
        }
        let caller = |calls: &'static [Call]| {
            let world = Arc::clone(&world);
            move || calls.iter().for_each(|call| call.call(&world))
        };
        let others = (!other.is_empty()).then(|| thread::spawn(caller(other)));
        let ones = thread::spawn(caller(one));
        let reading = thread::spawn({
            let world = Arc::clone(&world);
            move || {
                world.receive(&mut reader);
                reader
            }
        });
        world.turn(&mut wheel, NOW, usize::MAX);
        ones.join().unwrap();
        if let Some(others) = others {
            others.join().unwrap();
        }
        let mut reader = reading.join().unwrap();
        world.finish(&mut wheel, &mut reader);
    });
}

/// Earlier, later, and to what has passed, while the wheel reaches the timer.
///
/// Fails if `Slot::look` leaves `scheduled` as it is when it finds a timer that is due, or due
/// later; if it sends no note then; if `Slot::rearm` compares `deadline` with the deadline that the
/// timer had; and if the lock is released before the note is pushed.
#[test]
fn moves_against_reach_and_receipt() {
    for calls in [&[Set(5), Set(4)][..], &[Set(2), Set(6)], &[Set(1), Set(4)]] {
        for first in [2, 3, 4] {
            run(Some(2), Some(first), calls, &[]);
        }
    }
}

/// Two callers: one note for each change that needs it arrives in the order of the changes.
///
/// Fails if the lock is released before the note is pushed.
#[test]
fn moves_of_two_callers() {
    for (one, other) in [
        (&[Set(5)][..], &[Set(4)][..]),
        (&[Set(4), Set(6)], &[Set(5)]),
        (&[Set(2)], &[Set(5)]),
    ] {
        for first in [3, 6] {
            run(Some(2), Some(first), one, other);
        }
    }
}

/// A timer is removed, and set again in the same slot, which is kept or vacated, while the actor
/// has its old node or has reached that.
///
/// Fails if a kept slot stays one after its reader has looked at it; if a slot is kept that is not
/// scheduled; if a kept slot is filled for an earlier deadline; and if a vacated slot sends no note
/// and keeps its bound for the next timer.
#[test]
fn reuse_of_a_slot_against_reach_and_receipt() {
    for calls in [
        &[Keep, Set(5)][..],
        &[Keep, Set(2)],
        &[Vacate, Set(5)],
        &[Vacate, Set(4), Keep],
    ] {
        for first in [3, 4] {
            run(Some(2), Some(first), calls, &[]);
        }
    }
}

/// One caller removes what the other sets.
///
/// Fails if a receipt does not compare numbers: what was found due was removed, and another timer
/// is in its slot.
#[test]
fn reuse_of_a_slot_by_two_callers() {
    for (one, other) in [
        (&[Keep][..], &[Set(5)][..]),
        (&[Vacate, Set(6)], &[Set(4)]),
        (&[Set(2)], &[Keep]),
    ] {
        run(Some(2), Some(3), one, other);
    }
    run(Some(2), None, &[Set(2), Vacate], &[Set(5)]);
}

/// Two timers of one tick, of which the later one was armed first, are told in two turns: they are
/// received in the order of arming (K5).
///
/// Fails if `DueTimers::pop` takes what is due at `before`, or [`Reach`] says of a part of a tick
/// that it is all; and if a reader that has no news goes by a `ToldBefore` that was not lowered.
#[test]
fn parts_of_a_tick_against_receipt() {
    check(Some(3), || {
        let (world, mut wheel, mut reader) = World::new();
        world.set(0, 7);
        world.set(1, NOW);
        world.set(0, NOW);
        world.turn(&mut wheel, 0, usize::MAX);
        let reading = thread::spawn({
            let world = Arc::clone(&world);
            move || {
                world.receive(&mut reader);
                world.receive(&mut reader);
                reader
            }
        });
        world.turn(&mut wheel, NOW, 1);
        world.turn(&mut wheel, NOW, 1);
        let mut reader = reading.join().unwrap();
        world.turn(&mut wheel, NOW, 1);
        world.receive(&mut reader);
        let received: Vec<Event> = (world.lock().events.iter().copied())
            .filter(|event| matches!(event, Event::Received(_)))
            .collect();
        assert_eq!(received, [Event::Received(2), Event::Received(3)]);
    });
}

/// A reader that has found nothing waits, while the actor tells it something: it is woken, or finds
/// that it must not wait.
///
/// Fails if `Hints::wait` does not look for news under the lock, the first time or the second; and
/// if `Hints::tell` wakes nobody.
#[test]
fn waiting_reader_is_told() {
    check(None, || {
        let (world, mut wheel, mut reader) = World::new();
        world.set(0, NOW);
        let (wakes, waker) = Wakes::task();
        let reading = thread::spawn({
            let world = Arc::clone(&world);
            move || {
                world.receive(&mut reader);
                let waits = world.hints.wait(&waker);
                (reader, waits)
            }
        });
        world.turn_until_told(&mut wheel);
        let (mut reader, waits) = reading.join().unwrap();
        let is_received = || world.lock().events.contains(&Event::Received(1));
        assert!(is_received() || !waits || wakes.count() > 0, "it sleeps on");
        world.receive(&mut reader);
        assert!(is_received());
    });
}
