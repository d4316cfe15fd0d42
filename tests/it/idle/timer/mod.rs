//! The idle timer: how touches, guards and new durations change when it completes, under the paused
//! clock.

mod end;
mod reset;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::time::Duration;

use tickwheel::{IdleTimer, TimerWheel};
use tokio::time::{self, Instant};
use tokio_test::task::{self, Spawn};
use tokio_test::{assert_pending, assert_ready};

use crate::support::{advance, ms};

/// The wheel's tick, unless a test sets another one.
const T: Duration = ms(1);

const IDLE: Duration = ms(100);

/// A tick less than that.
const JUST_BEFORE: Duration = ms(99);

fn wheel_with_tick(tick: Duration) -> TimerWheel {
    TimerWheel::builder().tick(tick).start().expect("it starts")
}

/// Awaits the timer. Returns the time since `start`.
async fn completion(idle: &mut IdleTimer, start: Instant) -> Duration {
    idle.await;
    start.elapsed()
}

/// A timer that the actor has just fired, and that was not polled since.
async fn fired(wheel: &TimerWheel) -> Spawn<IdleTimer> {
    let mut idle = task::spawn(wheel.idle_timer(IDLE));
    assert_pending!(idle.poll());
    advance(wheel, IDLE).await;
    assert!(idle.is_woken(), "the actor has fired its entry");
    idle
}

// --- touches ---

#[tokio::test(start_paused = true)]
async fn completes_after_its_duration_untouched() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = wheel.idle_timer(IDLE);
    assert_eq!(completion(&mut idle, start).await, IDLE);
}

#[tokio::test(start_paused = true)]
async fn touch_just_before_deadline_delays_completion() {
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
async fn touch_at_deadline_counts_until_poll_completes() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = fired(&wheel).await;
    assert!(idle.touch(), "the task has not polled it");
    assert_pending!(idle.poll());

    assert_eq!(completion(&mut idle.into_inner(), start).await, IDLE + IDLE);
}

#[tokio::test(start_paused = true)]
async fn touch_after_completion_returns_false() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = wheel.idle_timer(IDLE);
    let handle = idle.handle();
    completion(&mut idle, start).await;

    time::advance(T).await;
    assert!(!handle.touch());
    assert!(!idle.touch());
    idle.restart();
    assert!(handle.touch());
    assert_eq!(completion(&mut idle, start).await, IDLE + T + IDLE);
}

#[tokio::test(start_paused = true)]
async fn completes_once_after_touches_end() {
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
        assert_eq!(polls, 2, "touches wake no task");
        assert!(wheel.metrics().rescheduled <= 101, "{:?}", wheel.metrics());
    }
}

