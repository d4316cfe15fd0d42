//! The end of a watch that is not idle, by `expire_now` and `drain`; the causes; and the value of a
//! watch.

use std::thread;

use tickwheel::{Cause, TimerWheel, WatchOptions};
use tokio::time::{self, Instant};

use super::{IDLE, is_empty};
use crate::support::{Numbers, advance, jump, ms};

#[tokio::test(start_paused = true)]
async fn expire_now_ends_a_watch_however_active_and_busy() {
    let wheel = TimerWheel::new();
    let (reaper, mut ended) = wheel.reaper(IDLE);
    for settles in [false, true] {
        let watch = reaper.watch(1, "w").unwrap();
        if settles {
            wheel.settle().await;
        }
        time::advance(ms(10)).await;
        let busy = watch.busy();
        let now = Instant::now();
        assert!(watch.expire_now());
        assert!(!watch.expire_now(), "it has ended");
        assert!(!watch.touch() && !watch.is_watched());
        assert!(!watch.busy().is_effective());
        assert_eq!(reaper.value(&watch), Some("w"), "it is not delivered yet");
        drop(busy);
        advance(&wheel, ms(1)).await;
        let expired = ended.try_recv().unwrap();
        assert_eq!((expired.key, expired.value), (1, "w"));
        assert_eq!((expired.cause, expired.deadline), (Cause::Forced, now));
        assert_eq!(reaper.value(&watch), None);
        drop(watch);
        advance(&wheel, IDLE * 3).await;
        assert!(is_empty(&mut ended));
    }
    let metrics = wheel.metrics();
    assert_eq!((metrics.keyed_fired, metrics.keyed_removed), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn expire_now_delivers_in_the_order_of_the_calls() {
    let wheel = TimerWheel::new();
    let (reaper, mut ended) = wheel.reaper(IDLE);
    let order = [4, 1, 7, 0, 6, 2];
    for is_due in [false, true] {
        let watches: Vec<_> = (0..8).map(|n| reaper.watch(n, ()).unwrap()).collect();
        wheel.settle().await;
        if is_due {
            jump(IDLE);
        }
        for n in order {
            assert!(watches[n].expire_now());
        }
        wheel.settle().await;
        let mut keys: Vec<_> = std::iter::from_fn(|| ended.try_recv().ok())
            .map(|expired| expired.key)
            .collect();
        // The others may be idle by now.
        keys.retain(|key| order.contains(key));
        assert_eq!(keys, order);
    }
}

#[tokio::test(start_paused = true)]
async fn expire_now_delivers_after_its_guard_and_reaper_are_dropped() {
    let wheel = TimerWheel::new();
    let (reaper, mut ended) = wheel.reaper::<u32, &str>(IDLE);
    let watch = reaper.watch(1, "w").unwrap();
    assert!(watch.expire_now());
    drop((watch, reaper, wheel));
    let expired = ended.recv().await.unwrap();
    assert_eq!((expired.value, expired.cause), ("w", Cause::Forced));
    assert!(ended.recv().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn expire_now_of_a_due_watch_ends_it_once() {
    let wheel = TimerWheel::new();
    let (reaper, mut ended) = wheel.reaper(IDLE);
    let watches: Vec<_> = (0..600).map(|n| reaper.watch(n, "w").unwrap()).collect();
    wheel.settle().await;
    time::advance(IDLE).await;
    wheel.settle().await;
    // They are due, and some of them are received.
    let mut causes: Vec<_> = std::iter::from_fn(|| ended.try_recv().ok())
        .take(250)
        .map(|expired| expired.cause)
        .collect();
    let now = watches.iter().filter(|watch| watch.expire_now()).count();
    assert_eq!(now, 350);
    assert!(!watches[599].touch() && reaper.value(&watches[599]) == Some("w"));
    drop(watches);
    advance(&wheel, IDLE).await;
    causes.extend(std::iter::from_fn(|| ended.try_recv().ok()).map(|expired| expired.cause));
    assert_eq!(causes.len(), 600);
    let by_now = causes
        .iter()
        .filter(|&&cause| cause == Cause::Forced)
        .count();
    assert_eq!(by_now, now, "each call says what became of its watch");
}

#[tokio::test(start_paused = true)]
async fn expire_now_of_a_closed_reaper_has_no_effect() {
    let wheel = TimerWheel::new();
    let (reaper, ended) = wheel.reaper::<u32, &str>(IDLE);
    let watch = reaper.watch(1, "w").unwrap();
    assert!(!reaper.is_closed());
    drop(ended);
    assert!(reaper.is_closed() && !watch.expire_now());

    let (reaper, mut ended) = wheel.reaper::<u32, &str>(IDLE);
    let now = reaper.watch(1, "now").unwrap();
    let watch = reaper.watch(2, "w").unwrap();
    assert!(now.expire_now());
    wheel.shutdown().await;
    assert!(!watch.expire_now());
    drop(now);
    let received = std::iter::from_fn(|| ended.try_recv().ok()).map(|expired| {
        assert_eq!(expired.cause, Cause::Forced);
        expired.key
    });
    let mut left: Vec<_> = received.collect();
    left.extend(ended.unexpired().iter().map(|left| left.key));
    left.sort_unstable();
    assert_eq!(left, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn watches_expire_with_the_cause_that_came_first() {
    let wheel = TimerWheel::new();
    let (reaper, mut ended) = wheel.reaper::<u32, ()>(IDLE);
    let aged = |age| WatchOptions::new().max_age(age).exact();
    let _idle = reaper.watch_with(1, (), &aged(IDLE * 3)).unwrap();
    let busy = reaper.watch_with(2, (), &aged(IDLE * 2)).unwrap();
    let _guard = busy.busy();
    let _young = reaper.watch_with(3, (), &aged(IDLE / 2)).unwrap();
    let (timers, mut keyed) = wheel.keyed::<u32, ()>();
    timers.set_timer(4, (), IDLE).unwrap();
    advance(&wheel, IDLE * 5).await;
    let causes: Vec<_> = std::iter::from_fn(|| ended.try_recv().ok())
        .map(|expired| (expired.key, expired.cause))
        .collect();
    let expected = [(3, Cause::MaxAge), (1, Cause::Idle), (2, Cause::MaxAge)];
    assert_eq!(causes, expected);
    assert_eq!(keyed.try_recv().unwrap().cause, Cause::Deadline);
}

#[tokio::test(start_paused = true)]
async fn drain_ends_every_watch_and_says_when_it_would_have_ended() {
    let wheel = TimerWheel::new();
    let (reaper, mut ended) = wheel.reaper(IDLE);
    let start = Instant::now();
    let touched = reaper.watch(1, "touched").unwrap();
    let silent = reaper.watch(2, "silent").unwrap();
    let aged = WatchOptions::new().max_age(ms(60)).exact();
    let aged = reaper.watch_with(3, "aged", &aged).unwrap();
    wheel.settle().await;
    time::advance(ms(50)).await;
    assert!(touched.touch());
    let guard = touched.busy();

    let drained = reaper.drain().unwrap();
    let drained: Vec<_> = (drained.into_iter())
        .map(|left| (left.key, left.deadline - start))
        .collect();
    assert_eq!(drained, [(3, ms(60)), (2, ms(100)), (1, ms(150))]);
    drop(guard);
    for watch in [&touched, &silent, &aged] {
        assert!(!watch.touch() && !watch.expire_now() && reaper.value(watch).is_none());
    }
    assert!(reaper.is_empty());
    advance(&wheel, IDLE * 3).await;
    assert!(is_empty(&mut ended));
    let new = reaper.watch(4, "new").unwrap();
    drop((touched, silent, aged));
    assert!(
        new.touch(),
        "another watch may have an index of one that was drained"
    );
    wheel.shutdown().await;
    assert!(reaper.drain().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_weak_reaper_does_not_keep_the_stream_open() {
    let wheel = TimerWheel::new();
    let (reaper, mut ended) = wheel.reaper::<u32, ()>(IDLE);
    let weak = reaper.downgrade();
    let watch = weak.upgrade().unwrap().watch(1, ()).unwrap();
    drop(reaper);
    assert!(weak.clone().upgrade().is_none(), "a watch is no handle");
    assert_eq!(ended.recv().await.unwrap().key, 1);
    assert!(ended.recv().await.is_none());
    drop(watch);
}

/// Every watch is ended by exactly one of: being idle, its owner, a drain, and its drop. Each party
/// learns which.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_watch_ends_once_while_threads_expire_drain_and_drop() {
    const THREADS: u64 = 3;
    const WATCHES: u64 = 2_000;
    let wheel = TimerWheel::builder().tick(ms(1) / 10).start().unwrap();
    let (reaper, mut ended) = wheel.reaper::<u64, u64>(ms(1) / 2);
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let reaper = reaper.clone();
            thread::spawn(move || {
                let mut random = Numbers(thread + 1);
                let (mut now, mut drained) = (0, 0);
                for n in 0..WATCHES {
                    let watch = reaper.watch(thread * WATCHES + n, n).unwrap();
                    for _ in 0..random.below(200) {
                        std::hint::spin_loop();
                    }
                    match random.below(5) {
                        0 => drop(watch),
                        1 => drained += reaper.drain().unwrap().len() as u64,
                        2 => {
                            // Touches never count after it.
                            let expired = watch.expire_now();
                            now += u64::from(expired);
                            assert!(!watch.touch());
                        }
                        3 => while watch.touch() && random.below(50) > 0 {},
                        _ => {
                            while watch.is_watched() {
                                thread::yield_now();
                            }
                        }
                    }
                }
                (now, drained)
            })
        })
        .collect();
    drop(reaper);
    let (mut seen, mut by_now) = (std::collections::HashSet::new(), 0);
    while let Some(expired) = ended.recv().await {
        assert!(seen.insert(expired.key), "{} ended twice", expired.key);
        assert!(matches!(expired.cause, Cause::Forced | Cause::Idle));
        by_now += u64::from(expired.cause == Cause::Forced);
    }
    let (mut now, mut drained) = (0, 0);
    for thread in threads {
        let ended = thread.join().unwrap();
        now += ended.0;
        drained += ended.1;
    }
    let metrics = wheel.metrics();
    assert_eq!(metrics.keyed_fired, seen.len() as u64);
    assert_eq!(metrics.keyed_drained, drained);
    let all = metrics.keyed_fired + metrics.keyed_removed + metrics.keyed_drained;
    assert_eq!((all, metrics.keyed_pending), (THREADS * WATCHES, 0));
    // A drain takes those too that were about to be delivered.
    assert!(by_now <= now && now - by_now <= drained);
    assert!(by_now > 0 && drained > 0);
}
