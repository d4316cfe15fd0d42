//! The wheel against its oracle, and every rule of its documentation.

mod corpus;
mod fuzz;
mod properties;
mod regressions;
mod script;
mod small_worlds;

use super::bare::CASCADE_LIMIT;
use super::{Advance, Token, Wheel};

/// Checks a wheel's invariants, and the parts that its public check cannot see.
fn inspect<T>(wheel: &Wheel<T>) {
    wheel.assert_invariants();
    let wheel = &wheel.bare;
    wheel.arena.assert_consistent();
    let mut first: Option<u64> = None;
    for row in &wheel.levels {
        for slot in 0..1 << wheel.slot_bits {
            for index in wheel.arena.walk(row.bucket(slot)) {
                let tick = wheel.tick_of(index).expect("it is occupied");
                let start = tick >> row.shift << row.shift;
                let start = start.max(wheel.now);
                first = Some(first.map_or(start, |first| first.min(start)));
            }
        }
    }
    assert_eq!(wheel.next_wake(), first, "the bucket that starts first");
}

/// Advances with another limit for the cascades.
fn advance<T>(wheel: &mut Wheel<T>, now: u64, budget: usize, cascades: usize) -> Advance<'_, T> {
    let mut due = wheel.bare.advance(now, budget);
    due.cascades = cascades;
    Advance { due }
}

/// The indices of the items on a level.
fn on_level<T>(wheel: &Wheel<T>, level: usize) -> impl Iterator<Item = u32> + '_ {
    let Wheel { bare, .. } = wheel;
    let buckets = (0..1 << bare.slot_bits).map(move |slot| bare.levels[level].bucket(slot));
    buckets.flat_map(|list| bare.arena.walk(list))
}

/// The level an item lies on.
fn level_of<T>(wheel: &Wheel<T>, token: Token) -> usize {
    assert!(wheel.get(token).is_some());
    let lies_on = |&level: &usize| on_level(wheel, level).any(|index| index == token.index);
    let level = (0..wheel.bare.levels.len()).find(lies_on);
    level.expect("it is on a level")
}

/// How many levels a wheel with this many slots needs to reach every tick.
fn levels(slots: usize) -> usize {
    u64::BITS.div_ceil(slots.trailing_zeros()) as usize
}
