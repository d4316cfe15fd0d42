//! Cancelled entries are used again: what that saves, and what must not get in its way.

use std::time::Duration;

use tickwheel::TimerWheel;

/// The messages that a thousand timeouts cost, one after the other, none of which elapses.
async fn messages_of_a_thousand_timeouts(wheel: &TimerWheel) -> u64 {
    wheel.settle().await;
    let before = wheel.metrics().commands;
    for _ in 0..1000 {
        let quick = tokio::task::yield_now();
        let outcome = wheel.timeout(Duration::from_secs(30), quick).await;
        assert_eq!(outcome, Ok(()));
    }
    wheel.settle().await;
    let the_barrier = 1;
    wheel.metrics().commands - before - the_barrier
}

#[tokio::test(start_paused = true)]
async fn timeouts_of_equal_length_use_one_entry_and_one_message() {
    let wheel = TimerWheel::new();
    assert_eq!(messages_of_a_thousand_timeouts(&wheel).await, 1);
}

// A pool that keeps what it cannot hand out again is full of it one day.
#[tokio::test(start_paused = true)]
async fn sleeps_that_fired_leave_room_for_entries_that_can_be_used_again() {
    let wheel = TimerWheel::new();
    let sleeps = (0..1000).map(|_| wheel.sleep(Duration::from_millis(5)));
    futures::future::join_all(sleeps).await;
    let messages = messages_of_a_thousand_timeouts(&wheel).await;
    assert!(messages <= 1, "{messages} messages");
}
