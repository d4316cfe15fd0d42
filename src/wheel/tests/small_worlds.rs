//! Small wheels, exhaustively.
//!
//! There are two ways. *Every state*: the behaviour of a wheel depends on the ticks of its items
//! relative to the current one, and on the current tick modulo the width of the highest level in
//! use. With few items and near deadlines the number of states is finite. The tests visit every
//! state that any script can reach, and make every step from each. *Every script*: the tests play
//! all sequences of a few steps, from every alignment of the current tick, and at the end of time.

use std::collections::HashSet;
use std::fmt::Debug;

use super::{Token, Wheel, inspect, level_of};

#[derive(Debug, Clone, Copy)]
enum Op {
    /// In this many ticks.
    Insert(u64),
    /// The item, and the ticks from now.
    Reschedule(usize, u64),
    Remove(usize),
    Advance {
        by: u64,
        budget: usize,
        cascades: usize,
    },
}

/// Prints the steps that led to a failed assertion.
struct Trail<T: Debug>(T);

impl<T: Debug> Drop for Trail<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("after {:?}", self.0);
        }
    }
}

/// A wheel and the few items that should be in it: their places in `items` are what the wheel
/// holds.
#[derive(Debug, Clone)]
struct Small {
    wheel: Wheel<usize>,
    items: Vec<Option<(Token, u64)>>,
}

impl Small {
    fn new(slots: usize, origin: u64, most: usize) -> Self {
        Small {
            wheel: Wheel::with_slots(slots, origin),
            items: vec![None; most],
        }
    }

    fn live(&self) -> impl Iterator<Item = (Token, u64)> + '_ {
        self.items.iter().flatten().copied()
    }

    fn earliest(&self) -> Option<u64> {
        self.live().map(|(_, tick)| tick).min()
    }

    /// How far the items still are from level 0.
    fn height(&self) -> usize {
        self.live()
            .map(|(token, _)| level_of(&self.wheel, token))
            .sum()
    }

    /// Every step that can be made from here.
    fn steps(&self, distances: &[u64], advances: &[Op]) -> Vec<Op> {
        let mut steps = advances.to_vec();
        if self.items.iter().any(Option::is_none) {
            steps.extend(distances.iter().map(|&ticks| Op::Insert(ticks)));
        }
        for (which, item) in self.items.iter().enumerate() {
            if item.is_some() {
                steps.push(Op::Remove(which));
                steps.extend(distances.iter().map(|&ticks| Op::Reschedule(which, ticks)));
            }
        }
        steps
    }

    fn play(&mut self, op: Op) {
        let now = self.wheel.now();
        match op {
            Op::Insert(ticks) => {
                let tick = now.saturating_add(ticks);
                let free = self.items.iter().position(Option::is_none);
                let free = free.expect("insertions are offered when there is room");
                self.items[free] = Some((self.wheel.insert(tick, free), tick));
            }
            Op::Reschedule(which, ticks) => {
                let (token, tick) = self.items[which].as_mut().expect("live ones are offered");
                *tick = now.saturating_add(ticks);
                assert!(self.wheel.reschedule(*token, *tick));
            }
            Op::Remove(which) => {
                let (token, _) = self.items[which].take().expect("live ones are offered");
                assert_eq!(self.wheel.remove(token), Some(which));
                assert_eq!(self.wheel.remove(token), None);
            }
            Op::Advance {
                by,
                budget,
                cascades,
            } => self.advance(now.saturating_add(by), budget, cascades),
        }
        self.check();
    }

    fn advance(&mut self, target: u64, budget: usize, cascades: usize) {
        let measure = |small: &Small| (small.wheel.now(), small.wheel.len(), small.height());
        let before = measure(self);
        let wake = self.wheel.next_wake();
        let advance = super::advance(&mut self.wheel, target, budget, cascades);
        let out: Vec<usize> = advance.collect();
        for which in &out {
            let earliest = self.earliest();
            let (token, tick) = self.items[*which].take().expect("yielded twice");
            assert_eq!(Some(tick), earliest, "not in the order of the ticks");
            assert!(tick <= target, "{tick} is early at {target}");
            assert_eq!(self.wheel.get(token), None);
        }
        let now = self.wheel.now();
        assert!(before.0 <= now && now <= target);
        if out.len() == budget {
            return;
        }
        if cascades == usize::MAX {
            assert!(self.earliest().is_none_or(|tick| tick > target), "late");
            assert_eq!(now, target);
        } else if wake.is_some_and(|wake| wake <= target) {
            assert_ne!(before, measure(self), "no progress");
        }
    }

    fn check(&self) {
        self.wheel.assert_invariants();
        assert_eq!(self.wheel.len(), self.live().count());
        match (self.wheel.next_wake(), self.earliest()) {
            (Some(wake), Some(tick)) => assert!(self.wheel.now() <= wake && wake <= tick),
            (wake, tick) => assert!(wake.is_none() && tick.is_none()),
        }
        for (which, &item) in self.items.iter().enumerate() {
            if let Some((token, tick)) = item {
                assert_eq!(self.wheel.tick_of(token), Some(tick));
                assert_eq!(self.wheel.get(token), Some(&which));
            }
        }
    }

    /// Advances from wake to wake until the wheel is empty. Asserts that there is one stop for each
    /// level at most, and that each item comes out once.
    fn drain(mut self) {
        let mut stops = self.height() + self.wheel.len();
        while let Some(wake) = self.wheel.next_wake() {
            assert!(stops > 0, "one stop too many, at {wake}");
            stops -= 1;
            self.advance(wake, usize::MAX, usize::MAX);
            self.check();
        }
        assert_eq!(self.live().count(), 0);
    }

    /// The state of a wheel; equal states behave the same from here on.
    fn state(&self, cycle: u64) -> Vec<u8> {
        let wheel = &self.wheel.bare;
        let byte = |number: u64| u8::try_from(number).expect("small worlds only");
        let mut state = vec![byte(wheel.now % cycle)];
        for (level, row) in wheel.levels.iter().enumerate() {
            for slot in 0..=wheel.slot_mask() {
                let slot = usize::try_from(slot).expect("two or four");
                for index in wheel.arena.walk(row.bucket(slot)) {
                    let tick = wheel.tick_of(index).expect("it is occupied");
                    let distance = tick - wheel.now;
                    state.extend([byte(level as u64), byte(distance)]);
                }
            }
        }
        state
    }
}

