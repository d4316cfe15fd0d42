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
fn takes_56_bytes_and_72_with_its_reference_counts() {
    assert_eq!(size_of::<Entry<Arc<()>>>(), 56);
}

/// Armed, and on the wheel at its deadline.
fn scheduled(deadline: u64) -> (Entry<()>, BareWheel<()>) {
    let (entry, mut wheel) = (armed(deadline), BareWheel::new(8));
    let op = entry.register(&wheel).expect("it is not locked");
    assert_eq!(op, WheelOp::Insert(deadline));
    op.apply(&mut wheel, ());
    (entry, wheel)
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
    let (entry, _) = scheduled(10);
    let mut state = entry.state.lock();
    state.phase = phase;
    if phase != Phase::Armed {
        state.waker = None;
    }
    drop(state);
    entry
}

/// The phase, the deadline, the bound, and whether it has a waker.
fn seen(entry: &Entry<()>) -> (Phase, u64, Bound, bool) {
    let state = entry.state.lock();
    (
        state.phase,
        state.deadline,
        state.bound,
        state.waker.is_some(),
    )
}

#[test]
fn moves_only_an_armed_entry() {
    for phase in [Phase::Idle, Phase::Fired, Phase::Released, Phase::Closed] {
        let entry = put(phase);
        let before = seen(&entry);
        assert_eq!(entry.move_to(5), (phase, ActorAction::None));
        assert_eq!(seen(&entry), before);
    }
    let entry = put(Phase::Armed);
    assert_eq!(entry.move_to(5), (Phase::Armed, ActorAction::Enqueue(5)));
    let (phase, deadline, bound, has_waker) = seen(&entry);
    assert_eq!((phase, deadline, has_waker), (Phase::Armed, 5, true));
    assert_eq!(bound.scheduled(), 5);
}

#[test]
fn keeps_a_pollers_waker_only_while_armed() {
    for phase in [Phase::Idle, Phase::Fired, Phase::Released, Phase::Closed] {
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
    let (entry, _) = scheduled(10);
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
        assert!(state.waker.as_ref().is_some_and(|w| w.will_wake(waker)));
    }
}

#[test]
fn returns_waker_and_schedule_when_disarmed() {
    for phase in [Phase::Idle, Phase::Armed, Phase::Fired, Phase::Released] {
        let entry = put(phase);
        let (_, deadline, bound, _) = seen(&entry);
        assert_eq!(disarm(&entry), (phase, 10));
        assert_eq!(seen(&entry), (Phase::Idle, deadline, bound, false));
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
            assert_eq!(seen(&entry), (Phase::Armed, deadline, before.2, true));
        } else {
            assert_eq!(seen(&entry), before, "it is as it was");
        }
    }
    let new = Entry::new(());
    assert!(new.try_arm(10, Waker::noop().clone()).is_err());
}

#[test]
fn disarms_at_once_only_what_is_armed() {
    for phase in [Phase::Idle, Phase::Fired, Phase::Released, Phase::Closed] {
        let entry = put(phase);
        let before = seen(&entry);
        assert!(entry.try_disarm().is_none(), "{phase:?}");
        assert_eq!(seen(&entry), before, "it is as it was");
    }
    let entry = put(Phase::Armed);
    let (_, deadline, bound, _) = seen(&entry);
    let disarmed = entry.try_disarm().expect("it is armed");
    assert_eq!((disarmed.was, disarmed.scheduled), (Phase::Armed, 10));
    assert!(disarmed.waker.is_some(), "the caller drops it");
    assert_eq!(seen(&entry), (Phase::Idle, deadline, bound, false));
}

#[test]
fn leaves_a_locked_entry_alone() {
    let (entry, _) = scheduled(5);
    let locked = entry.state.lock();
    assert!(entry.try_disarm().is_none());
    assert!(entry.try_arm(5, Waker::noop().clone()).is_err());
    drop(locked);
    assert!(entry.try_disarm().is_some());
}

#[test]
fn phase_says_what_an_entry_wants_of_the_wheel() {
    for (phase, op) in [
        (Phase::Idle, WheelOp::Keep),
        (Phase::Fired, WheelOp::Keep),
        (Phase::Armed, WheelOp::Move(0, 5)),
        (Phase::Released, WheelOp::Remove(0)),
        (Phase::Closed, WheelOp::Remove(0)),
    ] {
        let (entry, wheel) = scheduled(10);
        assert_eq!(entry.move_to(5).1, ActorAction::Enqueue(5));
        entry.state.lock().phase = phase;
        assert_eq!(entry.register(&wheel), Some(op), "{phase:?}");
    }
}

