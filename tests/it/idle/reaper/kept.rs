//! Idle durations of single watches, watches that their receiver keeps, and the drain of those that
//! are not busy.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use tickwheel::{Cause, TimerWheel, WatchGuard, WatchOptions};
use tokio::time::{self, Instant};

use super::{IDLE, T, is_empty, next};
use crate::support::{advance, jump, ms};

// --- idle durations ---

#[tokio::test(start_paused = true)]
async fn reaps_each_watch_after_its_own_idle_duration() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let start = Instant::now();
    let mut watches = Vec::new();
    for key in [30, 1_000, 100, 7] {
        let own = WatchOptions::new().idle(ms(u64::from(key)));
        watches.push(reaper.watch_with(key, "own", &own).unwrap());
    }
    watches.push(reaper.watch(0, "reaper's").unwrap());
    assert_eq!(next(&mut idle, start).await, Some((7, ms(7))));
    assert!(watches[0].touch());
    for (key, at) in [(30, 37), (100, 100), (0, 100), (1_000, 1_000)] {
        assert_eq!(next(&mut idle, start).await, Some((key, ms(at))));
    }
}

#[tokio::test(start_paused = true)]
async fn limits_future_touches_by_the_watchs_idle_duration() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(Duration::MAX);
    let start = Instant::now();
    let brief = WatchOptions::new().idle(ms(20));
    let watch = reaper.watch_with(1, "brief", &brief).unwrap();
    assert!(watch.touch_at(start + Duration::from_secs(3_600)));
    let (_, at) = next(&mut idle, start).await.unwrap();
    assert!(at <= ms(60) + 2 * T, "{at:?}");
}

#[test]
#[should_panic(expected = "an idle duration must be longer than zero")]
fn rejects_an_idle_duration_of_zero_for_a_watch() {
    let _ = WatchOptions::new().idle(Duration::ZERO);
}

// --- kept watches ---

#[tokio::test(start_paused = true)]
async fn a_kept_watch_has_another_idle_duration() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let start = Instant::now();
    let _kept = reaper.watch(1, 0).unwrap();
    let _other = reaper
        .watch_with(2, 0, &WatchOptions::new().idle(ms(250)))
        .unwrap();
    let mut asked = Vec::new();
    let mut ended = Vec::new();
    for _ in 0..2 {
        let may_expire = |key: &u32, tries: &mut u32, cause: Cause| {
            asked.push((*key, start.elapsed(), cause));
            *tries += 1;
            *key == 2 || *tries == 3
        };
        let expired = idle.recv_if(may_expire).await.unwrap();
        ended.push((expired.key, expired.value, expired.deadline - start));
    }
    let expected = [(1, 100), (1, 200), (2, 250), (1, 300)];
    assert_eq!(asked, expected.map(|(key, at)| (key, ms(at), Cause::Idle)));
    assert_eq!(ended, [(2, 1, ms(250)), (1, 3, ms(300))]);
}

// There was a gap between an expiration and the watch that followed it.
#[tokio::test(start_paused = true)]
async fn every_touch_of_a_kept_watch_counts() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper::<u32, ()>(ms(1));
    let watch = reaper.watch(1, ()).unwrap();
    let (stops, lost) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let touching = thread::spawn({
        let (stops, lost) = (Arc::clone(&stops), Arc::clone(&lost));
        // It touches an instant that has no effect on the idle time.
        let past = Instant::now();
        move || {
            while !stops.load(Ordering::Relaxed) {
                lost.fetch_add(usize::from(!watch.touch_at(past)), Ordering::Relaxed);
            }
            watch
        }
    });
    let mut asked = 0;
    let kept = time::timeout(
        ms(2_000),
        idle.recv_if(|_, (), _| {
            asked += 1;
            false
        }),
    );
    assert!(kept.await.is_err(), "it was kept each time");
    stops.store(true, Ordering::Relaxed);
    let watch = touching.join().unwrap();
    assert!(asked > 900, "{asked}");
    assert_eq!(lost.load(Ordering::Relaxed), 0);
    assert!(watch.is_watched() && reaper.len() == 1);
}

#[tokio::test(start_paused = true)]
async fn a_touch_while_the_receiver_decides_keeps_the_watch() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper::<u32, ()>(IDLE);
    let start = Instant::now();
    let watch = reaper.watch(1, ()).unwrap();
    let mut asked = 0;
    let expired = idle.recv_if(|_, (), _| {
        asked += 1;
        assert!(watch.touch_at(start + IDLE * asked.min(2)));
        true
    });
    let expired = expired.await.unwrap();
    assert_eq!((asked, expired.deadline - start), (3, ms(300)));
}

