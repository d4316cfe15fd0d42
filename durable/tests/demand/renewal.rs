//! Leases are renewed while a handler runs, a put-back waits, or a guard exists.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tickwheel_durable::{Claim, Error, Memory, Retry};
use tickwheel_durable_conformance::Faulty;
use tokio::time::{sleep, timeout};

use super::log::Log;
use super::support::{HOUR, SECOND, next, set, start};

/// Renewals were missing: a handler longer than its lease ran twice at once.
#[tokio::test(start_paused = true)]
async fn renews_the_lease_while_a_handler_runs() {
    let store = Memory::new();
    let log = Log::default();
    let _logging = log.capture();
    let (timers, mut claims) = start(store.clone(), |b| b.lease(SECOND * 2)).await;
    let (other, mut others) = start(store, |b| b.lease(SECOND * 2)).await;
    set(&timers, "long", SECOND).await;
    let handled = AtomicU32::new(0);
    let handle = |_| async {
        handled.fetch_add(1, Ordering::Relaxed);
        sleep(SECOND * 20).await;
        Ok(())
    };
    let both = async { tokio::join!(claims.dispatch(4, handle), others.dispatch(4, handle)) };
    assert!(timeout(SECOND * 60, both).await.is_err());
    assert_eq!(handled.load(Ordering::Relaxed), 1);
    let (mine, other) = (timers.metrics(), other.metrics());
    assert_eq!(mine.lost + other.lost, 0);
    assert_eq!(mine.slow_handlers + other.slow_handlers, 1);
    assert_eq!(log.with(&["WARN", "takes longer than a lease", "long"]), 1);
    // Once about each second, and no more when the handler has ended.
    let renewed = mine.renewed + other.renewed;
    assert!((10..=30).contains(&renewed), "{renewed}");
    assert_eq!(timers.counts().await.expect("it counts").in_flight, 0);
}

/// A put-back waited for the transaction that had locked its key, and its lease ran out: the timer
/// came again at once, and its error was lost.
#[tokio::test(start_paused = true)]
async fn lease_is_renewed_while_a_put_back_waits_for_a_transaction() {
    let store = Faulty::new(Memory::new());
    let (timers, mut claims) = start(store.clone(), |b| b.lease(SECOND * 2)).await;
    set(&timers, "a", SECOND).await;
    let handled = AtomicU32::new(0);
    let handle = |_| {
        handled.fetch_add(1, Ordering::Relaxed);
        store.set_locked(true);
        async { Err(Retry::after(HOUR).because("why")) }
    };
    let course = async {
        sleep(SECOND * 20).await;
        store.set_locked(false);
        sleep(SECOND).await;
    };
    tokio::select! {
        () = claims.dispatch(4, handle) => panic!("the stream goes on"),
        () = course => {}
    }
    assert_eq!(handled.load(Ordering::Relaxed), 1);
    let entry = timers.admin().get("a").await.expect("it reads");
    let entry = entry.expect("it waits");
    assert_eq!((entry.error.as_deref(), entry.attempt), (Some("why"), 1));
    let metrics = timers.metrics();
    assert_eq!(metrics.lost, 0);
    // Locked rows do not fire here, so a lease that has ended would show nowhere else.
    assert!(metrics.renewed > 10, "{metrics:?}");
}

/// Nothing was sent, and the guard renewed nothing any more.
#[tokio::test(start_paused = true)]
async fn lease_is_renewed_after_an_end_that_timed_out() {
    let store = Faulty::new(Memory::new());
    let (timers, mut claims) = start(store.clone(), |b| b.lease(SECOND * 2)).await;
    set(&timers, "a", SECOND).await;
    let claim = next(&mut claims).await;
    let _renewing = claim.auto_renew();
    store.set_locked(true);
    let put_back = claim.retry_after(HOUR).await;
    assert!(
        matches!(put_back, Err(Error::Timeout { .. })),
        "{put_back:?}"
    );
    for _ in 0..20 {
        sleep(SECOND / 2).await;
        assert!(claim.lease_remaining() > SECOND / 2);
    }
    store.set_locked(false);
    claim.ack().await.expect("it is held");
}

