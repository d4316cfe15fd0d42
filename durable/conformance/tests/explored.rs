//! The protocol, explored on the store in memory.
//!
//! The environment variable `EXPLORE_DEEPER` adds to the number of steps.

use tickwheel_durable_conformance::explorer::explore;

macro_rules! explored {
    ($($name:ident: $bounds:literal;)*) => {$(
        #[tokio::test]
        async fn $name() {
            let states = explore($bounds, 5).await;
            assert!(states >= 1_500, "{states} states");
        }
    )*};
}

explored! {
    instances_that_share_one_key_keep_the_promises: "one-key";
    dead_timers_keep_the_promises: "dead";
    repeating_timers_keep_the_promises: "repeating";
    occurrences_one_at_a_time_keep_the_promises: "one-at-a-time";
    instances_that_differ_from_the_charter_keep_the_promises: "charters";
    instance_that_cannot_decode_keeps_the_promises: "blind";
    missed_occurrences_are_each_delivered: "each-missed";
    missed_occurrences_are_skipped: "none-missed";
    schedules_that_one_instance_knows_keep_the_promises: "calendar";
    timers_are_delivered_at_most_once: "at-most-once";
    store_that_returns_to_an_earlier_state_strands_no_timer: "returning";
    three_instances_and_two_keys_keep_the_promises: "two-keys";
}
