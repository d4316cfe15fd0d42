//! Bugs that a `Sleep` or an `Interval` once had.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use crate::support::{
    HOUR, Wakes, builder, jump, ms, poll_idly, poll_with, reset, start_on_thread, start_wheel, us,
};
use futures::FutureExt;
use tickwheel::{Interval, TimerWheel};
use tokio::time::{self, Instant, MissedTickBehavior};
use tokio_test::{assert_pending, assert_ready};

const YEAR: Duration = Duration::from_secs(86_400 * 365);

// --- the first poll ---

#[tokio::test(start_paused = true)]
async fn is_ready_at_its_first_poll_when_overdue() {
    let wheel = start_wheel();
    let limit = wheel.sleep(ms(10));
    time::sleep(ms(50)).await;
    tokio::select! {
        biased;
        () = limit => {}
        () = std::future::ready(()) => panic!("the limit had passed"),
    }
    let at_its_deadline = wheel.sleep(ms(10));
    jump(ms(10));
    assert!(at_its_deadline.now_or_never().is_some());
    let before_it = wheel.sleep(ms(10));
    jump(ms(9));
    assert!(before_it.now_or_never().is_none());
    let metrics = wheel.metrics();
    assert_eq!((metrics.sleeps_fired, metrics.sleeps_cancelled), (2, 1));
}