#[tokio::test(start_paused = true)]
async fn completes_within_two_ticks_of_its_duration() {
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

/// netpoll's wheel never stored the timeout, and so closed active connections: a timer that is
/// processed before it is due must be rescheduled, with its whole duration.
#[tokio::test(start_paused = true)]
async fn reschedules_when_processed_before_due() {
    let wheel = TimerWheel::new();
    let mut idle = task::spawn(wheel.idle_timer(IDLE));
    assert_pending!(idle.poll());
    time::advance(ms(60)).await;
    idle.touch();

    advance(&wheel, ms(40)).await;
    assert_eq!(wheel.metrics().rescheduled, 1);
    assert!(!idle.is_woken());

    advance(&wheel, ms(59)).await;
    assert!(!idle.is_woken());
    advance(&wheel, ms(1)).await;
    assert!(idle.is_woken());
    assert_ready!(idle.poll());
    assert_eq!(wheel.metrics().rescheduled, 1);
}

#[tokio::test(start_paused = true)]
async fn ignores_touch_in_the_past() {
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
async fn counts_from_touch_in_near_future() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = wheel.idle_timer(IDLE);
    assert!(idle.touch_at(start + ms(40)));
    assert_eq!(completion(&mut idle, start).await, ms(140));
}

#[tokio::test(start_paused = true)]
async fn limits_touch_in_far_future_to_one_duration() {
    let wheel = TimerWheel::new();
    for ahead in [ms(101), ms(3_600_000), Duration::from_secs(u32::MAX.into())] {
        let start = Instant::now();
        let mut idle = task::spawn(wheel.idle_timer(IDLE));
        assert_pending!(idle.poll());
        assert!(idle.touch_at(start + ahead));
        // The actor processes it when the idle duration has passed.
        let completed = completion(&mut idle.into_inner(), start).await;
        assert!(completed >= IDLE + IDLE, "{completed:?}");
        assert!(completed <= IDLE + IDLE + IDLE, "{completed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn waits_while_clock_stands_still() {
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
async fn rounds_last_active_up_but_not_beyond_now() {
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
async fn touches_send_no_command() {
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
async fn waits_while_guard_is_held() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = task::spawn(wheel.idle_timer(IDLE));
    let busy = idle.busy();
    assert!(busy.is_effective());
    assert_pending!(idle.poll());
    for _ in 0..200 {
        advance(&wheel, IDLE).await;
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
async fn counts_from_release_of_last_guard() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = wheel.idle_timer(IDLE);
    // The guards are released in another order than they were taken in, by different tasks.
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
async fn guard_at_deadline_counts_until_poll_completes() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = fired(&wheel).await;
    let busy = idle.handle().busy();
    assert_pending!(idle.poll());
    time::advance(ms(500)).await;
    drop(busy);
    assert_eq!(completion(&mut idle.into_inner(), start).await, ms(700));
}

#[tokio::test(start_paused = true)]
async fn counts_from_later_of_guard_and_touch() {
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
async fn shorter_duration_applies_while_awaited() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = task::spawn(wheel.idle_timer(ms(3_600_000)));
    assert_pending!(idle.poll());
    wheel.settle().await;
    time::advance(ms(20)).await;
    idle.set_idle_duration(ms(50));
    assert_eq!(idle.idle_duration(), ms(50));

    advance(&wheel, ms(29)).await;
    assert!(!idle.is_woken());
    advance(&wheel, ms(1)).await;
    assert!(idle.is_woken(), "{:?}", start.elapsed());
    assert_ready!(idle.poll());
}

#[tokio::test(start_paused = true)]
async fn completes_at_once_when_reset_to_passed_duration() {
    let wheel = TimerWheel::new();
    let mut idle = task::spawn(wheel.idle_timer(ms(1_000)));
    assert_pending!(idle.poll());
    time::advance(ms(500)).await;
    idle.set_idle_duration(IDLE);
    wheel.settle().await;
    assert!(idle.is_woken());
    assert_ready!(idle.poll());
}

#[tokio::test(start_paused = true)]
async fn longer_duration_counts_from_last_activity() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = task::spawn(wheel.idle_timer(IDLE));
    assert_pending!(idle.poll());
    time::advance(ms(60)).await;
    idle.touch();
    idle.set_idle_duration(ms(250));
    advance(&wheel, ms(240)).await;
    assert!(!idle.is_woken());
    assert_eq!(completion(&mut idle.into_inner(), start).await, ms(310));
}

#[tokio::test(start_paused = true)]
async fn longest_duration_is_never_until_shortened() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = task::spawn(wheel.idle_timer(Duration::MAX));
    assert_pending!(idle.poll());
    for _ in 0..10 {
        advance(&wheel, Duration::from_secs(86_400 * 365)).await;
        assert!(!idle.is_woken());
        assert_pending!(idle.poll());
    }
    assert!(idle.touch());
    let touched = start.elapsed();
    idle.set_idle_duration(IDLE);
    let completed = completion(&mut idle.into_inner(), start).await;
    assert_eq!(completed, touched + IDLE);
}

// --- several tasks ---

/// Handles on other threads touch the timer under the real clock. It is not early after the last
/// touch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepts_touches_from_other_threads() {
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
        // On a machine that stops for longer than the idle duration the timer may complete first.
        // Later guards have no effect.
        assert!(last.is_none_or(|last| completed >= last + ms(120)));
    }
}

#[tokio::test(start_paused = true)]
async fn wakes_last_of_two_pollers() {
    let wheel = TimerWheel::new();
    let mut idle = wheel.idle_timer(IDLE);
    let mut first = task::spawn(());
    let mut second = task::spawn(());
    for task in [&mut first, &mut second] {
        task.enter(|cx, _| assert_pending!(Pin::new(&mut idle).poll(cx)));
    }
    advance(&wheel, IDLE).await;
    assert!(!first.is_woken());
    assert!(second.is_woken());
}

// --- bad input ---

#[tokio::test(start_paused = true)]
#[should_panic(expected = "an idle duration must be longer than zero")]
async fn refuses_zero_duration() {
    drop(TimerWheel::new().idle_timer(Duration::ZERO));
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "an idle duration must be longer than zero")]
async fn refuses_reset_to_zero_duration() {
    TimerWheel::new()
        .idle_timer(IDLE)
        .set_idle_duration(Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn p8_completes_the_shortest_duration_at_the_next_tick() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = wheel.idle_timer(Duration::from_nanos(1));
    assert_eq!(completion(&mut idle, start).await, T);
}

/// A server that starts arms those of all connections together. They were put off together too, and
/// requests waited for milliseconds.
#[tokio::test(start_paused = true)]
async fn timers_that_were_armed_together_are_put_off_one_after_the_other() {
    let wheel = TimerWheel::new();
    let mut timers: Vec<_> = (0..2_000)
        .map(|_| task::spawn(wheel.idle_timer(ms(4_000))))
        .collect();
    for idle in &mut timers {
        assert_pending!(idle.poll());
    }
    advance(&wheel, ms(2_000)).await;
    assert!(timers.iter().all(|idle| idle.touch()));
    let mut all = 0;
    for _ in 0..201 {
        advance(&wheel, ms(10)).await;
        let put_off = wheel.metrics().rescheduled - all;
        assert!(put_off <= 50, "{put_off} of 2,000 at once");
        all += put_off;
    }
    assert_eq!(all, 2_000);
    assert!(timers.iter().all(|idle| !idle.is_woken()));
    advance(&wheel, ms(2_000)).await;
    assert!(timers.iter().all(Spawn::is_woken));
}
