//! Promise P8: deadlines that are far away, now, or past.

use std::time::Duration;

use futures::FutureExt;
use tickwheel::TimerWheel;
use tokio::time::{self, Instant};

use crate::support::{advance, assert_balanced, ms, received};

const YEAR: Duration = Duration::from_secs(86_400 * 365);

/// Lengths from decades to beyond every clock.
fn far() -> Vec<Duration> {
    let mut far = vec![
        Duration::MAX,
        Duration::MAX / 2,
        Duration::from_secs(u64::MAX),
    ];
    far.extend((40..64).map(|bit| Duration::from_millis(1 << bit)));
    far.extend((55..64).map(|bit| Duration::from_secs(1 << bit)));
    far.push(Duration::from_nanos(i64::MAX.unsigned_abs()));
    far.push(Duration::from_nanos(i64::MAX.unsigned_abs() + 1));
    far.push(Duration::from_nanos(u64::MAX));
    far
}

#[tokio::test(start_paused = true)]
async fn p8_far_deadlines_do_not_hide_near_timers() {
    for slots in [2, 64, 4096] {
        let wheel = TimerWheel::builder().slots(slots).start().unwrap();
        let (timers, mut stream) = wheel.keyed();
        let n = far().len();
        for (key, delay) in far().into_iter().enumerate() {
            timers.set_timer(key, "far", delay).unwrap();
        }
        wheel.settle().await;
        timers.set_timer(n, "near", ms(300)).unwrap();
        let start = Instant::now();
        let near = stream.recv().await.unwrap();
        assert_eq!((near.value, start.elapsed()), ("near", ms(300)));
        advance(&wheel, YEAR * 20).await;
        assert_eq!(received(&mut stream), []);
        assert_eq!(timers.len(), n);
        // Each of them can be moved near.
        for key in 0..n {
            timers.move_timer(&key, ms(1)).unwrap();
        }
        advance(&wheel, ms(1)).await;
        assert_eq!(received(&mut stream).len(), n);
        assert_balanced(&wheel);
    }
}

#[tokio::test(start_paused = true)]
async fn p8_timer_moved_out_of_reach_can_be_removed() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    for (key, delay) in far().into_iter().enumerate() {
        timers.set_timer(key, (), ms(5)).unwrap();
        if key % 2 == 0 {
            wheel.settle().await;
        }
        timers.move_timer(&key, delay).unwrap();
    }
    let n = far().len();
    advance(&wheel, YEAR).await;
    assert_eq!(received(&mut stream), []);
    for key in 0..n {
        assert_eq!(timers.remove_timer(&key), Ok(Some(())));
    }
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p8_unrepresentable_deadline_shows_as_decades_away() {
    let wheel = TimerWheel::new();
    let (timers, _stream) = wheel.keyed();
    let now = Instant::now();
    for (key, delay) in far().into_iter().enumerate() {
        timers.set_timer(key, (), delay).unwrap();
        let deadline = timers.deadline(&key).expect("it is set");
        assert!(
            deadline >= now + YEAR * 20,
            "{delay:?}: {:?}",
            deadline - now
        );
        if let Some(exact) = now.checked_add(delay).filter(|_| delay < YEAR * 200) {
            assert_eq!(deadline, exact);
        }
    }
    let drained = timers.drain().unwrap();
    assert_eq!(drained.len(), far().len());
    assert!(drained.iter().all(|e| e.deadline >= now + YEAR * 20));
}

#[tokio::test(start_paused = true)]
async fn p8_farthest_instant_never_fires() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let mut farthest = Instant::now();
    for bit in (0..64).rev() {
        farthest = (farthest.checked_add(Duration::from_secs(1 << bit))).unwrap_or(farthest);
    }
    timers.set_timer_at(1, (), farthest).unwrap();
    timers.set_timer(2, (), ms(5)).unwrap();
    timers.move_timer_at(&2, farthest).unwrap();
    advance(&wheel, YEAR * 100).await;
    assert_eq!(received(&mut stream), []);
    assert!(timers.deadline(&1).is_some());
    timers.move_timer_at(&2, Instant::now()).unwrap();
    wheel.settle().await;
    assert_eq!(received(&mut stream), [(2, ())]);
}

