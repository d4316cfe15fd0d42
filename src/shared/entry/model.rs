//! Loom models of an entry between its owner and the actor. See [`crate::model`].
//!
//! Each model names changes that make it fail, of `entry.rs` unless it says otherwise; each change
//! was tried.

use std::sync::Arc;
use std::task::Waker;

use loom::thread::{self, JoinHandle};

#[cfg(doc)]
use super::is_stale;
use super::{ActorAction, Disarmed, Entry, EntryArc, Phase, Wait, drop_scheduled};
use crate::model::{Actor, Shared, SleepEntry, Wakes, check};
use crate::sync::{Mutex, lock};
use crate::tick::NEVER;

/// An actor at tick 0, and an entry that is armed and scheduled at `tick` for the task that is
/// returned last.
fn armed(tick: u64) -> (Arc<Shared>, Actor, EntryArc<SleepEntry>, Arc<Wakes>) {
    let shared = Shared::new(1);
    let mut actor = Actor::new(&shared);
    let entry = EntryArc::new(Entry::new(()));
    let (wakes, waker) = Wakes::task();
    assert!(shared.arm(&entry, tick, waker));
    actor.turn(0);
    (shared, actor, entry, wakes)
}

/// An entry for the pool: it was armed and cancelled, and is scheduled at `tick`.
fn cancelled(tick: u64) -> (Arc<Shared>, Actor, EntryArc<SleepEntry>) {
    let (shared, actor, entry, _) = armed(tick);
    let disarmed = cancel(&entry);
    assert_eq!((disarmed.was, disarmed.scheduled), (Phase::Armed, tick));
    (shared, actor, entry)
}

/// As the drop of a sleep does.
fn cancel(entry: &SleepEntry) -> Disarmed {
    entry.try_disarm().unwrap_or_else(|| entry.disarm())
}

/// Asserts the module's invariants while no other thread runs.
fn assert_invariants(actor: &mut Actor, entry: &EntryArc<SleepEntry>) {
    let ticks = actor.ticks_of(entry);
    let state = entry.state.lock();
    if let Wait::Armed { deadline, .. } = state.wait {
        let is_kept = deadline == NEVER || state.scheduled <= deadline;
        assert!(is_kept, "E1: {state:?}");
    }
    if state.scheduled != NEVER && !state.is_closed() {
        let tick = state.scheduled.max(actor.now());
        let is_there = ticks.contains(&tick) || ticks.contains(&state.scheduled);
        assert!(is_there, "E2: {ticks:?}, {state:?}");
    }
}

/// Lets the actor go on until `tick`. Asserts that the entry fires at `tick` and not before, and
/// that the actor drops it.
fn assert_fires_at(tick: u64, mut actor: Actor, entry: &EntryArc<SleepEntry>, wakes: &Wakes) {
    assert_invariants(&mut actor, entry);
    if !actor.fired().is_empty() {
        // It fired while both threads ran; the actor has checked that it was not early.
        assert_eq!(actor.now(), tick);
    }
    actor.turn(tick);
    assert_eq!(actor.fired(), [tick]);
    assert_eq!(wakes.count(), 1);
    assert_eq!(entry.phase(), Phase::Fired);
    assert_invariants(&mut actor, entry);
    actor.sweep(false);
    assert_dropped(&actor, entry);
}

/// Asserts that the actor holds no entry any more.
fn assert_dropped(actor: &Actor, entry: &EntryArc<SleepEntry>) {
    assert_eq!(actor.next_wake(), None);
    assert_eq!(
        EntryArc::strong_count(entry),
        1,
        "the actor holds the entry"
    );
}

/// Lets the actor take one turn at `tick` in another thread.
fn turn(mut actor: Actor, tick: u64) -> JoinHandle<Actor> {
    thread::spawn(move || {
        actor.turn(tick);
        actor
    })
}

// --- against process_expiration ---

