//! The end of a reaper: dropped handles, a dropped stream, and the shutdown.

use tickwheel::{ClosedError, SetTimerError, TimerWheel, TryRecvError, WatchGuard, WatchOptions};
use tokio::time::{self, Instant};
use tokio_test::{assert_pending, assert_ready, task};

use super::IDLE;
use crate::support::{advance, jump, ms};

#[tokio::test(start_paused = true)]
async fn stops_watching_when_the_stream_is_dropped() {
    let wheel = TimerWheel::new();
    let (reaper, idle) = wheel.reaper(IDLE);
    let watch = reaper.watch(1, "w").unwrap();
    let due = reaper.watch(2, "due").unwrap();
    wheel.settle().await;
    jump(IDLE);
    assert!(watch.touch());
    drop(idle);
    assert!(!watch.is_watched() && !due.is_watched());
    assert!(!watch.touch() && !due.touch());
    assert!(!watch.busy().is_effective());
    assert_eq!(reaper.len(), 0);
    let closed = reaper.watch(3, "late").unwrap_err();
    assert!(matches!(
        closed,
        SetTimerError::Closed(3, "late", ClosedError::StreamDropped)
    ));
    drop((watch, due));
    wheel.settle().await;
    assert_eq!(wheel.metrics().keyed_pending, 0);
}

#[tokio::test(start_paused = true)]
async fn p15_all_watches_are_unexpired_after_shutdown() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let start = Instant::now();
    let early = reaper.watch(1, "early").unwrap();
    let late = reaper.watch(2, "late").unwrap();
    let dropped = reaper.watch(3, "dropped").unwrap();
    let busy = late.busy();
    time::advance(ms(30)).await;
    let last = reaper.watch(4, "last").unwrap();
    time::advance(ms(30)).await;
    assert!(early.touch());
    drop(busy);
    time::advance(ms(5)).await;
    assert!(late.touch());
    wheel.shutdown().await;

    for watch in [&early, &late, &last] {
        assert!(!watch.is_watched());
        assert!(!watch.touch());
        assert!(!watch.touch_at(Instant::now() + IDLE));
        assert!(!watch.busy().is_effective());
    }
    drop(dropped);
    assert_eq!(reaper.len(), 4);
    let closed = reaper.watch(9, "too late").unwrap_err();
    assert!(matches!(
        closed,
        SetTimerError::Closed(9, "too late", ClosedError::Shutdown)
    ));

    assert_eq!(idle.recv().await, None);
    let unexpired: Vec<_> = idle.unexpired();
    let unexpired: Vec<_> = (unexpired.into_iter())
        .map(|expired| (expired.key, expired.deadline - start))
        .collect();
    assert_eq!(
        unexpired,
        [(3, ms(100)), (4, ms(130)), (1, ms(160)), (2, ms(165))],
        "earliest first"
    );
    assert!(idle.unexpired().is_empty());
    drop((early, late, last));
    let metrics = wheel.metrics();
    assert_eq!(metrics.keyed_set, 4);
    assert_eq!((metrics.keyed_drained, metrics.keyed_removed), (4, 0));
    assert_eq!(metrics.keyed_pending, 0);
}

#[tokio::test(start_paused = true)]
async fn p15_due_watches_are_received_after_shutdown() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let start = Instant::now();
    let watches: Vec<WatchGuard> = (0..10).map(|n| reaper.watch(n, "w").unwrap()).collect();
    wheel.settle().await;
    jump(IDLE);
    assert!(watches[3].touch());
    wheel.settle().await;
    wheel.shutdown().await;
    assert!(watches.iter().all(|watch| !watch.touch()));
    let mut received = Vec::new();
    while let Some(expired) = idle.recv().await {
        received.push(expired.key);
    }
    assert_eq!(received, [0, 1, 2, 4, 5, 6, 7, 8, 9]);
    let left = idle.unexpired();
    assert_eq!((left.len(), left[0].key), (1, 3));
    assert_eq!(left[0].deadline, start + IDLE * 2);
}

