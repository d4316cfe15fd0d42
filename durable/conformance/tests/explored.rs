//! The protocol, explored on the store in memory.
//!
//! The environment variable `EXPLORE_DEEPER` adds to the number of steps.

use tickwheel_durable_conformance::explorer::{Bounds, explore};

/// Explores, and prints how far it came.
async fn explored(bounds: Bounds, at_least: usize) {
    let explored = explore(&bounds).await;
    let kinds = explored.traces.len();
    println!(
        "{} steps: {} states, {} transitions of {kinds} kinds",
        bounds.depth, explored.states, explored.transitions
    );
    assert!(explored.states >= at_least, "{} states", explored.states);
}

macro_rules! explored {
    ($($name:ident: $bounds:ident to $depth:literal, $at_least:literal states;)*) => {$(
        #[tokio::test]
        async fn $name() {
            explored(Bounds::$bounds().steps($depth), $at_least).await;
        }
    )*};
}

explored! {
    instances_that_share_one_key_keep_the_promises: one_key to 5, 1_500 states;
    dead_timers_keep_the_promises: dead to 5, 1_500 states;
    repeating_timers_keep_the_promises: repeating to 5, 1_500 states;
    occurrences_one_at_a_time_keep_the_promises: one_at_a_time to 5, 1_500 states;
    instances_that_differ_from_the_charter_keep_the_promises: charters to 5, 1_500 states;
    instance_that_cannot_decode_keeps_the_promises: blind to 5, 1_500 states;
    missed_occurrences_are_each_delivered: each_missed to 5, 1_500 states;
    missed_occurrences_are_skipped: none_missed to 5, 1_500 states;
    schedules_that_one_instance_knows_keep_the_promises: calendar to 5, 1_500 states;
    timers_are_delivered_at_most_once: at_most_once to 5, 1_500 states;
    three_instances_and_two_keys_keep_the_promises: two_keys to 5, 1_500 states;
}
