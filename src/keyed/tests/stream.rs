//! Tests of the stream of a set: the expirations it takes, and the wakers it leaves.

use std::cell::RefCell;

use super::*;

#[test]
fn finds_what_is_delivered_while_a_waker_is_cloned() {
    let (_shared, set) = set();
    let actor = RefCell::new(Actor::default());
    arm(&set, 0..1, 5);
    let deliver = |waker: &Waker| {
        actor.borrow_mut().fire(&set, 5);
        waker.clone()
    };
    let polled = set.poll_taking(Waker::noop(), deliver);
    assert!(matches!(polled, Poll::Ready(Some(expired)) if expired.key == 0));
    assert!(set.lock().receiver.is_none());
}

#[test]
fn sees_the_end_that_comes_while_a_waker_is_cloned() {
    let (_shared, set) = set();
    let close = |waker: &Waker| {
        TimerSet::close(&**set);
        waker.clone()
    };
    let polled = set.poll_taking(Waker::noop(), close);
    assert!(matches!(polled, Poll::Ready(None)));
}

#[test]
fn survives_a_waker_whose_clone_panics() {
    let (_shared, set) = set();
    let mut actor = Actor::default();
    arm(&set, 0..1, 5);
    let clone = |_: &Waker| -> Waker { panic!("the clone of a waker panics") };
    let poll = || set.poll_taking(Waker::noop(), clone);
    assert!(catch_unwind(AssertUnwindSafe(poll)).is_err());
    arm(&set, 1..2, 5);
    actor.fire(&set, 5);
    assert_eq!(delivered(&set), [0, 1]);
    let polled = set.poll_taking(Waker::noop(), Waker::clone);
    assert!(polled.is_pending());
    assert!(set.lock().receiver.is_some());
}

#[test]
fn all_timers_are_visited_in_batches() {
    const MANY: u32 = 100_000;
    let (_shared, set) = set();
    arm(&set, 0..u64::from(MANY), 5);
    let mut visited = 0;
    for range in set.batches() {
        assert!(range.start == visited && range.len() <= BATCH as usize);
        visited = range.end;
    }
    assert_eq!(visited, set.lock().table.end());
    assert_eq!(set.take_all(NonZeroU64::MAX).len(), MANY as usize);
}

#[test]
fn receives_no_more_than_the_limit_over_several_batches() {
    let (_shared, set) = set();
    let mut actor = Actor::default();
    arm(&set, 0..2_000, 5);
    actor.fire(&set, 5);
    let mut out = Vec::new();
    let limits = [0, 1, 255, 256, 257, 512, 513];
    for limit in limits {
        assert_eq!(set.recv_more(limit, &mut out), limit);
    }
    let left = 2_000 - limits.iter().sum::<usize>();
    assert_eq!(set.recv_more(usize::MAX, &mut out), left);
    assert!(out.iter().map(|expired| expired.key).eq(0..2_000));
}
