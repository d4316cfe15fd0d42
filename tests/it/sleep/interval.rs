//! `Interval` behaves like Tokio's. The tests of missed ticks compare with Tokio's own.

use std::task::{Context, Poll};
use std::time::Duration;

use crate::support::{Numbers, Wakes, builder, jump, ms, start_wheel, us};
use tickwheel::Interval;
use tokio::time::{self, Instant, MissedTickBehavior};
use tokio_test::{assert_pending, assert_ready};

const BEHAVIORS: [MissedTickBehavior; 3] = [
    MissedTickBehavior::Burst,
    MissedTickBehavior::Delay,
    MissedTickBehavior::Skip,
];

fn poll(interval: &mut Interval) -> Poll<Instant> {
    interval.poll_tick(&mut Context::from_waker(std::task::Waker::noop()))
}

/// The instant that each tick returned, and the instant at which it came, in milliseconds from
/// `start`.
async fn ticks(interval: &mut Interval, busy_for: &[u64], start: Instant) -> Vec<(u64, u64)> {
    let millis = |at: Instant| u64::try_from((at - start).as_millis()).unwrap();
    let mut seen = Vec::new();
    for &busy in busy_for {
        let due = interval.tick().await;
        seen.push((millis(due), millis(Instant::now())));
        time::advance(ms(busy)).await;
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn ticks_at_once_and_then_a_period_apart() {
    let wheel = start_wheel();
    let start = Instant::now();
    let mut interval = wheel.interval(ms(300));
    for n in 0..20 {
        assert_eq!(interval.tick().await, start + ms(300) * n);
        assert_eq!(start.elapsed(), ms(300) * n);
    }
}

#[tokio::test(start_paused = true)]
async fn begins_an_interval_at_its_instant_past_or_future() {
    let wheel = start_wheel();
    time::advance(ms(1_000)).await;
    let start = Instant::now();
    let mut later = wheel.interval_at(start + ms(50), ms(10));
    assert_eq!(later.tick().await, start + ms(50));
    assert_eq!(later.tick().await, start + ms(60));
    let mut earlier = wheel.interval_at(start - ms(35), ms(100));
    assert_eq!(earlier.tick().await, start - ms(35));
    assert_eq!(Instant::now(), start + ms(60));
    assert_eq!(earlier.tick().await, start + ms(65));
    assert_eq!(Instant::now(), start + ms(65));
}

// One tick is 110 ms late, as in the pictures of Tokio's documentation of `MissedTickBehavior`.
#[tokio::test(start_paused = true)]
async fn delivers_missed_ticks_as_tokio_documents_them() {
    let tables: [&[(u64, u64)]; 3] = [
        &[
            (0, 0),
            (50, 50),
            (100, 210),
            (150, 210),
            (200, 210),
            (250, 250),
        ],
        &[
            (0, 0),
            (50, 50),
            (100, 210),
            (260, 260),
            (310, 310),
            (360, 360),
        ],
        &[
            (0, 0),
            (50, 50),
            (100, 210),
            (250, 250),
            (300, 300),
            (350, 350),
        ],
    ];
    for (behavior, table) in BEHAVIORS.into_iter().zip(tables) {
        let wheel = start_wheel();
        let start = Instant::now();
        let mut interval = wheel.interval(ms(50));
        interval.set_missed_tick_behavior(behavior);
        assert_eq!(interval.missed_tick_behavior(), behavior);
        let seen = ticks(&mut interval, &[0, 160, 0, 0, 0, 0], start).await;
        assert_eq!(seen, table, "{behavior:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn ticks_as_tokios_interval_under_any_delays() {
    for behavior in BEHAVIORS {
        for seed in 0..30 {
            let mut numbers = Numbers(seed);
            let period = ms(1 + numbers.below(50));
            let wheel = start_wheel();
            let start = Instant::now() + ms(numbers.below(20));
            let mut ours = wheel.interval_at(start, period);
            let mut tokios = time::interval_at(start, period);
            ours.set_missed_tick_behavior(behavior);
            tokios.set_missed_tick_behavior(behavior);
            for step in 0..60 {
                assert_eq!(
                    ours.tick().await - start,
                    tokios.tick().await - start,
                    "{behavior:?}, seed {seed}, step {step}"
                );
                match numbers.below(8) {
                    0 => time::advance(us(numbers.below(200_000))).await,
                    1 => time::advance(ms(4 + numbers.below(3))).await,
                    2 => {
                        ours.reset();
                        tokios.reset();
                    }
                    3 => {
                        let after = ms(numbers.below(100));
                        ours.reset_after(after);
                        tokios.reset_after(after);
                    }
                    4 => {
                        let at = Instant::now() + ms(numbers.below(100)) - ms(1);
                        ours.reset_at(at);
                        tokios.reset_at(at);
                    }
                    5 => {
                        ours.reset_immediately();
                        tokios.reset_immediately();
                    }
                    _ => {}
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn registers_no_wake_for_a_tick_that_is_ready() {
    let wheel = start_wheel();
    let (woken, waker) = Wakes::new();
    let mut cx = Context::from_waker(&waker);
    let mut interval = wheel.interval(ms(10));
    assert_ready!(interval.poll_tick(&mut cx));
    time::advance(ms(100)).await;
    wheel.settle().await;
    assert_eq!(woken.count(), 0);
    for n in 1..=10 {
        assert_ready!(interval.poll_tick(&mut cx), "burst, tick {n}");
    }
    assert_pending!(interval.poll_tick(&mut cx));
    time::advance(ms(10)).await;
    wheel.settle().await;
    assert_eq!(woken.count(), 1, "only the pending poll registered");
    assert_ready!(interval.poll_tick(&mut cx));
    drop(interval);
    time::advance(ms(100)).await;
    wheel.settle().await;
    assert_eq!(woken.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn sets_the_next_tick_by_resets() {
    let wheel = start_wheel();
    let start = Instant::now();
    let mut interval = wheel.interval(ms(100));
    assert_eq!(interval.period(), ms(100));
    interval.tick().await;
    time::advance(ms(40)).await;
    interval.reset();
    assert_eq!(interval.tick().await, start + ms(140));
    interval.reset_after(ms(7));
    assert_eq!(interval.tick().await, start + ms(147));
    interval.reset_at(start + ms(150));
    assert_eq!(interval.tick().await, start + ms(150));
    interval.reset_immediately();
    assert_eq!(interval.tick().await, start + ms(150));
    assert_eq!(interval.tick().await, start + ms(250));
}

#[tokio::test(start_paused = true)]
async fn loses_no_tick_by_a_dropped_tick_future() {
    let wheel = start_wheel();
    let start = Instant::now();
    let mut interval = wheel.interval(ms(10));
    interval.tick().await;
    for _ in 0..5 {
        assert!(time::timeout(ms(1), interval.tick()).await.is_err());
    }
    assert_eq!(interval.tick().await, start + ms(10));
    // A due tick is not lost either when its future is dropped.
    assert_pending!(poll(&mut interval));
    jump(ms(10));
    wheel.settle().await;
    assert_eq!(interval.tick().await, start + ms(20));
}

#[tokio::test(start_paused = true)]
async fn p8_interval_too_long_to_represent_ticks_once() {
    let wheel = start_wheel();
    for behavior in BEHAVIORS {
        let mut interval = wheel.interval(Duration::MAX);
        interval.set_missed_tick_behavior(behavior);
        jump(ms(100)); // the first tick counts as missed
        assert_ready!(poll(&mut interval));
        assert_pending!(poll(&mut interval));
        interval.reset();
        assert_pending!(poll(&mut interval));
        interval.reset_after(Duration::MAX);
        assert_pending!(poll(&mut interval));
        time::advance(Duration::from_secs(86_400 * 365)).await;
        wheel.settle().await;
        assert_pending!(poll(&mut interval), "{behavior:?}");
        interval.reset_immediately();
        assert_ready!(poll(&mut interval));
    }
}

#[tokio::test(start_paused = true)]
async fn p8_ticks_with_the_shortest_period() {
    let wheel = start_wheel();
    for behavior in BEHAVIORS {
        let mut interval = wheel.interval(Duration::from_nanos(1));
        interval.set_missed_tick_behavior(behavior);
        let first = interval.tick().await;
        time::advance(ms(50)).await;
        let mut last = first;
        for _ in 0..10 {
            let due = interval.tick().await;
            assert!(due > last, "{behavior:?}");
            last = due;
        }
    }
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "`period` must be non-zero")]
async fn rejects_an_interval_without_length() {
    let _ = start_wheel().interval(Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn p11_interval_that_is_always_late_lets_others_run() {
    let wheel = start_wheel();
    let mut interval = wheel.interval(Duration::from_nanos(1));
    time::advance(ms(1)).await; // a burst of a million ticks
    let other = tokio::spawn(async {});
    let mut rounds = 0;
    while !other.is_finished() {
        rounds += 1;
        assert!(rounds < 10_000, "the other task was starved");
        interval.tick().await;
    }
}

#[tokio::test(start_paused = true)]
async fn p15_ticks_on_when_its_wheel_ends() {
    let wheel = start_wheel();
    let start = Instant::now();
    let mut interval = wheel.interval(ms(10));
    interval.tick().await;
    interval.tick().await;
    wheel.shutdown().await;
    for n in 2..6 {
        assert_eq!(interval.tick().await, start + ms(10) * n);
        assert_eq!(start.elapsed(), ms(10) * n);
    }
    // This interval is of another wheel, which has no handle left.
    let wheel = start_wheel();
    let start = Instant::now();
    let mut interval = wheel.interval(ms(10));
    drop(wheel);
    for n in 0..6 {
        assert_eq!(interval.tick().await, start + ms(10) * n);
        assert_eq!(start.elapsed(), ms(10) * n);
    }
}

#[tokio::test(start_paused = true)]
async fn keeps_the_pace_of_an_interval_on_coarse_ticks() {
    let wheel = builder().tick(ms(7)).start().unwrap();
    let start = Instant::now();
    let mut interval = wheel.interval(ms(10));
    for n in 0..100 {
        assert_eq!(interval.tick().await, start + ms(10) * n, "no drift");
        assert!(start.elapsed() >= ms(10) * n);
        assert!(start.elapsed() < ms(10) * n + ms(7));
    }
}

// The rounding of the wheel counted as missed: `Delay` waited for another tick each time, and
// `Skip` left every other one out.
#[tokio::test(start_paused = true)]
async fn p2_coarse_ticks_make_no_tick_missed() {
    let ticks = [1, 7, 100, 1_000, 20_000, 100_000, 1_000_000].map(us);
    for (tick, period) in ticks.into_iter().flat_map(|tick| {
        let periods = [1, 10, 100, 110, 150, 1_000].map(ms);
        periods.map(|period| (tick, period))
    }) {
        for behavior in BEHAVIORS {
            let wheel = builder().tick(tick).start().unwrap();
            // It begins somewhere within a tick, at a whole millisecond.
            time::advance(ms(37)).await;
            let start = Instant::now();
            let mut interval = wheel.interval(period);
            interval.set_missed_tick_behavior(behavior);
            for n in 0..25 {
                let what = format!("{behavior:?}, {period:?} on {tick:?}, tick {n}");
                assert_eq!(interval.tick().await, start + period * n, "{what}");
                let late = start.elapsed().checked_sub(period * n);
                let late = late.unwrap_or_else(|| panic!("early: {what}"));
                assert!(late < tick + ms(1), "{late:?} late: {what}");
            }
        }
    }
}

/// A timer that fires some time after the wheel's tick finds the instant of the next one passed.
#[tokio::test(start_paused = true)]
async fn tick_does_not_come_together_with_the_one_before_by_rounding() {
    for behavior in BEHAVIORS {
        let wheel = builder().tick(ms(100)).start().unwrap();
        let start = Instant::now();
        time::advance(ms(1)).await;
        let mut interval = wheel.interval(ms(100));
        interval.set_missed_tick_behavior(behavior);
        interval.tick().await;
        for n in 1..20 {
            // The actor's own wait takes two milliseconds more, as Tokio's rounding does.
            assert_pending!(poll(&mut interval));
            jump(start + ms(100 * (n + 1) + 2) - Instant::now());
            wheel.settle().await;
            assert_eq!(interval.tick().await, start + ms(100 * n + 1));
            assert_eq!(start.elapsed(), ms(100 * (n + 1) + 2), "{behavior:?}");
        }
        // A reset to now is due at once.
        assert_pending!(poll(&mut interval));
        interval.reset_immediately();
        assert_ready!(poll(&mut interval));
    }
}
