//! Models of all parts together: the actor runs, a task waits, and time passes when the model says so.
//!
//! In each model the task has to end: an actor that misses a command waits forever, and so does the
//! task. Each model names changes that make it fail; each change was tried.

use std::sync::Arc;
use std::task::Waker;

use loom::thread::{self, JoinHandle};

use super::{Actor, Shared, SleepEntry, Sleeper, Wakes, check};
use crate::shared::entry::{Entry, Phase};

/// An actor at tick 0 that has one sleep, due at `tick`.
fn with_another(tick: u64) -> (Arc<Shared>, Actor) {
    let shared = Shared::new(1);
    let mut actor = Actor::new(&shared);
    let (_, waker) = Wakes::task();
    assert!(shared.arm(&Arc::new(Entry::new(())), tick, waker));
    actor.turn(0);
    (shared, actor)
}

/// An actor at tick 0, and an entry that is armed and scheduled at `tick` for a task that can wait.
fn armed(tick: u64) -> (Arc<Shared>, Actor, Arc<SleepEntry>, Arc<Sleeper>) {
    let shared = Shared::new(1);
    let mut actor = Actor::new(&shared);
    let entry = Arc::new(Entry::new(()));
    let (sleeper, waker) = Sleeper::task();
    assert!(shared.arm(&entry, tick, waker));
    actor.turn(0);
    (shared, actor, entry, sleeper)
}

fn run(actor: Actor, enough: usize) -> JoinHandle<()> {
    thread::spawn(move || actor.run(enough))
}

/// Lets time pass until `tick`, and waits until the entry has fired or is closed. Returns which.
fn wait(shared: &Shared, entry: &SleepEntry, sleeper: &Sleeper, tick: u64) -> Phase {
    shared.notifier().pass(tick);
    sleeper.wait();
    entry.poll(Waker::noop()).0
}

/// A task arms a sleep while the actor waits for nothing, or for a later one: the sleep fires when it is due.
///
/// Fails without `self.wake_by(tick)` in `Mailbox::push`, if `Mailbox::park` checks the queues before it publishes,
/// and without `state.notify()` in `Entry::arm`.
#[test]
fn fires_what_is_armed_while_the_actor_parks() {
    for other in [None, Some(5)] {
        check(None, move || {
            let (shared, actor) = other.map_or_else(
                || {
                    let shared = Shared::new(1);
                    (Arc::clone(&shared), Actor::new(&shared))
                },
                with_another,
            );
            let actor = run(actor, 1);
            let entry = Arc::new(Entry::new(()));
            let (sleeper, waker) = Sleeper::task();
            assert!(shared.arm(&entry, 3, waker));
            assert_eq!(wait(&shared, &entry, &sleeper, 3), Phase::Fired);
            actor.join().unwrap();
        });
    }
}

/// A task arms a sleep for a tick after the actor's next wake-up, without a notification, and resets it to earlier.
///
/// Fails if `Shared::act` does nothing for `ActorAction::Wake`, without `self.wake_by(tick)` in `Mailbox::push`, and without
/// `self.place &= NO_NODE` in `Bound::agree`.
#[test]
fn fires_what_is_reset_to_earlier() {
    check(None, || {
        let (shared, actor) = with_another(5);
        let actor = run(actor, 1);
        let entry = Arc::new(Entry::new(()));
        let (sleeper, waker) = Sleeper::task();
        assert!(shared.arm(&entry, 9, waker));
        assert_eq!(shared.reset(&entry, 3), Phase::Armed);
        assert_eq!(wait(&shared, &entry, &sleeper, 3), Phase::Fired);
        actor.join().unwrap();
    });
}

/// A task drops a sleep and arms another, which reuses the entry without a command, while the actor processes the entry at
/// its old tick.
///
/// Fails without `self.scheduled = NEVER` in `Bound::reached`. At most four preemptions.
#[test]
fn fires_a_sleep_that_reuses_an_entry() {
    check(Some(4), || {
        let (shared, actor, entry, _) = armed(2);
        let actor = run(actor, 1);
        shared.notifier().pass(2);
        let was = shared.give(entry);
        let entry = shared.take(4);
        let (sleeper, waker) = Sleeper::task();
        let armed = shared.arm(&entry, 4, waker);
        if was == Phase::Armed {
            assert!(armed);
            assert_eq!(shared.reset(&entry, 3), Phase::Armed);
            assert_eq!(wait(&shared, &entry, &sleeper, 3), Phase::Fired);
        }
        actor.join().unwrap();
    });
}

