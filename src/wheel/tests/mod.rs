//! The wheel against its oracle, and every rule of its documentation.

mod arena;
mod cascade_limit;
mod corpus;
mod properties;
mod regressions;
mod replay;
mod script;
mod small_worlds;
mod surface;

use super::{Advance, CASCADE_LIMIT, Token, Wheel};

/// Checks a wheel's invariants, and the parts that its public check cannot see.
fn inspect<T>(wheel: &Wheel<T>) {
    wheel.assert_invariants();
    wheel.arena.assert_consistent();
    let mut first: Option<u64> = None;
    for (level, row) in wheel.levels.iter().enumerate() {
        let mut slot = 0;
        // The bitmap was checked above, so it leads to the buckets that are not empty.
        while let Some(occupied) = row.next_occupied(slot).filter(|&next| next >= slot) {
            let list = row.bucket(occupied);
            wheel.arena.assert_linked(list);
            for index in wheel.arena.walk(list) {
                let shift = wheel.shift(level);
                let start = wheel.arena.tick(index) >> shift << shift;
                let start = start.max(wheel.now);
                first = Some(first.map_or(start, |first| first.min(start)));
            }
            slot = occupied + 1;
            if slot > usize::try_from(wheel.slot_mask()).expect("at most 4096") {
                break;
            }
        }
    }
    assert_eq!(wheel.next_wake(), first, "the bucket that starts first");
}

/// The level an item lies on.
fn level_of<T>(wheel: &Wheel<T>, token: Token) -> usize {
    wheel
        .arena
        .level(wheel.arena.find(token).expect("it is there"))
}

/// How many levels a wheel with this many slots needs to reach every tick.
fn levels(slots: usize) -> usize {
    u64::BITS.div_ceil(slots.trailing_zeros()) as usize
}
