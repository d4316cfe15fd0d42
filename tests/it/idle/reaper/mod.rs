//! The reaper: reap XOR touch, guards, ages, limits, and what is left at the end, under the paused clock.

mod end;
mod model;
mod race;

use std::time::Duration;

use tickwheel::{Expirations, SetTimerError, TimerWheel, TryRecvError, Watch, WatchOptions};
use tokio::time::{self, Instant};

use crate::support::ms;

/// The wheel's tick, unless a test says otherwise.
const T: Duration = ms(1);

const IDLE: Duration = ms(100);

/// A tick before that.
const JUST_BEFORE: Duration = ms(99);

/// Lets time pass, and the wheel see it.
async fn pass(wheel: &TimerWheel, time: Duration) {
    time::advance(time).await;
    wheel.settle().await;
}

fn is_empty(idle: &mut Expirations<u32, &'static str>) -> bool {
    idle.try_recv() == Err(TryRecvError::Empty)
}

/// What was received, and when, counted from `start`.
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
async fn postpones_by_touches_up_to_the_deadline_and_not_after() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let start = Instant::now();
    let before = reaper.watch(1, "before").unwrap();
    let at = reaper.watch(2, "at").unwrap();
    let after = reaper.watch(3, "after").unwrap();

    pass(&wheel, JUST_BEFORE).await;
    assert!(before.touch());
    time::advance(T).await;
    assert!(at.touch(), "it is due, and was not delivered");
    wheel.settle().await;
    assert!(!after.touch(), "it was delivered, and not received yet");
    assert!(!after.touch_at(Instant::now() + IDLE));
    assert_eq!(next(&mut idle, start).await, Some((3, IDLE)));

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

        pass(&wheel, IDLE * 5).await;
        assert!(is_empty(&mut idle), "it was reaped twice");
        assert!(wheel.metrics().rescheduled <= 101, "{:?}", wheel.metrics());
    }
}

/// netpoll's wheel never stored the timeout, and so kicked connections that were active.
#[tokio::test(start_paused = true)]
async fn reschedules_a_watch_processed_too_early() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let start = Instant::now();
    let watch = reaper.watch(1, "early look").unwrap();
    pass(&wheel, ms(60)).await;
    assert!(watch.touch());
    pass(&wheel, ms(40)).await;
    assert_eq!(wheel.metrics().rescheduled, 1);
    assert!(is_empty(&mut idle));
    assert_eq!(next(&mut idle, start).await, Some((1, ms(160))));
    assert_eq!(wheel.metrics().rescheduled, 1);
}

#[tokio::test(start_paused = true)]
async fn reschedules_a_watch_touched_before_it_is_delivered() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let start = Instant::now();
    let watches: Vec<Watch> = (0..10).map(|n| reaper.watch(n, "w").unwrap()).collect();
    wheel.settle().await;
    // The actor does not run while the clock jumps.
    time::advance(IDLE * 5).await;
    for (n, watch) in watches.iter().enumerate() {
        assert!(watch.is_watched());
        assert!(n % 2 == 0 || watch.touch());
    }
    wheel.settle().await;
    assert_eq!(reaper.len(), 5);
    for n in [0, 2, 4, 6, 8] {
        assert_eq!(next(&mut idle, start).await, Some((n, ms(500))));
    }
    for n in [1, 3, 5, 7, 9] {
        assert_eq!(next(&mut idle, start).await, Some((n, ms(600))));
    }
    assert!(watches.iter().all(|watch| !watch.touch()));
}

#[tokio::test(start_paused = true)]
async fn refuses_touches_of_what_was_delivered_and_not_received() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let start = Instant::now();
    let watches: Vec<Watch> = (0..10).map(|n| reaper.watch(n, "w").unwrap()).collect();
    // Nobody reads for long.
    pass(&wheel, IDLE * 5).await;
    for watch in &watches {
        assert!(!watch.is_watched());
        assert!(!watch.touch());
        assert!(!watch.touch_at(Instant::now() + IDLE));
        assert!(!watch.busy().is_effective());
    }
    assert_eq!(reaper.len(), 0);
    drop(watches);
    for n in 0..10 {
        let expired = idle.recv().await.unwrap();
        assert_eq!((expired.key, expired.deadline), (n, start + IDLE));
    }
    let metrics = wheel.metrics();
    assert_eq!((metrics.keyed_fired, metrics.keyed_removed), (10, 0));
}

