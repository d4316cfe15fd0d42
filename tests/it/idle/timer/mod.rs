//! The idle timer: what touches, guards and new durations do to when it completes, under the paused clock.

mod end;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::time::Duration;

use tickwheel::{IdleTimer, TimerWheel};
use tokio::time::{self, Instant};
use tokio_test::{assert_pending, assert_ready, task};

use crate::support::ms;

/// The wheel's tick, unless a test says otherwise.
const T: Duration = ms(1);

const IDLE: Duration = ms(100);

/// A tick before that.
const JUST_BEFORE: Duration = ms(99);

fn wheel_with_tick(tick: Duration) -> TimerWheel {
    TimerWheel::builder().tick(tick).start().expect("it starts")
}

/// Awaits the timer; returns when it completed, counted from `start`.
async fn completion(idle: &mut IdleTimer, start: Instant) -> Duration {
    idle.await;
    start.elapsed()
}

// --- touches ---

#[tokio::test(start_paused = true)]
async fn completes_untouched_after_its_duration() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = wheel.idle_timer(IDLE);
    assert_eq!(completion(&mut idle, start).await, IDLE);
}

#[tokio::test(start_paused = true)]
async fn postpones_completion_by_a_touch_just_before_the_deadline() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = wheel.idle_timer(IDLE);
    let handle = idle.handle();
    tokio::spawn(async move {
        time::sleep(JUST_BEFORE).await;
        assert!(handle.touch());
    });
    assert_eq!(completion(&mut idle, start).await, JUST_BEFORE + IDLE);
}

#[tokio::test(start_paused = true)]
async fn counts_a_touch_at_the_deadline_until_completion_is_seen() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = task::spawn(wheel.idle_timer(IDLE));
    assert_pending!(idle.poll());

    time::advance(IDLE).await;
    wheel.settle().await;
    assert!(idle.is_woken(), "the wheel has seen that it is due");
    assert!(idle.touch(), "and the task has not");
    assert_pending!(idle.poll());

    assert_eq!(completion(&mut idle.into_inner(), start).await, IDLE + IDLE);
}

#[tokio::test(start_paused = true)]
async fn refuses_a_touch_after_completion_but_counts_it_later() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = wheel.idle_timer(IDLE);
    let handle = idle.handle();
    completion(&mut idle, start).await;

    time::advance(T).await;
    assert!(!handle.touch());
    assert!(!idle.touch());
    assert_eq!(completion(&mut idle, start).await, IDLE + T + IDLE);
}

#[tokio::test(start_paused = true)]
async fn completes_once_after_touches_a_tick_before_each_deadline() {
    for tick in [T, ms(10)] {
        let wheel = wheel_with_tick(tick);
        let mut idle = wheel.idle_timer(IDLE);
        let handle = idle.handle();
        let touching = tokio::spawn(async move {
            for _ in 0..100 {
                time::sleep(IDLE.saturating_sub(tick)).await;
                assert!(handle.touch(), "it completed early");
            }
            Instant::now()
        });
        let mut polls = 0;
        poll_fn(|cx| {
            polls += 1;
            Pin::new(&mut idle).poll(cx)
        })
        .await;
        let completed = Instant::now();
        let last = touching.await.expect("it does not panic");

        assert!(completed >= last + IDLE, "{:?}", completed - last);
        assert!(completed <= last + IDLE + 2 * tick);
        assert_eq!(polls, 2, "touches wake nobody");
        assert!(wheel.metrics().rescheduled <= 101, "{:?}", wheel.metrics());
    }
}

#[tokio::test(start_paused = true)]
async fn completes_within_two_ticks_wherever_the_touch_was() {
    const TICK: Duration = ms(10);
    for idle_for in [ms(1), ms(10), ms(37), ms(100)] {
        for into_tick in 0..10 {
            let wheel = wheel_with_tick(TICK);
            let mut idle = wheel.idle_timer(idle_for);
            time::advance(ms(into_tick)).await;
            idle.touch();
            let touched = Instant::now();
            (&mut idle).await;
            let after = touched.elapsed();
            assert!(
                after >= idle_for,
                "{idle_for:?} + {into_tick} ms: {after:?}"
            );
            assert!(after <= idle_for + 2 * TICK, "{idle_for:?}: {after:?}");
        }
    }
}

/// netpoll's wheel never stored the timeout, and so kicked connections that were active: an early look must file the
/// timer anew, with all of its duration.
#[tokio::test(start_paused = true)]
async fn reschedules_a_timer_processed_too_early() {
    let wheel = TimerWheel::new();
    let mut idle = task::spawn(wheel.idle_timer(IDLE));
    assert_pending!(idle.poll());
    time::advance(ms(60)).await;
    idle.touch();

    time::advance(ms(40)).await;
    wheel.settle().await;
    assert_eq!(wheel.metrics().rescheduled, 1);
    assert!(!idle.is_woken());

    time::advance(ms(59)).await;
    wheel.settle().await;
    assert!(!idle.is_woken());
    time::advance(ms(1)).await;
    wheel.settle().await;
    assert!(idle.is_woken());
    assert_ready!(idle.poll());
    assert_eq!(wheel.metrics().rescheduled, 1);
}

