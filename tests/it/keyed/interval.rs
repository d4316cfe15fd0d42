//! `set_interval`: timers that repeat.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tickwheel::TimerWheel;
use tokio::time::{self, Instant};

use crate::support::{advance, assert_balanced, ms, received, timed};

fn millis<V>(fired: &[((), V, u128)]) -> Vec<u128> {
    fired.iter().map(|f| f.2).collect()
}

#[tokio::test(start_paused = true)]
async fn keeps_the_schedule_of_an_interval_though_ticks_round_up() {
    // 25 ms on a 10 ms tick: rounding each from the last would drift to 30 ms.
    let wheel = TimerWheel::builder().tick(ms(10)).start().unwrap();
    let (timers, mut stream) = wheel.keyed();
    let start = Instant::now();
    timers.set_interval("k", 5, ms(25)).unwrap();
    for n in 1..=100_u32 {
        let expired = stream.recv().await.unwrap();
        assert_eq!((expired.key, expired.value), ("k", 5));
        assert_eq!(expired.deadline, start + ms(25) * n);
        let late = start
            .elapsed()
            .checked_sub(ms(25) * n)
            .expect("never early");
        assert!(late < ms(10), "{n}: {late:?}");
    }
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn interval_begins_at_a_given_instant() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let start = Instant::now();
    timers
        .set_interval_at((), 1, start + ms(3), ms(10))
        .unwrap();
    assert_eq!(millis(&timed(&mut stream, start, 3).await), [3, 13, 23]);
    // One that began in the past goes on from there.
    let replaced = timers.set_interval_at((), 2, start - ms(14), ms(20));
    assert_eq!(replaced, Ok(Some(1)));
    wheel.settle().await;
    let first = stream.try_recv().unwrap();
    assert_eq!((first.deadline, first.missed), (start - ms(14), 1));
    assert_eq!(millis(&timed(&mut stream, start, 2).await), [26, 46]);
    let zero = || timers.set_interval_at((), 3, start, Duration::ZERO);
    assert!(catch_unwind(AssertUnwindSafe(zero)).is_err());
}

#[tokio::test(start_paused = true)]
async fn coalesces_missed_periods_into_one_expiration() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let start = Instant::now();
    timers.set_interval((), (), ms(10)).unwrap();
    advance(&wheel, ms(95)).await;
    let expired = stream.try_recv().unwrap();
    assert_eq!((expired.deadline, expired.missed), (start + ms(10), 8));
    assert_eq!(received(&mut stream), [], "no burst");
    assert_eq!(millis(&timed(&mut stream, start, 3).await), [100, 110, 120]);
    advance(&wheel, ms(100)).await;
    assert_eq!(received(&mut stream).len(), 1);
    assert_eq!(
        millis(&timed(&mut stream, start, 1).await),
        [230],
        "it does not drift"
    );
}

