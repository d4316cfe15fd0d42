//! Wakers of the stream that panic, or that use the stream's set.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};

use tickwheel::{Expirations, TimerWheel};

use crate::support::{advance, assert_balanced, hooked_waker, ms};

/// Polls the stream, which has nothing to receive, so that it keeps the waker.
fn register<V: Send + 'static>(stream: &mut Expirations<u32, V>, waker: &Waker) {
    let polled = stream.poll_recv(&mut Context::from_waker(waker));
    assert!(polled.is_pending());
}

#[tokio::test(start_paused = true)]
async fn p12_survives_a_consumer_whose_waker_panics() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, u32>();
    let (others, mut other_stream) = wheel.keyed::<u32, u32>();
    for round in 0..5 {
        let waker = hooked_waker(|| panic!("a waker panics"), || ());
        register(&mut stream, &waker);
        timers.set_timer(1, round, ms(5)).unwrap();
        others.set_timer(1, round, ms(5)).unwrap();
        let mut sleep = Box::pin(wheel.sleep(ms(5)));
        assert!(futures::poll!(&mut sleep).is_pending());
        advance(&wheel, ms(5)).await;
        assert_eq!(stream.try_recv().map(|e| e.value), Ok(round));
        assert_eq!(other_stream.try_recv().map(|e| e.value), Ok(round));
        assert!(futures::poll!(&mut sleep).is_ready());
    }
    register(&mut stream, &hooked_waker(|| panic!("at the end"), || ()));
    wheel.shutdown().await;
    assert!(stream.recv().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn p12_drops_the_last_handle_despite_a_panicking_waker() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, u32>();
    let waker = hooked_waker(|| panic!("a waker panics"), || ());
    register(&mut stream, &waker);
    drop(timers);
    assert!(stream.recv().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn p12_lets_a_consumers_waker_use_its_own_set() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, u32>();
    let woken = Arc::<AtomicUsize>::default();
    let (in_wake, in_drop, counter) = (timers.clone(), timers.clone(), Arc::clone(&woken));
    let other_wheel = wheel.clone();
    let waker = hooked_waker(
        move || {
            in_wake.set_timer(2, 20, ms(5)).unwrap();
            in_wake.move_timer(&2, ms(6)).unwrap();
            in_wake.remove_timer(&3).unwrap();
            assert_eq!(in_wake.len(), 2, "one is due");
            assert_eq!(other_wheel.metrics().keyed_pending, 2);
            drop(other_wheel.keyed::<u8, u8>());
            counter.fetch_add(1, Ordering::SeqCst);
        },
        move || {
            // The stream is gone by then, or another has registered.
            let _ = in_drop.set_timer(4, 40, ms(5));
            let _ = in_drop.len();
        },
    );
    register(&mut stream, &waker);
    drop(waker);
    timers.set_timer(1, 10, ms(5)).unwrap();
    timers.set_timer(3, 30, ms(50)).unwrap();
    advance(&wheel, ms(5)).await;
    assert_eq!(woken.load(Ordering::SeqCst), 1);
    let keys = async |stream: &mut Expirations<u32, u32>| stream.recv().await.map(|e| e.key);
    assert_eq!(keys(&mut stream).await, Some(1));
    assert_eq!(
        keys(&mut stream).await,
        Some(4),
        "set while the waker was dropped"
    );
    assert_eq!(keys(&mut stream).await, Some(2));
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p12_lets_a_replaced_waker_use_its_own_set() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, u32>();
    let in_drop = timers.clone();
    let waker = hooked_waker(
        || (),
        move || assert_eq!(in_drop.set_timer(1, 1, ms(5)), Ok(None)),
    );
    register(&mut stream, &waker);
    drop(waker);
    // Another waker takes the place of the first, which sets a timer when dropped.
    assert_eq!(stream.recv().await.map(|e| e.key), Some(1));
}

#[tokio::test(start_paused = true)]
async fn p12_drops_timers_despite_a_waker_whose_drop_panics() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, Arc<()>>();
    let value = Arc::new(());
    for key in 0..10 {
        timers.set_timer(key, Arc::clone(&value), ms(5)).unwrap();
    }
    let waker = hooked_waker(|| (), || panic!("the drop of a waker panics"));
    register(&mut stream, &waker);
    drop(waker);
    drop(stream);
    assert_eq!(Arc::strong_count(&value), 1);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p12_keeps_the_successor_of_a_waker_whose_drop_panics() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, u32>();
    let waker = hooked_waker(|| (), || panic!("the drop of a waker panics"));
    register(&mut stream, &waker);
    drop(waker);
    timers.set_timer(1, 1, ms(5)).unwrap();
    assert_eq!(stream.recv().await.map(|e| e.key), Some(1));
}
