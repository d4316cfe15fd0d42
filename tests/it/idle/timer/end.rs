//! An idle timer that has completed, and one whose wheel or runtime is gone.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use tickwheel::TimerWheel;
use tokio::runtime;
use tokio::time::{self, Instant};
use tokio_test::{assert_pending, task};

use super::{IDLE, completion};
use crate::support::ms;

#[tokio::test(start_paused = true)]
async fn stays_complete_until_touched_and_then_waits_anew() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = wheel.idle_timer(IDLE);
    for round in 1..=5 {
        assert_eq!(completion(&mut idle, start).await, round * IDLE);
        assert_eq!(completion(&mut idle, start).await, round * IDLE);
        assert!(!idle.touch());
        assert!(!idle.touch(), "it was not polled");
        let mut pending = task::spawn(&mut idle);
        assert_pending!(pending.poll());
        drop(pending);
        assert!(idle.touch());
    }
    wheel.settle().await;
    let metrics = wheel.metrics();
    drop(idle);
    assert_eq!(
        metrics.sleeps_made,
        metrics.sleeps_pending + metrics.sleeps_fired + metrics.sleeps_cancelled,
        "{metrics:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn revives_a_completed_timer_by_a_longer_duration() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = wheel.idle_timer(IDLE);
    completion(&mut idle, start).await;
    idle.reset_idle(ms(300));
    assert_eq!(completion(&mut idle, start).await, ms(300));
}

#[tokio::test(start_paused = true)]
async fn p7_wakes_nobody_after_an_idle_timer_is_dropped() {
    let wheel = TimerWheel::new();
    let mut idle = wheel.idle_timer(IDLE);
    let mut waiting = task::spawn(());
    waiting.enter(|cx, _| assert_pending!(Pin::new(&mut idle).poll(cx)));
    let handle = idle.handle();
    let busy = handle.busy();
    drop(idle);
    wheel.settle().await;
    assert_eq!(waiting.waker_ref_count(), 1, "the wheel let the waker go");
    assert_eq!(wheel.metrics().sleeps_pending, 0);

    time::advance(IDLE * 3).await;
    drop(busy);
    assert!(handle.touch());
    assert_eq!(handle.last_active(), Instant::now());
    wheel.settle().await;
    assert!(!waiting.is_woken());
}

#[tokio::test(start_paused = true)]
async fn p15_respects_touches_by_tokios_timer_after_shutdown() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut pending = task::spawn(wheel.idle_timer(IDLE));
    assert_pending!(pending.poll());
    time::advance(ms(50)).await;
    wheel.shutdown().await;
    assert!(pending.is_woken(), "it has to find another timer");
    assert!(pending.touch());

    let mut late = wheel.idle_timer(IDLE);
    let handle = late.handle();
    tokio::spawn(async move {
        for _ in 0..10 {
            time::sleep(ms(90)).await;
            assert!(handle.touch());
        }
        let busy = handle.busy();
        time::sleep(ms(450)).await;
        drop(busy);
    });
    assert_eq!(completion(&mut pending.into_inner(), start).await, ms(150));
    assert_eq!(completion(&mut late, start).await, ms(50 + 900 + 450 + 100));

    assert!(!late.touch());
    assert_eq!(completion(&mut late, start).await, ms(1_600));
    late.reset_idle(ms(500));
    assert_eq!(completion(&mut late, start).await, ms(2_000));
}

#[test]
fn p15_completes_idle_timers_after_the_runtime_is_gone() {
    let current_thread = || {
        runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime")
    };
    let first = current_thread();
    let (wheel, mut idle) = first.block_on(async {
        let wheel = TimerWheel::new();
        let mut idle = wheel.idle_timer(ms(20));
        poll_fn(|cx| {
            assert!(Pin::new(&mut idle).poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        (wheel, idle)
    });
    drop(first);
    assert!(wheel.is_shutdown());
    let handle = idle.handle();
    assert!(handle.touch());
    drop(handle.busy());
    current_thread().block_on(async {
        let touched = Instant::now();
        handle.touch_at(touched);
        (&mut idle).await;
        assert!(touched.elapsed() >= ms(20));
        wheel.idle_timer(ms(5)).await;
    });
    assert!(!handle.touch());
}
