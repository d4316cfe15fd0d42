//! Guards that keep a watch busy.

use tickwheel::TimerWheel;
use tokio::time::Instant;

use super::{IDLE, is_empty, next};
use crate::support::{advance, jump, ms};

#[tokio::test(start_paused = true)]
async fn counts_idle_time_from_the_last_guards_release() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let start = Instant::now();
    let watch = reaper.watch(1, "w").unwrap();
    let first = watch.busy();
    let second = watch.busy();
    assert!(first.is_effective() && second.is_effective());
    for _ in 0..200 {
        advance(&wheel, IDLE).await;
        assert!(is_empty(&mut idle));
    }
    drop(first);
    advance(&wheel, IDLE + ms(37)).await;
    assert!(is_empty(&mut idle), "the second is held");
    drop(second);
    let released = start.elapsed();
    assert_eq!(next(&mut idle, start).await, Some((1, released + IDLE)));
}

#[tokio::test(start_paused = true)]
async fn honours_a_guard_taken_before_the_receipt_and_not_after() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let start = Instant::now();
    let watch = reaper.watch(1, "w").unwrap();
    wheel.settle().await;
    jump(IDLE);
    let busy = watch.busy();
    assert!(busy.is_effective());
    wheel.settle().await;
    assert!(is_empty(&mut idle));
    advance(&wheel, ms(300)).await;
    assert!(is_empty(&mut idle));
    drop(busy);
    advance(&wheel, IDLE).await;
    let busy = watch.busy();
    assert!(busy.is_effective(), "it is due, and unreceived");
    assert!(is_empty(&mut idle));
    drop(busy);
    assert!(watch.is_watched());
    assert_eq!(next(&mut idle, start).await, Some((1, ms(600))));
    assert!(!watch.busy().is_effective() && !watch.is_watched());
}

#[tokio::test(start_paused = true)]
async fn lets_a_guard_outlive_its_watch() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let watch = reaper.watch(1, "w").unwrap();
    let busy = watch.busy();
    drop(watch);
    let other = reaper.watch(2, "has the index now").unwrap();
    drop(busy);
    let start = Instant::now();
    assert_eq!(next(&mut idle, start).await, Some((2, IDLE)));
    drop(other);
}
