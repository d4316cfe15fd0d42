//! `dispatch`: what becomes of claims when their handlers return, fail or panic.

use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::{Claim, Claims, DurableTimers, Memory, Retry};
use tickwheel_durable_conformance::Faulty;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::{SECOND, orders, set, start};

/// Dispatches for a minute, each handler on a task of its own or not. The stream does not end.
async fn dispatch_for_a_minute<F>(
    claims: &mut Claims<String, String>,
    is_spawned: bool,
    concurrency: usize,
    handler: impl FnMut(Claim<String, String>) -> F,
) where
    F: Future<Output = Result<(), Retry>> + Send + 'static,
{
    let dispatching = async {
        if is_spawned {
            claims.dispatch_spawned(concurrency, handler).await;
        } else {
            claims.dispatch(concurrency, handler).await;
        }
    };
    let ended = timeout(SECOND * 60, dispatching).await;
    assert!(ended.is_err(), "the stream goes on");
}

/// A handler may panic before it returns a future. `dispatch` goes on all the same.
#[tokio::test(start_paused = true)]
async fn handler_that_panics_when_it_is_called_is_tried_again() {
    for is_spawned in [false, true] {
        let (timers, mut claims) = start(Memory::new()).await;
        set(&timers, "a", SECOND).await.expect("it is set");
        let mut attempts = Vec::new();
        let handle = |claim: Claim<_, _>| {
            attempts.push(claim.attempt);
            assert!(claim.attempt > 1, "the handler panics, as the test wants");
            async { Ok(()) }
        };
        dispatch_for_a_minute(&mut claims, is_spawned, 4, handle).await;
        assert_eq!(attempts, [1, 2]);
        let counts = timers.counts().await.expect("it counts");
        assert_eq!((counts.waiting, counts.in_flight), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn concurrency_of_zero_counts_as_one() {
    for is_spawned in [false, true] {
        let (timers, mut claims) = start(Memory::new()).await;
        for key in ["a", "b", "c"] {
            set(&timers, key, SECOND).await.expect("it is set");
        }
        let (began, mut handled) = (Instant::now(), Vec::new());
        let handle = |_| {
            handled.push(began.elapsed().as_secs());
            async {
                sleep(SECOND * 2).await;
                Ok(())
            }
        };
        dispatch_for_a_minute(&mut claims, is_spawned, 0, handle).await;
        assert_eq!(handled, [1, 3, 5], "one after the other");
    }
}

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

/// An instance that has shut down after three seconds, and a `dispatch` whose handler has finished
/// after one, and may have acknowledged its claim itself. The store does not take the end.
async fn shut_down_before_its_end_is_settled(
    store: &Faulty<Memory>,
    lease: Duration,
    is_acked: bool,
) -> (DurableTimers<String, String>, JoinHandle<()>) {
    let builder = orders().lease(lease);
    let started = builder.start(&TimerWheel::new(), store.clone()).await;
    let (timers, mut claims) = started.expect("it starts");
    set(&timers, "a", SECOND).await.expect("it is set");
    let handling = tokio::spawn(async move {
        let handle = async |claim: Claim<_, _>| {
            if is_acked {
                drop(claim.ack_in_background());
            }
            Ok(())
        };
        claims.dispatch(4, handle).await;
    });
    store.set_failing(Some("settle"));
    sleep(SECOND * 3).await;
    timers.shutdown().await;
    (timers, handling)
}

/// A program that ended when `dispatch` did would leave claims of handlers that have finished,
/// and they would run again.
#[tokio::test(start_paused = true)]
async fn dispatch_ends_when_its_claims_are_settled() {
    for is_acked in [false, true] {
        let store = Faulty::new(Memory::new());
        let shut_down = shut_down_before_its_end_is_settled(&store, SECOND * 60, is_acked);
        let (timers, handling) = shut_down.await;
        sleep(SECOND * 10).await;
        assert!(!handling.is_finished(), "the claim is not settled");
        store.set_failing(None);
        handling.await.expect("it ends");
        let counts = timers.counts().await.expect("it counts");
        assert_eq!((counts.waiting, counts.in_flight), (0, 0));
    }
}

/// Rule 5 of ends. The store may never be back.
#[tokio::test(start_paused = true)]
async fn dispatch_ends_with_the_leases_of_claims_that_cannot_be_settled() {
    let store = Faulty::new(Memory::new());
    let shut_down = shut_down_before_its_end_is_settled(&store, SECOND * 10, true);
    let (_timers, handling) = shut_down.await;
    sleep(SECOND * 7).await;
    assert!(!handling.is_finished(), "the lease has not ended");
    let ended = timeout(SECOND * 3, handling).await;
    ended.expect("the lease has ended").expect("it ends");
}