/// A cancelled entry is armed while the actor processes it at its old tick.
///
/// Fails without `state.scheduled = NEVER` in [`Entry::process_expiration`]: the owner believes
/// that the actor is going to process the entry. Fails if that deregisters an entry that is locked.
fn arm_against_expiration(deadline: u64) {
    check(None, move || {
        let (shared, actor, entry) = cancelled(2);
        let actor = turn(actor, 2);
        let (wakes, waker) = Wakes::task();
        assert!(shared.arm(&entry, deadline, waker));
        let actor = actor.join().unwrap();
        assert_fires_at(deadline, actor, &entry, &wakes);
    });
}

#[test]
fn arms_for_the_same_tick_during_expiration() {
    arm_against_expiration(2);
}

#[test]
fn arms_for_a_later_tick_during_expiration() {
    arm_against_expiration(3);
}

/// Cancels a sleep, and then calls `then` with its entry, while the actor reaches its node: it is
/// woken only if it had fired before. Returns what `then` does, and how often it was woken.
fn cancel_during_firing<T>(
    then: impl FnOnce(EntryArc<SleepEntry>) -> T,
) -> (Actor, Arc<Wakes>, usize, T) {
    let (_shared, actor, entry, wakes) = armed(2);
    let actor = turn(actor, 2);
    let fired = usize::from(cancel(&entry).was == Phase::Fired);
    let result = then(entry);
    let actor = actor.join().unwrap();
    assert_eq!(wakes.count(), fired);
    (actor, wakes, fired, result)
}

/// A sleep is dropped while it fires.
///
/// Fails without `state.end_wait` in [`Entry::disarm`] or [`Entry::process_expiration`], and if
/// that does not check the phase.
#[test]
fn cancels_during_firing() {
    check(None, || {
        let (mut actor, wakes, fired, entry) = cancel_during_firing(|entry| entry);
        assert_eq!(actor.fired().len(), fired);
        assert_invariants(&mut actor, &entry);
        actor.turn(9);
        assert_eq!(wakes.count(), fired);
        assert_eq!(Arc::strong_count(&wakes), 1, "a waker is left somewhere");
        assert_dropped(&actor, &entry);
    });
}

/// A sleep that was moved later is moved earlier while the actor reschedules it: the earlier
/// deadline is not lost.
///
/// Fails without `state.scheduled = deadline` in [`Entry::process_expiration`]: the owner believes
/// that the actor is not going to process the entry, and E2 does not hold.
#[test]
fn moves_earlier_during_rescheduling() {
    check(None, || {
        let (shared, actor, entry, wakes) = armed(2);
        assert_eq!(entry.move_to(4), (Phase::Armed, ActorAction::None));
        let actor = turn(actor, 2);
        assert_eq!(shared.reset(&entry, 3), Phase::Armed);
        let actor = actor.join().unwrap();
        assert_fires_at(3, actor, &entry, &wakes);
    });
}

/// Two tasks poll in turn while the sleep fires: the last one whose poll was pending is woken, and
/// only that one.
///
/// Fails if [`Entry::poll`] answers with the phase it saw before it cloned the waker, if it swaps
/// wakers without checking the phase again, and if it keeps the waker that is there. At most four
/// preemptions.
#[test]
fn polls_twice_during_firing() {
    check(Some(4), || {
        let (_shared, actor, entry, first) = armed(2);
        let (second, second_waker) = Wakes::task();
        let (third, third_waker) = Wakes::task();
        // The tasks share the future behind a mutex; this is the task that waits.
        let waits = Arc::new(Mutex::new(0));
        let poll = |number: usize, waker: Waker| {
            let (entry, waits) = (EntryArc::clone(&entry), Arc::clone(&waits));
            move || {
                let mut waits = lock(&waits);
                if entry.poll(&waker).0 == Phase::Armed {
                    *waits = number;
                }
            }
        };
        let actor = turn(actor, 2);
        let polling = thread::spawn(poll(1, second_waker));
        poll(2, third_waker)();
        polling.join().unwrap();
        let mut actor = actor.join().unwrap();
        assert_eq!(actor.fired(), [2]);
        let mut expected = [0; 3];
        expected[*lock(&waits)] = 1;
        assert_eq!([first.count(), second.count(), third.count()], expected);
        assert_invariants(&mut actor, &entry);
    });
}

