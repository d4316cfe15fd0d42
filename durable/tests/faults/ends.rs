//! The end of an instance, or of its wheel.

use tickwheel::TimerWheel;
use tickwheel_durable::{BuildError, Memory};
use tickwheel_durable_conformance::Faulty;
use tokio::time::timeout;

use super::{HOUR, SECOND, orders, set, start};

#[tokio::test(start_paused = true)]
async fn ends_with_the_wheel_and_goes_on_writing() {
    let wheel = TimerWheel::new();
    let store = Memory::new();
    let (timers, mut claims) = orders()
        .start(&wheel, store.clone())
        .await
        .expect("it starts");
    set(&timers, "a", SECOND).await.expect("it is set");
    wheel.shutdown().await;
    assert!(claims.recv().await.is_none());
    set(&timers, "b", SECOND).await.expect("it is set");
    let start_again = orders().start(&wheel, store.clone()).await;
    assert_eq!(
        start_again.expect_err("it is shut down"),
        BuildError::WheelShutDown
    );
    let (_timers, mut claims) = start(store).await;
    assert!(claims.recv().await.is_some() && claims.recv().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn ends_with_the_wheel_though_a_due_timer_cannot_be_fired() {
    let wheel = TimerWheel::new();
    let store = Faulty::new(Memory::new());
    let started = orders().start(&wheel, store.clone()).await;
    let (timers, mut claims) = started.expect("it starts");
    set(&timers, "a", SECOND).await.expect("it is set");
    store.set_away(true);
    assert!(timeout(SECOND * 2, claims.recv()).await.is_err());
    wheel.shutdown().await;
    let ended = timeout(HOUR, claims.recv()).await;
    assert!(ended.expect("the stream ends").is_none());
}

/// It waited for a call timeout after the other.
#[tokio::test(start_paused = true)]
async fn shutdown_releases_and_unloads_at_the_same_time() {
    let store = Faulty::new(Memory::new());
    let (timers, mut claims) = start(store.clone()).await;
    // It asks for one, and does not come for it.
    assert!(timeout(SECOND, claims.recv()).await.is_err());
    set(&timers, "a", SECOND).await.expect("it is set");
    tokio::time::sleep(SECOND * 2).await;
    assert_eq!(timers.metrics().claimed, 1);
    store.kill();
    let ended = timeout(SECOND * 6, timers.shutdown()).await;
    ended.expect("it waits for one call timeout");
}

#[tokio::test(start_paused = true)]
async fn hands_out_at_shutdown_what_the_store_has_no_more() {
    let builder = orders().at_most_once();
    let started = builder.start(&TimerWheel::new(), Memory::new()).await;
    let (timers, mut claims) = started.expect("it starts");
    // It asks for one, and does not come for it.
    assert!(timeout(SECOND, claims.recv()).await.is_err());
    set(&timers, "a", SECOND).await.expect("it is set");
    tokio::time::sleep(SECOND * 2).await;
    timers.shutdown().await;
    let claim = claims.recv().await.expect("it was claimed");
    assert_eq!(claim.key, "a");
    assert!(claims.recv().await.is_none());
}