/// A task arms a sleep and drops the last handle: the actor runs until the sleep has fired.
///
/// Fails if `Actor::step` reads `orphaned` only after it has parked: the sleep may have been armed, and the handle
/// dropped, since it checked the queues. Fails if `Actor::is_unused` does not check that the wheel is empty.
/// At most four preemptions.
#[test]
fn fires_what_is_armed_before_the_last_handle_drops() {
    check(Some(4), || {
        let shared = Shared::new(1);
        let actor = run(Actor::new(&shared), usize::MAX);
        let entry = Arc::new(Entry::new(()));
        let (sleeper, waker) = Sleeper::task();
        assert!(shared.arm(&entry, 3, waker));
        shared.orphan();
        assert_eq!(wait(&shared, &entry, &sleeper, 3), Phase::Fired);
        actor.join().unwrap();
    });
}

/// The last handle is dropped while a sleep is armed with a pooled entry or a new one: the sleep fires, or its task finds
/// it closed. The actor ends, although another pooled entry lies on the wheel.
///
/// Fails without `queue.closed = true` in `Mailbox::close`, and if `Entry::deregister_unarmed` does not check the phase. With a new
/// entry it fails without the search in `Actor::sweep`, with the pooled one without `state.bound.leave()` in
/// `Entry::deregister_unarmed`. At most three preemptions.
fn arm_against_the_last_handle(tick: u64) {
    check(Some(3), move || {
        let (shared, actor, entry, _) = armed(5);
        shared.give(entry);
        let actor = run(actor, usize::MAX);
        let handle = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.orphan()
        });
        let entry = shared.take(tick);
        let (sleeper, waker) = Sleeper::task();
        if shared.arm(&entry, tick, waker) {
            let phase = wait(&shared, &entry, &sleeper, tick);
            assert!(matches!(phase, Phase::Fired | Phase::Closed));
        } else {
            assert_eq!(entry.phase(), Phase::Closed);
        }
        handle.join().unwrap();
        actor.join().unwrap();
        drop(shared);
    });
}

#[test]
fn arms_a_new_entry_while_the_last_handle_drops() {
    arm_against_the_last_handle(3);
}

#[test]
fn arms_a_pooled_entry_while_the_last_handle_drops() {
    arm_against_the_last_handle(5);
}

/// The last handle is dropped while a sleep is dropped: the actor ends without waiting for the tick.
///
/// Fails if `Shared::release` does not check `orphaned`, if a released entry is not sent at once, and without the search
/// in `Actor::sweep`. At most three preemptions.
#[test]
fn cancels_while_the_last_handle_drops() {
    check(Some(3), || {
        let (shared, actor, entry, _) = armed(5);
        let actor = run(actor, usize::MAX);
        let handle = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.orphan()
        });
        shared.give(entry);
        handle.join().unwrap();
        actor.join().unwrap();
        assert_eq!(shared.notifier().now(), 0);
    });
}

/// The wheel is shut down while a task arms a sleep: it fires, or the task finds it closed.
///
/// Fails without `queue.closed = true` in `Mailbox::close`, and if `Entry::close` does not return the waker. At most
/// three preemptions.
#[test]
fn arms_during_shutdown() {
    check(Some(3), || {
        let (shared, actor) = with_another(5);
        let actor = run(actor, usize::MAX);
        let handle = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.shutdown()
        });
        let entry = Arc::new(Entry::new(()));
        let (sleeper, waker) = Sleeper::task();
        if shared.arm(&entry, 3, waker) {
            let phase = wait(&shared, &entry, &sleeper, 3);
            assert!(matches!(phase, Phase::Fired | Phase::Closed));
        } else {
            assert_eq!(entry.phase(), Phase::Closed);
        }
        handle.join().unwrap();
        actor.join().unwrap();
    });
}

/// The wheel is shut down while one task resets the sleep for which another waits: that other is woken, because the
/// sleep fired, or because it is closed.
///
/// Fails if `Sleep::reset` drops the waker of an entry that it closes. At most three preemptions.
#[test]
fn resets_to_earlier_during_shutdown() {
    check(Some(3), || {
        let (shared, actor, entry, sleeper) = armed(9);
        let actor = run(actor, usize::MAX);
        let resetting = thread::spawn({
            let (shared, entry) = (Arc::clone(&shared), Arc::clone(&entry));
            move || shared.reset(&entry, 3)
        });
        shared.shutdown();
        let phase = wait(&shared, &entry, &sleeper, 3);
        assert!(matches!(phase, Phase::Fired | Phase::Closed));
        resetting.join().unwrap();
        actor.join().unwrap();
    });
}
