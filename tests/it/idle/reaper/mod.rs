//! The reaper, under the paused clock. This file has the tests of touches and of the limit on
//! timers.

mod ages;
mod dropped;
mod end;
mod expire_now;
mod guards;
mod kept;
mod model;
mod race;

use std::time::Duration;

use tickwheel::{Expirations, SetTimerError, TimerWheel, TryRecvError, WatchGuard};
use tokio::time::{self, Instant};

use crate::support::{advance, jump, ms};

/// The wheel's tick, unless a test sets another one.
const T: Duration = ms(1);

const IDLE: Duration = ms(100);

/// A tick less than that.
const JUST_BEFORE: Duration = ms(99);

fn is_empty(idle: &mut Expirations<u32, &'static str>) -> bool {
    idle.try_recv() == Err(TryRecvError::Empty)
}

/// Receives the next watch. Returns its key and the time since `start`.
async fn next(
    idle: &mut Expirations<u32, &'static str>,
    start: Instant,
) -> Option<(u32, Duration)> {
    let expired = idle.recv().await?;
    assert!(expired.deadline <= Instant::now());
    Some((expired.key, start.elapsed()))
}

// --- touches ---

#[tokio::test(start_paused = true)]
async fn reaps_an_untouched_watch_with_key_value_and_deadline() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let start = Instant::now();
    let watch = reaper.watch(7, "seven").unwrap();
    assert!(watch.is_watched());
    assert!(!reaper.is_empty());
    assert_eq!(reaper.len(), 1);

    let expired = idle.recv().await.unwrap();
    assert_eq!((expired.key, expired.value), (7, "seven"));
    assert_eq!((expired.deadline, expired.missed), (start + IDLE, 0));
    assert_eq!(start.elapsed(), IDLE);
    assert!(!watch.is_watched());
    assert!(reaper.is_empty());
}

#[tokio::test(start_paused = true)]
async fn touches_postpone_a_watch_until_it_is_received() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let start = Instant::now();
    let before = reaper.watch(1, "before").unwrap();
    let at = reaper.watch(2, "at").unwrap();
    let after = reaper.watch(3, "after").unwrap();

    advance(&wheel, JUST_BEFORE).await;
    assert!(before.touch());
    jump(T);
    assert!(at.touch(), "it is due");
    wheel.settle().await;
    assert!(at.touch(), "the wheel has reached it");
    assert_eq!(next(&mut idle, start).await, Some((3, IDLE)));
    assert!(!after.touch(), "it was received");
    assert!(!after.touch_at(Instant::now() + IDLE));

    assert_eq!(next(&mut idle, start).await, Some((1, JUST_BEFORE + IDLE)));
    assert_eq!(next(&mut idle, start).await, Some((2, IDLE + IDLE)));
    assert!(!before.touch() && !at.touch());
}

#[tokio::test(start_paused = true)]
async fn reaps_once_after_touches_a_tick_before_each_deadline() {
    for tick in [T, ms(10)] {
        let wheel = TimerWheel::builder().tick(tick).start().unwrap();
        let (reaper, mut idle) = wheel.reaper(IDLE);
        let watch = reaper.watch(1, "busy bee").unwrap();
        let touching = tokio::spawn(async move {
            for _ in 0..100 {
                time::sleep(IDLE.saturating_sub(tick)).await;
                assert!(watch.touch(), "it was reaped early");
            }
            (watch, Instant::now())
        });
        idle.recv().await.unwrap();
        let reaped = Instant::now();
        let (watch, last) = touching.await.unwrap();
        assert!(reaped >= last + IDLE, "{:?}", reaped - last);
        assert!(reaped <= last + IDLE + 2 * tick, "{:?}", reaped - last);
        assert!(!watch.touch());

        advance(&wheel, IDLE * 5).await;
        assert!(is_empty(&mut idle), "it was reaped twice");
        assert!(wheel.metrics().rescheduled <= 101, "{:?}", wheel.metrics());
    }
}

