//! Tests of the entry of a sleep, one call at a time.

use super::*;
use std::sync::Arc;
use std::task::{Wake, Waker};

fn armed(deadline: u64) -> Entry<()> {
    let entry = Entry::new(());
    assert_eq!(
        entry.arm(deadline, Waker::noop().clone()),
        Some(ActorAction::Enqueue(deadline))
    );
    entry
}

#[test]
#[cfg(target_pointer_width = "64")]
fn takes_48_bytes() {
    assert_eq!(size_of::<Entry<Arc<()>>>(), 48);
}

/// The phase that ended, and the tick by which the actor processes the entry.
fn disarm(entry: &Entry<()>) -> (Phase, u64) {
    let disarmed = entry.disarm();
    let was_armed = disarmed.was == Phase::Armed;
    assert_eq!(disarmed.waker.is_some(), was_armed, "the caller drops it");
    (disarmed.was, disarmed.scheduled)
}

/// An entry in this phase that is scheduled and armed for 10, or was.
fn put(phase: Phase) -> Entry<()> {
    let entry = armed(10);
    if phase != Phase::Armed {
        drop(entry.state.lock().end_wait(phase));
    }
    entry
}

/// The phase, the deadline if it is armed, and the tick at which it is scheduled.
fn seen(entry: &Entry<()>) -> (Phase, Option<u64>, u64) {
    let state = entry.state.lock();
    let deadline = match state.wait {
        Wait::Armed { deadline, .. } => Some(deadline),
        Wait::No(_) => None,
    };
    (state.phase(), deadline, state.scheduled)
}

#[test]
fn moves_only_an_armed_entry() {
    for phase in [Phase::Idle, Phase::Fired, Phase::Closed] {
        let entry = put(phase);
        let before = seen(&entry);
        assert_eq!(entry.move_to(5), (phase, ActorAction::None));
        assert_eq!(seen(&entry), before);
    }
    let entry = put(Phase::Armed);
    assert_eq!(entry.move_to(12), (Phase::Armed, ActorAction::None));
    assert_eq!(seen(&entry), (Phase::Armed, Some(12), 10));
    let earlier = ActorAction::EnqueueEarlier(5);
    assert_eq!(entry.move_to(5), (Phase::Armed, earlier));
    assert_eq!(seen(&entry), (Phase::Armed, Some(5), 5));
}

#[test]
fn keeps_a_pollers_waker_only_while_armed() {
    for phase in [Phase::Idle, Phase::Fired, Phase::Closed] {
        let entry = put(phase);
        let before = seen(&entry);
        assert_eq!(entry.poll(Waker::noop()).0, phase);
        assert_eq!(seen(&entry), before);
    }
}

#[test]
fn keeps_the_waker_of_the_last_poll_and_returns_the_other() {
    struct Task;
    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }
    let wakers = [(); 3].map(|()| Waker::from(Arc::new(Task)));
    let entry = armed(10);
    let mut last = None;
    for waker in wakers.iter().chain(&wakers[..1]) {
        let (phase, replaced) = entry.poll(waker);
        assert_eq!(phase, Phase::Armed);
        // The first waker replaces the one that armed the entry.
        let replaced = replaced.expect("another one was there");
        assert!(last.is_none_or(|last| replaced.will_wake(last)));
        last = Some(waker);
        assert!(entry.poll(waker).1.is_none(), "the same once more");
        let state = entry.state.lock();
        let kept = matches!(&state.wait, Wait::Armed { waker: w, .. } if w.will_wake(waker));
        assert!(kept);
    }
}

#[test]
fn returns_waker_and_schedule_when_disarmed() {
    for phase in [Phase::Idle, Phase::Armed, Phase::Fired] {
        let entry = put(phase);
        let (_, _, scheduled) = seen(&entry);
        assert_eq!(disarm(&entry), (phase, 10));
        assert_eq!(seen(&entry), (Phase::Idle, None, scheduled));
    }
    let entry = armed(20);
    drop(entry.close());
    assert_eq!(disarm(&entry), (Phase::Closed, NEVER));
    assert_eq!(entry.phase(), Phase::Closed);
}

#[test]
fn arms_without_command_only_what_is_scheduled_in_time() {
    for (phase, deadline, arms) in [
        (Phase::Idle, 10, true),
        (Phase::Idle, 11, true),
        (Phase::Idle, 9, false),
        (Phase::Fired, 10, true),
        (Phase::Closed, 10, false),
    ] {
        let entry = put(phase);
        let before = seen(&entry);
        let armed = entry.try_arm(deadline, Waker::noop().clone());
        assert_eq!(armed.is_ok(), arms, "{phase:?}, for {deadline}");
        if arms {
            assert_eq!(seen(&entry), (Phase::Armed, Some(deadline), before.2));
        } else {
            assert_eq!(seen(&entry), before, "it is as it was");
        }
    }
    let new = Entry::new(());
    assert!(new.try_arm(10, Waker::noop().clone()).is_err());
}

#[test]
fn disarms_at_once_only_what_is_armed() {
    for phase in [Phase::Idle, Phase::Fired, Phase::Closed] {
        let entry = put(phase);
        let before = seen(&entry);
        assert!(entry.try_disarm().is_none(), "{phase:?}");
        assert_eq!(seen(&entry), before, "it is as it was");
    }
    let entry = put(Phase::Armed);
    let (_, _, scheduled) = seen(&entry);
    let disarmed = entry.try_disarm().expect("it is armed");
    assert_eq!((disarmed.was, disarmed.scheduled), (Phase::Armed, 10));
    assert!(disarmed.waker.is_some(), "the caller drops it");
    assert_eq!(seen(&entry), (Phase::Idle, None, scheduled));
}