#[test]
fn p15_leaves_watches_harmless_when_the_runtime_is_gone() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let (wheel, reaper, mut idle, watch, busy) = runtime.block_on(async {
        let wheel = TimerWheel::new();
        let (reaper, idle) = wheel.reaper(IDLE);
        let watch = reaper.watch(1, "w").unwrap();
        let busy = watch.busy();
        (wheel, reaper, idle, watch, busy)
    });
    drop(runtime);
    assert!(wheel.is_shutdown());
    assert!(!watch.touch());
    assert!(!watch.is_watched());
    drop(busy);
    assert!(reaper.watch(2, "late").is_err());
    assert_eq!(idle.try_recv(), Err(TryRecvError::Closed));
    drop(watch);
    assert_eq!(idle.unexpired().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn ends_the_stream_with_the_last_reaper_and_watch() {
    let wheel = TimerWheel::new();
    let (reaper, idle) = wheel.reaper::<u32, ()>(IDLE);
    let mut idle = task::spawn(idle);
    let reaped = reaper.watch(1, ()).unwrap();
    let dropped = reaper.clone().watch(2, ()).unwrap();
    drop(reaper);
    assert_pending!(idle.poll_next());
    advance(&wheel, ms(50)).await;
    assert!(dropped.touch());
    advance(&wheel, ms(50)).await;
    assert_eq!(assert_ready!(idle.poll_next()).unwrap().key, 1);
    assert_pending!(idle.poll_next());
    assert!(!reaped.touch());

    drop(dropped);
    wheel.settle().await;
    assert!(idle.is_woken(), "nothing will ever come");
    assert!(assert_ready!(idle.poll_next()).is_none());
}

#[tokio::test(start_paused = true)]
async fn keeps_a_touched_watch_after_all_handles_are_dropped() {
    let wheel = TimerWheel::new();
    let (reaper, idle) = wheel.reaper::<u32, ()>(IDLE);
    let mut idle = task::spawn(idle);
    let watch = reaper.watch(1, ()).unwrap();
    drop((reaper, wheel));
    assert_pending!(idle.poll_next());
    // The actor knows the watch before its deadline comes.
    tokio::task::yield_now().await;
    jump(IDLE);
    assert!(watch.touch(), "it is due");
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert!(idle.is_woken(), "the wheel has reached it");
    assert_pending!(idle.poll_next());
    let touched = Instant::now();
    time::sleep(IDLE).await;
    tokio::task::yield_now().await;
    assert!(idle.is_woken());
    assert_eq!(
        assert_ready!(idle.poll_next()).unwrap().deadline,
        touched + IDLE
    );
    assert!(!watch.touch(), "it was received");
    assert!(assert_ready!(idle.poll_next()).is_none());
}

#[tokio::test(start_paused = true)]
async fn p15_bounds_the_deadline_of_an_unexpired_watch() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let start = Instant::now();
    let aged = WatchOptions::new().max_age(ms(120));
    let old = reaper.watch_with(1, "old", &aged).unwrap();
    let ahead = reaper.watch(2, "ahead").unwrap();
    let busy = reaper.watch(3, "busy").unwrap();
    let _guard = busy.busy();
    let young = reaper.watch_with(4, "young", &aged).unwrap();
    time::advance(ms(90)).await;
    assert!(old.touch());
    // A touch counts for one idle duration ahead at most.
    assert!(ahead.touch_at(Instant::now() + IDLE * 1_000));
    wheel.shutdown().await;
    time::advance(ms(10_000)).await;
    let left = idle.unexpired();
    let deadline = |key| {
        let expired = left.iter().find(|expired| expired.key == key).unwrap();
        expired.deadline - start
    };
    assert_eq!(left.len(), 4);
    let age = ms(108)..=ms(120);
    assert!(age.contains(&deadline(1)), "at its age: {:?}", deadline(1));
    assert_eq!(deadline(2), ms(90) + IDLE + IDLE);
    assert_eq!(deadline(3), IDLE);
    assert_eq!(deadline(4), IDLE, "idle before its age");
    assert!(left.is_sorted_by_key(|expired| expired.deadline));
    drop((old, ahead, busy, young));
    assert_eq!(wheel.metrics().keyed_drained, 4);
}
