//! Tests of a timer's bound, one call at a time, and in every order that a small world has.

use std::collections::{HashSet, VecDeque};

use super::*;

/// No tick of the small world is later.
const END: u64 = 5;

/// A timer between its owner and its actor, alone on a wheel.
#[derive(Clone)]
struct World {
    bound: Bound,
    want: Option<u64>,
    wheel: BareWheel<()>,
    /// How often the timer is in a queue.
    queued: usize,
    /// The earliest tick that the actor was told for what is in the queue.
    told: u64,
}

#[derive(Debug, Clone, Copy)]
enum Op {
    Arm(u64),
    Disarm,
    Release,
    /// The actor empties the queue, as it may at any time.
    Take,
    /// The next tick begins. The actor has run by then if it was told to.
    Pass,
    /// The actor takes the node off the wheel.
    Evict,
}

impl World {
    fn new() -> Self {
        World {
            bound: Bound::NEW,
            want: None,
            wheel: BareWheel::new(4),
            queued: 0,
            told: NEVER,
        }
    }

    fn now(&self) -> u64 {
        self.wheel.now()
    }

    fn tick(&self) -> Option<u64> {
        self.wheel.tick_of(self.bound.node()?)
    }

    /// All that may tell this world from another.
    fn key(&self) -> (u64, u64, u32, Option<u64>, u64, Option<u64>) {
        let (scheduled, place) = (self.bound.scheduled, self.bound.place);
        (
            self.now(),
            scheduled,
            place,
            self.want,
            self.told,
            self.tick(),
        )
    }

    fn act(&mut self, action: ActorAction) {
        match action {
            ActorAction::None => {}
            ActorAction::Wake(tick) => self.told = self.told.min(tick),
            ActorAction::Enqueue(tick) => {
                self.queued += 1;
                self.told = self.told.min(tick);
            }
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Arm(tick) => {
                self.want = Some(tick);
                let action = self.bound.require(tick);
                self.act(action);
            }
            Op::Disarm => self.want = Some(NEVER),
            Op::Release => {
                self.want = None;
                let action = self.bound.release();
                self.act(action);
            }
            Op::Take => self.take(),
            Op::Pass => {
                let next = self.now() + 1;
                if self.told <= next {
                    self.take();
                }
                self.advance(next);
            }
            Op::Evict => {
                if let Some(node) = self.bound.node() {
                    self.wheel.remove(node);
                }
                self.bound.leave();
                // As an entry that is evicted.
                self.want = Some(NEVER);
            }
        }
    }

    fn take(&mut self) {
        self.queued = 0;
        self.told = NEVER;
        let op = self.bound.agree(self.want, &self.wheel);
        op.apply(&mut self.wheel, ());
        // A timer that was due when the actor learned of it fires in the same turn.
        self.advance(self.now());
    }

    fn advance(&mut self, now: u64) {
        while self.wheel.advance(now, 1).next().is_some() {
            match self.bound.reached(self.want, now, &self.wheel) {
                Some(tick) if tick <= now => {
                    assert_eq!(self.want, Some(tick));
                    self.want = Some(NEVER);
                }
                Some(tick) => {
                    self.wheel.insert(tick, ());
                }
                None => {
                    let waits = self.want.is_some_and(|tick| tick != NEVER);
                    assert!(!waits || self.bound.is_queued(), "it is lost");
                }
            }
        }
    }

    fn assert_invariants(&self) {
        let (scheduled, now) = (self.bound.scheduled, self.now());
        if let Some(tick) = self.want {
            assert!(scheduled <= tick, "B1");
            assert!(tick > now || self.told <= now.max(tick), "it is late");
        }
        // A tick that has passed counts as the current one on the wheel.
        let on_wheel = self.tick();
        if !self.bound.is_queued() {
            let expected = (scheduled != NEVER).then_some(scheduled);
            let is_there = on_wheel == expected || on_wheel.is_some_and(|tick| tick == now);
            assert!(is_there, "B2");
        } else if scheduled != NEVER {
            let is_early = on_wheel.is_some_and(|tick| tick <= scheduled.max(now));
            assert!(is_early || self.told <= scheduled, "B3");
        }
        assert_eq!(self.queued, usize::from(self.bound.is_queued()), "B4");
        assert_eq!(self.wheel.len(), usize::from(on_wheel.is_some()), "B5");
        assert_eq!(on_wheel.is_some(), self.bound.node().is_some(), "B5");
    }
}