#[test]
fn leaves_a_locked_entry_alone() {
    let entry = armed(5);
    let locked = entry.state.lock();
    assert!(entry.try_disarm().is_none());
    assert!(entry.try_arm(5, Waker::noop().clone()).is_err());
    drop(locked);
    assert!(entry.try_disarm().is_some());
}

#[test]
fn release_says_whether_a_node_is_left() {
    for phase in [Phase::Idle, Phase::Fired] {
        let entry = put(phase);
        assert!(entry.release());
        assert_eq!(seen(&entry), (phase, None, NEVER));
        assert!(!entry.release(), "once");
    }
    assert!(!Entry::new(()).release());
    let entry = put(Phase::Armed);
    drop(entry.close());
    assert!(!entry.release());
    assert_eq!(entry.phase(), Phase::Closed);
}

#[test]
fn fires_reschedules_or_deregisters_at_expiration() {
    // The entry is due at 10, put off to `later`, and processed at `now`.
    let expire = |phase, now, later| {
        let entry = put(phase);
        let outcome = match entry.process_expiration(now, || later) {
            Expiration::Fire { deadline, waker } => {
                assert!(waker.is_some());
                ("fire", deadline)
            }
            Expiration::Reschedule(tick) => ("reschedule", tick),
            Expiration::Deregister => ("deregister", 0),
            Expiration::Contended => ("contended", 0),
        };
        let (phase, _, scheduled) = seen(&entry);
        (outcome, scheduled, phase)
    };
    let armed = Phase::Armed;
    let fired = |tick| (("fire", tick), NEVER, Phase::Fired);
    let scheduled = |tick| (("reschedule", tick), tick, armed);
    let off = |phase| (("deregister", 0), NEVER, phase);
    assert_eq!(expire(armed, 10, 8), fired(10));
    assert_eq!(expire(armed, 12, 12), fired(12));
    assert_eq!(expire(armed, 12, 13), scheduled(13));
    assert_eq!(expire(armed, 12, NEVER), off(armed));
    for phase in [Phase::Idle, Phase::Fired, Phase::Closed] {
        assert_eq!(expire(phase, 12, 0), off(phase));
    }
    let stale = (("deregister", 0), 10, armed);
    assert_eq!(expire(armed, 9, 12), stale, "it keeps its other node");
    let entry = put(armed);
    assert_eq!(entry.move_to(13), (armed, ActorAction::None));
    let processed = entry.process_expiration(10, || 0);
    assert!(matches!(processed, Expiration::Reschedule(13)));
    assert_eq!(seen(&entry), (armed, Some(13), 13));
}

#[test]
fn node_is_stale_unless_the_entry_is_scheduled_there() {
    let entry = put(Phase::Armed);
    for (tick, now, is_stale) in [
        (10, 3, false),
        (9, 3, true),
        (11, 3, true),
        // It was scheduled for a tick that had passed, or will be processed in time all the same.
        (11, 11, false),
        (11, 12, false),
    ] {
        let seen = [false, true].map(|unless_armed| entry.is_stale_at(tick, now, unless_armed));
        assert_eq!(seen, [Some(is_stale); 2], "{tick}, {now}");
    }
    for phase in [Phase::Idle, Phase::Fired] {
        let entry = put(phase);
        assert_eq!(entry.is_stale_at(10, 3, false), Some(false));
        assert_eq!(seen(&entry), (phase, None, 10));
        assert_eq!(
            entry.is_stale_at(10, 3, true),
            Some(true),
            "no task waits for it"
        );
        assert_eq!(seen(&entry), (phase, None, NEVER));
    }
    let entry = put(Phase::Idle);
    assert!(entry.release());
    assert_eq!(entry.is_stale_at(10, 3, false), Some(true));
    let held = entry.hold();
    assert_eq!(entry.is_stale_at(10, 3, false), None);
    drop(held);
}

#[test]
fn closes_all_but_what_has_fired_and_returns_the_waker() {
    for phase in [Phase::Idle, Phase::Armed, Phase::Closed] {
        let entry = put(phase);
        assert_eq!(entry.close().is_some(), phase == Phase::Armed);
        assert_eq!(seen(&entry), (Phase::Closed, None, NEVER));
    }
    let entry = put(Phase::Fired);
    assert!(entry.close().is_none());
    assert_eq!(seen(&entry), (Phase::Fired, None, NEVER));
}

#[test]
fn evicted_entry_is_idle_and_off_the_wheel() {
    for (phase, after) in [(Phase::Armed, Phase::Idle), (Phase::Fired, Phase::Fired)] {
        let entry = put(phase);
        assert_eq!(entry.evict().is_some(), phase == Phase::Armed);
        assert_eq!(seen(&entry), (after, None, NEVER));
    }
}

#[test]
fn stays_closed_whatever_its_owner_does() {
    let entry = armed(10);
    assert!(entry.close().is_some());
    assert_eq!(entry.arm(5, Waker::noop().clone()), None);
    assert_eq!(entry.poll(Waker::noop()).0, Phase::Closed);
    assert_eq!(entry.disarm().was, Phase::Closed);
    assert!(!entry.release());
    assert_eq!(entry.phase(), Phase::Closed);
}