#[tokio::test(start_paused = true)]
async fn ignores_a_touch_in_the_past() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = wheel.idle_timer(IDLE);
    time::advance(ms(50)).await;
    assert!(idle.touch());
    assert!(idle.touch_at(start));
    assert!(idle.touch_at(start.checked_sub(ms(5)).unwrap_or(start)));
    assert_eq!(completion(&mut idle, start).await, ms(150));
}

#[tokio::test(start_paused = true)]
async fn counts_from_a_touch_a_little_ahead() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = wheel.idle_timer(IDLE);
    assert!(idle.touch_at(start + ms(40)));
    assert_eq!(completion(&mut idle, start).await, ms(140));
}

#[tokio::test(start_paused = true)]
async fn limits_a_touch_far_ahead_to_one_duration() {
    let wheel = TimerWheel::new();
    for ahead in [ms(101), ms(3_600_000), Duration::from_secs(u32::MAX.into())] {
        let start = Instant::now();
        let mut idle = task::spawn(wheel.idle_timer(IDLE));
        assert_pending!(idle.poll());
        assert!(idle.touch_at(start + ahead));
        // The wheel looks when the idle duration has passed.
        let completed = completion(&mut idle.into_inner(), start).await;
        assert!(completed >= IDLE + IDLE, "{completed:?}");
        assert!(completed <= IDLE + IDLE + IDLE, "{completed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn stays_pending_while_the_clock_stands_still() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = task::spawn(wheel.idle_timer(T));
    for _ in 0..1000 {
        assert_pending!(idle.poll());
        assert!(idle.touch());
        assert!(idle.touch_at(start));
        drop(idle.busy());
    }
    wheel.settle().await;
    assert!(!idle.is_woken());
    assert_eq!(idle.last_active(), start);
    assert_eq!(completion(&mut idle.into_inner(), start).await, T);
}

#[tokio::test(start_paused = true)]
async fn rounds_last_active_up_to_a_tick_but_not_beyond_now() {
    let wheel = wheel_with_tick(ms(10));
    let start = Instant::now();
    let idle = wheel.idle_timer(IDLE);
    let handle = idle.handle();
    assert_eq!(idle.last_active(), start);

    time::advance(ms(37)).await;
    idle.touch();
    assert_eq!(idle.last_active(), start + ms(37));
    time::advance(ms(8)).await;
    assert_eq!(idle.last_active(), start + ms(40));
    assert_eq!(handle.last_active(), start + ms(40));

    idle.touch_at(start + ms(90));
    assert_eq!(idle.last_active(), start + ms(45));
}

#[tokio::test(start_paused = true)]
async fn sends_no_command_and_makes_no_move_for_a_touch() {
    let wheel = TimerWheel::new();
    let mut idle = task::spawn(wheel.idle_timer(IDLE));
    assert_pending!(idle.poll());
    wheel.settle().await;
    let before = wheel.metrics();
    for _ in 0..50 {
        time::advance(T).await;
        for _ in 0..100 {
            assert!(idle.touch());
        }
    }
    let after = wheel.metrics();
    assert_eq!(after.commands, before.commands);
    assert_eq!(after.wake_ups, before.wake_ups);
    assert_eq!(after.sleeps_moved, before.sleeps_moved);
    assert!(!idle.is_woken());
}

// --- guards ---

#[tokio::test(start_paused = true)]
async fn stays_pending_while_a_guard_is_held() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = task::spawn(wheel.idle_timer(IDLE));
    let busy = idle.busy();
    assert!(busy.is_effective());
    assert_pending!(idle.poll());
    for _ in 0..200 {
        time::advance(IDLE).await;
        wheel.settle().await;
        assert!(!idle.is_woken());
        assert_pending!(idle.poll());
    }
    time::advance(ms(34)).await;
    drop(busy);
    let released = start.elapsed();
    let completed = completion(&mut idle.into_inner(), start).await;
    assert_eq!(completed, released + IDLE);
}

#[tokio::test(start_paused = true)]
async fn counts_from_the_last_release_of_several_guards() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = wheel.idle_timer(IDLE);
    // Released in another order than they were taken in, from different tasks.
    for (from, until) in [(0, 700), (10, 300), (250, 1_234), (1_200, 1_210)] {
        let handle = idle.handle();
        tokio::spawn(async move {
            time::sleep_until(start + ms(from)).await;
            let busy = handle.busy();
            time::sleep_until(start + ms(until)).await;
            drop(busy);
        });
    }
    assert_eq!(completion(&mut idle, start).await, ms(1_334));
}

#[tokio::test(start_paused = true)]
async fn holds_by_a_guard_taken_at_the_deadline() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = task::spawn(wheel.idle_timer(IDLE));
    assert_pending!(idle.poll());
    time::advance(IDLE).await;
    wheel.settle().await;
    assert!(idle.is_woken());
    let busy = idle.handle().busy();
    assert_pending!(idle.poll());
    time::advance(ms(500)).await;
    drop(busy);
    assert_eq!(completion(&mut idle.into_inner(), start).await, ms(700));
}

