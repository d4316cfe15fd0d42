//! How the actor moves a wheel on: a bounded amount of work at a time.

use crate::sync::EXPLORED;
use crate::wheel::Wheel;

/// How many items are taken off a wheel at a time.
const BATCH: usize = if EXPLORED { 2 } else { 64 };

/// The cost of a step in which items only cascaded to lower levels, in items that are due.
const CASCADE_COST: usize = if EXPLORED { 2 } else { 128 };

/// Hands the items that are due by `until` to `process`, tick by tick, as far as the budget goes; true when there may be
/// more. `due` is where they are put; it is empty before and after.
pub(crate) fn advance<T>(
    wheel: &mut Wheel<T>,
    due: &mut Vec<T>,
    until: u64,
    budget: &mut usize,
    mut process: impl FnMut(&mut Wheel<T>, &mut Vec<T>),
) -> bool {
    if until < wheel.now() {
        // The wheel went further in an earlier turn. Items that were scheduled at its tick since then are overdue, as
        // are commands that are still in the backlog, and wait for them.
        return true;
    }
    while let Some(tick) = wheel.next_wake().filter(|&tick| tick <= until) {
        if *budget == 0 {
            return true;
        }
        due.extend(wheel.advance(tick, BATCH.min(*budget)));
        let cost = if due.is_empty() {
            CASCADE_COST
        } else {
            due.len()
        };
        *budget = budget.saturating_sub(cost);
        process(wheel, due);
        due.clear();
    }
    // Only time moves on.
    let none = wheel.advance(until, 1).next();
    debug_assert!(none.is_none(), "nothing is due by then any more");
    false
}
