//! The weak handle of a wheel, the wait for its end, and what the end is called.

use tickwheel::{ClosedError, SetTimerError, TimerWheel};
use tokio::runtime::{self, Runtime};
use tokio::time::{self, Instant};
use tokio_test::{assert_pending, assert_ready, task};

use crate::support::{HOUR, ms};

fn wheel_and_its_runtime() -> (Runtime, TimerWheel) {
    let runtime = runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().build().unwrap();
    let builder = TimerWheel::builder().runtime(runtime.handle().clone());
    (runtime, builder.start().unwrap())
}

#[tokio::test(start_paused = true)]
async fn weak_handle_keeps_no_wheel_alive() {
    let wheel = TimerWheel::new();
    let weak = wheel.downgrade();
    let mut closed = task::spawn(weak.closed());
    assert_pending!(closed.poll());
    assert!(weak.upgrade().is_some());
    drop(wheel);
    time::sleep(ms(1)).await;
    assert!(closed.is_woken());
    assert_ready!(closed.poll());
    assert!(weak.upgrade().is_none());
}

#[tokio::test(start_paused = true)]
async fn weak_handle_upgrades_while_a_set_keeps_the_wheel() {
    let wheel = TimerWheel::new();
    let (weak, (timers, expirations)) = (wheel.downgrade(), wheel.keyed::<u32, ()>());
    drop(wheel);
    let start = Instant::now();
    weak.upgrade().unwrap().sleep(ms(5)).await;
    assert_eq!(start.elapsed(), ms(5));
    drop((timers, expirations));
    weak.closed().await;
    assert!(weak.upgrade().is_none());
}

#[tokio::test(start_paused = true)]
async fn armed_timer_keeps_the_wheel_that_weak_handles_wait_for() {
    let wheel = TimerWheel::builder().sleeps_on_wheel().start().unwrap();
    let weak = wheel.downgrade();
    let sleep = tokio::spawn(wheel.sleep(HOUR));
    tokio::task::yield_now().await;
    drop(wheel);
    let start = Instant::now();
    weak.closed().await;
    assert_eq!(start.elapsed(), HOUR);
    sleep.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn closed_completes_with_the_shutdown_and_does_not_cause_it() {
    let wheel = TimerWheel::new();
    let weak = wheel.downgrade();
    let (mut strong, mut weakly) = (task::spawn(wheel.closed()), task::spawn(weak.closed()));
    assert_pending!(strong.poll());
    assert_pending!(weakly.poll());
    time::sleep(HOUR).await;
    assert!(!wheel.is_shutdown());
    wheel.shutdown().await;
    assert_ready!(strong.poll());
    assert_ready!(weakly.poll());
    let still = weak.upgrade().expect("a handle is left");
    assert!(still.is_shutdown());
}

#[test]
fn closed_completes_when_the_runtime_ends() {
    let (runtime, wheel) = wheel_and_its_runtime();
    let mut closed = task::spawn(wheel.closed());
    assert_pending!(closed.poll());
    drop(runtime);
    assert!(closed.is_woken());
    assert_ready!(closed.poll());
}

#[tokio::test(start_paused = true)]
async fn closed_timers_name_a_dropped_stream_and_a_shutdown() {
    let wheel = TimerWheel::new();
    let (timers, stream) = wheel.keyed();
    let (others, other_stream) = wheel.keyed::<u32, ()>();
    drop(stream);
    let refused = timers.set_timer(1, 'a', HOUR);
    assert_eq!(
        refused,
        Err(SetTimerError::Closed(1, 'a', ClosedError::StreamDropped))
    );
    assert_eq!(timers.remove_timer(&1), Err(ClosedError::StreamDropped));
    wheel.shutdown().await;
    assert_eq!(others.move_timer(&1, HOUR), Err(ClosedError::Shutdown));
    assert_eq!(others.drain(), Err(ClosedError::Shutdown));
    drop(other_stream);
    assert_eq!(others.drain(), Err(ClosedError::StreamDropped));
}

#[test]
fn closed_timers_name_the_end_of_the_runtime() {
    let (runtime, wheel) = wheel_and_its_runtime();
    let (timers, _expirations) = wheel.keyed::<u32, ()>();
    drop(runtime);
    let refused = timers.set_timer(1, (), HOUR);
    assert_eq!(
        refused,
        Err(SetTimerError::Closed(1, (), ClosedError::RuntimeEnded))
    );
    assert!(timers.is_closed());
}
