//! The protocol, one call at a time.

use super::*;
use std::sync::Arc;
use std::task::{Wake, Waker};

fn armed(deadline: u64) -> Entry<()> {
    let entry = Entry::new(());
    assert_eq!(
        entry.arm(deadline, Waker::noop().clone()),
        Some(Notify::Enqueue(deadline))
    );
    entry
}

#[test]
#[cfg(target_pointer_width = "64")]
fn takes_56_bytes_and_72_with_its_reference_counts() {
    assert_eq!(size_of::<Entry<Arc<()>>>(), 56);
}

/// The node of an entry on the wheel, and the node in which the wheel would insert the next one.
const NODE: u32 = 3;
const NEXT: u32 = 7;

fn on_no_wheel(node: u32) -> Option<u64> {
    panic!("it has no node, but asks for {node}");
}

/// Armed, and on the wheel at its deadline.
fn scheduled(deadline: u64) -> Entry<()> {
    let entry = armed(deadline);
    let registered = entry.register(NODE, on_no_wheel);
    assert_eq!(registered, Register::Insert(deadline));
    entry
}

/// The phase that ended, and the tick by which the actor processes the entry.
fn disarm(entry: &Entry<()>) -> (Phase, u64) {
    let disarmed = entry.disarm();
    let was_armed = disarmed.was == Phase::Armed;
    assert_eq!(disarmed.waker.is_some(), was_armed, "the caller drops it");
    (disarmed.was, disarmed.scheduled)
}

/// An entry in this state, with a waker if it is armed.
fn put(phase: Phase, deadline: u64, scheduled: u64, queued: bool) -> Entry<()> {
    let waker = (phase == Phase::Armed).then(|| Waker::noop().clone());
    let entry = Entry::new(());
    *entry.state.lock() = State {
        deadline,
        scheduled,
        waker,
        node: NODE,
        phase,
        queued,
    };
    entry
}

/// The phase, the tick by which it is processed, the node, whether it is queued, and whether it has a waker.
fn seen(entry: &Entry<()>) -> (Phase, u64, Option<u32>, bool, bool) {
    let state = entry.state.lock();
    let node = (state.node != NO_NODE).then_some(state.node);
    let has_waker = state.waker.is_some();
    (state.phase, state.scheduled, node, state.queued, has_waker)
}

#[test]
fn moves_only_an_armed_entry() {
    for phase in [Phase::Idle, Phase::Fired, Phase::Released, Phase::Closed] {
        let entry = put(phase, 10, 10, false);
        assert_eq!(entry.move_to(5), (phase, Notify::None));
        assert_eq!(entry.state.lock().deadline, 10);
        assert_eq!(seen(&entry), (phase, 10, Some(NODE), false, false));
    }
    let entry = put(Phase::Armed, 10, 10, false);
    assert_eq!(entry.move_to(5), (Phase::Armed, Notify::Enqueue(5)));
    assert_eq!(seen(&entry), (Phase::Armed, 5, Some(NODE), true, true));
}

#[test]
fn keeps_a_pollers_waker_only_while_armed() {
    for phase in [Phase::Idle, Phase::Fired, Phase::Released, Phase::Closed] {
        let entry = put(phase, 10, 10, false);
        assert_eq!(entry.poll(Waker::noop()).0, phase);
        assert_eq!(seen(&entry), (phase, 10, Some(NODE), false, false));
    }
}

#[test]
fn keeps_the_waker_of_the_last_poll_and_returns_the_other() {
    struct Task;
    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }
    let wakers = [(); 3].map(|()| Waker::from(Arc::new(Task)));
    let entry = scheduled(10);
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
        let entry = put(phase, 20, 10, true);
        assert_eq!(disarm(&entry), (phase, 10));
        assert_eq!(seen(&entry), (Phase::Idle, 10, Some(NODE), true, false));
    }
    let entry = put(Phase::Closed, 20, NEVER, false);
    assert_eq!(disarm(&entry), (Phase::Closed, NEVER));
    assert_eq!(entry.phase(), Phase::Closed);
}

#[test]
fn arms_without_command_only_what_is_scheduled_in_time() {
    for (phase, scheduled, arms) in [
        (Phase::Idle, 5, true),
        (Phase::Idle, 4, true),
        (Phase::Idle, 6, false),
        (Phase::Idle, NEVER, false),
        (Phase::Fired, 5, true),
        (Phase::Closed, 5, false),
    ] {
        let entry = put(phase, 1, scheduled, false);
        let before = seen(&entry);
        let armed = entry.try_arm(5, Waker::noop().clone());
        assert_eq!(armed.is_ok(), arms, "{phase:?}, scheduled at {scheduled}");
        if arms {
            let after = (Phase::Armed, scheduled, Some(NODE), false, true);
            assert_eq!(seen(&entry), after);
            assert_eq!(entry.state.lock().deadline, 5);
        } else {
            assert_eq!(seen(&entry), before, "it is as it was");
        }
    }
}