#[tokio::test(start_paused = true)]
async fn spares_a_watch_touched_each_time_before_it_is_delivered() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let watch = reaper.watch(1, "w").unwrap();
    wheel.settle().await;
    for _ in 0..50 {
        time::advance(IDLE * 2).await;
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
    // The wheel looked after one idle duration, and granted one more.
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
    let watches: Vec<Watch> = (0..100).map(|n| reaper.watch(n, "w").unwrap()).collect();
    wheel.settle().await;
    let before = wheel.metrics();
    for _ in 0..50 {
        time::advance(T).await;
        assert!(watches.iter().all(Watch::touch));
        for watch in &watches {
            drop(watch.busy());
        }
    }
    let after = wheel.metrics();
    assert_eq!(after.commands, before.commands);
    assert_eq!(after.wake_ups, before.wake_ups);
    assert_eq!(after.keyed_moved, 0);
}

// --- the guards ---

#[tokio::test(start_paused = true)]
async fn drops_the_value_of_a_dropped_watch_without_an_event() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper::<u32, std::sync::Arc<()>>(IDLE);
    let value = std::sync::Arc::new(());
    let watch = reaper.watch(1, value.clone()).unwrap();
    let due = reaper.watch(2, value.clone()).unwrap();
    time::advance(ms(50)).await;
    drop(watch);
    assert_eq!(std::sync::Arc::strong_count(&value), 2);
    assert_eq!(reaper.len(), 1);
    // One that is due, and was not delivered.
    time::advance(ms(50)).await;
    drop(due);
    assert_eq!(std::sync::Arc::strong_count(&value), 1);
    // One that was delivered is the receiver's.
    let delivered = reaper.watch(3, value.clone()).unwrap();
    pass(&wheel, IDLE).await;
    drop(delivered);
    assert_eq!(std::sync::Arc::strong_count(&value), 2);

    pass(&wheel, IDLE * 3).await;
    assert_eq!(idle.try_recv().map(|expired| expired.key), Ok(3));
    assert!(matches!(idle.try_recv(), Err(TryRecvError::Empty)));
    let metrics = wheel.metrics();
    assert_eq!((metrics.keyed_set, metrics.keyed_removed), (3, 2));
    assert_eq!((metrics.keyed_pending, metrics.keyed_fired), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn spares_a_reused_index_from_its_former_watchs_deadline() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let start = Instant::now();
    let old = reaper.watch(1, "old").unwrap();
    wheel.settle().await;
    time::advance(IDLE).await;
    // It is due, and the wheel has yet to reach its index.
    drop(old);
    let new = reaper.watch(2, "new").unwrap();
    wheel.settle().await;
    assert!(is_empty(&mut idle), "the deadline was of the old one");
    assert!(new.touch());
    assert_eq!(next(&mut idle, start).await, Some((2, IDLE + IDLE)));

    // And the guard of one that was reaped does not end the watch that has its slot now.
    let newest = reaper.watch(3, "newest").unwrap();
    drop(new);
    assert!(newest.is_watched());
    assert_eq!(reaper.len(), 1);
    assert_eq!(next(&mut idle, start).await, Some((3, IDLE * 3)));
}

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
        pass(&wheel, IDLE).await;
        assert!(is_empty(&mut idle));
    }
    drop(first);
    pass(&wheel, IDLE + ms(37)).await;
    assert!(is_empty(&mut idle), "the second is held");
    drop(second);
    let released = start.elapsed();
    assert_eq!(next(&mut idle, start).await, Some((1, released + IDLE)));
}

#[tokio::test(start_paused = true)]
async fn honours_a_guard_taken_before_delivery_and_not_after() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let start = Instant::now();
    let watch = reaper.watch(1, "w").unwrap();
    wheel.settle().await;
    time::advance(IDLE).await;
    let busy = watch.busy();
    assert!(busy.is_effective());
    wheel.settle().await;
    assert!(is_empty(&mut idle));
    pass(&wheel, ms(300)).await;
    assert!(is_empty(&mut idle));
    drop(busy);
    pass(&wheel, IDLE).await;
    let late = watch.busy();
    assert!(!late.is_effective());
    drop(late);
    assert!(!watch.is_watched());
    assert_eq!(next(&mut idle, start).await, Some((1, ms(500))));
}

#[tokio::test(start_paused = true)]
async fn lets_a_guard_outlive_its_watch() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let watch = reaper.watch(1, "w").unwrap();
    let busy = watch.busy();
    drop(watch);
    let other = reaper.watch(2, "has the slot now").unwrap();
    drop(busy);
    let start = Instant::now();
    assert_eq!(next(&mut idle, start).await, Some((2, IDLE)));
    drop(other);
}

// --- ages ---

