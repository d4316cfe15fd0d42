//! Touches, guards and drops on all threads against a reader on another, under the real clock.

use std::collections::HashMap;
use std::thread;

use tickwheel::{Reaper, TimerWheel};
use tokio::time::Instant;

use crate::support::{HANG_TIMEOUT, ms};

const IDLE: std::time::Duration = ms(4);

/// A thread's record of a watch that it had.
struct Had {
    key: u64,
    /// The instant of the last touch or release that had an effect.
    last: Instant,
    /// Whether a touch found the watch reaped. Otherwise it was dropped, perhaps at the same
    /// moment.
    is_reaped: bool,
}

/// Uses watches one after the other: touches them a random number of times, and drops them or waits
/// for their end.
fn use_watches(reaper: &Reaper<u64, ()>, thread: u64, watches: u64) -> Vec<Had> {
    let mut had = Vec::new();
    for n in 0..watches {
        let key = thread * watches + n;
        let mut last = Instant::now();
        let watch = reaper.watch(key, ()).unwrap();
        let mut is_reaped = false;
        // The pauses have different lengths: some end just before the idle duration, some just
        // after.
        for rest in 0..key % 5 {
            thread::sleep(IDLE / 8 * u32::try_from(rest + n % 7).unwrap());
            let at = Instant::now();
            if n % 3 == 0 {
                let busy = watch.busy();
                is_reaped = !busy.is_effective();
                thread::sleep(ms(n % 2));
                let released = Instant::now();
                drop(busy);
                last = if is_reaped { last } else { released };
            } else {
                is_reaped = !watch.touch_at(at);
                last = if is_reaped { last } else { at };
            }
            if is_reaped {
                break;
            }
        }
        if key % 4 == 0 {
            while watch.is_watched() {
                thread::sleep(ms(1));
            }
            is_reaped = true;
        }
        drop(watch);
        had.push(Had {
            key,
            last,
            is_reaped,
        });
    }
    had
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_watch_touched_by_a_thread_is_reaped_once_or_never() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let reaper = reaper.clone();
            thread::spawn(move || use_watches(&reaper, n, 100))
        })
        .collect();
    drop(reaper);

    let mut reaped = HashMap::new();
    while let Some(expired) = idle.recv().await {
        let again = reaped.insert(expired.key, Instant::now());
        assert!(again.is_none(), "{} is reaped twice", expired.key);
    }
    let had: Vec<Had> = (threads.into_iter())
        .flat_map(|thread| thread.join().unwrap())
        .collect();
    assert_eq!(had.len(), 400);
    for Had {
        key,
        last,
        is_reaped,
    } in had
    {
        match reaped.get(&key) {
            Some(&at) => {
                let idle = at - last;
                assert!(idle >= IDLE, "{key} is reaped early, after {idle:?}");
            }
            None => assert!(
                !is_reaped,
                "touches of {key} say that it was reaped, and it was not"
            ),
        }
    }
    let metrics = wheel.metrics();
    assert_eq!(metrics.keyed_set, 400);
    assert_eq!(metrics.keyed_fired, reaped.len() as u64);
    assert_eq!(metrics.keyed_removed, 400 - reaped.len() as u64);
    assert_eq!(metrics.keyed_pending, 0);
}

/// The consumer's clock stands still. A decision by that clock would never find the watch idle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reaps_for_a_consumer_whose_clock_is_paused() {
    let wheel = TimerWheel::new();
    let (tell, told) = std::sync::mpsc::channel();
    let (reaper, mut idle) = wheel.reaper(ms(20));
    let consumer = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            while let Some(expired) = idle.recv().await {
                tell.send(expired.key).unwrap();
            }
        });
    });
    for key in 0..3 {
        let watch = reaper.watch(key, ()).unwrap();
        let turns = wheel.metrics().turns;
        let reaped = told.recv_timeout(HANG_TIMEOUT);
        assert_eq!(reaped, Ok(key), "it was never reaped");
        assert!(!watch.touch());
        let turns = wheel.metrics().turns - turns;
        assert!(turns < 100, "{turns} turns for one watch");
    }
    drop(reaper);
    consumer.join().unwrap();
}