// Every world that some calls lead to, up to the end of its time.
#[test]
fn bound_keeps_its_invariants_in_every_small_world() {
    let mut ops = vec![Op::Disarm, Op::Release, Op::Take, Op::Pass, Op::Evict];
    ops.extend((0..=END).chain([NEVER]).map(Op::Arm));
    let mut seen = HashSet::new();
    let mut worlds = VecDeque::from([World::new()]);
    while let Some(world) = worlds.pop_front() {
        for &op in &ops {
            if world.now() == END && matches!(op, Op::Pass) {
                continue;
            }
            let mut next = world.clone();
            next.apply(op);
            if seen.insert(next.key()) {
                next.assert_invariants();
                worlds.push_back(next);
            }
        }
    }
    assert!(seen.len() > 500, "{} worlds", seen.len());
}

#[test]
fn bound_takes_12_bytes() {
    assert_eq!((size_of::<Bound>(), align_of::<Bound>()), (12, 4));
}

/// A bound that the actor has put on this wheel.
fn on_wheel(wheel: &mut BareWheel<()>, tick: u64) -> Bound {
    let mut bound = Bound::NEW;
    assert_eq!(bound.require(tick), ActorAction::Enqueue(tick));
    let op = bound.agree(Some(tick), wheel);
    assert_eq!(op, WheelOp::Insert(tick));
    op.apply(wheel, ());
    bound
}

#[test]
fn moving_later_and_back_asks_nothing_of_the_actor() {
    let mut wheel = BareWheel::new(4);
    let mut bound = on_wheel(&mut wheel, 10);
    for tick in [20, 10, NEVER, 11] {
        assert_eq!(bound.require(tick), ActorAction::None);
    }
    assert_eq!(bound.require(9), ActorAction::Enqueue(9));
    assert_eq!(bound.require(15), ActorAction::None);
    assert_eq!(bound.require(8), ActorAction::Wake(8));
    // The wheel's tick is the bound again, not the lowest that was required.
    let op = bound.agree(Some(15), &wheel);
    assert_eq!((op, bound.scheduled()), (WheelOp::Keep, 10));
}

#[test]
fn queue_entry_that_was_processed_changes_nothing() {
    let mut wheel = BareWheel::new(4);
    let mut bound = on_wheel(&mut wheel, 10);
    let before = bound;
    for want in [Some(5), Some(NEVER), None] {
        let op = bound.agree(want, &wheel);
        assert_eq!((op, bound), (WheelOp::Keep, before));
    }
}

#[test]
fn released_timer_is_queued_only_for_its_node() {
    let mut wheel = BareWheel::new(4);
    let mut bound = on_wheel(&mut wheel, 10);
    let node = bound.node().expect("it has one");
    assert_eq!(bound.release(), ActorAction::Enqueue(NEVER));
    assert_eq!(bound.release(), ActorAction::None);
    let op = bound.agree(None, &wheel);
    assert_eq!(op, WheelOp::Remove(node));
    assert_eq!(bound.release(), ActorAction::None, "it has none");
}

#[test]
fn timer_in_a_queue_is_not_found_due() {
    let mut wheel = BareWheel::new(4);
    let mut bound = on_wheel(&mut wheel, 3);
    assert_eq!(bound.require(2), ActorAction::Enqueue(2));
    assert!(wheel.advance(3, 1).next().is_some());
    assert_eq!(bound.reached(Some(2), 3, &wheel), None);
    assert_eq!(bound.scheduled(), 2, "the actor knows that tick");
    let op = bound.agree(Some(2), &wheel);
    assert_eq!(op, WheelOp::Insert(2));
    op.apply(&mut wheel, ());
    assert!(wheel.advance(3, 1).next().is_some());
    assert_eq!(bound.reached(Some(2), 3, &wheel), Some(2));
    assert_eq!(bound, Bound::NEW);
}
