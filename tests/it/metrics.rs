//! Metrics: the counters add up, and most timers need no command.

use std::time::Duration;

use crate::support::{
    HOUR, Numbers, Wakes, builder, jump, less_than_an_hour, ms, poll_idly, poll_with, reset,
    start_wheel,
};
use tickwheel::{Sleep, TimerWheel, WheelMetrics};
use tokio::task::yield_now;
use tokio::time::{self, Instant};
use tokio_test::{assert_pending, assert_ready};

#[track_caller]
fn assert_balanced(metrics: &WheelMetrics) {
    assert_eq!(
        metrics.sleeps_made,
        metrics.sleeps_pending
            + metrics.sleeps_fired
            + metrics.sleeps_cancelled
            + metrics.sleeps_handed_over,
        "{metrics:?}"
    );
}

/// How many commands the actor got until `f` ran and all settled. Those of the settles are not
/// counted.
async fn commands(wheel: &TimerWheel, f: impl AsyncFnOnce()) -> u64 {
    wheel.settle().await;
    let before = wheel.metrics().commands;
    f().await;
    wheel.settle().await;
    wheel.metrics().commands - before - 1
}

// --- the counters ---

#[tokio::test(start_paused = true)]
async fn p16_each_end_of_a_sleep_is_counted_once() {
    let wheel = start_wheel();
    let counts = || {
        let m = wheel.metrics();
        assert_balanced(&m);
        [
            m.sleeps_made,
            m.sleeps_pending,
            m.sleeps_fired,
            m.sleeps_cancelled,
            m.sleeps_moved,
        ]
    };
    assert_eq!(counts(), [0, 0, 0, 0, 0]);
    drop(wheel.sleep(ms(10))); // never polled
    assert_eq!(counts(), [1, 0, 0, 1, 0]);
    wheel.sleep(Duration::ZERO).await; // ready at once
    assert_eq!(counts(), [2, 0, 1, 1, 0]);
    wheel.sleep(ms(10)).await; // fired by the actor
    assert_eq!(counts(), [3, 0, 2, 1, 0]);
    let mut sleep = wheel.sleep(ms(10));
    assert_pending!(poll_idly(&mut sleep));
    assert_eq!(counts(), [4, 1, 2, 1, 0]);
    reset(&mut sleep, Instant::now() + ms(20));
    reset(&mut sleep, Instant::now() + ms(10));
    assert_eq!(counts(), [4, 1, 2, 1, 2]);
    jump(ms(10));
    assert_ready!(poll_idly(&mut sleep)); // before the actor saw it
    assert_eq!(counts(), [4, 0, 3, 1, 2]);
    wheel.settle().await;
    assert_eq!(counts(), [4, 0, 3, 1, 2]);
    reset(&mut sleep, Instant::now() + ms(10)); // a new life
    assert_eq!(counts(), [5, 1, 3, 1, 2]);
    assert_pending!(poll_idly(&mut sleep));
    wheel.settle().await;
    time::advance(ms(10)).await;
    wheel.settle().await; // fired, not polled
    assert_eq!(counts(), [5, 0, 4, 1, 2]);
    drop(sleep);
    assert_eq!(counts(), [5, 0, 4, 1, 2]);
    let mut never = wheel.sleep(Duration::MAX);
    assert_pending!(poll_idly(&mut never));
    drop(never);
    assert_eq!(counts(), [6, 0, 4, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn p16_counters_add_up_after_any_mix_of_operations() {
    for seed in 0..20 {
        let mut numbers = Numbers(seed);
        let wheel = start_wheel();
        let (_, waker) = Wakes::new();
        let mut sleeps: Vec<Sleep> = Vec::new();
        for _ in 0..1500 {
            let at = usize::try_from(numbers.below(1 + sleeps.len() as u64)).unwrap();
            let bits = numbers.below(14);
            let length = ms(numbers.below(1 << bits));
            match (numbers.below(9), sleeps.get_mut(at)) {
                (0..=2, _) | (_, None) => sleeps.push(wheel.sleep(length)),
                (3 | 4, Some(sleep)) => {
                    let _ = poll_with(sleep, &waker);
                }
                (5, Some(sleep)) => reset(sleep, Instant::now() + length),
                (6, Some(_)) => drop(sleeps.swap_remove(at)),
                (7, Some(_)) => jump(length / 100),
                (_, Some(_)) => wheel.settle().await,
            }
            assert_balanced(&wheel.metrics());
        }
        wheel.settle().await;
        // An overdue one counts as pending until it is polled.
        for sleep in &mut sleeps {
            let _ = poll_with(sleep, &waker);
        }
        let waiting = sleeps.iter().filter(|sleep| !sleep.is_elapsed()).count();
        assert_eq!(
            wheel.metrics().sleeps_pending,
            waiting as u64,
            "seed {seed}"
        );
        sleeps.truncate(sleeps.len() / 2);
        wheel.shutdown().await;
        for sleep in &mut sleeps {
            let _ = poll_with(sleep, &waker);
        }
        let waiting = sleeps.iter().filter(|sleep| !sleep.is_elapsed()).count() as u64;
        let metrics = wheel.metrics();
        assert_balanced(&metrics);
        assert!(metrics.sleeps_pending <= waiting, "seed {seed}");
        assert!(
            waiting <= metrics.sleeps_pending + metrics.sleeps_handed_over,
            "seed {seed}"
        );
        drop(sleeps);
        assert_balanced(&wheel.metrics());
    }
}

#[test]
fn p16_counters_add_up_over_threads_that_are_gone() {
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(2).enable_time().build().unwrap();
    let wheel = builder().runtime(runtime.handle().clone()).start().unwrap();
    for _ in 0..20 {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut armed: Vec<_> = (0..200).map(|n| wheel.sleep(HOUR + ms(n))).collect();
                    for sleep in &mut armed {
                        assert_pending!(poll_idly(sleep));
                    }
                    armed.truncate(50);
                    // Dropped by another thread than the one that made them.
                    scope.spawn(move || drop(armed));
                });
            }
        });
    }
    runtime.block_on(wheel.settle());
    let metrics = wheel.metrics();
    assert_eq!(
        (metrics.sleeps_made, metrics.sleeps_cancelled),
        (16_000, 16_000)
    );
    assert_eq!(metrics.sleeps_pending, 0);
}