#[tokio::test(start_paused = true)]
async fn ends_an_interval_removed_taken_or_drained() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    for key in 0..3 {
        timers.set_interval(key, (), ms(10)).unwrap();
    }
    for _ in 0..5 {
        advance(&wheel, ms(10)).await;
        assert_eq!(received(&mut stream).len(), 3);
    }
    assert_eq!(timers.len(), 3);
    timers.remove_timer(&0).unwrap();
    assert_eq!(timers.remove_timer(&1), Ok(Some(())));
    assert_eq!(timers.drain().unwrap().len(), 1);
    advance(&wheel, ms(1000)).await;
    assert_eq!(received(&mut stream), []);
    // The indices are used again, and the new timers do not repeat.
    for key in 0..3 {
        timers.set_timer(key, (), ms(10)).unwrap();
    }
    advance(&wheel, ms(10)).await;
    advance(&wheel, ms(1000)).await;
    assert_eq!(received(&mut stream).len(), 3);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn replaces_an_interval_that_is_set_again() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let start = Instant::now();
    timers.set_interval((), 'i', ms(10)).unwrap();
    assert_eq!(timed(&mut stream, start, 1).await, [((), 'i', 10)]);
    timers.set_timer((), 't', ms(15)).unwrap();
    assert_eq!(timed(&mut stream, start, 1).await, [((), 't', 25)]);
    advance(&wheel, ms(1000)).await;
    assert_eq!(received(&mut stream), [], "a timer fires once");

    let start = Instant::now();
    timers.set_timer((), 't', ms(15)).unwrap();
    timers.set_interval((), 'j', ms(10)).unwrap();
    advance(&wheel, ms(5)).await;
    timers.set_interval((), 'k', ms(7)).unwrap();
    let fired = timed(&mut stream, start, 3).await;
    assert_eq!(fired, [((), 'k', 12), ((), 'k', 19), ((), 'k', 26)]);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn shifts_the_schedule_of_a_moved_interval() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let start = Instant::now();
    timers.set_interval((), (), ms(10)).unwrap();
    timers.move_timer(&(), ms(13)).unwrap();
    assert_eq!(millis(&timed(&mut stream, start, 3).await), [13, 23, 33]);
    timers.move_timer_at(&(), start + ms(36)).unwrap();
    assert_eq!(millis(&timed(&mut stream, start, 3).await), [36, 46, 56]);
    timers.move_timer(&(), ms(0)).unwrap();
    assert_eq!(millis(&timed(&mut stream, start, 2).await), [56, 66]);
}

