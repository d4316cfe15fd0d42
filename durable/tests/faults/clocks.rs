//! The store's clock, which differs from that of the host, or steps.

use std::time::{Duration, SystemTime};

use tickwheel_durable::Memory;
use tokio::time::{Instant, timeout};

use super::{HOUR, SECOND, set, start};

#[tokio::test(start_paused = true)]
async fn goes_by_the_clock_of_the_store() {
    for (ahead, behind) in [(HOUR, Duration::ZERO), (Duration::ZERO, HOUR)] {
        let store = Memory::new();
        store.set_clock(SystemTime::now() + ahead - behind);
        let (timers, mut claims) = start(store).await;
        let began = Instant::now();
        set(&timers, "a", SECOND * 90).await.expect("it is set");
        let claim = claims.recv().await.expect("it comes");
        let took = began.elapsed();
        assert!((SECOND * 90..SECOND * 91).contains(&took), "{took:?}");
        claim.ack().await.expect("it is held");
    }
}

#[tokio::test(start_paused = true)]
async fn follows_a_clock_that_steps() {
    let store = Memory::new();
    let (timers, mut claims) = start(store.clone()).await;
    let now = SystemTime::now();
    store.set_clock(now);
    set(&timers, "near", SECOND * 20).await.expect("it is set");
    set(&timers, "far", HOUR * 2).await.expect("it is set");
    tokio::time::sleep(SECOND * 3).await;
    // Back by an hour: it is later by as much.
    store.set_clock(now - HOUR);
    let early = timeout(HOUR, claims.recv()).await;
    assert!(early.is_err(), "{early:?}");
    let claim = claims.recv().await.expect("it comes");
    assert_eq!(claim.key, "near");
    claim.ack().await.expect("it is held");
    // Forward to ten seconds before the other's deadline.
    store.set_clock(now + HOUR * 2 - SECOND * 10);
    let began = Instant::now();
    let claim = claims.recv().await.expect("it comes");
    let took = began.elapsed();
    assert_eq!(claim.key, "far");
    assert!((SECOND * 10..SECOND * 12).contains(&took), "{took:?}");
}
