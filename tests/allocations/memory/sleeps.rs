//! The memory of sleeps that were dropped, fired or moved.

use crate::support::{HOUR, ms, poll_idly, reset};
use tickwheel::Sleep;
use tokio::time::{self, Instant};
use tokio_test::assert_pending;

use super::{KEPT_BYTES, MILLION, armed, measured, paused_runtime, settle_and_free, used_wheel};

#[test]
fn p7_million_sleeps_in_turn_reuse_memory() {
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let info = measured(&runtime, async {
        for _ in 0..MILLION {
            let mut sleep = wheel.sleep(HOUR);
            assert_pending!(poll_idly(&mut sleep));
        }
        wheel.settle().await;
    });
    assert!(info.count_total < 100, "{info:?}");
    assert!(info.bytes_current < KEPT_BYTES, "{info:?}");
    assert_eq!(wheel.metrics().sleeps_cancelled, MILLION as u64 + 10);
}

// Netty keeps cancelled timeouts until its wheel reaches their bucket.
#[test]
fn p7_million_dropped_sleeps_are_freed_early() {
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let info = measured(&runtime, async {
        let sleeps = armed(&wheel, MILLION);
        wheel.settle().await;
        drop(sleeps);
        settle_and_free(&wheel).await;
        assert!(wheel.metrics().sleeps_cancelled > MILLION as u64);
    });
    assert!(
        info.count_max >= MILLION as u64,
        "not a million at a time: {info:?}"
    );
    assert!(info.count_current < 1_000, "{info:?}");
    // The thread's pool keeps a few cancelled entries, and the wheel keeps the chunks with their
    // nodes.
    assert!(info.bytes_current < 2 * KEPT_BYTES, "{info:?}");
    let emptied = measured(&runtime, async {
        time::advance(HOUR * 2).await;
        wheel.settle().await;
        tokio::task::yield_now().await;
    });
    assert!(
        info.bytes_current + emptied.bytes_current < KEPT_BYTES,
        "{emptied:?}"
    );
}

// Only memory behind the last survivor once went back: one sleep of a million kept 24 MB.
#[test]
fn p7_one_sleep_that_stays_keeps_little_memory() {
    const MANY: usize = MILLION / 4;
    for stays in [0, MANY / 2, MANY - 1] {
        let runtime = paused_runtime();
        let wheel = used_wheel(&runtime);
        let mut survivor = None;
        let info = measured(&runtime, async {
            let mut sleeps = armed(&wheel, MANY);
            wheel.settle().await;
            survivor = Some(sleeps.swap_remove(stays));
            drop(sleeps);
            settle_and_free(&wheel).await;
        });
        assert!(info.bytes_max > 20_000_000, "{info:?}");
        // The thread's pool keeps some cancelled sleeps, which may lie in chunks of their own.
        assert!(info.bytes_current < 3 * KEPT_BYTES, "{stays}: {info:?}");
    }
}

#[test]
fn p7_sleeps_dropped_without_settling_leave_little() {
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let info = measured(&runtime, async {
        for _ in 0..50 {
            drop(armed(&wheel, 2_000));
            // The actor runs like any task; nothing waits for it.
            tokio::task::yield_now().await;
        }
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
    });
    assert!(info.bytes_current < 3 * KEPT_BYTES, "{info:?}");
}

#[test]
fn keeps_nothing_of_sleeps_that_fired() {
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let info = measured(&runtime, async {
        let sleeps = armed(&wheel, 100_000);
        wheel.settle().await;
        time::advance(HOUR * 2).await;
        wheel.settle().await;
        assert!(sleeps.iter().all(Sleep::is_elapsed));
        drop(sleeps);
        // Sleeps that each fire before the next one is made leave nothing either.
        for _ in 0..10_000 {
            wheel.sleep(ms(1)).await;
        }
    });
    assert!(info.bytes_current < KEPT_BYTES, "{info:?}");
}

#[test]
fn keeps_nothing_allocated_by_moving_a_sleep() {
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let info = measured(&runtime, async {
        let mut sleeps = armed(&wheel, 100);
        for n in 0..2_000 {
            for sleep in &mut sleeps {
                let length = ms(1_000 + n * 7919 % 100_000);
                reset(sleep, Instant::now() + length);
            }
            time::advance(ms(1)).await;
        }
        wheel.settle().await;
        assert!(wheel.metrics().sleeps_moved >= 100_000);
    });
    assert!(info.bytes_current < KEPT_BYTES, "{info:?}");
}
