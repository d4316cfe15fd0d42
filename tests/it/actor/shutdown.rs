//! The end of a wheel: by `shutdown`, with its last handle, or with its runtime. Sleeps keep their
//! promise.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{
    HOUR, Numbers, Wakes, builder, ms, poll_idly, poll_with, reset, start_wheel, wait_for, waker_fn,
};
use tickwheel::Sleep;
use tokio::runtime::{self, Handle, Runtime};
use tokio::task::JoinSet;
use tokio::time::{self, Instant};
use tokio_test::{assert_pending, assert_ready};

fn paused_runtime() -> Runtime {
    let mut builder = runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap()
}

fn multi_thread_runtime() -> Runtime {
    let mut builder = runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

fn alive_tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Lets the actor take the turns in which it ends.
async fn a_few_turns() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

// --- shutdown ---

#[tokio::test(start_paused = true)]
async fn p15_pending_sleeps_fire_on_time_after_shutdown() {
    let wheel = start_wheel();
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for n in 1..500 {
        let wheel = wheel.clone();
        tasks.spawn(async move {
            wheel.sleep(ms(n)).await;
            assert_eq!(start.elapsed(), ms(n));
        });
    }
    let timeout = wheel.timeout(ms(300), std::future::pending::<()>());
    tasks.spawn(async move {
        assert!(timeout.await.is_err());
        assert_eq!(start.elapsed(), ms(300));
    });
    time::sleep(ms(100)).await;
    assert!(!wheel.is_shutdown());
    wheel.shutdown().await;
    assert!(wheel.is_shutdown());
    tasks.join_all().await;
    let metrics = wheel.metrics();
    assert_eq!(metrics.sleeps_made, 500);
    assert_eq!(metrics.sleeps_pending, 0);
    assert_eq!(metrics.sleeps_fired + metrics.sleeps_handed_over, 500);
    assert!(metrics.sleeps_fired >= 99);
}

#[tokio::test(start_paused = true)]
async fn p15_sleeps_made_after_the_shutdown_fire() {
    let wheel = start_wheel();
    wheel.shutdown().await;
    let start = Instant::now();
    wheel.sleep(ms(20)).await;
    assert_eq!(start.elapsed(), ms(20));
    wheel.sleep_until(start).await;
    assert!(wheel.timeout(ms(10), wheel.sleep(ms(30))).await.is_err());
    assert!(wheel.timeout(ms(30), wheel.sleep(ms(10))).await.is_ok());
    assert_eq!(start.elapsed(), ms(40));
    assert_pending!(poll_idly(&mut wheel.sleep(Duration::MAX)));
    let mut sleep = wheel.sleep(ms(5));
    (&mut sleep).await;
    assert!(sleep.is_elapsed());
    reset(&mut sleep, start + ms(60));
    assert!(!sleep.is_elapsed());
    sleep.await;
    assert_eq!(start.elapsed(), ms(60));
}

#[tokio::test(start_paused = true)]
async fn p15_applies_a_reset_after_the_shutdown_to_the_waiter() {
    for (first, second) in [
        (ms(90), 40),
        (ms(90), 150),
        (HOUR, 40),
        (Duration::MAX, 40), // the actor knows nothing of it
    ] {
        let wheel = start_wheel();
        let start = Instant::now();
        let sleep = Arc::new(Mutex::new(wheel.sleep(first)));
        let waiting = tokio::spawn(wait_for(Arc::clone(&sleep)));
        time::sleep(ms(10)).await;
        wheel.shutdown().await;
        time::sleep(ms(10)).await;
        reset(&mut sleep.lock().unwrap(), start + ms(second));
        let waited = time::timeout(HOUR * 2, waiting).await;
        waited.expect("the task was not woken").unwrap();
        assert_eq!(start.elapsed(), ms(second), "{first:?} to {second} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn p15_applies_a_reset_while_the_actor_ends() {
    let wheel = start_wheel();
    let start = Instant::now();
    let sleep = Arc::new(Mutex::new(wheel.sleep(HOUR)));
    let mut first = wheel.sleep(HOUR);
    // The actor wakes this one at its end, before the other.
    let resets = Arc::clone(&sleep);
    let waker = waker_fn(move || reset(&mut resets.lock().unwrap(), start + ms(40)));
    assert_pending!(poll_with(&mut first, &waker));
    wheel.settle().await;
    let waiting = tokio::spawn(wait_for(sleep));
    time::sleep(ms(10)).await;
    wheel.shutdown().await;
    let waited = time::timeout(HOUR * 2, waiting).await;
    waited.expect("the task was not woken").unwrap();
    assert_eq!(start.elapsed(), ms(40));
}

// go-zero's second `Stop` panics.
#[tokio::test(start_paused = true)]
async fn shuts_down_when_called_again_and_from_several_tasks() {
    let wheel = start_wheel();
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let wheel = wheel.clone();
        tasks.spawn(async move {
            wheel.shutdown().await;
            assert!(wheel.is_shutdown());
        });
    }
    wheel.shutdown().await;
    wheel.shutdown().await;
    tasks.join_all().await;
    wheel.settle().await; // returns at once
    a_few_turns().await;
    assert_eq!(alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn shuts_down_also_if_the_future_is_dropped() {
    let wheel = start_wheel();
    {
        let mut shutdown = Box::pin(wheel.shutdown());
        assert_pending!(poll_idly(&mut shutdown));
    }
    a_few_turns().await;
    assert!(wheel.is_shutdown());
    assert_eq!(alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn tasks_that_settle_return_when_the_wheel_ends() {
    let wheel = start_wheel();
    let settling = wheel.clone();
    let settling = tokio::spawn(async move {
        for _ in 0..100 {
            settling.settle().await;
        }
    });
    wheel.shutdown().await;
    settling.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn p7_sleep_dropped_after_shutdown_wakes_no_task() {
    let wheel = start_wheel();
    let (woken, waker) = Wakes::new();
    let mut sleep = wheel.sleep(ms(10));
    assert_pending!(poll_with(&mut sleep, &waker));
    wheel.shutdown().await;
    assert_eq!(woken.count(), 1, "woken to find another timer");
    assert_pending!(poll_with(&mut sleep, &waker));
    drop(sleep);
    time::sleep(ms(20)).await;
    assert_eq!(woken.count(), 1);
}

#[test]
fn p15_racing_shutdowns_lose_no_sleep() {
    let runtime = multi_thread_runtime();
    runtime.block_on(async {
        for seed in 0..60 {
            let wheel = start_wheel();
            let mut tasks = JoinSet::new();
            for task in 0..20 {
                let wheel = wheel.clone();
                tasks.spawn(async move {
                    let mut numbers = Numbers(seed * 100 + task);
                    for _ in 0..5 {
                        let start = std::time::Instant::now();
                        let length = Duration::from_micros(numbers.below(6_000));
                        let mut sleep = wheel.sleep(length);
                        if numbers.below(2) == 0 {
                            let _ = futures::poll!(&mut sleep);
                            reset(&mut sleep, Instant::now() + length / 2);
                        }
                        sleep.await;
                        assert!(start.elapsed() >= length / 2);
                    }
                });
            }
            for _ in 0..2 {
                let wheel = wheel.clone();
                tasks.spawn(async move {
                    time::sleep(ms(seed % 12)).await;
                    wheel.shutdown().await;
                    assert!(wheel.is_shutdown());
                });
            }
            let all = time::timeout(Duration::from_secs(120), tasks.join_all());
            all.await.expect("a sleep hangs");
        }
    });
}

// --- the runtime goes ---

#[test]
fn p15_sleeps_outlive_the_runtime_of_their_wheel() {
    let wheels_runtime = paused_runtime();
    let (wheel, mut sleeps) = wheels_runtime.block_on(async {
        let wheel = start_wheel();
        let mut sleeps: Vec<_> = (0..50_000).map(|n| wheel.sleep(ms(1 + n))).collect();
        for sleep in &mut sleeps {
            assert_pending!(poll_idly(sleep));
        }
        // As many sleeps again are dropped with their tasks, some of them before a poll.
        for n in 0..50_000 {
            tokio::spawn(wheel.sleep(ms(1 + n)));
        }
        wheel.settle().await;
        (wheel, sleeps)
    });
    assert!(!wheel.is_shutdown());
    drop(wheels_runtime);
    assert!(wheel.is_shutdown());
    assert!(sleeps.iter().all(|sleep| !sleep.is_elapsed()));
    let other = paused_runtime();
    other.block_on(async {
        let deadlines = sleeps.iter().map(Sleep::deadline).step_by(997);
        let mut deadlines: Vec<_> = deadlines.collect();
        deadlines.push(sleeps.last().unwrap().deadline());
        for (n, deadline) in deadlines.into_iter().enumerate() {
            let at = (n * 997).min(sleeps.len() - 1);
            let due = deadline.max(Instant::now());
            (&mut sleeps[at]).await;
            assert!(Instant::now() >= due);
            // The two runtimes' clocks began apart: Tokio rounds up to milliseconds of its own.
            assert!(Instant::now() < due + ms(2));
        }
        wheel.sleep(ms(3)).await;
        wheel.shutdown().await;
    });
    drop(other);
    drop(sleeps);
}

#[test]
fn p15_wakes_tasks_elsewhere_when_the_runtime_is_dropped() {
    let (gone, stays) = (multi_thread_runtime(), multi_thread_runtime());
    let wheel = builder().runtime(gone.handle().clone()).start().unwrap();
    let start = std::time::Instant::now();
    let mut tasks = JoinSet::new();
    for n in 0..200 {
        tasks.spawn_on(wheel.sleep(ms(100 + n % 20)), stays.handle());
    }
    stays.block_on(async { time::sleep(ms(20)).await });
    drop(gone);
    assert!(wheel.is_shutdown());
    let all =
        stays.block_on(async { time::timeout(Duration::from_secs(120), tasks.join_all()).await });
    all.expect("a sleep hangs");
    assert!(start.elapsed() >= ms(119));
}

#[test]
fn ends_with_a_runtime_dropped_before_the_actor_ran() {
    let runtime = paused_runtime();
    let wheel = builder().runtime(runtime.handle().clone()).start().unwrap();
    let (woken, waker) = Wakes::new();
    let mut sleep = wheel.sleep(HOUR);
    assert_pending!(poll_with(&mut sleep, &waker));
    drop(runtime);
    assert!(wheel.is_shutdown());
    assert_eq!(woken.count(), 1);
    // A sleep that is polled in a runtime without a timer panics. Dropping it does not.
    drop(sleep);
    paused_runtime().block_on(wheel.shutdown());
}

#[test]
fn ends_with_a_runtime_shut_down_in_the_background() {
    let runtime = multi_thread_runtime();
    let wheel = builder().runtime(runtime.handle().clone()).start().unwrap();
    let mut sleep = wheel.sleep(ms(30));
    let _ = poll_idly(&mut sleep);
    runtime.shutdown_background();
    paused_runtime().block_on(async {
        wheel.shutdown().await;
        assert!(wheel.is_shutdown());
        sleep.await;
    });
}

// --- the last handle goes ---

#[tokio::test(start_paused = true)]
async fn p15_fires_an_armed_sleep_after_the_last_handle_drops() {
    let wheel = start_wheel();
    let other_handle = wheel.clone();
    let start = Instant::now();
    let mut sleep = wheel.sleep(ms(50));
    assert_pending!(poll_idly(&mut sleep));
    drop(wheel);
    a_few_turns().await;
    assert_eq!(alive_tasks(), 1, "a handle is left");
    drop(other_handle);
    a_few_turns().await;
    assert_eq!(alive_tasks(), 1, "a sleep is armed");
    sleep.await;
    assert_eq!(start.elapsed(), ms(50));
    a_few_turns().await;
    assert_eq!(alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn ends_the_actor_when_only_cancelled_timers_are_left() {
    let wheel = start_wheel();
    for n in 0..1000 {
        let mut sleep = wheel.sleep(HOUR + ms(n));
        assert_pending!(poll_idly(&mut sleep));
    }
    let mut several: Vec<_> = (0..1000).map(|_| wheel.sleep(HOUR)).collect();
    for sleep in &mut several {
        assert_pending!(poll_idly(sleep));
    }
    wheel.settle().await; // all of them lie on the wheel, where some are kept to be used again
    drop(several);
    wheel.settle().await;
    assert_eq!(alive_tasks(), 1);
    drop(wheel);
    a_few_turns().await;
    assert_eq!(alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn ends_the_actor_with_the_last_sleep_after_the_last_handle() {
    for settled in [true, false] {
        let wheel = start_wheel();
        let mut sleeps: Vec<_> = (0..300).map(|_| wheel.sleep(HOUR)).collect();
        for sleep in &mut sleeps {
            assert_pending!(poll_idly(sleep));
        }
        if settled {
            wheel.settle().await;
        }
        drop(wheel);
        if settled {
            a_few_turns().await;
            assert_eq!(alive_tasks(), 1);
        }
        drop(sleeps);
        a_few_turns().await;
        assert_eq!(alive_tasks(), 0);
    }
}

// On a paused clock each dropped sleep is made known at once, with a handle or without.
#[tokio::test]
async fn few_sleeps_do_not_keep_the_actor_on_the_real_clock() {
    let wheel = start_wheel();
    let mut sleeps: Vec<_> = (0..10).map(|_| wheel.sleep(HOUR)).collect();
    for sleep in &mut sleeps {
        assert_pending!(poll_idly(sleep));
    }
    wheel.settle().await;
    drop(wheel);
    a_few_turns().await;
    assert_eq!(alive_tasks(), 1);
    drop(sleeps);
    let ended = async {
        while alive_tasks() > 0 {
            time::sleep(ms(1)).await;
        }
    };
    let ended = time::timeout(ms(60_000), ended).await;
    ended.expect("long before the deadlines");
}

#[tokio::test(start_paused = true)]
async fn ends_an_unused_wheel_with_its_last_handle() {
    drop(start_wheel());
    let wheel = start_wheel();
    wheel.settle().await;
    drop(wheel);
    a_few_turns().await;
    assert_eq!(alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn p15_fires_on_time_a_sleep_first_polled_after_the_end() {
    let wheel = start_wheel();
    let start = Instant::now();
    let sleep = wheel.sleep(ms(50));
    let mut never = wheel.sleep(Duration::MAX);
    assert_pending!(poll_idly(&mut never));
    drop(wheel);
    a_few_turns().await;
    assert_eq!(alive_tasks(), 0);
    sleep.await;
    assert_eq!(start.elapsed(), ms(50));
    reset(&mut never, start + ms(70));
    never.await;
    assert_eq!(start.elapsed(), ms(70));
}

#[tokio::test(start_paused = true)]
async fn ends_the_wheel_when_a_waker_drops_the_last_handle() {
    let wheel = start_wheel();
    let start = Instant::now();
    let (mut first, mut second) = (wheel.sleep(ms(10)), wheel.sleep(ms(20)));
    let dropped = Arc::new(AtomicBool::new(false));
    let last = Mutex::new(Some(wheel));
    let seen = Arc::clone(&dropped);
    let waker = waker_fn(move || {
        drop(last.lock().unwrap().take());
        seen.store(true, Ordering::SeqCst);
    });
    assert_pending!(poll_with(&mut first, &waker));
    (&mut second).await;
    assert_eq!(start.elapsed(), ms(20));
    assert!(dropped.load(Ordering::SeqCst));
    assert_ready!(poll_idly(&mut first));
    a_few_turns().await;
    assert_eq!(alive_tasks(), 0);
}
