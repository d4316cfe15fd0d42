//! Cancelled entries are used again, which saves commands.

use std::cell::Cell;
use std::time::Duration;

use crate::support::{HOUR, advance, builder, ms, poll_idly, reset, start_wheel};
use tickwheel::{Sleep, TimerWheel};
use tokio::time::Instant;
use tokio_test::{assert_pending, assert_ready};

/// The commands that a thousand timeouts cost, one after the other, none of which elapses.
async fn commands_of_a_thousand_timeouts(wheel: &TimerWheel) -> u64 {
    wheel.settle().await;
    let before = wheel.metrics().commands;
    for _ in 0..1000 {
        let quick = tokio::task::yield_now();
        let outcome = wheel.timeout(Duration::from_secs(30), quick).await;
        assert_eq!(outcome, Ok(()));
    }
    wheel.settle().await;
    let the_settle = 1;
    wheel.metrics().commands - before - the_settle
}

/// Arms them all before it drops them.
async fn cancel_a_thousand_sleeps(wheel: &TimerWheel, length: Duration) {
    let mut sleeps: Vec<_> = (0..1000).map(|_| wheel.sleep(length)).collect();
    for sleep in &mut sleeps {
        assert_pending!(poll_idly(sleep));
    }
    wheel.settle().await;
}

#[tokio::test(start_paused = true)]
async fn uses_one_entry_and_one_command_for_equal_timeouts() {
    let wheel = start_wheel();
    assert_eq!(commands_of_a_thousand_timeouts(&wheel).await, 1);
}

// A pool that kept entries it cannot use again would be full of them at last.
#[tokio::test(start_paused = true)]
async fn keeps_room_in_the_pool_after_sleeps_fired() {
    let wheel = start_wheel();
    let sleeps = (0..1000).map(|_| wheel.sleep(Duration::from_millis(5)));
    futures::future::join_all(sleeps).await;
    let commands = commands_of_a_thousand_timeouts(&wheel).await;
    assert!(commands <= 1, "{commands} commands");
}

// Their entries are on no wheel, so a pool full of them would serve no timeout that can elapse.
#[tokio::test(start_paused = true)]
async fn keeps_room_in_the_pool_after_sleeps_that_never_fire() {
    let wheel = start_wheel();
    cancel_a_thousand_sleeps(&wheel, Duration::MAX).await;
    let commands = commands_of_a_thousand_timeouts(&wheel).await;
    assert!(commands <= 1, "{commands} commands");
}

#[tokio::test(start_paused = true)]
async fn serves_short_timeouts_from_a_pool_full_of_long_ones() {
    let wheel = start_wheel();
    cancel_a_thousand_sleeps(&wheel, HOUR).await;
    let commands = commands_of_a_thousand_timeouts(&wheel).await;
    // One schedules the entry earlier, and under a virtual clock one sweeps.
    assert!(commands <= 2, "{commands} commands");
}

#[tokio::test(start_paused = true)]
async fn a_reset_counts_in_the_ticks_of_its_own_wheel() {
    let wheel = |tick| builder().tick(ms(tick)).start().unwrap();
    let (fine, coarse) = (wheel(1), wheel(100));
    let start = Instant::now();
    let mut sleep = coarse.sleep(HOUR);
    assert_pending!(poll_idly(&mut sleep));
    // The thread has used the other wheel last, and has rounded such a deadline for it more than
    // once.
    for near in [3000, 2999, 3000] {
        let mut other = fine.sleep(ms(near));
        assert_pending!(poll_idly(&mut other));
        reset(&mut other, start + ms(3000));
        reset(&mut sleep, start + ms(3000));
    }
    let mut woken = tokio_test::task::spawn(sleep);
    assert_pending!(woken.poll());
    advance(&coarse, ms(2999)).await;
    assert!(!woken.is_woken());
    advance(&coarse, ms(1)).await;
    assert!(woken.is_woken());
    assert_ready!(woken.poll());
}

/// The last operations of a thread.
#[derive(Default)]
struct AtTheEnd(Cell<Option<(TimerWheel, Sleep)>>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        // The sleep is not polled: with `test-util`, Tokio's clock cannot be read any more.
        let (wheel, mut sleep) = self.0.take().expect("it was given one");
        let later = sleep.deadline() + HOUR;
        reset(&mut sleep, later);
        drop(sleep);
        drop(wheel.sleep_until(later));
    }
}

thread_local! {
    static AT_THE_END: AtTheEnd = AtTheEnd::default();
}

// The thread's pools are gone by then, because they were first used after `AT_THE_END`.
#[test]
fn counts_sleeps_made_moved_and_dropped_by_an_ending_thread() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let wheel = runtime.block_on(async { start_wheel() });
    let handle = wheel.clone();
    let thread = std::thread::spawn(move || {
        AT_THE_END.with(|_| {}); // now is when it is noted as to be dropped
        let mut sleep = handle.sleep(HOUR);
        assert_pending!(poll_idly(&mut sleep));
        AT_THE_END.with(|end| end.0.set(Some((handle, sleep))));
    });
    thread.join().expect("nothing panicked");
    runtime.block_on(wheel.settle());
    let metrics = wheel.metrics();
    assert_eq!((metrics.sleeps_made, metrics.sleeps_cancelled), (2, 2));
    assert_eq!((metrics.sleeps_moved, metrics.sleeps_pending), (1, 0));
}