/// Another thread arms a cancelled entry again while the actor processes it at its old tick. The
/// task that cancelled is not woken; the one that armed is, at the new deadline.
///
/// Fails without `state.end_wait` in [`Entry::disarm`], and without
/// `state.scheduled = NEVER` in [`Entry::process_expiration`].
#[test]
fn reuses_an_entry_during_expiration() {
    check(None, || {
        let (shared, actor, entry, cancelled) = armed(2);
        let actor = turn(actor, 2);
        let releasing = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.give(entry)
        });
        let entry = shared.take(3);
        let (wakes, waker) = Wakes::task();
        let armed = entry.try_arm(3, waker);
        assert!(armed.map_or_else(|waker| shared.arm(&entry, 3, waker), |()| true));
        let was = releasing.join().unwrap();
        let mut actor = actor.join().unwrap();
        assert_invariants(&mut actor, &entry);
        assert_eq!(wakes.count(), 0);
        actor.turn(3);
        assert_eq!(wakes.count(), 1);
        assert_eq!(cancelled.count(), usize::from(was == Phase::Fired));
        assert_eq!(actor.fired().len(), 1 + cancelled.count());
        assert_eq!(actor.next_wake(), None);
    });
}

/// An entry is released while the actor processes it. It leaves the wheel, in whichever order, and
/// a node that is left is counted.
///
/// Fails if [`Entry::release`] does not return whether the entry was scheduled.
#[test]
fn releases_during_expiration() {
    check(None, || {
        let (_shared, actor, entry) = cancelled(2);
        let actor = turn(actor, 2);
        let is_left = entry.release();
        let mut actor = actor.join().unwrap();
        // One that was reached first has left the wheel.
        assert!(is_left || actor.now() == 2);
        assert_invariants(&mut actor, &entry);
        actor.sweep(false);
        assert_dropped(&actor, &entry);
        assert!(!entry.release());
    });
}

/// An entry with two nodes, the later one stale, is released while a sweep goes on: the next sweep
/// finds nothing else, and the entry does not fire.
///
/// Fails without `scheduled = NEVER` in [`Entry::release`], and if [`Entry::is_stale_at`] takes a
/// node for stale only before or only after `scheduled`.
#[test]
fn releases_during_a_sweep() {
    check(None, || {
        let (shared, mut actor, entry, wakes) = armed(9);
        assert_eq!(shared.reset(&entry, 4), Phase::Armed);
        actor.turn(0);
        let sweeping = thread::spawn(move || {
            actor.sweep(false);
            actor
        });
        assert_eq!(cancel(&entry).was, Phase::Armed);
        assert!(entry.release());
        let mut actor = sweeping.join().unwrap();
        assert_invariants(&mut actor, &entry);
        actor.sweep(false);
        assert_dropped(&actor, &entry);
        assert_eq!(wakes.count(), 0);
    });
}

/// The last owner of an entry drops it while a sweep goes on, as a thread whose pool is full does:
/// without a word if it has one node, and released if it has two. The next sweep finds nothing
/// else.
///
/// Fails if [`is_stale`] does not look at the count.
fn drop_during_a_sweep(nodes: usize) {
    check(None, move || {
        let (shared, mut actor, entry, wakes) = armed(9);
        if nodes == 2 {
            assert_eq!(shared.reset(&entry, 4), Phase::Armed);
            actor.turn(0);
        }
        let sweeping = thread::spawn(move || {
            actor.sweep(false);
            actor
        });
        assert_eq!(cancel(&entry).was, Phase::Armed);
        drop_scheduled(entry);
        let mut actor = sweeping.join().unwrap();
        actor.sweep(false);
        assert_eq!(actor.next_wake(), None, "a stale node is left");
        assert_eq!(wakes.count(), 0);
    });
}

#[test]
fn drops_an_entry_with_one_node_during_a_sweep() {
    drop_during_a_sweep(1);
}

#[test]
fn drops_an_entry_with_two_nodes_during_a_sweep() {
    drop_during_a_sweep(2);
}