/// Visits every state that a wheel with at most so many items can get into by steps of the given
/// distances, and makes every step from each. Returns how many states there are.
fn visit_every_state(slots: usize, most: usize, distances: &[u64], advances: &[u64]) -> usize {
    // The highest level that such distances reach is the one that a wheel makes for them when it is
    // aligned worst.
    let furthest: u64 = distances.iter().copied().max().expect("some distance");
    let mut top = 0;
    let mut width = 1;
    while furthest.div_ceil(width) >= slots as u64 {
        width *= slots as u64;
        top += 1;
    }
    let cycle = (slots as u64).pow(top + 1);

    let mut ways = Vec::new();
    for &by in advances {
        for (budget, cascades) in [(usize::MAX, usize::MAX), (1, usize::MAX), (usize::MAX, 1)] {
            ways.push(Op::Advance {
                by,
                budget,
                cascades,
            });
        }
    }
    let mut seen = HashSet::new();
    let mut todo: Vec<Small> = (0..cycle).map(|now| Small::new(slots, now, most)).collect();
    seen.extend(todo.iter().map(|small| small.state(cycle)));
    while let Some(small) = todo.pop() {
        for op in small.steps(distances, &ways) {
            let trail = Trail((&small, op));
            let mut next = small.clone();
            next.play(op);
            if seen.insert(next.state(cycle)) {
                inspect(&next.wheel);
                next.clone().drain();
                todo.push(next);
            }
            drop(trail);
        }
    }
    seen.len()
}

#[test]
fn explores_two_slots_and_three_items() {
    let distances: Vec<u64> = (0..=5).collect();
    let states = visit_every_state(2, 3, &distances, &[0, 1, 2, 3, 5]);
    assert!(states > 5_000, "{states}");
}

#[test]
fn explores_two_slots_and_two_items_over_five_levels() {
    let distances: Vec<u64> = (0..=9).collect();
    let states = visit_every_state(2, 2, &distances, &[1, 2, 3, 4, 7, 8, 9]);
    assert!(states > 5_000, "{states}");
}

