//! Dropped watches: their values, their memory, and watches that take over their indices.

use std::sync::Arc;

use tickwheel::{TimerWheel, TryRecvError, WatchGuard};
use tokio::time::{self, Instant};

use super::{IDLE, is_empty, next};
use crate::support::{advance, jump, ms};

#[tokio::test(start_paused = true)]
async fn drops_the_value_of_a_dropped_watch_without_an_event() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper::<u32, Arc<()>>(IDLE);
    let value = Arc::new(());
    let watch = reaper.watch(1, value.clone()).unwrap();
    let due = reaper.watch(2, value.clone()).unwrap();
    jump(ms(50));
    drop(watch);
    assert_eq!(Arc::strong_count(&value), 2);
    assert_eq!(reaper.len(), 1);
    wheel.settle().await;
    // This one is due, and the wheel has not reached it.
    jump(ms(50));
    drop(due);
    assert_eq!(Arc::strong_count(&value), 1);
    // Nor is this one received.
    let due = reaper.watch(3, value.clone()).unwrap();
    let received = reaper.watch(4, value.clone()).unwrap();
    advance(&wheel, IDLE).await;
    drop(due);
    assert_eq!(Arc::strong_count(&value), 2);
    // A received value belongs to the receiver.
    let expired = idle.try_recv().unwrap();
    assert_eq!(expired.key, 4);
    drop(received);
    assert_eq!(Arc::strong_count(&value), 2);

    advance(&wheel, IDLE * 3).await;
    assert!(matches!(idle.try_recv(), Err(TryRecvError::Empty)));
    let metrics = wheel.metrics();
    assert_eq!((metrics.keyed_set, metrics.keyed_removed), (4, 3));
    assert_eq!((metrics.keyed_pending, metrics.keyed_fired), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn keeps_a_watch_at_a_reused_index_past_the_old_deadline() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let start = Instant::now();
    let old = reaper.watch(1, "old").unwrap();
    wheel.settle().await;
    jump(IDLE);
    // It is due, and the wheel has not reached its index.
    drop(old);
    let new = reaper.watch(2, "new").unwrap();
    wheel.settle().await;
    assert!(is_empty(&mut idle), "the deadline was of the old one");
    assert!(new.touch());
    assert_eq!(next(&mut idle, start).await, Some((2, IDLE + IDLE)));

    // Dropping a reaped watch does not end the watch that has its index now.
    let newest = reaper.watch(3, "newest").unwrap();
    drop(new);
    assert!(newest.is_watched());
    assert_eq!(reaper.len(), 1);
    assert_eq!(next(&mut idle, start).await, Some((3, IDLE * 3)));
}

#[tokio::test(start_paused = true)]
async fn due_watches_dropped_unreceived_leave_nothing_behind() {
    const WATCHES: u32 = 3_000;
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let mut watches: Vec<WatchGuard> = (0..WATCHES)
        .map(|n| reaper.watch(n, "w").unwrap())
        .collect();
    wheel.settle().await;
    time::advance(IDLE).await;
    assert!(watches.iter().step_by(2).all(WatchGuard::touch));
    wheel.settle().await;
    // The reader has found all of them due, and received one.
    assert_eq!(idle.recv().await.unwrap().key, 1);
    watches.clear();
    wheel.settle().await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(reaper.len(), 0);
    // The table was freed, and its indices are used again.
    let other = reaper.watch(WATCHES, "other").unwrap();
    assert!(is_empty(&mut idle));
    assert!(other.touch());
    assert_eq!(idle.recv().await.unwrap().key, WATCHES);
}

#[tokio::test(start_paused = true)]
async fn reaps_the_successors_of_watches_dropped_as_they_are_due() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let mut key = 0;
    let mut watch = || {
        key += 1;
        (key, reaper.watch(key, "w").unwrap())
    };
    // The actor is late by `lag` when the first watches are dropped and others take their indices.
    for (lag, keep) in [0, 1, 50, 99, 100, 101, 500]
        .into_iter()
        .flat_map(|lag| [(lag, 0), (lag, 1), (lag, 2)])
    {
        let mut first: Vec<_> = (0..3).map(|_| watch()).collect();
        wheel.settle().await;
        jump(IDLE + ms(lag));
        let kept: Vec<_> = first.drain(..keep).collect();
        assert!(kept.iter().all(|(_, watch)| watch.touch()));
        drop(first);
        let since = Instant::now();
        let second: Vec<_> = (keep..3).map(|_| watch()).collect();
        wheel.settle().await;
        assert!(is_empty(&mut idle), "lag {lag}, {keep} kept");
        let mut expected: Vec<_> = kept.iter().chain(&second).map(|(key, _)| *key).collect();
        expected.sort_unstable();
        let mut reaped = Vec::new();
        for _ in 0..3 {
            let (key, after) = next(&mut idle, since).await.unwrap();
            assert_eq!(after, IDLE, "lag {lag}, {keep} kept");
            reaped.push(key);
        }
        reaped.sort_unstable();
        assert_eq!(reaped, expected, "lag {lag}, {keep} kept");
    }
    assert!(reaper.is_empty());
}
