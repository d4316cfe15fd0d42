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
    let mut out = None;
    let polled = set.poll_taking(Waker::noop(), deliver, 1, &mut out);
    assert_eq!(
        (polled, out.map(|expired| expired.key)),
        (Poll::Ready(1), Some(0))
    );
    assert!(set.lock().receiver.is_none());
}

#[test]
fn sees_the_end_that_comes_while_a_waker_is_cloned() {
    let (_shared, set) = set();
    let close = |waker: &Waker| {
        TimerSet::close(&*set);
        waker.clone()
    };
    let polled = set.poll_taking(Waker::noop(), close, 1, &mut Vec::new());
    assert_eq!(polled, Poll::Ready(0));
}

#[test]
fn survives_a_waker_whose_clone_panics() {
    let (_shared, set) = set();
    let mut actor = Actor::default();
    arm(&set, 0..1, 5);
    let clone = |_: &Waker| -> Waker { panic!("the clone of a waker panics") };
    let poll = || set.poll_taking(Waker::noop(), clone, 1, &mut Vec::new());
    assert!(catch_unwind(AssertUnwindSafe(poll)).is_err());
    arm(&set, 1..2, 5);
    actor.fire(&set, 5);
    let polled = set.poll_taking(Waker::noop(), Waker::clone, 9, &mut Vec::new());
    assert_eq!(polled, Poll::Ready(2));
    let polled = set.poll_taking(Waker::noop(), Waker::clone, 9, &mut Vec::new());
    assert_eq!(polled, Poll::Pending);
    assert!(set.lock().receiver.is_some());
}

#[test]
fn takes_a_batch_at_most_under_one_hold_of_the_lock() {
    const MANY: u32 = 100_000;
    let (_shared, set) = set();
    let mut actor = Actor::default();
    arm(&set, 0..u64::from(MANY), 5);
    actor.fire(&set, 5);
    let batch = BATCH as usize;
    let mut out: Vec<Expired<u64, ()>> = Vec::new();
    assert_eq!(set.lock().take_delivered(usize::MAX, &mut out), batch);
    assert_eq!(set.lock().take_delivered(7, &mut out), 7);
    // One call takes the rest all the same.
    let polled = set.poll_taking(Waker::noop(), Waker::clone, usize::MAX, &mut out);
    assert_eq!(polled, Poll::Ready(MANY as usize - batch - 7));
    assert!(out.iter().map(|expired| expired.key).eq(0..u64::from(MANY)));

    arm(&set, 0..u64::from(MANY), 5);
    let mut visited = 0;
    set.in_batches(|_, range| {
        assert!(range.start == visited && range.len() <= batch);
        visited = range.end;
    });
    assert_eq!(visited, set.lock().table.end());
    assert_eq!(set.take_all(NonZeroU64::MAX).len(), MANY as usize);
}

#[test]
fn takes_no_more_than_the_limit_over_several_batches() {
    let (_shared, set) = set();
    let mut actor = Actor::default();
    arm(&set, 0..2_000, 5);
    actor.fire(&set, 5);
    for limit in [1, 255, 256, 257, 512, 513] {
        let polled = set.poll_taking(Waker::noop(), Waker::clone, limit, &mut Vec::new());
        assert_eq!(polled, Poll::Ready(limit));
    }
    assert_eq!(
        delivered(&set).len(),
        2_000 - 1 - 255 - 256 - 257 - 512 - 513
    );
}

/// Counts the room that it was asked for. It uses the set then, which would deadlock under the
/// set's lock.
struct Room<'a> {
    set: &'a Keyed,
    left: usize,
}

impl Receiver<Expired<u64, ()>> for Room<'_> {
    fn reserve(&mut self, more: usize) {
        assert_eq!(self.set.len(), 0);
        self.left = more;
    }

    fn push(&mut self, _: Expired<u64, ()>) {
        self.left = self.left.checked_sub(1).expect("there is room");
    }
}

#[test]
fn makes_room_for_every_batch_before_it_locks_the_set() {
    let (_shared, set) = set();
    let mut actor = Actor::default();
    arm(&set, 0..1_000, 5);
    actor.fire(&set, 5);
    let mut room = Room { set: &set, left: 0 };
    let polled = set.poll_taking(Waker::noop(), Waker::clone, 300, &mut room);
    assert_eq!((polled, room.left), (Poll::Ready(300), 0));
    let polled = set.poll_taking(Waker::noop(), Waker::clone, usize::MAX, &mut room);
    assert_eq!(polled, Poll::Ready(700));
}

/// More is delivered whenever the consumer has taken a batch.
struct Fed<'a> {
    set: &'a Keyed,
    taken: usize,
}

impl Receiver<Expired<u64, ()>> for Fed<'_> {
    fn reserve(&mut self, _: usize) {
        assert!(self.taken < 10_000, "it goes on without end");
        let deadline = Instant::now();
        let expired = Expired {
            key: 0,
            value: (),
            deadline,
            cause: crate::timer_set::Cause::Deadline,
            missed: 0,
        };
        self.set.lock().delivered.push(NEVER, expired);
    }

    fn push(&mut self, _: Expired<u64, ()>) {
        self.taken += 1;
    }
}

// It once went on for as long as the actor delivered.
#[test]
fn receiving_many_ends_at_a_batch_that_is_not_full() {
    let (_shared, set) = set();
    let mut actor = Actor::default();
    for (delivered, taken) in [(0, 1), (254, 255), (255, 257), (600, 603)] {
        arm(&set, 0..delivered, 5);
        actor.fire(&set, 5);
        let mut fed = Fed {
            set: &set,
            taken: 0,
        };
        let polled = set.poll_taking(Waker::noop(), Waker::clone, usize::MAX, &mut fed);
        assert_eq!(polled, Poll::Ready(taken));
        assert_eq!(fed.taken, taken);
        while set.lock().delivered.pop().is_some() {}
    }
}
