//! Moves a wheel on, by a bounded amount of work at a time.

use crate::sync::EXPLORED;
use crate::wheel::BareWheel;

/// How many items are taken off a wheel at a time.
const BATCH: usize = if EXPLORED { 2 } else { 64 };

/// The cost of a step in which items only cascaded to lower levels. The unit is one due item.
const CASCADE_COST: usize = if EXPLORED { 2 } else { 128 };

/// The result of one step of a wheel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Step {
    /// Some items of one tick were taken off, or cascaded. They have to be processed before the next step.
    Batch,
    /// The budget is used up, or items have to wait for commands: there may be more.
    More,
    /// No item is left that is scheduled by that tick.
    Done,
}

/// Takes a step of the wheel towards tick `until`, and puts the items that it reaches into `due`, which is empty.
///
/// A step reaches one tick at most. An item that turns out to have been moved is therefore rescheduled before the next
/// tick is processed, and does not overtake items that are due between its old deadline and its new one.
pub(crate) fn step<T>(
    wheel: &mut BareWheel<T>,
    due: &mut Vec<T>,
    until: u64,
    budget: &mut usize,
) -> Step {
    debug_assert!(due.is_empty(), "the last batch was processed");
    if until < wheel.now() {
        // The wheel went further in an earlier turn. Items scheduled at its tick since then wait for commands in the
        // backlog that are needed earlier.
        return Step::More;
    }
    let Some(tick) = wheel.next_wake().filter(|&tick| tick <= until) else {
        // Nothing is scheduled by then; only the current tick moves on.
        let none = wheel.advance(until, 1).next();
        debug_assert!(none.is_none(), "nothing is due by then any more");
        return Step::Done;
    };
    if *budget == 0 {
        return Step::More;
    }
    due.extend(wheel.advance(tick, BATCH.min(*budget)));
    let cost = if due.is_empty() {
        CASCADE_COST
    } else {
        due.len()
    };
    *budget = budget.saturating_sub(cost);
    Step::Batch
}

#[cfg(all(test, not(any(tickwheel_loom, tickwheel_shuttle))))]
mod tests {
    use super::*;

    // Such a step once moved the wheel on, and dropped what was due. In debug builds it was an assertion that failed.
    #[test]
    fn keeps_items_when_an_earlier_tick_has_to_wait() {
        let (mut wheel, mut due) = (BareWheel::new(8), Vec::new());
        let mut budget = 1_000;
        assert_eq!(step(&mut wheel, &mut due, 10, &mut budget), Step::Done);
        wheel.insert(10, 'a');
        // A command in the backlog is needed at 8.
        assert_eq!(step(&mut wheel, &mut due, 7, &mut budget), Step::More);
        assert_eq!((wheel.len(), wheel.now(), &due[..]), (1, 10, &[][..]));
        assert_eq!(step(&mut wheel, &mut due, 10, &mut budget), Step::Batch);
        assert_eq!(due, ['a']);
    }
}