#[tokio::test]
async fn is_ready_at_its_first_poll_when_overdue_by_the_real_clock() {
    let wheel = start_wheel();
    let limit = wheel.sleep(ms(1));
    thread::sleep(ms(5));
    assert!(limit.now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn is_ready_at_its_first_poll_after_shutdown_when_overdue() {
    let wheel = start_wheel();
    let mut armed = wheel.sleep(ms(10));
    assert_pending!(poll_idly(&mut armed));
    let new = wheel.sleep(ms(10));
    wheel.shutdown().await;
    jump(ms(10));
    assert!(armed.now_or_never().is_some());
    assert!(new.now_or_never().is_some());
    let metrics = wheel.metrics();
    assert_eq!((metrics.sleeps_fired, metrics.sleeps_pending), (2, 0));
}

// --- never ---

/// Asserts that it never wakes its task or becomes ready.
async fn assert_never<F: Future + Unpin>(wheel: &TimerWheel, mut future: F) {
    let (woken, waker) = Wakes::new();
    for _ in 0..3 {
        assert!(poll_with(&mut future, &waker).is_pending());
        time::advance(YEAR * 31).await;
        wheel.settle().await;
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        assert!(poll_with(&mut future, &waker).is_pending());
    }
    drop(woken);
}

/// Polls an interval for its next tick.
struct NextTick(Interval);

impl Future for NextTick {
    type Output = Instant;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> std::task::Poll<Instant> {
        self.0.poll_tick(cx)
    }
}

#[tokio::test(start_paused = true)]
async fn never_ticks_after_an_endless_period() {
    for behavior in [
        MissedTickBehavior::Burst,
        MissedTickBehavior::Delay,
        MissedTickBehavior::Skip,
    ] {
        for late in [ms(0), ms(100)] {
            for ends_before in [false, true] {
                let wheel = start_wheel();
                let mut interval = wheel.interval(Duration::MAX);
                interval.set_missed_tick_behavior(behavior);
                jump(late);
                interval.tick().await;
                if ends_before {
                    wheel.shutdown().await;
                }
                assert_never(&wheel, NextTick(interval)).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn never_ticks_after_a_reset_to_an_endless_wait() {
    let wheel = start_wheel();
    let mut interval = wheel.interval(ms(10));
    interval.reset_after(Duration::MAX);
    assert_never(&wheel, NextTick(interval)).await;

    let mut waits = NextTick(wheel.interval_at(Instant::now() + HOUR, ms(10)));
    assert_pending!(poll_idly(&mut waits));
    waits.0.reset_after(Duration::MAX);
    assert_never(&wheel, waits).await;

    let mut endless = wheel.interval(Duration::MAX);
    endless.reset();
    assert_never(&wheel, NextTick(endless)).await;
}

#[tokio::test(start_paused = true)]
async fn never_completes_an_endless_sleep_after_shutdown() {
    let wheel = start_wheel();
    // Their entries lie in this thread's pool, and are closed with the wheel.
    let mut pooled: Vec<_> = (0..8).map(|_| wheel.sleep(HOUR)).collect();
    for sleep in &mut pooled {
        assert_pending!(poll_idly(sleep));
    }
    wheel.settle().await;
    drop(pooled);
    let mut armed = wheel.sleep(Duration::MAX);
    assert_pending!(poll_idly(&mut armed));
    wheel.shutdown().await;
    let before = Instant::now();
    let sleep = wheel.sleep(Duration::MAX);
    assert!(sleep.deadline() > before + YEAR * 29, "something sane");
    assert_never(&wheel, sleep).await;
    assert_never(&wheel, armed).await;
}

#[tokio::test(start_paused = true)]
async fn completes_an_endless_sleep_given_an_end_after_shutdown() {
    let wheel = start_wheel();
    let pooled = wheel.sleep(HOUR);
    drop(pooled);
    wheel.shutdown().await;
    let start = Instant::now();
    let (woken, waker) = Wakes::new();
    let mut sleep = wheel.sleep(Duration::MAX);
    assert_pending!(poll_with(&mut sleep, &waker));
    reset(&mut sleep, start + ms(5));
    assert!(!sleep.is_elapsed());
    time::sleep(ms(20)).await;
    assert!(woken.count() > 0);
    assert!(sleep.is_elapsed());
}

// --- polled where there is no runtime ---

#[test]
fn goes_on_outside_a_runtime_when_its_wheel_has_ended() {
    let wheel = start_on_thread(builder());
    let mut armed = wheel.sleep(ms(60));
    let _ = poll_idly(&mut armed);
    let mut never = wheel.sleep(Duration::MAX);
    futures::executor::block_on(wheel.shutdown());
    let plain = thread::spawn(move || {
        let start = Instant::now();
        futures::executor::block_on(&mut armed);
        assert!(Instant::now() >= armed.deadline(), "early");
        assert!(armed.is_elapsed());

        futures::executor::block_on(wheel.sleep(ms(20)));
        assert!(start.elapsed() >= ms(20), "early");

        reset(&mut armed, Instant::now() + HOUR);
        assert_pending!(poll_idly(&mut armed));
        let earlier = Instant::now() + ms(10);
        reset(&mut armed, earlier);
        futures::executor::block_on(&mut armed);
        assert!(Instant::now() >= earlier, "early");

        let stuck = wheel.timeout(ms(10), std::future::pending::<()>());
        assert!(futures::executor::block_on(stuck).is_err());
        assert_pending!(poll_idly(&mut never));
        drop(never);
        let metrics = wheel.metrics();
        assert_eq!(metrics.sleeps_pending, 0);
        assert_eq!(
            metrics.sleeps_made,
            metrics.sleeps_fired + metrics.sleeps_cancelled + metrics.sleeps_handed_over
        );
    });
    plain.join().expect("there was a timer to go on with");
}

// --- resets without a poll ---

#[tokio::test(start_paused = true)]
async fn is_elapsed_by_the_clock_after_a_reset() {
    let wheel = start_wheel();
    let mut tokios = Box::pin(time::sleep(ms(5)));
    let mut ours = wheel.sleep(ms(5));
    let mut both_are = async |expected: bool, by: Duration, to: Option<Duration>| {
        if let Some(to) = to {
            let deadline = Instant::now() + to;
            tokios.as_mut().reset(deadline);
            reset(&mut ours, deadline);
        }
        time::sleep(by).await;
        assert_eq!(tokios.is_elapsed(), expected, "Tokio's");
        assert_eq!(ours.is_elapsed(), expected);
    };
    both_are(false, ms(10), None).await; // made, and not polled
    both_are(false, ms(10), Some(ms(20))).await;
    both_are(true, ms(11), None).await;
    both_are(false, ms(1), Some(ms(20))).await;
    both_are(true, ms(1), Some(Duration::ZERO)).await;
    tokios.as_mut().await;
    assert_ready!(poll_idly(&mut ours));
    assert!(ours.is_elapsed());
}

// Tokio wakes the last poller of a completed sleep that is reset: it keeps a clone of its waker for
// that.
#[tokio::test(start_paused = true)]
async fn wakes_no_task_when_reset_after_it_completed() {
    let wheel = start_wheel();
    let (woken, waker) = Wakes::new();
    let mut sleep = wheel.sleep(ms(10));
    assert_pending!(poll_with(&mut sleep, &waker));
    time::sleep(ms(20)).await;
    assert_eq!(woken.count(), 1);
    assert_ready!(poll_with(&mut sleep, &waker));
    reset(&mut sleep, Instant::now() + ms(10));
    time::sleep(ms(20)).await;
    assert_eq!(woken.count(), 1, "it has to be polled again");
    assert_ready!(poll_with(&mut sleep, &waker));
}

// --- wakers that panic ---

/// A waker that panics when dropped.
struct DropPanics;

impl Wake for DropPanics {
    fn wake(self: Arc<Self>) {
        std::mem::forget(self);
    }
}

impl Drop for DropPanics {
    fn drop(&mut self) {
        panic!("the waker's drop");
    }
}

fn panics(f: impl FnOnce()) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err()
}

#[tokio::test(start_paused = true)]
async fn counters_add_up_when_a_waker_drop_panics() {
    let wheel = start_wheel();
    let arm = || {
        let mut sleep = wheel.sleep(ms(10));
        let waker = Waker::from(Arc::new(DropPanics));
        assert_pending!(poll_with(&mut sleep, &waker));
        std::mem::forget(waker);
        sleep
    };
    // The waker that the entry holds is the last one.
    let last = || {
        let waker = Arc::new(DropPanics);
        let weak = Arc::downgrade(&waker);
        let mut sleep = wheel.sleep(ms(10));
        let waker = Waker::from(waker);
        assert_pending!(poll_with(&mut sleep, &waker));
        // The entry has a clone of it; the drop of this one is not the last.
        drop(waker);
        assert_eq!(weak.strong_count(), 1);
        sleep
    };
    drop(arm());
    // Dropped: the panic reaches the task that drops the sleep.
    let dropped = last();
    assert!(panics(|| drop(dropped)));
    let metrics = wheel.metrics();
    assert_eq!((metrics.sleeps_pending, metrics.sleeps_cancelled), (0, 2));

    // Replaced by another poller: that one has nothing to do with it.
    let mut replaced = last();
    let (woken, waker) = Wakes::new();
    assert!(!panics(|| assert_pending!(poll_with(
        &mut replaced,
        &waker
    ))));
    time::sleep(ms(10)).await;
    wheel.settle().await;
    assert_eq!(woken.count(), 1, "the last poller is woken");
    assert_ready!(poll_with(&mut replaced, &waker));

    // Dropped by the poll that finds the sleep due before the actor does.
    let mut due = last();
    jump(ms(10));
    let noop = Waker::noop();
    let polled = panics(|| assert_ready!(poll_with(&mut due, noop)));
    assert!(!polled, "it was replaced first");
    drop((replaced, due));
    wheel.settle().await;
    let metrics = wheel.metrics();
    assert_eq!(metrics.sleeps_pending, 0);
    assert_eq!((metrics.sleeps_fired, metrics.sleeps_cancelled), (2, 2));
    wheel.sleep(ms(5)).await;
}

// --- counting ---

#[test]
fn counts_a_sleep_once_when_poll_and_actor_meet() {
    const THREADS: u64 = 3;
    const ROUNDS: u64 = 1_500;
    let wheel = start_on_thread(builder().tick(us(20)));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for n in 0..ROUNDS {
                    // Polled without end, so that it often sees the clock as the actor fires.
                    let mut sleep = wheel.sleep(us(40 + n % 60));
                    while poll_idly(&mut sleep).is_pending() {
                        std::hint::spin_loop();
                    }
                }
            });
        }
    });
    futures::executor::block_on(wheel.settle());
    let metrics = wheel.metrics();
    assert_eq!(metrics.sleeps_made, THREADS * ROUNDS);
    assert_eq!(metrics.sleeps_fired, THREADS * ROUNDS);
    assert_eq!(metrics.sleeps_pending, 0);
    futures::executor::block_on(wheel.shutdown());
}

// --- intervals ---

#[tokio::test(start_paused = true)]
async fn skips_as_tokio_when_late_by_whole_periods() {
    for periods in 1..=3 {
        let wheel = start_wheel();
        let start = Instant::now();
        let mut ours = wheel.interval(ms(50));
        let mut tokios = time::interval(ms(50));
        ours.set_missed_tick_behavior(MissedTickBehavior::Skip);
        tokios.set_missed_tick_behavior(MissedTickBehavior::Skip);
        assert_eq!(ours.tick().await, tokios.tick().await);
        time::advance(ms(50) * (periods + 1)).await;
        assert_eq!(ours.tick().await - start, tokios.tick().await - start);
        for _ in 0..3 {
            let (ours, tokios) = tokio::join!(
                async { (ours.tick().await - start, start.elapsed()) },
                async { (tokios.tick().await - start, start.elapsed()) },
            );
            assert_eq!(ours, tokios, "late by {periods} periods");
        }
        assert_eq!(start.elapsed(), ms(50) * (periods + 4));
    }
}