#[tokio::test(start_paused = true)]
async fn a_maximum_age_is_put_off_by_a_receiver_that_keeps() {
    let wheel = TimerWheel::new();
    let (reaper, mut ended) = wheel.reaper::<u32, ()>(IDLE);
    let start = Instant::now();
    let aged = WatchOptions::new().max_age(ms(250)).exact();
    let watch = reaper.watch_with(1, (), &aged).unwrap();
    let _busy = watch.busy();
    let mut asked = Vec::new();
    let expired = ended.recv_if(|_, (), cause| {
        asked.push((start.elapsed(), cause));
        asked.len() == 3
    });
    let expired = expired.await.unwrap();
    assert_eq!(asked, [250, 350, 450].map(|at| (ms(at), Cause::MaxAge)));
    assert_eq!(
        (expired.cause, expired.deadline - start),
        (Cause::MaxAge, ms(450))
    );
}

#[tokio::test(start_paused = true)]
async fn asks_about_no_watch_that_was_ended_and_no_keyed_timer() {
    let wheel = TimerWheel::new();
    let (reaper, mut ended) = wheel.reaper::<u32, ()>(IDLE);
    let watch = reaper.watch(1, ()).unwrap();
    assert!(watch.expire_now());
    let expired = ended.recv_if(|_, (), _| unreachable!("it has ended")).await;
    assert_eq!(expired.unwrap().cause, Cause::Forced);

    let (timers, mut expirations) = wheel.keyed::<u32, ()>();
    timers.set_timer(1, (), IDLE).unwrap();
    let expired = expirations
        .recv_if(|_, (), _| unreachable!("it is a keyed timer"))
        .await;
    assert_eq!(expired.unwrap().cause, Cause::Deadline);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_panics_leaves_the_watch_due() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper::<u32, ()>(IDLE);
    let watches = [1, 2].map(|key| reaper.watch(key, ()).unwrap());
    wheel.settle().await;
    jump(IDLE);
    wheel.settle().await;
    let mut cx = Context::from_waker(Waker::noop());
    let mut panics = Box::pin(idle.recv_if(|_, (), _| panic!("of the receiver")));
    let panic = catch_unwind(AssertUnwindSafe(|| panics.poll_unpin(&mut cx)));
    assert!(panic.is_err());
    drop(panics);
    assert!(watches[0].is_watched() && reaper.len() == 2);
    for key in [1, 2] {
        assert_eq!(idle.try_recv().unwrap().key, key);
    }
}

#[tokio::test(start_paused = true)]
async fn keeps_more_watches_than_one_hold_of_the_lock_visits() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper::<u32, u32>(IDLE);
    let watches: Vec<_> = (0..10_000)
        .map(|key| reaper.watch(key, 0).unwrap())
        .collect();
    let mut asked = 0;
    let kept = time::timeout(
        IDLE * 3 + T,
        idle.recv_if(|_, times, _| {
            asked += 1;
            *times += 1;
            false
        }),
    );
    assert!(kept.await.is_err());
    assert_eq!(asked, 30_000);
    assert!(watches.iter().all(|watch| reaper.value(watch) == Some(3)));
}

// --- drain ---

#[tokio::test(start_paused = true)]
async fn drain_idle_leaves_busy_and_ended_watches() {
    let wheel = TimerWheel::new();
    let (reaper, mut ended) = wheel.reaper(IDLE);
    let start = Instant::now();
    let watches: Vec<_> = (0..1_000)
        .map(|key| reaper.watch(key, "w").unwrap())
        .collect();
    let guards: Vec<_> = watches.iter().step_by(10).map(WatchGuard::busy).collect();
    assert!(watches[5].expire_now());
    advance(&wheel, ms(20)).await;
    assert!(watches[1].touch());

    let drained = reaper.drain_idle().unwrap();
    assert_eq!(drained.len(), 899);
    let last = drained.last().unwrap();
    assert_eq!((last.key, last.deadline - start), (1, ms(120)));
    assert!(
        drained
            .iter()
            .all(|left| left.key % 10 != 0 && left.key != 5)
    );
    for (key, watch) in watches.iter().enumerate() {
        assert_eq!(watch.touch(), key % 10 == 0, "{key}");
    }
    assert_eq!(reaper.len(), 101);
    assert_eq!(ended.try_recv().unwrap().cause, Cause::Forced);
    assert!(is_empty(&mut ended));
    assert!(reaper.drain_idle().unwrap().is_empty());
    drop(guards);
    assert_eq!(reaper.drain_idle().unwrap().len(), 100);
    let metrics = wheel.metrics();
    assert_eq!((metrics.keyed_drained, metrics.keyed_pending), (999, 0));
    drop(ended);
    assert!(reaper.drain_idle().is_err());
}
