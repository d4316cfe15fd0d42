//! Frequent operations allocate nothing and send no command.
//!
//! The tests count, and measure no time. They count the allocations of the measuring thread, on
//! which the actor runs too. Every path is warmed up first. `.ci/gate` checks how many instructions
//! the same operations take.

use std::future::Future;
use std::time::Duration;

use crate::support::{HOUR, ms, poll_idly, reset, start_wheel};
use allocation_counter::measure;
use tickwheel::TimerWheel;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::Instant;
use tokio_test::assert_pending;

const ROUNDS: u32 = 10_000;

const LONG: Duration = Duration::from_secs(30);

fn runtime() -> Runtime {
    // The real clock: a paused one would jump when nothing but timers is left.
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// Runs the operation until it is warm, and then checks that it allocates nothing and sends no
/// command.
fn assert_free<F: Future<Output = ()>>(
    runtime: &Runtime,
    wheel: &TimerWheel,
    mut operation: impl FnMut(u32) -> F,
) {
    let mut rounds = |range: std::ops::Range<u32>| {
        runtime.block_on(async {
            for n in range {
                operation(n).await;
            }
            yield_now().await; // the actor's turn, if it has been given anything to do
        });
    };
    rounds(0..1_000);
    runtime.block_on(wheel.settle());
    // The actor answers before it begins to wait. Its allocations for waiting do not count.
    rounds(0..1_000);
    // Entering the runtime alone may allocate.
    let entering = measure(|| rounds(0..0)).count_total;
    let before = wheel.metrics();
    let info = measure(|| rounds(1_000..1_000 + ROUNDS));
    let after = wheel.metrics();
    assert_eq!(
        info.count_total, entering,
        "allocations in {ROUNDS} rounds, against those in none"
    );
    assert_eq!(
        after.commands - before.commands,
        0,
        "commands in {ROUNDS} rounds"
    );
}

fn on_a_wheel(test: impl FnOnce(&Runtime, &TimerWheel)) {
    let runtime = runtime();
    let wheel = runtime.block_on(async { start_wheel() });
    test(&runtime, &wheel);
}

#[test]
fn allocates_and_sends_nothing_for_a_timeout_in_time() {
    on_a_wheel(|runtime, wheel| {
        assert_free(runtime, wheel, async |_| {
            let outcome = wheel.timeout(LONG, yield_now()).await;
            assert_eq!(outcome, Ok(()));
        });
    });
}

#[test]
fn allocates_and_sends_nothing_for_pooled_mixed_timeouts() {
    on_a_wheel(|runtime, wheel| {
        assert_free(runtime, wheel, async |n| {
            // None of them comes due while the test runs, however slow the machine is.
            let length = [LONG * 100, LONG * 20, LONG * 4][n as usize % 3];
            let outcome = wheel.timeout(length, yield_now()).await;
            assert_eq!(outcome, Ok(()));
        });
    });
}

#[test]
fn allocates_and_sends_nothing_for_a_sleep_moved_later() {
    on_a_wheel(|runtime, wheel| {
        let mut sleep = wheel.sleep(LONG);
        assert_pending!(poll_idly(&mut sleep));
        assert_free(runtime, wheel, |_| {
            reset(&mut sleep, Instant::now() + LONG);
            std::future::ready(())
        });
        assert!(wheel.metrics().sleeps_moved >= u64::from(ROUNDS));
    });
}

#[test]
fn allocates_and_sends_nothing_for_a_touch() {
    on_a_wheel(|runtime, wheel| {
        let mut timer = wheel.idle_timer(LONG);
        assert_pending!(poll_idly(&mut timer));
        let handle = timer.handle();
        let (reaper, _expirations) = wheel.reaper::<u32, ()>(LONG);
        let watch = reaper.watch(1, ()).unwrap();
        let start = Instant::now();
        assert_free(runtime, wheel, |n| {
            assert!(timer.touch());
            assert!(handle.touch_at(start + ms(u64::from(n))));
            drop(handle.busy());
            assert!(watch.touch());
            drop(watch.busy());
            std::future::ready(())
        });
    });
}

#[test]
fn allocates_nothing_for_a_keyed_timer_set_and_moved_again() {
    on_a_wheel(|runtime, wheel| {
        let (timers, _expirations) = wheel.keyed::<u32, u64>();
        for key in 0..1_000 {
            timers.set_timer(key, 0, LONG * 100).unwrap();
        }
        runtime.block_on(wheel.settle());
        // The keys have timers: value and deadline are replaced, and no command is sent.
        assert_free(runtime, wheel, |n| {
            let key = n % 1_000;
            timers.set_timer(key, 1, HOUR * 2).unwrap();
            timers.move_timer(&key, HOUR * 3).unwrap();
            std::future::ready(())
        });
    });
}
