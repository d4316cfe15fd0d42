//! Starting wheels: several of them, on other runtimes, used from other runtimes and from plain
//! threads.

use std::error::Error;
use std::panic::catch_unwind;
use std::time::Duration;

use crate::support::{HOUR, Wakes, builder, ms, poll_idly, poll_with, start_wheel, us};
use futures::executor::block_on;
use tickwheel::{BuildError, Builder, TimerWheel};
use tokio::runtime::{self, Runtime};
use tokio::time::{self, Instant};
use tokio_test::assert_pending;

fn runtime(worker_threads: usize) -> Runtime {
    let mut builder = match worker_threads {
        0 => runtime::Builder::new_current_thread(),
        _ => runtime::Builder::new_multi_thread(),
    };
    builder
        .worker_threads(worker_threads.max(1))
        .enable_time()
        .build()
        .unwrap()
}

// --- bounds ---

#[tokio::test]
async fn keeps_the_tick_and_the_name_it_was_given() {
    let usual = TimerWheel::new();
    assert_eq!(
        (usual.tick_duration(), usual.name()),
        (us(100), "tickwheel")
    );
    let builder = TimerWheel::builder()
        .tick(ms(250))
        .name(String::from("reaper"));
    let wheel = builder.clone().start().unwrap();
    assert_eq!((wheel.tick_duration(), wheel.name()), (ms(250), "reaper"));
    assert!(format!("{wheel:?}").contains("reaper"));
    assert!(format!("{builder:?}").contains("reaper"));
    assert!(!wheel.is_shutdown());
}

#[tokio::test]
async fn accepts_ticks_from_a_microsecond_to_a_day_only() {
    let day = Duration::from_secs(86_400);
    for tick in [us(1), ms(1), day] {
        assert!(TimerWheel::builder().tick(tick).start().is_ok(), "{tick:?}");
    }
    let nano = Duration::from_nanos(1);
    for tick in [
        Duration::ZERO,
        nano,
        Duration::from_nanos(999),
        day + nano,
        Duration::MAX,
    ] {
        let error = TimerWheel::builder().tick(tick).start().unwrap_err();
        let BuildError::Tick {
            value, ref bounds, ..
        } = error
        else {
            panic!("{error}");
        };
        assert_eq!((value, bounds), (tick, &(us(1)..=day)));
        assert!(error.to_string().contains("tick"));
        assert!(error.to_string().contains(&format!("{tick:?}")));
    }
}

#[tokio::test]
async fn rejects_a_limit_of_no_timers() {
    let error = TimerWheel::builder().max_keyed(0).start().unwrap_err();
    assert!(matches!(error, BuildError::MaxKeyed));
    assert!(error.to_string().contains("max_keyed"));
    assert!(TimerWheel::builder().max_keyed(1).start().is_ok());
}

// Once a method without the feature that did not exist: "private field, not a method".
#[cfg(not(feature = "precise"))]
#[tokio::test]
async fn precise_without_its_feature_is_an_error_that_names_it() {
    let error = TimerWheel::builder().precise(true).start().unwrap_err();
    assert!(matches!(error, BuildError::NoPreciseFeature));
    assert!(TimerWheel::builder().precise(false).start().is_ok());
}

#[tokio::test(start_paused = true)]
async fn keeps_the_same_time_with_any_number_of_slots() {
    for slots in [2, 8, 4096] {
        let wheel = TimerWheel::builder().slots(slots).start().unwrap();
        for length in [
            1,
            63,
            64,
            65,
            4095,
            4096,
            4097,
            (1 << 30) + 1,
            (1 << 36) + 1,
        ] {
            let start = Instant::now();
            wheel.sleep(ms(length)).await;
            assert_eq!(start.elapsed(), ms(length), "{slots} slots");
        }
    }
}

// --- no runtime ---

#[test]
fn reports_a_missing_runtime_by_error_or_helpful_panic() {
    let error = TimerWheel::builder().start().unwrap_err();
    assert!(matches!(error, BuildError::NoRuntime));
    assert!(error.source().is_none());
    assert!(error.to_string().contains("Builder::runtime"));
    let panic = catch_unwind(TimerWheel::new).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.contains("TimerWheel::new()"), "{message}");
    assert!(message.contains("no Tokio runtime"), "{message}");
}

#[test]
fn reports_a_runtime_without_timer_by_error_or_panic() {
    let runtime = runtime::Builder::new_current_thread().build().unwrap();
    let given = TimerWheel::builder()
        .runtime(runtime.handle().clone())
        .start();
    assert!(matches!(given.unwrap_err(), BuildError::NoTimer));
    let current = runtime.block_on(async { TimerWheel::builder().start() });
    let error = current.unwrap_err();
    assert!(matches!(error, BuildError::NoTimer));
    assert!(error.to_string().contains("enable_time"));
    let panic = runtime
        .block_on(async { catch_unwind(TimerWheel::new) })
        .unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.contains("enable_time"), "{message}");
}