#[tokio::test(start_paused = true)]
async fn records_lateness_for_each_timer_that_fired() {
    let wheel = start_wheel();
    for n in 0..100 {
        wheel.sleep(ms(1 + n)).await;
    }
    let lateness = wheel.metrics().lateness;
    assert_eq!((lateness.count(), lateness.max()), (100, Duration::ZERO));
    let mut late = wheel.sleep(ms(10));
    assert_pending!(poll_idly(&mut late));
    wheel.settle().await;
    jump(ms(510));
    wheel.settle().await;
    let lateness = wheel.metrics().lateness;
    assert_eq!((lateness.count(), lateness.max()), (101, ms(500)));
    assert_eq!(lateness.quantile(0.5), Duration::ZERO);
    assert_eq!(lateness.quantile(1.0), ms(500));
}

// --- what costs a command ---

#[tokio::test(start_paused = true)]
async fn sends_one_command_for_timeouts_of_constant_length() {
    let wheel = start_wheel();
    let sent = commands(&wheel, async || {
        for _ in 0..10_000 {
            wheel.timeout(ms(30_000), yield_now()).await.unwrap();
        }
    })
    .await;
    assert_eq!(sent, 1);
}

#[tokio::test(start_paused = true)]
async fn sends_few_commands_for_timeouts_of_mixed_lengths() {
    let wheel = start_wheel();
    let sent = commands(&wheel, async || {
        for n in 0..9_000 {
            let limit = [ms(30_000), ms(5_000), ms(50)][n % 3];
            wheel.timeout(limit, yield_now()).await.unwrap();
            if n % 10 == 0 {
                jump(ms(1));
            }
        }
    })
    .await;
    assert!(sent < 9_000 / 20, "{sent}");
}

