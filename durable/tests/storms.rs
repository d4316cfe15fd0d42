//! Many timers that are due at once.

use std::sync::Mutex;

use tickwheel_durable::{Claim, Memory};
use tickwheel_durable_conformance::Faulty;
use tokio::time::{Instant, sleep, timeout};

use support::{HOUR, SECOND, Timers, start};

#[allow(dead_code, reason = "other tests use the rest")]
mod support;

async fn set_many(timers: &Timers, count: u32) {
    let keys: Vec<_> = (0..count).map(|number| number.to_string()).collect();
    let set = timers.set_many(keys.iter().map(|key| (key, &0, SECOND)));
    set.await.expect("they are set");
}

/// A fire brought no more than twice what `dispatch` runs at once: with handlers that return at
/// once, the store's round trips decided.
#[tokio::test(start_paused = true)]
async fn storm_for_quick_handlers_needs_few_fires() {
    let store = Faulty::new(Memory::new());
    let (timers, mut claims) = start(store.clone(), |b| b).await;
    set_many(&timers, 10_000).await;
    sleep(SECOND * 2).await;
    store.set_delay(SECOND / 100);
    let began = Instant::now();
    let mut handled = Vec::new();
    let handle = |_| {
        handled.push(began.elapsed());
        async { Ok(()) }
    };
    let ended = timeout(SECOND * 5, claims.dispatch(64, handle)).await;
    assert!(ended.is_err());
    assert_eq!(handled.len(), 10_000);
    let last = handled[handled.len() - 1];
    assert!(last < SECOND / 2, "{last:?}");
    let fires = timers.metrics().fire_batches.count;
    assert!(fires < 40, "{fires}");
}

/// In the middle of a storm the handlers turn slow. What is ahead of them is bounded, and another
/// instance gets it after a poll.
#[tokio::test(start_paused = true)]
async fn handlers_that_turn_slow_in_a_storm_keep_nothing_from_others() {
    let store = Memory::new();
    let (timers, mut claims) = start(store.clone(), |b| b).await;
    set_many(&timers, 10_000).await;
    sleep(SECOND * 2).await;
    let handled = Mutex::new(Vec::new());
    let note = |claim: Claim<String, u32>| {
        let mut handled = handled.lock().expect("no test panics with it");
        handled.push(claim.key.clone());
        handled.len()
    };
    let began = Instant::now();
    let slow = |claim| {
        let is_slow = note(claim) > 5_000;
        async move {
            if is_slow {
                sleep(HOUR).await;
            }
            Ok(())
        }
    };
    let quick = |claim| {
        note(claim);
        async { Ok(()) }
    };
    let course = async {
        sleep(SECOND / 2).await;
        let begun = handled.lock().expect("no test panics with it").len();
        assert_eq!(begun, 5_064);
        let ahead = timers.metrics().claimed - 5_064;
        assert!((1..=512).contains(&ahead), "{ahead} are ahead");
        let (_others_timers, mut others) = start(store, |b| b).await;
        let rest = async {
            while handled.lock().expect("no test panics with it").len() < 10_000 {
                sleep(SECOND / 100).await;
            }
        };
        tokio::select! {
            () = others.dispatch(64, quick) => panic!("the stream goes on"),
            () = rest => {}
        }
        assert!(began.elapsed() < SECOND * 20, "{:?}", began.elapsed());
        // Nothing comes twice.
        sleep(SECOND * 100).await;
        assert_eq!(timers.metrics().lapsed, ahead);
    };
    tokio::select! {
        () = claims.dispatch(64, slow) => panic!("the stream goes on"),
        () = course => {}
    }
    let mut handled = handled.into_inner().expect("no test panics with it");
    handled.sort_unstable();
    handled.dedup();
    assert_eq!(handled.len(), 10_000);
}