/// The last owner of an entry drops it while the actor reaches its node: it does not fire, or had
/// fired before it was cancelled.
#[test]
fn drops_an_entry_during_expiration() {
    check(None, || {
        let (mut actor, wakes, fired, ()) = cancel_during_firing(drop);
        actor.sweep(false);
        assert_eq!(actor.next_wake(), None);
        assert_eq!(wakes.count(), fired);
    });
}

/// A sweep goes on while a sleep is moved earlier, and its older node becomes stale.
///
/// Fails if [`Entry::is_stale_at`] takes a node at `scheduled` for stale, and if an owner pushes no
/// command for [`ActorAction::EnqueueEarlier`].
#[test]
fn moves_earlier_during_a_sweep() {
    check(None, || {
        let (shared, mut actor, entry, wakes) = armed(9);
        let sweeping = thread::spawn(move || {
            actor.sweep(false);
            actor
        });
        assert_eq!(shared.reset(&entry, 4), Phase::Armed);
        let actor = sweeping.join().unwrap();
        assert_fires_at(4, actor, &entry, &wakes);
    });
}

// --- against commands ---

/// A sleep is moved earlier twice while the actor applies the first command.
///
/// Fails if [`ActorAction::EnqueueEarlier`] is returned for the first time only.
#[test]
fn moves_earlier_during_a_turn() {
    check(None, || {
        let (shared, actor, entry, wakes) = armed(9);
        assert_eq!(shared.reset(&entry, 4), Phase::Armed);
        let actor = turn(actor, 0);
        assert_eq!(shared.reset(&entry, 3), Phase::Armed);
        let actor = actor.join().unwrap();
        assert_fires_at(3, actor, &entry, &wakes);
    });
}

/// A sleep is moved to a tick that has passed, while the wheel reaches an older node of it: it
/// fires once, and its new node is stale.
///
/// Fails if [`Entry::process_expiration`] does not check that `scheduled` is not after the node.
#[test]
fn moves_into_the_past_during_expiration() {
    check(None, || {
        let (shared, actor, entry, wakes) = armed(3);
        let actor = turn(actor, 3);
        let was = shared.reset(&entry, 1);
        let mut actor = actor.join().unwrap();
        assert_invariants(&mut actor, &entry);
        actor.turn(3);
        assert_eq!(actor.fired().len(), 1, "it was {was:?}");
        assert_eq!(wakes.count(), 1);
        // It is armed again, later than the node that may be left.
        let (again, waker) = Wakes::task();
        assert!(shared.arm(&entry, 8, waker));
        assert_eq!(shared.reset(&entry, 5), Phase::Armed);
        assert_fires_again_at(5, actor, &entry, &again);
    });
}

/// The entry has fired once before, and fires at `tick`.
fn assert_fires_again_at(tick: u64, mut actor: Actor, entry: &EntryArc<SleepEntry>, wakes: &Wakes) {
    actor.turn(tick - 1);
    assert_eq!(wakes.count(), 0, "early");
    actor.turn(tick);
    assert_eq!((wakes.count(), entry.phase()), (1, Phase::Fired));
    actor.sweep(false);
    assert_dropped(&actor, entry);
}

/// A sleep is cancelled and armed again while the actor applies its command.
///
/// Fails if [`Entry::disarm`] sets `scheduled` to `NEVER`, since E2 does not hold then.
#[test]
fn cancels_and_arms_during_a_turn() {
    check(None, || {
        let shared = Shared::new(1);
        let actor = Actor::new(&shared);
        let entry = EntryArc::new(Entry::new(()));
        let (cancelled, waker) = Wakes::task();
        assert!(shared.arm(&entry, 9, waker));
        let actor = turn(actor, 0);
        assert_eq!(cancel(&entry).was, Phase::Armed);
        let (wakes, waker) = Wakes::task();
        assert!(shared.arm(&entry, 9, waker));
        let actor = actor.join().unwrap();
        assert_fires_at(9, actor, &entry, &wakes);
        assert_eq!(cancelled.count(), 0);
    });
}