/// A renewal under way when its claim is acknowledged finds no claim: that is no loss.
#[tokio::test(start_paused = true)]
async fn an_acknowledged_claim_is_not_lost_by_its_renewal() {
    let store = Faulty::new(Memory::new());
    let (timers, mut claims) = start(store.clone(), |b| b.lease(SECOND)).await;
    for number in 0..40 {
        set(&timers, &number.to_string(), SECOND).await;
    }
    // Renewals and acknowledgements meet all the time.
    store.set_delay(SECOND / 20);
    let handle = |claim: Claim<String, u32>| async move {
        let number: u32 = claim.key.parse().expect("it is a number");
        sleep(SECOND * number / 20).await;
        Ok(())
    };
    assert!(
        timeout(SECOND * 60, claims.dispatch(40, handle))
            .await
            .is_err()
    );
    let metrics = timers.metrics();
    assert_eq!((metrics.lost, metrics.delivered), (0, 40), "{metrics:?}");
    assert!(metrics.renewed > 20, "{metrics:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_renewal_is_logged_and_counted() {
    let log = Log::default();
    let _logging = log.capture();
    let memory = Memory::new();
    let store = Faulty::new(memory.clone());
    let (timers, mut claims) = start(store.clone(), |b| b.lease(SECOND)).await;
    let (_other, mut others) = start(memory, |b| b).await;
    set(&timers, "a", SECOND).await;
    // Only the first one asks.
    let claim = next(&mut claims).await;
    let renewing = claim.auto_renew();
    sleep(SECOND * 3).await;
    assert!(claim.lease_remaining() > SECOND / 2);
    store.set_away(true);
    let again = next(&mut others).await;
    assert_eq!(again.attempt, 2);
    store.set_away(false);
    sleep(SECOND).await;
    assert_eq!(timers.metrics().lost, 1);
    assert_eq!(log.with(&["WARN", "a claim is lost"]), 1);
    assert_eq!(claim.lease_remaining(), Duration::ZERO);
    drop(renewing);
    again.ack().await.expect("it is held");
}

/// A renewal that began with an eighth of the lease left had room for no failure.
#[tokio::test(start_paused = true)]
async fn renewal_leaves_half_of_the_lease() {
    let lease = SECOND * 16;
    let (timers, mut claims) = start(Memory::new(), |b| b.lease(lease)).await;
    set(&timers, "a", SECOND).await;
    let claim = next(&mut claims).await;
    let _renewing = claim.auto_renew();
    for _ in 0..1_000 {
        sleep(SECOND / 10).await;
        let left = claim.lease_remaining();
        assert!(left + SECOND / 10 >= lease / 2, "{left:?} are left");
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_renews_until_it_is_dropped() {
    let (timers, mut claims) = start(Memory::new(), |b| b.lease(SECOND * 2)).await;
    set(&timers, "a", SECOND).await;
    let claim = next(&mut claims).await;
    assert!(claim.lease_remaining() > SECOND);
    let renewing = claim.auto_renew();
    assert!(timeout(SECOND * 30, claims.recv()).await.is_err());
    assert!(claim.lease_remaining() > SECOND / 2);
    drop(renewing);
    let again = timeout(SECOND * 5, claims.recv()).await;
    let again = again
        .expect("its lease has ended")
        .expect("the stream goes on");
    assert_eq!(again.attempt, 2);
    let token = claim.token();
    assert_eq!(claim.ack().await, Err(Error::Lost { token }));
    again.ack().await.expect("it is held");
    assert_eq!(again.lease_remaining(), Duration::ZERO);
    // A guard keeps no claim that is dropped.
    set(&timers, "b", SECOND).await;
    let claim = next(&mut claims).await;
    let _renewing = claim.auto_renew();
    drop(claim);
    assert_eq!(next(&mut claims).await.attempt, 2);
}