// It was accepted, and fired at every tick into a stream without a bound.
#[tokio::test(start_paused = true)]
#[should_panic(expected = "`period` must be non-zero")]
async fn zero_period_panics_as_tokios_does() {
    let (timers, _stream) = TimerWheel::new().keyed();
    let _ = timers.set_interval("zero", (), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn zero_period_leaves_key_value_and_set_alone() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    timers.set_timer("k", 1, ms(10)).unwrap();
    let zero = AssertUnwindSafe(|| timers.set_interval("k", 2, Duration::ZERO));
    assert!(catch_unwind(zero).is_err());
    advance(&wheel, ms(10)).await;
    assert_eq!(stream.try_recv().unwrap().value, 1);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p8_too_short_period_is_a_tick_and_too_long_one_never() {
    let wheel = TimerWheel::builder().tick(ms(10)).start().unwrap();
    let (timers, mut stream) = wheel.keyed();
    let start = Instant::now();
    let shortest = Duration::from_nanos(1);
    timers.set_interval("shortest", (), shortest).unwrap();
    timers.set_interval("short", (), ms(3)).unwrap();
    timers.set_interval("max", (), Duration::MAX).unwrap();
    timers
        .set_interval("long", (), Duration::from_nanos(u64::MAX))
        .unwrap();
    for n in 1..=20 {
        advance(&wheel, ms(10)).await;
        for key in ["shortest", "short"] {
            let expired = stream.try_recv().unwrap();
            assert_eq!((expired.key, expired.missed), (key, 0), "tick {n}");
            assert_eq!(expired.deadline, start + ms(10) * n);
        }
        assert_eq!(received(&mut stream), [], "tick {n}");
    }
    // The long ones, moved near, fire once, and next in some centuries.
    timers.move_timer("max", ms(0)).unwrap();
    timers.move_timer("long", ms(0)).unwrap();
    wheel.settle().await;
    assert_eq!(received(&mut stream).len(), 2);
    timers.remove_timer("shortest").unwrap();
    timers.remove_timer("short").unwrap();
    advance(&wheel, Duration::from_secs(86_400 * 365 * 100)).await;
    assert_eq!(received(&mut stream), []);
    assert_eq!(timers.len(), 2);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p4_interval_is_armed_again_when_it_is_received() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    timers.set_interval('i', (), ms(10)).unwrap();
    timers.set_timer('a', (), ms(20)).unwrap();
    advance(&wheel, ms(10)).await;
    timers.set_timer('b', (), ms(10)).unwrap();
    let keys = |all: Vec<_>| all.into_iter().map(|f: (char, ())| f.0).collect::<String>();
    assert_eq!(keys(received(&mut stream)), "i");
    timers.set_timer('c', (), ms(10)).unwrap();
    advance(&wheel, ms(10)).await;
    assert_eq!(keys(received(&mut stream)), "abic");
}

#[tokio::test(start_paused = true)]
async fn p10_unread_interval_leaves_one_expiration_behind() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let start = Instant::now();
    timers.set_interval((), (), ms(10)).unwrap();
    drop(timers);
    let turns = wheel.metrics().turns;
    for _ in 0..10 {
        time::advance(ms(10)).await;
        wheel.settle().await;
    }
    time::advance(ms(5)).await;
    let expired = stream.try_recv().unwrap();
    assert_eq!((expired.deadline, expired.missed), (start + ms(10), 9));
    assert_eq!(
        received(&mut stream),
        [],
        "it is armed again when it is received"
    );
    // It goes on without a handle, on its schedule.
    let next = stream.recv().await.unwrap();
    assert_eq!((next.deadline, next.missed), (start + ms(110), 0));
    assert_eq!(start.elapsed(), ms(110));
    // While the reader is away, the wheel has nothing to do.
    let unread = wheel.metrics();
    assert!(unread.turns - turns < 30, "{unread:?}");
    advance(&wheel, ms(10)).await;
    let before = wheel.metrics();
    advance(&wheel, ms(1_000_000)).await;
    assert!(wheel.metrics().wake_ups <= before.wake_ups + 2);
    assert_eq!(wheel.metrics().keyed_fired, 2);
    drop(stream);
    let fired = wheel.metrics().keyed_fired;
    advance(&wheel, ms(1000)).await;
    assert_eq!(wheel.metrics().keyed_fired, fired);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn counts_the_periods_that_passed_unnoticed() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let start = Instant::now();
    timers.set_interval((), (), ms(10)).unwrap();
    let mut beats = 0;
    // Up to, exactly at, and beyond the next periods.
    for jump in [10, 19, 1, 10, 20, 30, 29, 1, 5, 5, 100, 1_000_000] {
        wheel.settle().await;
        time::advance(ms(jump)).await;
        wheel.settle().await;
        while let Ok(expired) = stream.try_recv() {
            beats += 1;
            assert_eq!(expired.deadline, start + ms(10 * beats));
            beats += expired.missed;
        }
        assert_eq!(u128::from(beats), start.elapsed().as_millis() / 10);
    }
    timers.set_timer((), (), ms(10)).unwrap();
    advance(&wheel, ms(1_000)).await;
    let late = stream.try_recv().unwrap();
    assert_eq!(
        late.missed, 0,
        "a timer that does not repeat misses nothing"
    );
}

// A drain visits the timers in batches. It left intervals that were due, and armed again, between
// two of them; without a handle no call could then remove them, and the stream never ended.
#[test]
fn drain_takes_intervals_that_are_armed_again_meanwhile() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_time().build().unwrap();
    runtime.block_on(async {
        for _ in 0..5 {
            let wheel = TimerWheel::new();
            let (timers, mut stream) = wheel.keyed();
            for key in 0..20_000 {
                timers
                    .set_timer(key, 0, Duration::from_secs(3_600))
                    .unwrap();
            }
            for key in 20_000..20_050 {
                timers.set_interval(key, 1, ms(1)).unwrap();
            }
            time::sleep(ms(20)).await;
            let drained = timers.drain().unwrap();
            assert_eq!(drained.len(), 20_050);
            assert_eq!(timers.len(), 0, "it takes intervals too");
            assert_balanced(&wheel);
            drop(timers);
            while stream.recv().await.is_some() {}
        }
    });
}