#[test]
fn disarms_at_once_only_what_is_armed() {
    for phase in [Phase::Idle, Phase::Fired, Phase::Released, Phase::Closed] {
        let entry = put(phase, 5, 4, true);
        let before = seen(&entry);
        assert!(entry.try_disarm().is_none(), "{phase:?}");
        assert_eq!(seen(&entry), before, "it is as it was");
    }
    let entry = put(Phase::Armed, 5, 4, true);
    let disarmed = entry.try_disarm().expect("it is armed");
    assert_eq!((disarmed.was, disarmed.scheduled), (Phase::Armed, 4));
    assert!(disarmed.waker.is_some(), "the caller drops it");
    assert_eq!(seen(&entry), (Phase::Idle, 4, Some(NODE), true, false));
}

#[test]
fn leaves_a_locked_entry_alone() {
    let entry = scheduled(5);
    let locked = entry.state.lock();
    assert!(entry.try_disarm().is_none());
    assert!(entry.try_arm(5, Waker::noop().clone()).is_err());
    drop(locked);
    assert!(entry.try_disarm().is_some());
}

#[test]
fn queues_a_released_entry_once_if_it_is_scheduled() {
    let on_wheel = put(Phase::Idle, 10, 10, false);
    assert_eq!(on_wheel.release(), Notify::Enqueue(NEVER));
    let state = (Phase::Released, 10, Some(NODE), true, false);
    assert_eq!(seen(&on_wheel), state);

    let queued = put(Phase::Idle, 10, 10, true);
    assert_eq!(queued.release(), Notify::None);
    assert_eq!(seen(&queued), state);

    let nowhere = put(Phase::Idle, 10, NEVER, false);
    assert_eq!(nowhere.release(), Notify::None);
    assert!(!seen(&nowhere).3, "it is not queued");

    let closed = put(Phase::Closed, 10, 10, false);
    assert_eq!(closed.release(), Notify::None);
    assert_eq!(closed.phase(), Phase::Closed);
}

#[test]
fn registers_an_armed_entry_by_its_deadline() {
    let register = |phase, deadline, on_wheel: Option<u64>| {
        let entry = put(phase, deadline, 1, true);
        let registered = entry.register(NEXT, |node| {
            assert_eq!(node, NODE);
            on_wheel
        });
        let (now, scheduled, node, queued, _) = seen(&entry);
        assert_eq!((now, queued), (phase, false));
        (registered, scheduled, node)
    };
    let node = Some(NODE);
    for (here, scheduled) in [(None, NEVER), (Some(11), 11), (Some(10), 10), (Some(9), 9)] {
        let armed = match here {
            None => (Register::Insert(10), 10, Some(NEXT)),
            Some(..=10) => (Register::Keep, scheduled, node),
            Some(_) => (Register::Reschedule(NODE, 10), 10, node),
        };
        assert_eq!(register(Phase::Armed, 10, here), armed);
        for phase in [Phase::Idle, Phase::Fired] {
            assert_eq!(register(phase, 10, here), (Register::Keep, scheduled, node));
        }
        for phase in [Phase::Released, Phase::Closed] {
            let registered = here.map_or(Register::Keep, |_| Register::Deregister(NODE));
            assert_eq!(register(phase, 10, here), (registered, NEVER, None));
        }
    }
    let never = register(Phase::Armed, NEVER, None);
    assert_eq!(never, (Register::Keep, NEVER, node));
}

#[test]
fn fires_reschedules_or_deregisters_at_expiration() {
    // The entry is due at 10, put off to `later`, and processed at `now`.
    let expire = |phase, now, later| {
        let entry = put(phase, 10, 1, true);
        let expiration = entry.process_expiration(now, NEXT, || later);
        let (phase, scheduled, node, queued, waker) = seen(&entry);
        assert!(queued, "the queue is none of its business");
        let again = matches!(expiration, Expiration::Reschedule(_)).then_some(NEXT);
        assert_eq!(node, again, "it has left its node");
        let outcome = match expiration {
            Expiration::Fire { deadline, waker } => {
                assert!(waker.is_some());
                ("fire", deadline)
            }
            Expiration::Reschedule(tick) => ("reschedule", tick),
            Expiration::Deregister => ("deregister", 0),
        };
        (outcome, scheduled, phase, waker)
    };
    let armed = Phase::Armed;
    let fired = |tick| (("fire", tick), NEVER, Phase::Fired, false);
    let scheduled = |tick| (("reschedule", tick), tick, armed, true);
    assert_eq!(expire(armed, 9, 8), scheduled(10));
    assert_eq!(
        expire(armed, 9, 12),
        scheduled(10),
        "it is not asked before it is due"
    );
    assert_eq!(expire(armed, 10, 8), fired(10));
    assert_eq!(expire(armed, 12, 12), fired(12));
    assert_eq!(expire(armed, 12, 13), scheduled(13));
    assert_eq!(
        expire(armed, 12, NEVER),
        (("deregister", 0), NEVER, armed, true)
    );
    for phase in [Phase::Idle, Phase::Fired, Phase::Released, Phase::Closed] {
        assert_eq!(
            expire(phase, 12, 0),
            (("deregister", 0), NEVER, phase, false)
        );
    }
}

