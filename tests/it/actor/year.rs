//! A year of virtual time, in some seconds: timers that repeat all year are as exact on its last
//! day as on its first.

use std::time::Duration;

use crate::support::{HOUR, Wakes, builder, ms, poll_idly, poll_with, start_wheel};
use tokio::time::{self, Instant};

const DAY: Duration = Duration::from_secs(86_400);
const DAYS: u32 = 365;

/// Every 15 seconds of a year is 2,102,401 times, which takes an optimized build; others see the
/// last days of it.
const DAYS_OF_15_SECONDS: u32 = if cfg!(debug_assertions) { 7 } else { DAYS };

/// How often something happens in this many days, with this period.
fn times(days: u32, period: Duration) -> u64 {
    u64::from(days) * DAY.as_secs() / period.as_secs()
}

// Counting ticks instead of reading the clock loses some over such a time; go-zero did.
#[tokio::test(start_paused = true)]
async fn p2_p14_keeps_an_interval_from_drifting_in_a_year() {
    let wheel = start_wheel();
    let end = Instant::now() + DAY * DAYS;
    let first = end - DAY * DAYS_OF_15_SECONDS;
    let period = Duration::from_secs(15);
    let mut interval = wheel.interval_at(first, period);
    let (never, waker) = Wakes::new();
    let mut forever = wheel.sleep(Duration::MAX);
    assert!(poll_with(&mut forever, &waker).is_pending());
    let ticks = times(DAYS_OF_15_SECONDS, period) + 1;
    for n in 0..ticks {
        let due = interval.tick().await;
        assert_eq!(due, first + period * u32::try_from(n).expect("few"));
        assert_eq!(Instant::now(), due);
    }
    assert_eq!(Instant::now(), end);
    assert_eq!(never.count(), 0);
    assert!(poll_idly(&mut forever).is_pending());
    let m = wheel.metrics();
    assert_eq!(m.sleeps_fired, ticks);
    // 15 s are 2^13.9 ms: each tick's timer is announced, cascades from at most two levels above
    // the lowest, and fires. The first one, a year away, cascades from five.
    let most = 4 * ticks + 5;
    assert!(m.wake_ups <= most, "woke {} times", m.wake_ups);
}

#[tokio::test(start_paused = true)]
async fn p2_p14_p16_keeps_a_year_of_timers_exact() {
    let wheel = start_wheel();
    let start = Instant::now();
    let (timers, mut stream) = wheel.keyed();
    timers.set_interval("every hour", (), HOUR).unwrap();
    timers.set_timer("daily", (), DAY).unwrap();
    timers.set_timer("yearly", (), DAY * DAYS).unwrap();
    timers.set_timer("never", (), Duration::MAX).unwrap();

    let mut idle = wheel.idle_timer(DAY + HOUR);
    let activity = idle.handle();
    let (reaped, waker) = Wakes::new();
    assert!(poll_with(&mut idle, &waker).is_pending());
    let (reaper, mut idlers) = wheel.reaper(DAY + HOUR);
    let watch = reaper.watch("touched daily", ()).unwrap();

    let (mut hours, mut days) = (0_u64, 0_u32);
    loop {
        let expired = stream.recv().await.unwrap();
        assert_eq!(Instant::now(), expired.deadline);
        match expired.key {
            "every hour" => {
                hours += 1;
                assert_eq!(start.elapsed(), HOUR * u32::try_from(hours).expect("few"));
            }
            "daily" => {
                days += 1;
                assert_eq!(start.elapsed(), DAY * days);
                timers.set_timer("daily", (), DAY).unwrap();
                assert!(activity.touch() && watch.touch());
            }
            "yearly" => break,
            other => panic!("{other} fired"),
        }
    }
    assert_eq!(start.elapsed(), DAY * DAYS);
    // At the last hour the timers of all three lengths fire at one tick, in the order in which they
    // were armed.
    assert_eq!((hours, days), (times(DAYS, HOUR) - 1, DAYS - 1));
    assert_eq!(reaped.count(), 0, "touched every day");
    assert!(idlers.try_recv().is_err());

    // The last touches were a day ago: another hour, and both are idle.
    let left = Instant::now();
    idle.await;
    assert_eq!(left.elapsed(), HOUR);
    assert_eq!(idlers.recv().await.unwrap().key, "touched daily");
    assert_eq!(left.elapsed(), HOUR);
    assert!(!watch.touch());

    assert_eq!(timers.remove_timer("never"), Ok(Some(())));
    wheel.settle().await;
    // The other timers of the last tick were not received until now.
    let others = std::iter::from_fn(|| stream.try_recv().ok()).map(|expired| expired.key);
    assert_eq!(others.collect::<Vec<_>>(), ["daily", "every hour"]);
    let m = wheel.metrics();
    // The reaper's watch counts with the keyed timers.
    let ended = m.keyed_fired + m.keyed_removed + m.keyed_replaced + m.keyed_drained;
    assert_eq!(m.keyed_set, m.keyed_pending + ended, "the counters add up");
    assert_eq!((m.keyed_removed, m.keyed_pending), (1, 1));
}

// An unused wheel costs nothing for a year, and a timer a year away is exact.
#[tokio::test(start_paused = true)]
async fn p2_p13_fires_a_timer_a_year_away_at_its_tick() {
    for slots in [2_u32, 64, 4096] {
        let size = usize::try_from(slots).expect("small");
        let wheel = builder().tick(ms(1)).slots(size).start().unwrap();
        let start = Instant::now();
        let before = wheel.metrics().wake_ups;
        let mut sleep = wheel.sleep(DAY * DAYS);
        assert!(
            time::timeout((DAY * DAYS).saturating_sub(ms(1)), &mut sleep)
                .await
                .is_err()
        );
        sleep.await;
        assert_eq!(start.elapsed(), DAY * DAYS);
        let woken = wheel.metrics().wake_ups - before;
        // A year has 2^34.9 ms: so many levels. One more, since the arming itself woke it.
        let levels = u64::from(35_u32.div_ceil(slots.trailing_zeros()));
        assert!(woken <= levels + 1, "{slots} slots: woke {woken} times");
    }
}