// --- where it runs ---

#[test]
fn runs_on_its_given_runtime_and_is_used_from_anywhere() {
    let runtime = runtime(1);
    // The wheel is started outside any runtime.
    let wheel = TimerWheel::builder()
        .runtime(runtime.handle().clone())
        .start()
        .unwrap();
    let from_thread = |wheel: TimerWheel| {
        let start = std::time::Instant::now();
        block_on(async {
            wheel.sleep(ms(20)).await;
            assert!(start.elapsed() >= ms(20));
            wheel.settle().await;
            let outcome = wheel.timeout(ms(20), std::future::pending::<()>()).await;
            assert!(outcome.is_err());
            let mut interval = wheel.interval(ms(5));
            interval.tick().await;
            interval.tick().await;
            assert!(start.elapsed() >= ms(45));
        });
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let wheel = wheel.clone();
            scope.spawn(move || from_thread(wheel));
        }
        from_thread(wheel.clone());
    });
    assert_eq!(wheel.metrics().sleeps_pending, 0);
    block_on(wheel.shutdown());
    assert!(wheel.is_shutdown());
}

#[test]
fn serves_a_runtime_that_has_no_timer() {
    let wheels = runtime(1);
    let wheel = TimerWheel::builder()
        .runtime(wheels.handle().clone())
        .start()
        .unwrap();
    let other = runtime::Builder::new_current_thread().build().unwrap();
    other.block_on(async {
        let start = std::time::Instant::now();
        wheel.sleep(ms(10)).await;
        let spawned = wheel.sleep(ms(10));
        tokio::spawn(spawned).await.unwrap();
        assert!(start.elapsed() >= ms(20));
    });
}

#[test]
fn fires_a_sleep_on_another_runtime_than_its_maker() {
    let (first, second) = (runtime(0), runtime(2));
    let wheel = TimerWheel::builder()
        .runtime(second.handle().clone())
        .start()
        .unwrap();
    let start = std::time::Instant::now();
    let mut sleep = wheel.sleep(ms(40));
    first.block_on(async {
        let _ = futures::poll!(&mut sleep);
    });
    drop(first);
    second.block_on(sleep);
    assert!(start.elapsed() >= ms(40));
}

// --- several wheels ---

#[tokio::test(start_paused = true)]
async fn shares_nothing_between_two_wheels() {
    let fine = start_wheel();
    let coarse = builder().tick(ms(100)).start().unwrap();
    let start = Instant::now();
    let mut cancelled = fine.sleep(ms(50));
    assert_pending!(poll_idly(&mut cancelled));
    drop(cancelled);
    let (woken, waker) = Wakes::new();
    let mut sleep = coarse.sleep(ms(150));
    assert_pending!(poll_with(&mut sleep, &waker));
    fine.sleep(ms(150)).await;
    assert_eq!(start.elapsed(), ms(150));
    assert_eq!(woken.count(), 0, "its tick is to come");
    fine.shutdown().await;
    assert!(!coarse.is_shutdown());
    time::sleep(ms(50)).await;
    coarse.settle().await;
    assert_eq!(woken.count(), 1);
    assert_eq!(fine.metrics().sleeps_made, 2);
    assert_eq!(coarse.metrics().sleeps_made, 1);
}

// A thread keeps cancelled entries of four wheels.
#[tokio::test(start_paused = true)]
async fn keeps_timers_and_counts_with_more_wheels_than_pools() {
    const WHEELS: usize = 7;
    let wheels: Vec<_> = (0..WHEELS).map(|_| start_wheel()).collect();
    for round in 0..50 {
        for wheel in &wheels {
            let mut sleeps: Vec<_> = (0..3).map(|n| wheel.sleep(HOUR + ms(n))).collect();
            for sleep in &mut sleeps {
                assert_pending!(poll_idly(sleep));
            }
        }
        let start = Instant::now();
        futures::future::join_all(wheels.iter().map(|wheel| wheel.sleep(ms(1 + round)))).await;
        assert_eq!(start.elapsed(), ms(1 + round));
    }
    for wheel in &wheels {
        wheel.settle().await;
        let metrics = wheel.metrics();
        assert_eq!(metrics.sleeps_made, 200);
        assert_eq!((metrics.sleeps_fired, metrics.sleeps_cancelled), (50, 150));
    }
    drop(wheels);
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!(runtime::Handle::current().metrics().num_alive_tasks(), 0);
}

#[test]
fn moves_handles_and_futures_between_threads() {
    fn check<T: Send + Sync + Unpin + 'static>() {}
    check::<TimerWheel>();
    check::<tickwheel::Sleep>();
    check::<tickwheel::Interval>();
    check::<tickwheel::Timeout<std::future::Ready<()>>>();
    check::<tickwheel::Elapsed>();
    check::<Builder>();
    check::<BuildError>();
    check::<tickwheel::WheelMetrics>();
}
