//! An idle timer that has completed, and one without its wheel or runtime.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use futures::FutureExt;
use futures::future::FusedFuture;
use tickwheel::TimerWheel;
use tokio::runtime;
use tokio::time::{self, Instant};
use tokio_test::{assert_pending, task};

use super::{IDLE, completion};
use crate::support::ms;

#[tokio::test(start_paused = true)]
async fn begins_a_new_period_when_restarted() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = wheel.idle_timer(IDLE);
    let handle = idle.handle();
    let mut expected = ms(0);
    for pause in [0, 1, 30, 250] {
        time::advance(ms(pause)).await;
        idle.restart();
        expected += ms(pause) + IDLE;
        assert!(idle.touch() && !idle.is_terminated());
        assert_eq!(completion(&mut idle, start).await, expected);
        assert!(!handle.touch(), "too late");
        time::advance(ms(7)).await;
        expected += ms(7);
        assert!(!idle.touch() && idle.is_terminated());
        assert!(!idle.busy().is_effective());
        assert_eq!(idle.last_active(), start + expected - IDLE - ms(7));
    }
    idle.restart();
    assert!(idle.touch() && idle.busy().is_effective());
    wheel.settle().await;
    let metrics = wheel.metrics();
    drop(idle);
    assert_eq!(
        metrics.sleeps_made,
        metrics.sleeps_pending + metrics.sleeps_fired + metrics.sleeps_cancelled,
        "{metrics:?}"
    );
}

/// In a loop around `select!` a completed timer must not be ready all the time.
#[tokio::test(start_paused = true)]
async fn completes_once_in_a_select_loop_until_restarted() {
    let wheel = TimerWheel::new();
    let mut idle = wheel.idle_timer(IDLE);
    let mut end = pin!(time::sleep(ms(1_050)));
    let mut completed = 0;
    loop {
        tokio::select! {
            () = &mut idle => completed += 1,
            () = &mut end => break,
        }
    }
    assert_eq!(completed, 1);

    let mut end = time::sleep(ms(1_050)).boxed().fuse();
    futures::select! {
        () = &mut idle => panic!("it is terminated"),
        () = &mut end => {}
    }
    let mut end = pin!(time::sleep(ms(1_050)));
    idle.restart();
    loop {
        tokio::select! {
            () = &mut idle => {
                completed += 1;
                idle.restart();
            }
            () = &mut end => break,
        }
    }
    assert_eq!(completed, 11);
}

#[tokio::test(start_paused = true)]
async fn restart_of_a_pending_timer_is_a_touch() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = wheel.idle_timer(IDLE);
    time::advance(ms(60)).await;
    idle.restart();
    assert_eq!(completion(&mut idle, start).await, IDLE + ms(60));
    assert!(idle.now_or_never().is_none(), "it stays pending");
}

#[tokio::test(start_paused = true)]
async fn reset_after_completion_applies_to_next_period() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let mut idle = wheel.idle_timer(IDLE);
    completion(&mut idle, start).await;
    idle.set_idle_duration(ms(300));
    assert!(!idle.touch(), "it has completed");
    idle.restart();
    assert_eq!(completion(&mut idle, start).await, IDLE + ms(300));
    idle.set_idle_duration(ms(20));
    idle.restart();
    assert_eq!(completion(&mut idle, start).await, IDLE + ms(320));
}

#[tokio::test(start_paused = true)]
async fn p7_dropped_idle_timer_wakes_no_task() {
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
    late.restart();
    assert_eq!(completion(&mut late, start).await, ms(1_600));
    late.set_idle_duration(ms(500));
    late.restart();
    assert_eq!(completion(&mut late, start).await, ms(2_100));
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
        let mut idle = wheel.idle_timer(ms(500));
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
        assert!(touched.elapsed() >= ms(500));
        wheel.idle_timer(ms(5)).await;
    });
    assert!(!handle.touch());
}
