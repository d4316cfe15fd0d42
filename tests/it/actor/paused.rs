//! The paused clock: sleeps are exact and deterministic under it, and an idle wheel does nothing at
//! all.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{HOUR, Numbers, Wakes, builder, jump, ms, poll_with, reset, start_wheel, us};
use tokio::time::{self, Instant};
use tokio_test::{assert_pending, assert_ready, task};

#[tokio::test(start_paused = true)]
async fn p14_clock_advances_to_exactly_the_next_deadline() {
    let wheel = start_wheel();
    let start = Instant::now();
    let mut numbers = Numbers(14);
    let mut total = Duration::ZERO;
    for n in 0..500 {
        let length = ms(numbers.below(1 << (n % 20)));
        wheel.sleep(length).await;
        total += length;
        assert_eq!(start.elapsed(), total);
    }
}

#[tokio::test(start_paused = true)]
async fn p14_advance_wakes_what_it_has_passed_and_no_more() {
    let wheel = start_wheel();
    let start = Instant::now();
    for length in [1, 2, 63, 64, 65, 100, 4095, 4096, 4097, 300_000] {
        let deadline = Instant::now() + ms(length);
        let mut sleep = task::spawn(wheel.sleep_until(deadline));
        assert_pending!(sleep.poll());
        time::advance(ms(length - 1)).await;
        wheel.settle().await;
        assert!(!sleep.is_woken(), "{length}");
        time::advance(ms(1)).await;
        wheel.settle().await;
        assert!(sleep.is_woken(), "{length}");
        assert_ready!(sleep.poll());
        assert_eq!(Instant::now(), deadline);
    }
    assert_eq!(
        start.elapsed(),
        ms(1 + 2 + 63 + 64 + 65 + 100 + 4095 + 4096 + 4097 + 300_000)
    );
}

