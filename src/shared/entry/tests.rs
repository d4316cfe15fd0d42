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
fn an_entry_takes_56_bytes_and_72_with_its_reference_counts() {
    assert_eq!(size_of::<Entry<Arc<()>>>(), 56);
}

/// The node of an entry that has one, and the node that the wheel would give next.
const NODE: u32 = 3;
const NEXT: u32 = 7;

fn on_no_wheel(node: u32) -> Option<u64> {
    panic!("it has no node, but asks for {node}");
}

/// Armed, and on the wheel at its deadline.
fn scheduled(deadline: u64) -> Entry<()> {
    let entry = armed(deadline);
    let attended = entry.register(NODE, on_no_wheel);
    assert_eq!(attended, Register::Insert(deadline));
    entry
}

/// The phase that ended, and when the actor processes the entry.
fn disarm(entry: &Entry<()>) -> (Phase, u64) {
    let disarmed = entry.disarm();
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

/// The phase, the tick of the next look, the node, whether it is queued, and whether it has a waker.
fn seen(entry: &Entry<()>) -> (Phase, u64, Option<u32>, bool, bool) {
    let state = entry.state.lock();
    let node = (state.node != NO_NODE).then_some(state.node);
    let has_waker = state.waker.is_some();
    (state.phase, state.scheduled, node, state.queued, has_waker)
}

#[test]
fn only_an_armed_entry_is_moved() {
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
fn a_poll_leaves_its_waker_only_with_an_entry_that_is_armed() {
    for phase in [Phase::Idle, Phase::Fired, Phase::Released, Phase::Closed] {
        let entry = put(phase, 10, 10, false);
        assert_eq!(entry.poll(Waker::noop()).0, phase);
        assert_eq!(seen(&entry), (phase, 10, Some(NODE), false, false));
    }
}

#[test]
fn who_polled_last_is_woken() {
    struct Task;
    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }
    let wakers = [(); 3].map(|()| Waker::from(Arc::new(Task)));
    let entry = scheduled(10);
    for waker in wakers.iter().chain(&wakers[..1]) {
        assert_eq!(entry.poll(waker).0, Phase::Armed);
        let state = entry.state.lock();
        assert!(state.waker.as_ref().is_some_and(|w| w.will_wake(waker)));
    }
}

#[test]
fn a_cancelled_entry_has_no_waker_and_says_when_the_actor_looks() {
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
fn an_entry_that_is_given_up_is_queued_unless_it_is_or_the_actor_does_not_know_it() {
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
fn what_comes_out_of_a_queue_is_filed_if_it_is_armed_for_before_its_node() {
    let attend = |phase, deadline, on_wheel: Option<u64>| {
        let entry = put(phase, deadline, 1, true);
        let attend = entry.register(NEXT, |node| {
            assert_eq!(node, NODE);
            on_wheel
        });
        let (now, scheduled, node, queued, _) = seen(&entry);
        assert_eq!((now, queued), (phase, false));
        (attend, scheduled, node)
    };
    let node = Some(NODE);
    for (here, scheduled) in [(None, NEVER), (Some(11), 11), (Some(10), 10), (Some(9), 9)] {
        let armed = match here {
            None => (Register::Insert(10), 10, Some(NEXT)),
            Some(..=10) => (Register::Keep, scheduled, node),
            Some(_) => (Register::Reschedule(NODE, 10), 10, node),
        };
        assert_eq!(attend(Phase::Armed, 10, here), armed);
        for phase in [Phase::Idle, Phase::Fired] {
            assert_eq!(attend(phase, 10, here), (Register::Keep, scheduled, node));
        }
        for phase in [Phase::Released, Phase::Closed] {
            let attended = here.map_or(Register::Keep, |_| Register::Deregister(NODE));
            assert_eq!(attend(phase, 10, here), (attended, NEVER, None));
        }
    }
    let never = attend(Phase::Armed, NEVER, None);
    assert_eq!(never, (Register::Keep, NEVER, node));
}

#[test]
fn a_look_fires_what_is_due_files_what_is_armed_and_lets_the_rest_go() {
    // Due at 10, put off to `later`, seen at `now`.
    let look = |phase, now, later| {
        let entry = put(phase, 10, 1, true);
        let look = entry.process_expiration(now, NEXT, || later);
        let (phase, scheduled, node, queued, waker) = seen(&entry);
        assert!(queued, "of the queue it knows nothing");
        let again = matches!(look, Expiration::Reschedule(_)).then_some(NEXT);
        assert_eq!(node, again, "it has left its node");
        let looked = match look {
            Expiration::Fire { deadline, waker } => {
                assert!(waker.is_some());
                ("fire", deadline)
            }
            Expiration::Reschedule(tick) => ("file", tick),
            Expiration::Deregister => ("let go", 0),
        };
        (looked, scheduled, phase, waker)
    };
    let armed = Phase::Armed;
    let fired = |tick| (("fire", tick), NEVER, Phase::Fired, false);
    let scheduled = |tick| (("file", tick), tick, armed, true);
    assert_eq!(look(armed, 9, 8), scheduled(10));
    assert_eq!(
        look(armed, 9, 12),
        scheduled(10),
        "nobody asks before it is due"
    );
    assert_eq!(look(armed, 10, 8), fired(10));
    assert_eq!(look(armed, 12, 12), fired(12));
    assert_eq!(look(armed, 12, 13), scheduled(13));
    assert_eq!(look(armed, 12, NEVER), (("let go", 0), NEVER, armed, true));
    for phase in [Phase::Idle, Phase::Fired, Phase::Released, Phase::Closed] {
        assert_eq!(look(phase, 12, 0), (("let go", 0), NEVER, phase, false));
    }
}

#[test]
fn closing_ends_all_but_what_has_fired_and_takes_the_waker() {
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
fn what_is_armed_is_not_let_go() {
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
fn moving_later_and_cancelling_and_arming_again_later_cost_no_message() {
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
fn moving_earlier_queues_once_and_nudges_after_that() {
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
fn a_cancelled_entry_in_a_queue_is_not_filed() {
    let entry = armed(10);
    drop(entry.disarm());
    assert_eq!(entry.register(NEXT, on_no_wheel), Register::Keep);
    assert_eq!(
        entry.arm(10, Waker::noop().clone()),
        Some(Notify::Enqueue(10)),
        "nobody was going to look any more"
    );
}

#[test]
fn an_abandoned_entry_leaves_the_wheel() {
    let entry = scheduled(10);
    drop(entry.disarm());
    assert_eq!(entry.release(), Notify::Enqueue(NEVER));
    assert_eq!(
        entry.register(NEXT, |_| Some(10)),
        Register::Deregister(NODE)
    );
}

#[test]
fn an_entry_that_never_fires_is_not_filed() {
    let entry = Entry::new(());
    assert_eq!(entry.arm(NEVER, Waker::noop().clone()), Some(Notify::None));
    assert!(matches!(
        entry.process_expiration(u64::MAX - 1, NEXT, || 0),
        Expiration::Deregister
    ));
}

#[test]
fn a_closed_entry_stays_closed_and_gives_its_waker_back() {
    let entry = armed(10);
    assert!(entry.close().is_some());
    assert_eq!(entry.arm(5, Waker::noop().clone()), None);
    assert_eq!(entry.poll(Waker::noop()).0, Phase::Closed);
    assert_eq!(entry.disarm().was, Phase::Closed);
}

#[test]
fn what_has_fired_stays_fired_when_the_actor_goes() {
    let entry = armed(10);
    assert!(matches!(
        entry.process_expiration(10, NEXT, || 0),
        Expiration::Fire { .. }
    ));
    assert!(entry.close().is_none());
    assert_eq!(entry.phase(), Phase::Fired);
}
