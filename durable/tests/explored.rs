//! The protocol, explored on the store in memory.
//!
//! The environment variable `EXPLORE_DEPTH` sets the number of steps.

use tickwheel_durable_conformance::explorer::{Bounds, explore};

/// Explores, and prints how far it came.
async fn explored(bounds: Bounds, at_least: usize) {
    let explored = explore(bounds).await;
    let kinds = explored.traces.len();
    println!(
        "{} states, {} transitions of {kinds} kinds",
        explored.states, explored.transitions
    );
    assert!(explored.states >= at_least, "{} states", explored.states);
}

#[tokio::test]
async fn instances_that_share_one_key_keep_the_promises() {
    explored(Bounds::one_key(), 3_000).await;
}

#[tokio::test]
async fn instances_that_share_a_repeating_timer_keep_the_promises() {
    explored(Bounds::repeating(), 3_000).await;
}

#[tokio::test]
async fn three_instances_and_two_keys_keep_the_promises() {
    explored(Bounds::two_keys(), 1_500).await;
}