#[tokio::test(start_paused = true)]
async fn sends_no_command_per_timeout_after_many_sleeps_fired() {
    let wheel = start_wheel();
    for _ in 0..1_000 {
        wheel.sleep(ms(1)).await;
    }
    let sent = commands(&wheel, async || {
        for _ in 0..1_000 {
            wheel.timeout(ms(30_000), yield_now()).await.unwrap();
        }
    })
    .await;
    assert!(sent < 10, "{sent}");
}

#[tokio::test(start_paused = true)]
async fn sends_no_command_per_timeout_after_many_never_armed() {
    let wheel = start_wheel();
    for n in 0..1_000 {
        wheel.timeout(HOUR + ms(n), async {}).await.unwrap();
        wheel.timeout(Duration::MAX, yield_now()).await.unwrap();
    }
    let sent = commands(&wheel, async || {
        for _ in 0..1_000 {
            wheel.timeout(ms(30_000), yield_now()).await.unwrap();
        }
    })
    .await;
    assert!(sent < 10, "{sent}");
}

#[tokio::test(start_paused = true)]
async fn sends_no_command_when_cancelling_or_moving_later() {
    let wheel = start_wheel();
    let mut sleeps: Vec<_> = (0..100).map(|_| wheel.sleep(ms(1_000))).collect();
    for sleep in &mut sleeps {
        assert_pending!(poll_idly(sleep));
    }
    let sent = commands(&wheel, async || {
        for n in 1..=100 {
            for sleep in &mut sleeps {
                reset(sleep, Instant::now() + ms(1_000 + n));
            }
        }
        drop(sleeps);
    })
    .await;
    assert_eq!(sent, 0);
    assert_eq!(wheel.metrics().sleeps_moved, 10_000);
}

#[tokio::test(start_paused = true)]
async fn each_move_to_an_earlier_tick_sends_a_command() {
    let wheel = start_wheel();
    let mut sleep = wheel.sleep(HOUR);
    assert_pending!(poll_idly(&mut sleep));
    let sent = commands(&wheel, async || {
        for n in 0..100 {
            reset(&mut sleep, Instant::now() + less_than_an_hour(n));
        }
    })
    .await;
    assert_eq!(sent, 100);
}

#[tokio::test(start_paused = true)]
async fn reschedules_a_moved_timer_once() {
    let wheel = start_wheel();
    let start = Instant::now();
    let mut sleep = wheel.sleep(ms(10));
    assert_pending!(poll_idly(&mut sleep));
    wheel.settle().await;
    for n in 11..40 {
        reset(&mut sleep, start + ms(n));
    }
    sleep.await;
    assert_eq!(start.elapsed(), ms(39));
    assert_eq!(wheel.metrics().rescheduled, 1);
}

#[tokio::test(start_paused = true)]
async fn cancelled_sleeps_beyond_the_pool_send_one_command() {
    const KEPT: u64 = 128;
    let wheel = start_wheel();
    let mut sleeps: Vec<_> = (0..1_000).map(|_| wheel.sleep(HOUR)).collect();
    for sleep in &mut sleeps {
        assert_pending!(poll_idly(sleep));
    }
    let sent = commands(&wheel, async || drop(sleeps)).await;
    assert_eq!(sent, 1, "to sweep the wheel");
    // As many can be armed again without a command, and no more.
    let mut again = Vec::new();
    let sent = commands(&wheel, async || {
        again.extend((0..200).map(|_| wheel.sleep(HOUR)));
        for sleep in &mut again {
            assert_pending!(poll_idly(sleep));
        }
    })
    .await;
    assert_eq!(sent, 200 - KEPT);
    // All of them fire, on time.
    let start = Instant::now();
    for sleep in again {
        sleep.await;
        assert_eq!(start.elapsed(), HOUR);
    }
}