#[tokio::test(start_paused = true)]
async fn p8_fires_on_its_millisecond_after_decades() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let start = Instant::now();
    timers.set_timer(1, (), YEAR * 150 + ms(1)).unwrap();
    assert_eq!(stream.recv().await.map(|e| e.key), Some(1));
    assert_eq!(start.elapsed(), YEAR * 150 + ms(1));
}

#[tokio::test(start_paused = true)]
async fn p8_zero_and_past_deadlines_expire_on_the_next_turn() {
    let wheel = TimerWheel::builder().tick(ms(100)).start().unwrap();
    let (timers, mut stream) = wheel.keyed();
    let past = Instant::now();
    time::advance(ms(1000)).await;
    timers.set_timer_at(1, (), past).unwrap();
    timers.set_timer(2, (), Duration::ZERO).unwrap();
    timers.set_timer(3, (), YEAR).unwrap();
    timers.move_timer_at(&3, past).unwrap();
    timers.set_timer(4, (), YEAR).unwrap();
    timers.move_timer(&4, Duration::ZERO).unwrap();
    let before_boot = past.checked_sub(YEAR * 30).unwrap_or(past);
    timers.set_timer_at(5, (), before_boot).unwrap();
    assert_eq!(timers.deadline(&5), Some(before_boot));
    wheel.settle().await;
    let mut keys: Vec<_> = received(&mut stream).into_iter().map(|(k, ())| k).collect();
    keys.sort_unstable();
    assert_eq!(keys, [1, 2, 3, 4, 5]);
    assert!(stream.recv().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn p2_delay_of_zero_expires_by_the_next_tick() {
    let wheel = TimerWheel::builder().tick(ms(100)).start().unwrap();
    let (timers, mut stream) = wheel.keyed();
    let start = Instant::now();
    time::advance(ms(150)).await;
    timers.set_timer(1, (), Duration::ZERO).unwrap();
    assert_eq!(stream.recv().await.map(|e| e.key), Some(1));
    assert!(start.elapsed() <= ms(200));
}

#[tokio::test(start_paused = true)]
async fn drains_in_the_order_of_the_deadlines_it_shows() {
    let wheel = TimerWheel::new();
    let (timers, _expirations) = wheel.keyed::<u32, ()>();
    let year = Duration::from_secs(86_400 * 365);
    for (key, years) in [(4, 290), (2, 40), (1, 1), (3, 100)] {
        timers.set_timer(key, (), years * year).unwrap();
    }
    timers.set_timer(5, (), Duration::MAX).unwrap();
    let shown: Vec<_> = (1..=5).map(|key| timers.deadline(&key).unwrap()).collect();
    assert!(shown.is_sorted(), "{shown:?}");
    let drained = timers.drain().unwrap();
    assert!(drained.iter().map(|expired| expired.key).eq(1..=5));
    assert!(drained.iter().map(|expired| expired.deadline).eq(shown));
}

// A sleep showed an instant in thirty years, a keyed timer one in 292.
#[tokio::test(start_paused = true)]
async fn never_is_one_instant_for_every_kind_of_timer() {
    let wheel = TimerWheel::new();
    let (timers, _stream) = wheel.keyed();
    timers.set_timer("never", (), Duration::MAX).unwrap();
    let never = timers.deadline("never").unwrap();
    assert_eq!(wheel.sleep(Duration::MAX).deadline(), never);
    advance(&wheel, ms(5)).await;
    assert_eq!(wheel.sleep(Duration::MAX).deadline(), never);
    // A sleep for the instant that is shown is never due, too.
    let mut sleep = wheel.sleep_until(never);
    advance(&wheel, never - Instant::now()).await;
    assert!((&mut sleep).now_or_never().is_none());
}