#[test]
fn fires_reschedules_or_deregisters_at_expiration() {
    // The entry is due at 10, put off to `later`, and processed at `now`.
    let expire = |phase, now, later| {
        let (entry, mut wheel) = (put(phase), BareWheel::new(8));
        wheel.insert(10, ());
        assert!(wheel.advance(10, 1).next().is_some());
        let outcome = match entry.process_expiration(now, &wheel, || later) {
            Expiration::Fire { deadline, waker } => {
                assert!(waker.is_some());
                ("fire", deadline)
            }
            Expiration::Reschedule(tick) => ("reschedule", tick),
            Expiration::Deregister => ("deregister", 0),
            Expiration::Contended => ("contended", 0),
        };
        let (phase, _, bound, has_waker) = seen(&entry);
        (outcome, bound.scheduled(), phase, has_waker)
    };
    let armed = Phase::Armed;
    let fired = |tick| (("fire", tick), NEVER, Phase::Fired, false);
    let scheduled = |tick| (("reschedule", tick), tick, armed, true);
    let off = |phase, waits| (("deregister", 0), NEVER, phase, waits);
    assert_eq!(expire(armed, 9, 8), scheduled(10));
    assert_eq!(
        expire(armed, 9, 12),
        scheduled(10),
        "it is not asked before it is due"
    );
    assert_eq!(expire(armed, 10, 8), fired(10));
    assert_eq!(expire(armed, 12, 12), fired(12));
    assert_eq!(expire(armed, 12, 13), scheduled(13));
    assert_eq!(expire(armed, 12, NEVER), off(armed, true));
    for phase in [Phase::Idle, Phase::Fired, Phase::Released, Phase::Closed] {
        assert_eq!(expire(phase, 12, 0), off(phase, false));
    }
}

#[test]
fn closes_all_but_what_has_fired_and_returns_the_waker() {
    for phase in [Phase::Idle, Phase::Armed, Phase::Released, Phase::Closed] {
        let entry = put(phase);
        assert_eq!(entry.close().is_some(), phase == Phase::Armed);
        assert_eq!(seen(&entry), (Phase::Closed, 10, Bound::NEW, false));
    }
    let entry = put(Phase::Fired);
    assert!(entry.close().is_none());
    assert_eq!(seen(&entry), (Phase::Fired, 10, Bound::NEW, false));
}

#[test]
fn deregisters_what_is_not_armed() {
    let entry = put(Phase::Armed);
    let before = seen(&entry);
    assert!(!entry.deregister_unarmed());
    assert_eq!(seen(&entry), before);
    for phase in [Phase::Idle, Phase::Fired, Phase::Released, Phase::Closed] {
        let entry = put(phase);
        assert!(entry.deregister_unarmed());
        assert_eq!(seen(&entry), (phase, 10, Bound::NEW, false));
    }
}

#[test]
fn evicted_entry_is_idle_and_off_the_wheel() {
    for (phase, after) in [
        (Phase::Armed, Phase::Idle),
        (Phase::Fired, Phase::Fired),
        (Phase::Released, Phase::Released),
    ] {
        let entry = put(phase);
        assert_eq!(entry.evict().is_some(), phase == Phase::Armed);
        assert_eq!(seen(&entry), (after, 10, Bound::NEW, false));
    }
}

#[test]
fn schedules_no_cancelled_entry_out_of_a_queue() {
    let (entry, wheel) = (armed(10), BareWheel::<()>::new(8));
    drop(entry.disarm());
    assert_eq!(entry.register(&wheel), Some(WheelOp::Keep));
    assert_eq!(
        entry.arm(10, Waker::noop().clone()),
        Some(ActorAction::Enqueue(10)),
        "the actor had dropped it"
    );
}

#[test]
fn stays_closed_whatever_its_owner_does() {
    let entry = armed(10);
    assert!(entry.close().is_some());
    assert_eq!(entry.arm(5, Waker::noop().clone()), None);
    assert_eq!(entry.poll(Waker::noop()).0, Phase::Closed);
    assert_eq!(entry.disarm().was, Phase::Closed);
    assert_eq!(entry.release(), ActorAction::None);
    assert_eq!(entry.phase(), Phase::Closed);
}