#[tokio::test(start_paused = true)]
async fn counts_from_the_later_of_guard_and_touch() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = wheel.idle_timer(IDLE);
    let busy = idle.busy();
    time::advance(ms(30)).await;
    idle.touch();
    time::advance(ms(10)).await;
    drop(busy);
    assert!(idle.touch_at(start + ms(60)));
    assert!(idle.touch_at(start + ms(20)));
    assert_eq!(completion(&mut idle, start).await, ms(160));
}

// --- another duration ---

#[tokio::test(start_paused = true)]
async fn applies_a_shorter_duration_while_awaited() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = task::spawn(wheel.idle_timer(ms(3_600_000)));
    assert_pending!(idle.poll());
    wheel.settle().await;
    time::advance(ms(20)).await;
    idle.reset_idle(ms(50));
    assert_eq!(idle.idle(), ms(50));

    time::advance(ms(29)).await;
    wheel.settle().await;
    assert!(!idle.is_woken());
    time::advance(ms(1)).await;
    wheel.settle().await;
    assert!(idle.is_woken(), "{:?}", start.elapsed());
    assert_ready!(idle.poll());
}

#[tokio::test(start_paused = true)]
async fn completes_at_once_by_a_duration_that_has_passed() {
    let wheel = TimerWheel::new();
    let mut idle = task::spawn(wheel.idle_timer(ms(1_000)));
    assert_pending!(idle.poll());
    time::advance(ms(500)).await;
    idle.reset_idle(IDLE);
    wheel.settle().await;
    assert!(idle.is_woken());
    assert_ready!(idle.poll());
}

#[tokio::test(start_paused = true)]
async fn counts_a_longer_duration_from_the_last_activity() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = task::spawn(wheel.idle_timer(IDLE));
    assert_pending!(idle.poll());
    time::advance(ms(60)).await;
    idle.touch();
    idle.reset_idle(ms(250));
    time::advance(ms(240)).await;
    wheel.settle().await;
    assert!(!idle.is_woken());
    assert_eq!(completion(&mut idle.into_inner(), start).await, ms(310));
}

#[tokio::test(start_paused = true)]
async fn shortens_a_duration_without_end() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = task::spawn(wheel.idle_timer(Duration::MAX));
    assert_pending!(idle.poll());
    for _ in 0..10 {
        time::advance(Duration::from_secs(86_400 * 365)).await;
        wheel.settle().await;
        assert!(!idle.is_woken());
        assert_pending!(idle.poll());
    }
    assert!(idle.touch());
    let touched = start.elapsed();
    idle.reset_idle(IDLE);
    let completed = completion(&mut idle.into_inner(), start).await;
    assert_eq!(completed, touched + IDLE);
}

// --- several tasks ---

/// Under the real clock: handles on other threads touch it, and it is never early for the last of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn touches_by_handles_from_other_tasks_and_threads() {
    let wheel = TimerWheel::new();
    let idle = wheel.idle_timer(ms(120));
    let touching: Vec<_> = (0..4)
        .map(|i| {
            let handle = idle.handle();
            tokio::spawn(async move {
                for _ in 0..20 {
                    time::sleep(ms(3 + i)).await;
                    handle.touch();
                }
                let busy = handle.clone().busy();
                time::sleep(ms(10 * i)).await;
                let released = Instant::now();
                busy.is_effective().then_some(released)
            })
        })
        .collect();
    idle.await;
    let completed = Instant::now();
    for touching in touching {
        let last = touching.await.expect("it does not panic");
        // A machine that stops for longer than the idle duration may see it complete first; what comes after has no effect.
        assert!(last.is_none_or(|last| completed >= last + ms(120)));
    }
}

#[tokio::test(start_paused = true)]
async fn wakes_the_last_of_two_tasks_that_poll() {
    let wheel = TimerWheel::new();
    let mut idle = wheel.idle_timer(IDLE);
    let mut first = task::spawn(());
    let mut second = task::spawn(());
    for task in [&mut first, &mut second] {
        task.enter(|cx, _| assert_pending!(Pin::new(&mut idle).poll(cx)));
    }
    time::advance(IDLE).await;
    wheel.settle().await;
    assert!(!first.is_woken());
    assert!(second.is_woken());
}

// --- bad input ---

#[tokio::test(start_paused = true)]
#[should_panic(expected = "an idle duration must be longer than zero")]
async fn rejects_an_idle_timer_of_no_duration() {
    drop(TimerWheel::new().idle_timer(Duration::ZERO));
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "an idle duration must be longer than zero")]
async fn rejects_a_reset_to_no_duration() {
    TimerWheel::new()
        .idle_timer(IDLE)
        .reset_idle(Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn p8_completes_the_shortest_duration_at_the_next_tick() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = wheel.idle_timer(Duration::from_nanos(1));
    assert_eq!(completion(&mut idle, start).await, T);
}
