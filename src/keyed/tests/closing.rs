//! The end of a set, and of the actor.

use super::*;

/// What the actor does at its end.
fn end(actor: &mut Actor, shared: &Shared) {
    let mut left = CommandQueue::new();
    shared.mailbox.close(&mut left);
    let left = std::iter::from_fn(|| left.pop());
    for command in left.chain(actor.queued.drain(..)) {
        let Command::Request(request) = command else {
            continue;
        };
        if let Request::Register(_, hints) = *request {
            hints.end();
        }
    }
    actor.wheel.hints().for_each(super::super::hint::Hints::end);
}

#[test]
fn p15_due_timers_come_after_the_end_and_the_rest_is_unexpired() {
    for received in 0..=3 {
        let (shared, set) = set();
        let mut actor = Actor::new();
        arm(&set, 0..3, 5);
        arm(&set, 3..4, 6);
        actor.reach(&shared, 5);
        // A note that is on its way.
        arm(&set, 4..5, 7);
        end(&mut actor, &shared);
        assert!(set.is_closed() && set.len() == 5);
        let keys: Vec<_> = (0..received).map(|_| set.try_recv()).collect();
        assert_eq!(keys, (0..received).map(Ok).collect::<Vec<_>>());
        if received == 3 {
            assert_eq!(set.try_recv(), Err(TryRecvError::Closed));
            assert_eq!(set.poll(), Poll::Ready(None));
        }
        assert_eq!(set.unexpired(), (received..5).collect::<Vec<_>>());
        assert_eq!(set.try_recv(), Err(TryRecvError::Closed));
        assert_eq!(set.unexpired(), []);
    }
}

/// Some indices were reached, and their hints lie there as the actor ends.
#[tokio::test(start_paused = true)]
async fn p15_hints_of_the_last_turn_are_looked_at_after_the_end() {
    let (shared, set) = set();
    let mut actor = Actor::new();
    arm(&set, 0..600, 5);
    assert!(set.set(hash(600), 600, (), tick(5), Some(repeat())).is_ok());
    arm(&set, 601..602, 5);
    actor.reach(&shared, 5);
    assert_eq!(set.move_to(hash(601), &601, tick(8)), Ok(true));
    end(&mut actor, &shared);
    assert_eq!(set.received(), (0..=600).collect::<Vec<_>>());
    assert_eq!(set.poll(), Poll::Ready(None));
    // It repeats, and so does not come again.
    assert_eq!(set.unexpired(), [600, 601]);
}

#[test]
fn nothing_can_be_set_after_the_end() {
    let (shared, set) = set();
    let mut actor = Actor::new();
    actor.apply_all(&shared);
    arm(&set, 0..1, 5);
    end(&mut actor, &shared);
    assert!(set.is_closed() && set.open().is_err());
    assert!(set.set(hash(1), 1, (), tick(5), None).is_err());
    assert_eq!(set.move_to(hash(0), &0, tick(7)).ok(), None);
    assert_eq!(set.unexpired(), [0]);
}

/// The set is made after the end, or shortly before: its registration lies in the mailbox.
#[test]
fn set_that_the_actor_never_knew_is_closed_at_its_end() {
    for ended in [false, true] {
        let (shared, _) = set();
        let mut actor = Actor::new();
        if ended {
            end(&mut actor, &shared);
        }
        let new = Keyed::new(&shared);
        if !ended {
            arm(&new, 0..3, 5);
            assert!(!new.is_closed());
            end(&mut actor, &shared);
        }
        assert!(new.is_closed());
        assert_eq!(new.poll(), Poll::Ready(None));
        assert_eq!(new.unexpired().len(), if ended { 0 } else { 3 });
        assert!(new.set(hash(1), 1, (), tick(5), None).is_err());
    }
}

/// Drained as the actor ends: its new key is never known.
#[test]
fn set_that_is_drained_as_the_actor_ends_is_closed() {
    for take_first in [false, true] {
        let (shared, set) = set();
        let mut actor = Actor::new();
        actor.apply_all(&shared);
        arm(&set, 0..3, 5);
        assert_eq!(set.drained(), [0, 1, 2]);
        arm(&set, 3..4, 5);
        if take_first {
            actor.take(&shared);
        }
        end(&mut actor, &shared);
        assert!(set.is_closed());
        assert_eq!(set.unexpired(), [3]);
    }
}

#[test]
fn set_dropped_while_its_registration_is_queued_leaves_nothing() {
    let (shared, set) = set();
    let mut actor = Actor::new();
    arm(&set, 0..10, 5);
    let key = set.lock().key;
    ExpirationSource::close(&**set);
    assert_eq!(set.len(), 0);
    drop(set);
    actor.reach(&shared, 9);
    assert_eq!(actor.scheduled(), 0);
    assert_eq!(actor.wheel.hints().count(), 0);
    assert_eq!(Some(shared.set_keys.draw()), key);
    assert_eq!(shared.metrics.0.read().keyed_pending, 0);
}

/// Its stream is dropped with timers that are due, found due and pending, and hints on their way.
#[test]
fn stream_dropped_midway_leaves_nothing() {
    let (shared, set) = set();
    let mut actor = Actor::new();
    arm(&set, 0..600, 5);
    arm(&set, 600..700, 9);
    actor.reach(&shared, 5);
    assert_eq!(set.try_recv(), Ok(0));
    arm(&set, 700..800, 9);
    ExpirationSource::close(&**set);
    assert_eq!((set.len(), set.kept()), (0, 0));
    assert!(set.set(hash(0), 0, (), tick(9), None).is_err());
    actor.reach(&shared, 6);
    assert_eq!(actor.scheduled(), 0);
    actor.reach(&shared, 9);
    let metrics = shared.metrics.0.read();
    assert_eq!((metrics.keyed_drained, metrics.keyed_pending), (799, 0));
}