#[tokio::test(start_paused = true)]
async fn ends_a_watch_at_its_greatest_age_though_busy() {
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
        assert!(age >= ms(900) && age <= ms(1_100) + 2 * T, "{age:?}");
    }
    assert!(touching.await.unwrap() >= ms(900));
    assert!(!busy.is_watched());
    assert!(!busy.touch());
    assert!(!busy.busy().is_effective(), "it has been reaped");
    drop(guard);
    assert!(!busy.is_watched());
}

#[tokio::test(start_paused = true)]
async fn spreads_ages_by_a_tenth_both_ways() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(Duration::from_secs(3_600));
    let start = Instant::now();
    let aged = WatchOptions::new().max_age(ms(10_000));
    let watches: Vec<Watch> = (0..1_000)
        .map(|n| reaper.watch_with(n, "w", aged).unwrap())
        .collect();
    let mut ages = Vec::new();
    for _ in &watches {
        ages.push(next(&mut idle, start).await.unwrap().1);
    }
    assert!(ages[0] >= ms(9_000), "{:?}", ages[0]);
    assert!(ages[999] <= ms(11_000) + 2 * T, "{:?}", ages[999]);
    // Of a thousand, each tenth of the range gets about a hundred.
    for tenth in 0..10 {
        let from = ms(9_000 + 200 * tenth);
        let within = |age: &&Duration| **age >= from && **age < from + ms(200);
        let n = ages.iter().filter(within).count();
        assert!((40..=200).contains(&n), "{n} from {from:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn treats_an_age_without_end_as_none() {
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(Duration::MAX);
    let forever = WatchOptions::new().max_age(Duration::MAX);
    let watch = reaper.watch_with(1, "for ever", forever).unwrap();
    let plain = reaper.watch(2, "for ever too").unwrap();
    pass(&wheel, Duration::from_secs(86_400 * 365 * 50)).await;
    assert!(is_empty(&mut idle));
    assert!(watch.touch() && plain.touch());
}

// --- limits and errors ---

#[tokio::test(start_paused = true)]
async fn hands_back_a_watch_over_the_limit_of_timers() {
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
    time::advance(IDLE).await;
    assert!(reaper.watch(3, "third").is_err(), "it was not delivered");
    wheel.settle().await;
    let third = reaper.watch(3, "third").unwrap();
    // Reaped watches had given their share back already.
    drop(second);
    assert_eq!(idle.recv().await.unwrap().key, 2);
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

#[test]
#[should_panic(expected = "a maximum age must be longer than zero")]
fn rejects_a_greatest_age_of_zero() {
    let _ = WatchOptions::new().max_age(Duration::ZERO);
}

// --- the memory and the index of watches that are gone ---

#[tokio::test(start_paused = true)]
async fn hands_out_what_was_delivered_after_its_memory_was_given_back() {
    const WATCHES: u32 = 3_000;
    let wheel = TimerWheel::new();
    let (reaper, mut idle) = wheel.reaper(IDLE);
    let mut watches: Vec<Watch> = (0..WATCHES)
        .map(|n| reaper.watch(n, "w").unwrap())
        .collect();
    wheel.settle().await;
    time::advance(IDLE).await;
    assert!(watches.iter().step_by(2).all(Watch::touch));
    wheel.settle().await;
    watches.clear();
    wheel.settle().await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(reaper.len(), 0);
    // The table has begun anew, and its indices mean others.
    let other = reaper.watch(WATCHES, "other").unwrap();
    for n in (0..WATCHES).filter(|n| n % 2 == 1) {
        assert_eq!(idle.recv().await.unwrap().key, n);
    }
    assert!(other.touch());
    assert!(is_empty(&mut idle));
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
    // The actor is behind by `lag` when the first ones go and others take their indices.
    for (lag, keep) in [0, 1, 50, 99, 100, 101, 500]
        .into_iter()
        .flat_map(|lag| [(lag, 0), (lag, 1), (lag, 2)])
    {
        let mut first: Vec<_> = (0..3).map(|_| watch()).collect();
        wheel.settle().await;
        time::advance(IDLE + ms(lag)).await;
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
    time::advance(ms(110)).await;
    assert!(touched.touch());
    // Both have passed when the actor looks.
    time::advance(ms(1_000)).await;
    wheel.settle().await;
    let mut expired: Vec<_> = std::iter::from_fn(|| idle.try_recv().ok()).collect();
    expired.sort_unstable_by_key(|expired| expired.key);
    let deadlines: Vec<_> = expired.iter().map(|e| e.deadline - start).collect();
    assert_eq!(deadlines.len(), 3);
    assert_eq!(deadlines[0], IDLE);
    let age = ms(180)..=ms(220);
    assert!(age.contains(&deadlines[1]), "{deadlines:?}");
    assert!(age.contains(&deadlines[2]), "{deadlines:?}");
}