/// netpoll's wheel never stored the timeout, and so closed active connections.
#[tokio::test(start_paused = true)]
async fn reschedules_a_watch_processed_too_early() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let start = Instant::now();
    let watch = reaper.watch(1, "early").unwrap();
    advance(&wheel, ms(60)).await;
    assert!(watch.touch());
    advance(&wheel, ms(40)).await;
    assert!(is_empty(&mut idle));
    assert_eq!(wheel.metrics().rescheduled, 1);
    assert_eq!(next(&mut idle, start).await, Some((1, ms(160))));
    assert_eq!(wheel.metrics().rescheduled, 1);
}

#[tokio::test(start_paused = true)]
async fn reschedules_a_watch_touched_before_the_wheel_reaches_it() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let start = Instant::now();
    let watches: Vec<WatchGuard> = (0..10).map(|n| reaper.watch(n, "w").unwrap()).collect();
    wheel.settle().await;
    // The actor does not run while the clock jumps.
    jump(IDLE * 5);
    for (n, watch) in watches.iter().enumerate() {
        assert!(watch.is_watched());
        assert!(n % 2 == 0 || watch.touch());
    }
    wheel.settle().await;
    assert_eq!(reaper.len(), 10);
    for n in [0, 2, 4, 6, 8] {
        assert_eq!(next(&mut idle, start).await, Some((n, ms(500))));
    }
    for n in [1, 3, 5, 7, 9] {
        assert_eq!(next(&mut idle, start).await, Some((n, ms(600))));
    }
    assert!(watches.iter().all(|watch| !watch.touch()));
}

#[tokio::test(start_paused = true)]
async fn touches_save_watches_that_are_due_and_unreceived() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let start = Instant::now();
    let watches: Vec<WatchGuard> = (0..10).map(|n| reaper.watch(n, "w").unwrap()).collect();
    // The stream is not read for a long time.
    advance(&wheel, IDLE * 5).await;
    assert_eq!(reaper.len(), 10);
    assert!(watches[1].touch());
    assert!(watches[2].touch_at(start), "which changes nothing");
    let busy = watches[3].busy();
    assert!(busy.is_effective());
    // The reader finds the others due, and receives some of them.
    for n in [0, 2] {
        let expired = idle.recv().await.unwrap();
        assert_eq!((expired.key, expired.deadline), (n, start + IDLE));
    }
    assert!(!watches[0].touch() && !watches[2].touch());
    // These were found due, and are not received.
    assert!(watches[4].touch() && watches[6].touch());
    for n in [5, 7, 8, 9] {
        let expired = idle.recv().await.unwrap();
        assert_eq!((expired.key, expired.deadline), (n, start + IDLE));
        assert!(!watches[n as usize].touch() && !watches[n as usize].busy().is_effective());
    }
    assert!(is_empty(&mut idle));
    assert_eq!(reaper.len(), 4);
    drop(busy);
    for n in [1, 3, 4, 6] {
        let expired = idle.recv().await.unwrap();
        assert_eq!((expired.key, expired.deadline), (n, start + IDLE * 6));
    }
    let metrics = wheel.metrics();
    assert_eq!((metrics.keyed_fired, metrics.keyed_removed), (10, 0));
}

#[tokio::test(start_paused = true)]
async fn keeps_a_watch_touched_each_time_before_delivery() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let watch = reaper.watch(1, "w").unwrap();
    wheel.settle().await;
    for _ in 0..50 {
        jump(IDLE * 2);
        assert!(watch.touch());
        wheel.settle().await;
        assert!(is_empty(&mut idle));
    }
}