/// The last sweep, after which no handle uses an entry again, finds one that is being armed.
///
/// Fails without `state.scheduled = NEVER` in [`Entry::is_stale_at`], if that does not check the
/// phase, and if it takes a node for stale whose entry is locked.
#[test]
fn arms_during_the_last_sweep() {
    check(None, || {
        let (shared, mut actor, entry) = cancelled(9);
        let actor = thread::spawn(move || {
            actor.sweep(true);
            actor
        });
        let (wakes, waker) = Wakes::task();
        assert!(shared.arm(&entry, 9, waker));
        let actor = actor.join().unwrap();
        assert_fires_at(9, actor, &entry, &wakes);
    });
}

// --- against close ---

/// The actor ends while an entry is armed, a new one or one that is on the wheel: arming fails, or
/// the task is woken and finds the entry closed.
///
/// Fails without `state.end_wait` in [`Entry::close`], if that does not return the
/// waker, and, for a new entry, if `Actor::close` closes what it took out of the queues before it
/// closes them.
fn arm_against_close(on_wheel: bool) {
    check(None, move || {
        let (shared, actor, entry) = cancelled(2);
        let entry = if on_wheel {
            entry
        } else {
            EntryArc::new(Entry::new(()))
        };
        let closing = thread::spawn(move || actor.close());
        let (wakes, waker) = Wakes::task();
        let armed = shared.arm(&entry, 2, waker);
        closing.join().unwrap();
        assert_eq!(entry.phase(), Phase::Closed);
        assert!(!armed || wakes.count() == 1, "the task waits forever");
        assert_eq!(EntryArc::strong_count(&entry), 1);
    });
}

#[test]
fn arms_a_new_entry_during_the_end() {
    arm_against_close(false);
}

#[test]
fn arms_a_pooled_entry_during_the_end() {
    arm_against_close(true);
}

/// The actor ends while one task resets the sleep for which another waits: that other is woken.
///
/// Fails if `Sleep::reset` drops the waker of an entry that it closes, and if [`Entry::close`] does
/// not return it.
#[test]
fn moves_earlier_during_the_end() {
    check(None, || {
        let (shared, actor, entry, wakes) = armed(9);
        let closing = thread::spawn(move || actor.close());
        let was = shared.reset(&entry, 4);
        closing.join().unwrap();
        assert_eq!(entry.phase(), Phase::Closed, "it was {was:?}");
        assert_eq!(wakes.count(), 1, "it was {was:?}");
    });
}

/// The actor ends while a sleep is dropped: it is woken only if it was closed before it was
/// cancelled.
///
/// Fails if [`Entry::disarm`] does not return the waker.
#[test]
fn cancels_during_the_end() {
    check(None, || {
        let (_shared, actor, entry, wakes) = armed(9);
        let closing = thread::spawn(move || actor.close());
        let was = cancel(&entry).was;
        closing.join().unwrap();
        assert_eq!(wakes.count(), usize::from(was == Phase::Closed));
        assert_eq!(entry.phase(), Phase::Closed);
        assert_eq!(Arc::strong_count(&wakes), 1, "a waker is left somewhere");
    });
}

/// A sleep fires, and the actor ends, while the sleep is moved: a fired entry stays fired, and
/// cannot be armed for another sleep. One that is in the queue when the wheel reaches it is closed.
///
/// Fails if [`Entry::close`] closes a fired entry, and if `Sleep::reset` does not close an entry
/// that it could not queue: its task waits forever.
#[test]
fn moves_earlier_during_firing_and_the_end() {
    check(None, || {
        let (shared, mut actor, entry, wakes) = armed(9);
        let closing = thread::spawn(move || {
            actor.turn(9);
            actor.close();
        });
        let was = shared.reset(&entry, 8);
        closing.join().unwrap();
        // One that was in the queue as the wheel reached it came out of it at the end.
        let phase = entry.phase();
        assert!(
            matches!(phase, Phase::Fired | Phase::Closed),
            "it was {was:?}"
        );
        assert_eq!(wakes.count(), 1);
        assert!(!shared.arm(&entry, 10, Waker::noop().clone()));
        assert_eq!(entry.phase(), Phase::Closed);
    });
}