#[test]
fn explores_four_slots_and_two_items_over_three_levels() {
    let states = visit_every_state(4, 2, &[0, 1, 3, 4, 5, 15, 16, 17], &[1, 3, 4, 16]);
    assert!(states > 5_000, "{states}");
}

#[test]
fn explores_four_slots_and_three_items() {
    let states = visit_every_state(4, 3, &[0, 1, 2, 3, 4, 5, 6], &[1, 2, 3, 4, 5]);
    assert!(states > 5_000, "{states}");
}

/// Plays every script of so many steps on from here, and lets each of them end.
fn play_on(small: &Small, steps: usize, distances: &[u64], advances: &[Op], script: &mut Vec<Op>) {
    if steps == 0 {
        small.clone().drain();
        return;
    }
    for op in small.steps(distances, advances) {
        let mut next = small.clone();
        script.push(op);
        let trail = Trail(&script);
        next.play(op);
        drop(trail);
        play_on(&next, steps - 1, distances, advances, script);
        script.pop();
    }
}

fn play_every_script(
    slots: usize,
    steps: usize,
    origins: impl Iterator<Item = u64>,
    distances: &[u64],
    advances: &[u64],
) {
    let unlimited = |&by| Op::Advance {
        by,
        budget: usize::MAX,
        cascades: usize::MAX,
    };
    let advances: Vec<Op> = advances.iter().map(unlimited).collect();
    for origin in origins {
        let trail = Trail(origin);
        let small = Small::new(slots, origin, steps);
        play_on(&small, steps, distances, &advances, &mut Vec::new());
        drop(trail);
    }
}

#[test]
fn plays_every_script_of_three_steps_on_two_slots() {
    let distances = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    play_every_script(2, 3, 0..8, &distances, &[1, 2, 3, 4, 8]);
}

#[test]
fn plays_every_script_of_three_steps_on_four_slots() {
    let distances = [0, 1, 3, 4, 5, 16, 17, 63];
    play_every_script(4, 3, 0..64, &distances, &[1, 4, 15]);
}

#[test]
fn plays_every_script_of_three_steps_at_the_end_of_time() {
    let distances = [0, 1, 2, 3, 4, 5, 9, u64::MAX];
    for slots in [2, 4] {
        let origins = (0..9).map(|left| u64::MAX - left);
        play_every_script(slots, 3, origins, &distances, &[1, 2, 4]);
    }
}

/// A timer moved once: go-zero compared the slots of the old and the new deadline instead of the
/// distances, and a quarter of all single moves fired exactly one rotation early or late.
fn move_every_item_once(slots: u64, distances: &[u64]) {
    let size = usize::try_from(slots).expect("small");
    for origin in 0..slots.pow(3) {
        for &first in distances {
            let elapsed = [0, 1, 2, slots, slots * slots, first.saturating_sub(1)];
            for elapsed in elapsed.into_iter().filter(|&ticks| ticks < first) {
                let mut armed = Wheel::with_slots(size, origin);
                let token = armed.insert(origin + first, ());
                assert_eq!(armed.advance(origin + elapsed, usize::MAX).count(), 0);
                for &second in distances {
                    let mut wheel = armed.clone();
                    let due = origin + elapsed + second;
                    assert!(wheel.reschedule(token, due));
                    if second > 0 {
                        let out = wheel.advance(due - 1, usize::MAX).count();
                        assert_eq!(out, 0, "{origin}: {first}, {elapsed}, {second} is early");
                    }
                    let out = wheel.advance(due, usize::MAX).count();
                    assert_eq!(out, 1, "{origin}: {first}, {elapsed}, {second} is late");
                    assert!(wheel.is_empty());
                }
            }
        }
    }
}

#[test]
fn fires_every_single_move_on_two_slots_at_its_tick() {
    let distances: Vec<u64> = (0..=18).collect();
    move_every_item_once(2, &distances);
}

#[test]
fn fires_every_single_move_on_four_slots_at_its_tick() {
    let near = 0..=9;
    let far = [
        12, 15, 16, 17, 19, 20, 31, 32, 33, 48, 62, 63, 64, 65, 67, 68,
    ];
    let distances: Vec<u64> = near.chain(far).collect();
    move_every_item_once(4, &distances);
}
