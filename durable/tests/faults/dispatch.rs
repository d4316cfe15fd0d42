//! `dispatch`: what becomes of claims when their handlers return, fail or panic.

use tickwheel_durable::{Claim, Memory, Retry};
use tickwheel_durable_conformance::Faulty;
use tokio::time::{sleep, timeout};

use super::{SECOND, set, start};

#[tokio::test(start_paused = true)]
async fn dispatches_acknowledges_and_tries_again() {
    let (timers, mut claims) = start(Memory::new()).await;
    for key in ["fine", "failing", "panicking"] {
        set(&timers, key, SECOND).await.expect("it is set");
    }
    let mut seen = Vec::new();
    let handle = |claim: Claim<String, String>| {
        seen.push((claim.key.clone(), claim.attempt));
        async move {
            let first = claim.attempt == 1;
            assert!(
                !(first && claim.key == "panicking"),
                "the handler panics, as the test wants"
            );
            if first && claim.key == "failing" {
                return Err(Retry::after(SECOND * 3));
            }
            Ok(())
        }
    };
    // The stream never ends.
    let ended = timeout(SECOND * 60, claims.dispatch(4, handle)).await;
    assert!(ended.is_err());
    seen.sort();
    let expected = [
        ("failing", 1),
        ("failing", 2),
        ("fine", 1),
        ("panicking", 1),
        ("panicking", 2),
    ];
    assert_eq!(
        seen,
        expected.map(|(key, attempt)| (key.to_owned(), attempt))
    );
    let counts = timers.counts().await.expect("it counts");
    assert_eq!((counts.waiting, counts.in_flight), (0, 0));
    let metrics = timers.metrics();
    assert_eq!(
        (metrics.delivered, metrics.redelivered, metrics.unsettled),
        (5, 2, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn dispatches_in_a_task_of_its_own() {
    let (timers, mut claims) = start(Memory::new()).await;
    set(&timers, "a", SECOND).await.expect("it is set");
    let handling = tokio::spawn(async move {
        let handle = |claim: Claim<String, String>| async move {
            tokio::time::sleep(SECOND).await;
            assert_eq!(claim.key, "a");
            Ok(())
        };
        claims.dispatch(4, handle).await;
    });
    tokio::time::sleep(SECOND * 3).await;
    timers.shutdown().await;
    handling.await.expect("it ends with the stream");
    let counts = timers.counts().await.expect("it counts");
    assert_eq!((counts.waiting, counts.in_flight), (0, 0));
}

/// A program that ended when `dispatch` did would leave claims of handlers that have finished,
/// and they would run again.
#[tokio::test(start_paused = true)]
async fn dispatch_ends_when_its_claims_are_settled() {
    let store = Faulty::new(Memory::new());
    let (timers, mut claims) = start(store.clone()).await;
    set(&timers, "a", SECOND).await.expect("it is set");
    let handling = tokio::spawn(async move {
        claims.dispatch(4, async |_| Ok(())).await;
    });
    store.set_failing(Some("settle"));
    sleep(SECOND * 3).await;
    timers.shutdown().await;
    sleep(SECOND * 10).await;
    assert!(!handling.is_finished(), "the claim is not settled");
    store.set_failing(None);
    handling.await.expect("it ends");
    let counts = timers.counts().await.expect("it counts");
    assert_eq!((counts.waiting, counts.in_flight), (0, 0));
}
