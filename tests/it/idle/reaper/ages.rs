//! Maximum ages of watches.

use std::time::Duration;

use tickwheel::{Cause, TimerWheel, WatchGuard, WatchOptions};
use tokio::time::{self, Instant};

use super::{IDLE, T, is_empty, next};
use crate::support::{advance, jump, ms};

#[tokio::test(start_paused = true)]
async fn ends_a_watch_at_its_maximum_age_though_busy() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let start = Instant::now();
    let aged = WatchOptions::new().max_age(ms(1_000));
    let touched = reaper.watch_with(1, "touched", &aged).unwrap();
    let busy = reaper.watch_with(2, "busy", &aged).unwrap();
    let _idle_first = reaper.watch_with(3, "idle", &aged).unwrap();
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
    assert_eq!(ages(exact.clone()).await, [ms(10_000); 1_000]);
    let before = WatchOptions::new().exact().max_age(ms(10_000));
    assert_eq!(before, exact);
}

/// The ages at which a thousand watches with these options end, by their deadlines.
async fn ages(options: WatchOptions) -> Vec<Duration> {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(Duration::from_secs(3_600));
    let start = Instant::now();
    let _watches: Vec<WatchGuard> = (0..1_000)
        .map(|n| reaper.watch_with(n, "w", &options).unwrap())
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
    let watch = reaper.watch_with(1, "forever", &forever).unwrap();
    let spread = WatchOptions::new().max_age(Duration::MAX);
    let spread = reaper.watch_with(3, "forever, spread", &spread).unwrap();
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
    let _idle_first = reaper.watch_with(1, "idle", &aged).unwrap();
    let busy = reaper.watch_with(2, "busy", &aged).unwrap();
    let _guard = busy.busy();
    let touched = reaper.watch_with(3, "touched", &aged).unwrap();
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

#[tokio::test(start_paused = true)]
async fn an_age_that_waits_ends_with_the_last_guard() {
    let wheel = TimerWheel::new();
    let (reaper, mut ended) = wheel.reaper(IDLE * 10);
    let start = Instant::now();
    let options = WatchOptions::new().max_age(ms(50)).exact();
    let waiting = options.clone().wait_for_guards();
    let watches: Vec<_> = (0..4)
        .map(|n| reaper.watch_with(n, "w", if n == 0 { &options } else { &waiting }))
        .map(Result::unwrap)
        .collect();
    let (_first, second, third) = (watches[0].busy(), watches[1].busy(), watches[1].busy());
    let early = watches[2].busy();
    advance(&wheel, ms(20)).await;
    drop(early);

    // One that does not wait, and those without a guard.
    let at_age: Vec<_> = [
        next(&mut ended, start).await,
        next(&mut ended, start).await,
        next(&mut ended, start).await,
    ]
    .into();
    assert_eq!(at_age, [0, 2, 3].map(|n| Some((n, ms(50)))));
    advance(&wheel, ms(50)).await;
    assert!(is_empty(&mut ended));
    assert!(watches[1].touch(), "it waits");
    drop(second);
    advance(&wheel, ms(7)).await;
    assert!(is_empty(&mut ended));
    let last_dropped = Instant::now();
    drop(third);
    let expired = ended.recv().await.unwrap();
    assert_eq!((expired.key, expired.cause), (1, Cause::MaxAge));
    assert_eq!(expired.deadline, last_dropped);
    assert!(last_dropped.elapsed() <= 2 * T);
    assert!(!watches[1].touch());
}

#[tokio::test(start_paused = true)]
async fn a_guard_before_the_receipt_keeps_an_age_waiting() {
    let wheel = TimerWheel::new();
    let (reaper, mut ended) = wheel.reaper(IDLE);
    let waiting = WatchOptions::new()
        .max_age(ms(50))
        .exact()
        .wait_for_guards();
    let watch = reaper.watch_with(1, "w", &waiting).unwrap();
    advance(&wheel, ms(50)).await;
    // It is due, and busy again.
    let guard = watch.busy();
    assert!(guard.is_effective());
    assert!(is_empty(&mut ended));
    advance(&wheel, IDLE * 5).await;
    assert!(is_empty(&mut ended));
    drop(guard);
    let again = watch.busy();
    advance(&wheel, ms(1)).await;
    assert!(is_empty(&mut ended));
    drop(again);
    advance(&wheel, ms(1)).await;
    assert_eq!(ended.try_recv().unwrap().cause, Cause::MaxAge);
}

#[tokio::test(start_paused = true)]
async fn a_guard_of_an_ended_watch_ends_no_other() {
    let wheel = TimerWheel::new();
    let (reaper, mut ended) = wheel.reaper(IDLE * 10);
    let waiting = WatchOptions::new()
        .max_age(ms(50))
        .exact()
        .wait_for_guards();
    let watch = reaper.watch_with(1, "w", &waiting).unwrap();
    let guard = watch.busy();
    advance(&wheel, ms(60)).await;
    drop(watch);
    // It has the index that is free now.
    let other = reaper.watch(2, "other").unwrap();
    drop(guard);
    advance(&wheel, ms(60)).await;
    assert!(is_empty(&mut ended) && other.touch());
}
