//! The protocol, explored on the store in memory.
//!
//! The environment variable `EXPLORE_DEEPER` adds to the number of steps.

use tickwheel_durable_conformance::explorer::{Bounds, explore};

macro_rules! explored {
    ($($name:ident: $bounds:ident;)*) => {$(
        #[tokio::test]
        async fn $name() {
            let states = explore(&Bounds::$bounds().steps(5)).await;
            assert!(states >= 1_500, "{states} states");
        }
    )*};
}

explored! {
    instances_that_share_one_key_keep_the_promises: one_key;
    dead_timers_keep_the_promises: dead;
    repeating_timers_keep_the_promises: repeating;
    occurrences_one_at_a_time_keep_the_promises: one_at_a_time;
    instances_that_differ_from_the_charter_keep_the_promises: charters;
    instance_that_cannot_decode_keeps_the_promises: blind;
    missed_occurrences_are_each_delivered: each_missed;
    missed_occurrences_are_skipped: none_missed;
    schedules_that_one_instance_knows_keep_the_promises: calendar;
    timers_are_delivered_at_most_once: at_most_once;
    three_instances_and_two_keys_keep_the_promises: two_keys;
}