#[tokio::test(start_paused = true)]
async fn p14_sleep_wakes_at_the_step_that_reaches_its_tick() {
    for tick in [us(1), us(250), ms(1), ms(7)] {
        let wheel = builder().tick(tick).start().unwrap();
        let origin = Instant::now();
        let mut numbers = Numbers(15);
        let mut sleeps: Vec<_> = (0..200)
            .map(|_| task::spawn(wheel.sleep(us(1 + numbers.below(60_000)))))
            .collect();
        for sleep in &mut sleeps {
            assert_pending!(sleep.poll());
        }
        while origin.elapsed() < ms(70) {
            time::advance(Duration::from_nanos(1 + numbers.below(1_500_000))).await;
            wheel.settle().await;
            let begun = origin.elapsed().as_nanos() / tick.as_nanos();
            for sleep in &sleeps {
                let nanos = (sleep.deadline() - origin).as_nanos();
                let due = nanos.div_ceil(tick.as_nanos()) <= begun;
                assert_eq!(
                    sleep.is_woken(),
                    due,
                    "{nanos} ns at {:?}, tick {tick:?}",
                    origin.elapsed()
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn p4_sleeps_fire_in_deadline_order_with_tokios_timers() {
    let wheel = start_wheel();
    let start = Instant::now();
    let fired = Arc::new(Mutex::new(Vec::new()));
    let mut numbers = Numbers(16);
    let mut lengths: Vec<_> = (1..=400).map(|n| n * 5).collect();
    for n in (1..lengths.len()).rev() {
        lengths.swap(n, usize::try_from(numbers.below(n as u64 + 1)).unwrap());
    }
    let mut tasks = tokio::task::JoinSet::new();
    for (n, length) in lengths.into_iter().enumerate() {
        let (wheel, fired) = (wheel.clone(), Arc::clone(&fired));
        tasks.spawn(async move {
            if n % 2 == 0 {
                wheel.sleep(ms(length)).await;
            } else {
                time::sleep(ms(length)).await;
            }
            assert_eq!(start.elapsed(), ms(length));
            fired.lock().unwrap().push(length);
        });
    }
    tasks.join_all().await;
    let fired = fired.lock().unwrap();
    assert_eq!(fired.len(), 400);
    assert!(fired.is_sorted());
}

/// Runs a few hundred tasks that sleep, time out and reset. Returns all events in their order.
fn scenario(seed: u64) -> Vec<(Duration, u64, &'static str)> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let wheel = start_wheel();
        let start = Instant::now();
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..300 {
            let (wheel, log) = (wheel.clone(), Arc::clone(&log));
            tasks.spawn(async move {
                let mut numbers = Numbers(seed + number);
                let say = |what| log.lock().unwrap().push((start.elapsed(), number, what));
                for _ in 0..10 {
                    match numbers.below(3) {
                        0 => wheel.sleep(us(numbers.below(50_000))).await,
                        1 => {
                            let inner = time::sleep(ms(numbers.below(50)));
                            let limit = ms(numbers.below(50));
                            let in_time = wheel.timeout(limit, inner).await.is_ok();
                            say(if in_time { "in time" } else { "elapsed" });
                        }
                        _ => {
                            let mut sleep = wheel.sleep(ms(numbers.below(50)));
                            let _ = futures::poll!(&mut sleep);
                            reset(&mut sleep, Instant::now() + ms(numbers.below(50)));
                            sleep.await;
                        }
                    }
                    say("done");
                }
            });
        }
        tasks.join_all().await;
        Arc::try_unwrap(log).unwrap().into_inner().unwrap()
    })
}

#[test]
fn p14_same_program_runs_the_same_way_each_time() {
    let first = scenario(7);
    assert!(first.len() > 3000);
    assert_eq!(first, scenario(7));
    assert_ne!(first, scenario(8));
}

// --- idle ---

// One crate woken 860 times a second with nothing to do.
#[tokio::test(start_paused = true)]
async fn p13_empty_wheel_arms_no_timer_and_is_not_polled() {
    let wheel = start_wheel();
    wheel.settle().await;
    let before = wheel.metrics();
    time::sleep(HOUR * 100_000).await;
    let after = wheel.metrics();
    assert_eq!(after.wake_ups, before.wake_ups);
    assert_eq!(after.turns, before.turns);
    // The same holds after it has held a timer.
    wheel.sleep(ms(5)).await;
    let before = wheel.metrics();
    time::sleep(HOUR * 100_000).await;
    assert_eq!(wheel.metrics().wake_ups, before.wake_ups);
}

#[tokio::test(start_paused = true)]
async fn p13_cancelled_timers_are_processed_once_each() {
    let wheel = start_wheel();
    wheel.settle().await;
    for _ in 0..1000 {
        let _ = wheel.timeout(HOUR, tokio::task::yield_now()).await;
    }
    time::sleep(HOUR * 2).await;
    let before = wheel.metrics();
    assert!(before.wake_ups < 20, "{}", before.wake_ups);
    time::sleep(HOUR * 100_000).await;
    assert_eq!(wheel.metrics().wake_ups, before.wake_ups);
}

#[tokio::test(start_paused = true)]
async fn p13_far_timer_costs_one_wake_up_per_level_at_most() {
    for slots in [2, 16, 64, 4096_usize] {
        for length in [
            1,
            63,
            64,
            65,
            4095,
            4096,
            300_000,
            (1 << 30) + 1,
            31_535_999_999_u64,
        ] {
            let wheel = builder().tick(ms(1)).slots(slots).start().unwrap();
            wheel.settle().await;
            let before = wheel.metrics().wake_ups;
            let mut sleep = task::spawn(wheel.sleep(ms(length)));
            assert_pending!(sleep.poll());
            wheel.settle().await;
            let armed = wheel.metrics().wake_ups;
            assert!(armed <= before + 2, "one for the timer, one to settle");
            time::sleep(ms(length + 1)).await;
            assert!(sleep.is_woken());
            let bits = u64::from(slots.trailing_zeros());
            let levels = u64::from(64 - length.leading_zeros()).div_ceil(bits);
            let woken = wheel.metrics().wake_ups - armed;
            assert!(
                woken <= levels,
                "{woken} for {length} ms with {slots} slots"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn p13_moving_sleep_is_processed_once_per_length() {
    let wheel = start_wheel();
    let (woken, waker) = Wakes::new();
    let mut sleep = wheel.sleep(ms(30_000));
    assert_pending!(poll_with(&mut sleep, &waker));
    wheel.settle().await;
    let before = wheel.metrics();
    for _ in 0..3000 {
        time::sleep(ms(100)).await;
        reset(&mut sleep, Instant::now() + ms(30_000));
    }
    let after = wheel.metrics();
    // Ten lengths, each with a wake-up for every level on the way down.
    assert!(
        after.wake_ups - before.wake_ups <= 10 * 4,
        "{}",
        after.wake_ups
    );
    assert_eq!(after.commands, before.commands, "later is a store");
    assert_eq!(after.sleeps_moved - before.sleeps_moved, 3000);
    assert_eq!(woken.count(), 0);
}

// --- a clock that misbehaves ---

#[tokio::test(start_paused = true)]
async fn p9_nothing_fires_while_the_clock_stands_still() {
    let wheel = start_wheel();
    let mut sleep = task::spawn(wheel.sleep(Duration::from_nanos(1)));
    assert_pending!(sleep.poll());
    for _ in 0..1000 {
        wheel.settle().await;
        assert!(!sleep.is_woken());
        assert_pending!(sleep.poll());
    }
    let turns = wheel.metrics().turns;
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        wheel.metrics().turns,
        turns,
        "nothing to do, and no turn taken"
    );
    jump(ms(1));
    wheel.settle().await;
    assert!(sleep.is_woken());
}

// A thread outside the runtime reads the machine's clock, hours behind the one that was advanced.
#[tokio::test(start_paused = true)]
async fn p9_clock_that_steps_back_is_harmless() {
    let wheel = start_wheel();
    time::advance(HOUR * 3).await;
    let start = Instant::now();
    let mut near = task::spawn(wheel.sleep(ms(20)));
    assert_pending!(near.poll());
    wheel.settle().await;
    let from_behind = wheel.clone();
    let (mut behind, woken) = std::thread::spawn(move || {
        let (woken, waker) = Wakes::new();
        assert!(Instant::now() < start, "this thread's clock is behind");
        let mut sleep = from_behind.sleep(ms(50));
        assert_pending!(poll_with(&mut sleep, &waker));
        reset(&mut sleep, Instant::now() + ms(10));
        (sleep, woken)
    })
    .join()
    .unwrap();
    wheel.settle().await;
    assert_eq!(woken.count(), 1, "long past by the wheel's clock");
    assert!(behind.is_elapsed());
    assert!(!near.is_woken());
    reset(&mut behind, start + ms(10));
    behind.await;
    assert_eq!(start.elapsed(), ms(10));
    near.await;
    assert_eq!(start.elapsed(), ms(20));
}

#[tokio::test]
async fn p9_pause_and_resume_fire_no_sleep_early() {
    let wheel = start_wheel();
    let start = Instant::now();
    let mut sleep = wheel.sleep(ms(60_000));
    let _ = futures::poll!(&mut sleep);
    for _ in 0..5 {
        time::pause();
        time::advance(ms(11_000)).await;
        time::resume();
        wheel.settle().await;
        assert_eq!(sleep.is_elapsed(), start.elapsed() >= ms(60_000));
        tokio::task::yield_now().await;
    }
    assert!(!sleep.is_elapsed());
    time::pause();
    sleep.await;
    assert!(start.elapsed() >= ms(60_000));
}

/// A precise timer of the operating system would go on with the real clock.
#[tokio::test]
async fn p14_real_time_fires_nothing_once_the_clock_is_paused() {
    let wheel = start_wheel();
    let (timers, mut expirations) = wheel.keyed();
    timers.set_timer((), (), ms(500)).unwrap();
    wheel.settle().await;
    time::pause();
    let before = wheel.metrics().wake_ups;
    for _ in 0..5 {
        std::thread::sleep(ms(120));
        // The drivers run between the tasks.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
    }
    assert!(expirations.try_recv().is_err(), "the clock stands still");
    let woken = wheel.metrics().wake_ups - before;
    assert!(woken <= 1, "woken {woken} times");
    time::advance(ms(501)).await;
    expirations.recv().await.unwrap();
}