#[test]
fn closes_all_but_what_has_fired_and_returns_the_waker() {
    for phase in [Phase::Idle, Phase::Armed, Phase::Released, Phase::Closed] {
        let entry = put(phase, 10, 10, true);
        assert_eq!(entry.close().is_some(), phase == Phase::Armed);
        assert_eq!(
            seen(&entry),
            (Phase::Closed, NEVER, Some(NODE), false, false)
        );
    }
    let entry = put(Phase::Fired, 10, 10, true);
    assert!(entry.close().is_none());
    assert_eq!(
        seen(&entry),
        (Phase::Fired, NEVER, Some(NODE), false, false)
    );
}

#[test]
fn deregisters_what_is_not_armed() {
    let entry = put(Phase::Armed, 10, 10, false);
    assert!(!entry.deregister_unarmed());
    assert_eq!(seen(&entry), (Phase::Armed, 10, Some(NODE), false, true));
    for phase in [Phase::Idle, Phase::Fired, Phase::Released, Phase::Closed] {
        let entry = put(phase, 10, 10, false);
        assert!(entry.deregister_unarmed());
        assert_eq!(seen(&entry), (phase, NEVER, None, false, false));
    }
}

#[test]
fn sends_no_command_for_later_moves_cancels_and_reuse() {
    let entry = scheduled(10);
    assert_eq!(entry.move_to(20), (Phase::Armed, Notify::None));
    assert_eq!(disarm(&entry), (Phase::Armed, 10));
    assert_eq!(entry.arm(15, Waker::noop().clone()), Some(Notify::None));
    assert!(matches!(
        entry.process_expiration(10, NEXT, || 0),
        Expiration::Reschedule(15)
    ));
    assert!(matches!(
        entry.process_expiration(15, NEXT, || 0),
        Expiration::Fire { waker: Some(_), .. }
    ));
}

#[test]
fn queues_once_when_moved_earlier_and_follows_the_wake_rule() {
    let entry = scheduled(10);
    assert_eq!(entry.move_to(8), (Phase::Armed, Notify::Enqueue(8)));
    assert_eq!(entry.move_to(9), (Phase::Armed, Notify::None));
    assert_eq!(entry.move_to(3), (Phase::Armed, Notify::Wake(3)));
    assert_eq!(
        entry.register(NEXT, |_| Some(10)),
        Register::Reschedule(NODE, 3)
    );
}

#[test]
fn schedules_no_cancelled_entry_out_of_a_queue() {
    let entry = armed(10);
    drop(entry.disarm());
    assert_eq!(entry.register(NEXT, on_no_wheel), Register::Keep);
    assert_eq!(
        entry.arm(10, Waker::noop().clone()),
        Some(Notify::Enqueue(10)),
        "the actor had dropped it"
    );
}

#[test]
fn takes_a_released_entry_off_the_wheel() {
    let entry = scheduled(10);
    drop(entry.disarm());
    assert_eq!(entry.release(), Notify::Enqueue(NEVER));
    assert_eq!(
        entry.register(NEXT, |_| Some(10)),
        Register::Deregister(NODE)
    );
}

#[test]
fn schedules_no_entry_that_never_fires() {
    let entry = Entry::new(());
    assert_eq!(entry.arm(NEVER, Waker::noop().clone()), Some(Notify::None));
    assert!(matches!(
        entry.process_expiration(u64::MAX - 1, NEXT, || 0),
        Expiration::Deregister
    ));
}

#[test]
fn stays_closed_whatever_its_owner_does() {
    let entry = armed(10);
    assert!(entry.close().is_some());
    assert_eq!(entry.arm(5, Waker::noop().clone()), None);
    assert_eq!(entry.poll(Waker::noop()).0, Phase::Closed);
    assert_eq!(entry.disarm().was, Phase::Closed);
}

#[test]
fn stays_fired_when_the_actor_ends() {
    let entry = armed(10);
    assert!(matches!(
        entry.process_expiration(10, NEXT, || 0),
        Expiration::Fire { .. }
    ));
    assert!(entry.close().is_none());
    assert_eq!(entry.phase(), Phase::Fired);
}
