//! Maximum ages of watches.

use std::time::Duration;

use tickwheel::{TimerWheel, WatchGuard, WatchOptions};
use tokio::time::{self, Instant};

use super::{IDLE, T, is_empty, next};
use crate::support::{advance, jump, ms};

#[tokio::test(start_paused = true)]
async fn ends_a_watch_at_its_maximum_age_though_busy() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let start = Instant::now();
    let aged = WatchOptions::new().max_age(ms(1_000));
    let touched = reaper.watch_with(1, "touched", aged).unwrap();
    let busy = reaper.watch_with(2, "busy", aged).unwrap();
    let _idle_first = reaper.watch_with(3, "idle", aged).unwrap();
    let guard = busy.busy();
    let touching = tokio::spawn(async move {
        while touched.touch() {
            time::sleep(ms(10)).await;
        }
        start.elapsed()
    });
    assert_eq!(next(&mut idle, start).await, Some((3, IDLE)));
    for _ in 0..2 {
        let (_, age) = next(&mut idle, start).await.unwrap();
        assert!(age >= ms(900) && age <= ms(1_000) + 2 * T, "{age:?}");
    }
    assert!(touching.await.unwrap() >= ms(900));
    assert!(!busy.is_watched());
    assert!(!busy.touch());
    assert!(!busy.busy().is_effective(), "it has been reaped");
    drop(guard);
    assert!(!busy.is_watched());
}

// Ages were spread both ways, so half of the watches lived longer than the maximum.
#[tokio::test(start_paused = true)]
async fn ages_are_spread_over_the_last_tenth_before_maximum() {
    let ages = ages(WatchOptions::new().max_age(ms(10_000))).await;
    assert!(ages[0] >= ms(9_000), "{:?}", ages[0]);
    assert!(ages[999] <= ms(10_000), "{:?}", ages[999]);
    // Each tenth of the range gets about a hundred of the thousand.
    for tenth in 0..10 {
        let from = ms(9_000 + 100 * tenth);
        let within = |age: &&Duration| **age >= from && **age < from + ms(100);
        let n = ages.iter().filter(within).count();
        assert!((40..=200).contains(&n), "{n} from {from:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn exact_ages_are_the_maximum() {
    let exact = WatchOptions::new().max_age(ms(10_000)).exact();
    assert_eq!(ages(exact).await, [ms(10_000); 1_000]);
    let before = WatchOptions::new().exact().max_age(ms(10_000));
    assert_eq!(before, exact);
}

/// The ages at which a thousand watches with these options end, by their deadlines.
async fn ages(options: WatchOptions) -> Vec<Duration> {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(Duration::from_secs(3_600));
    let start = Instant::now();
    let _watches: Vec<WatchGuard<u32, &str>> = (0..1_000)
        .map(|n| reaper.watch_with(n, "w", options).unwrap())
        .collect();
    let mut ages = Vec::new();
    for _ in 0..1_000 {
        ages.push(idle.recv().await.unwrap().deadline - start);
    }
    ages
}

#[tokio::test(start_paused = true)]
async fn treats_an_age_without_end_as_none() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(Duration::MAX);
    let forever = WatchOptions::new().max_age(Duration::MAX).exact();
    let watch = reaper.watch_with(1, "forever", forever).unwrap();
    let spread = WatchOptions::new().max_age(Duration::MAX);
    let spread = reaper.watch_with(3, "forever, spread", spread).unwrap();
    let plain = reaper.watch(2, "forever too").unwrap();
    advance(&wheel, Duration::from_secs(86_400 * 365 * 50)).await;
    assert!(is_empty(&mut idle));
    assert!(watch.touch() && spread.touch() && plain.touch());
}

#[test]
#[should_panic(expected = "a maximum age must be longer than zero")]
fn rejects_a_maximum_age_of_zero() {
    let _ = WatchOptions::new().max_age(Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn reports_the_idle_deadline_when_it_came_before_the_age() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper::<usize, _>(IDLE);
    let start = Instant::now();
    let aged = WatchOptions::new().max_age(ms(200));
    let _idle_first = reaper.watch_with(1, "idle", aged).unwrap();
    let busy = reaper.watch_with(2, "busy", aged).unwrap();
    let _guard = busy.busy();
    let touched = reaper.watch_with(3, "touched", aged).unwrap();
    wheel.settle().await;
    jump(ms(110));
    assert!(touched.touch());
    // Both deadlines have passed when the actor takes its next turn.
    jump(ms(1_000));
    wheel.settle().await;
    let mut expired: Vec<_> = std::iter::from_fn(|| idle.try_recv().ok()).collect();
    expired.sort_unstable_by_key(|expired| expired.key);
    let deadlines: Vec<_> = expired.iter().map(|e| e.deadline - start).collect();
    assert_eq!(deadlines.len(), 3);
    assert_eq!(deadlines[0], IDLE);
    let age = ms(180)..=ms(200);
    assert!(age.contains(&deadlines[1]), "{deadlines:?}");
    assert!(age.contains(&deadlines[2]), "{deadlines:?}");
}
