//! More than an instance takes at once: long backlogs, small wheels, large values.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use tickwheel::TimerWheel;
use tickwheel_durable::{MAX_VALUE_BYTES, Memory};
use tokio::time::timeout;

use super::{HOUR, SECOND, orders, set, start};

#[tokio::test(start_paused = true)]
async fn loads_no_backlog_beyond_its_bound() {
    let memory = Memory::new();
    let (writer, claims) = start(memory.clone()).await;
    claims.shutdown().await;
    for number in 0..10_000 {
        let key = number.to_string();
        let set = set(&writer, &key, Duration::ZERO).await;
        set.expect("it is set");
    }
    let wheel = TimerWheel::new();
    let started = orders().capacity(128).start(&wheel, memory).await;
    let (timers, mut claims) = started.expect("it starts");
    for _ in 0..2_100 {
        let claim = claims.recv().await.expect("the stream goes on");
        claim.ack().await.expect("it is held");
    }
    // Besides those received: 2,048 that are not fired, a batch that is being fired, and the
    // capacity.
    let loaded = timers.metrics().loaded;
    assert!(loaded <= 2_100 + 2_048 + 1_024 + 128, "{loaded} are loaded");
}

/// The demand was larger than its type, and the task that fires panicked.
#[tokio::test(start_paused = true)]
async fn any_number_of_claims_may_be_asked_for() {
    let (timers, mut claims) = start(Memory::new()).await;
    let mut received = Vec::new();
    for keys in [["a", "b"], ["c", "d"]] {
        for key in keys {
            set(&timers, key, SECOND).await.expect("it is set");
        }
        let more = claims.recv_many(&mut received, usize::MAX);
        let more = timeout(SECOND * 2, more).await.expect("they come");
        assert!(more > 0);
    }
    drop(received);
    let handled = AtomicUsize::new(0);
    let handle = async |_| {
        handled.fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    let ended = timeout(SECOND * 9, claims.dispatch(usize::MAX, handle)).await;
    assert!(ended.is_err(), "the stream goes on");
    assert_eq!(handled.into_inner(), 4);
}

#[tokio::test(start_paused = true)]
async fn delivers_all_though_the_wheel_is_small() {
    let wheel = TimerWheel::builder()
        .max_keyed(5)
        .start()
        .expect("it starts");
    let (timers, mut claims) = orders()
        .start(&wheel, Memory::new())
        .await
        .expect("it starts");
    for number in 0..40 {
        set(&timers, &number.to_string(), SECOND * 5)
            .await
            .expect("it is set");
    }
    for _ in 0..40 {
        let claim = timeout(SECOND * 120, claims.recv()).await;
        let claim = claim.expect("it comes").expect("the stream goes on");
        assert_eq!(claim.attempt, 1);
        claim.ack().await.expect("it is held");
    }
}

/// An instance that met a full wheel once loaded a handful of timers each poll for good.
#[tokio::test(start_paused = true)]
async fn loads_as_before_when_the_wheel_has_room_again() {
    let wheel = TimerWheel::builder().max_keyed(200).start();
    let wheel = wheel.expect("it starts");
    let (others, _expirations) = wheel.keyed();
    for number in 0..198 {
        let set = others.set_timer(number, (), HOUR);
        set.expect("there is room");
    }
    let orders = orders().window(HOUR * 2);
    let started = orders.start(&wheel, Memory::new()).await;
    let (timers, _claims) = started.expect("it starts");
    for number in 0..100 {
        let set = set(&timers, &number.to_string(), HOUR).await;
        set.expect("it is set");
    }
    assert!(timers.metrics().on_wheel <= 2);
    others.drain().expect("the wheel runs");
    tokio::time::sleep(SECOND * 600).await;
    assert_eq!(timers.metrics().on_wheel, 100);
}

/// Rows that a store leaves out of an answer, as it has enough bytes, are fired next, in their
/// order.
#[tokio::test(start_paused = true)]
async fn large_values_are_delivered_in_their_order() {
    const TIMERS: usize = 12;
    let (timers, mut claims) = start(Memory::new()).await;
    let value = "v".repeat(MAX_VALUE_BYTES - 2);
    let now = SystemTime::from(timers.counts().await.expect("counts").now);
    for number in 0..TIMERS {
        let key = format!("{number:02}");
        let set = timers.set_timer_at(&key, &value, now + 20 * SECOND);
        set.await.expect("it is set");
    }
    let mut received = Vec::new();
    while received.len() < TIMERS {
        let more = claims.recv_many(&mut received, TIMERS);
        timeout(21 * SECOND, more).await.expect("it goes on");
    }
    for (number, claim) in received.into_iter().enumerate() {
        assert_eq!(claim.key, format!("{number:02}"));
        assert_eq!(claim.value.len(), value.len());
        claim.ack().await.expect("it is held");
    }
    let admin = timers.admin();
    for number in 0..5 {
        let key = number.to_string();
        timers.set_timer(&key, &value, HOUR).await.expect("set");
    }
    let listed = admin.pending(None, 4).await.expect("it lists");
    assert_eq!(listed.len(), 4, "pages of the store are put together");
    let listed = admin.pending(None, 9).await.expect("it lists");
    assert_eq!(listed.len(), 5);
}