#[tokio::test(start_paused = true)]
async fn ignores_past_touches_and_limits_future_ones() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let start = Instant::now();
    let past = reaper.watch(1, "past").unwrap();
    let ahead = reaper.watch(2, "ahead").unwrap();
    let far = reaper.watch(3, "far").unwrap();
    let never = reaper.watch(4, "never").unwrap();
    time::advance(ms(10)).await;
    assert!(past.touch_at(start));
    assert!(past.touch_at(start.checked_sub(ms(50)).unwrap_or(start)));
    assert!(ahead.touch_at(start + ms(60)));
    assert!(far.touch_at(start + Duration::from_secs(86_400)));
    assert!(never.touch_at(start + Duration::from_secs(u32::MAX.into())));

    assert_eq!(next(&mut idle, start).await, Some((1, IDLE)));
    assert_eq!(next(&mut idle, start).await, Some((2, ms(160))));
    // The actor read the touches after one idle duration, and granted one more.
    assert_eq!(next(&mut idle, start).await, Some((3, ms(300))));
    assert_eq!(next(&mut idle, start).await, Some((4, ms(300))));
}

#[tokio::test(start_paused = true)]
async fn reaps_nothing_while_the_clock_stands_still() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(T);
    let start = Instant::now();
    let watch = reaper.watch(1, "w").unwrap();
    for _ in 0..1000 {
        assert!(watch.touch());
        assert!(watch.touch_at(start));
        drop(watch.busy());
    }
    wheel.settle().await;
    assert!(is_empty(&mut idle));
    assert_eq!(next(&mut idle, start).await, Some((1, T)));
}

#[tokio::test(start_paused = true)]
async fn sends_no_command_for_a_touch() {
    let wheel = TimerWheel::new();
    let (reaper, _idle) = wheel.reaper(IDLE);
    let watches: Vec<WatchGuard> = (0..100).map(|n| reaper.watch(n, "w").unwrap()).collect();
    wheel.settle().await;
    let before = wheel.metrics();
    for _ in 0..50 {
        time::advance(T).await;
        assert!(watches.iter().all(WatchGuard::touch));
        for watch in &watches {
            drop(watch.busy());
        }
    }
    let after = wheel.metrics();
    assert_eq!(after.commands, before.commands);
    assert_eq!(after.wake_ups, before.wake_ups);
    assert_eq!(after.keyed_moved, 0);
}

// --- limits and errors ---

#[tokio::test(start_paused = true)]
async fn returns_a_watch_over_the_limit_of_timers() {
    let wheel = TimerWheel::builder().max_keyed(2).start().unwrap();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let (timers, _expirations) = wheel.keyed::<u32, ()>();
    let first = reaper.watch(1, "first").unwrap();
    timers.set_timer(1, (), ms(3_600_000)).unwrap();
    let full = reaper.watch(2, "second").unwrap_err();
    assert!(matches!(full, SetTimerError::Full(2, "second")));
    assert!(timers.set_timer(2, (), IDLE).is_err());

    drop(first);
    let second = reaper.watch(2, "second").unwrap();
    assert!(reaper.watch(3, "third").is_err());
    wheel.settle().await;
    jump(IDLE);
    assert!(reaper.watch(3, "third").is_err(), "it is due");
    wheel.settle().await;
    assert!(reaper.watch(3, "third").is_err(), "it is not received");
    assert_eq!(idle.recv().await.unwrap().key, 2);
    let third = reaper.watch(3, "third").unwrap();
    // A reaped watch no longer counts, so dropping it makes no room.
    drop(second);
    assert!(reaper.watch(4, "fourth").is_err());
    drop(third);
    assert_eq!(wheel.metrics().keyed_pending, 1);
}

#[tokio::test(start_paused = true)]
async fn accepts_equal_keys() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let first = reaper.watch(1, "first").unwrap();
    let second = reaper.watch(1, "second").unwrap();
    time::advance(ms(50)).await;
    assert!(second.touch());
    drop(first);
    assert_eq!(idle.recv().await.unwrap().value, "second");
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "an idle duration must be longer than zero")]
async fn rejects_a_reaper_of_no_duration() {
    let _ = TimerWheel::new().reaper::<u32, ()>(Duration::ZERO);
}
