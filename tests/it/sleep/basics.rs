//! `Sleep`: when it fires, which task it wakes, and what a reset does.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{
    HOUR, Numbers, Wakes, builder, jump, ms, poll_idly, poll_with, reset, start_wheel, us,
    wait_for, waker_fn,
};
use tickwheel::{Sleep, TimerWheel};
use tokio::time::{self, Instant};
use tokio_test::{assert_pending, assert_ready, task};

/// The lengths at which a wheel's levels begin and end, and one that Tokio's own wheel confused
/// with the current tick (deadlines 2^36 ms ahead hid nearer ones there before 1.54).
const LENGTHS_MS: [u64; 13] = [
    0,
    1,
    2,
    63,
    64,
    65,
    4095,
    4096,
    4097,
    1 << 30,
    (1 << 36) - 1,
    1 << 36,
    (1 << 36) + 1,
];

const TICKS: [Duration; 5] = [
    Duration::from_micros(1),
    Duration::from_millis(1),
    Duration::from_millis(7),
    Duration::from_secs(1),
    Duration::from_secs(3600),
];

fn wheel_with(tick: Duration) -> TimerWheel {
    builder().tick(tick).start().unwrap()
}

/// The first beginning of a tick that is not before `deadline`.
fn tick_of(deadline: Instant, origin: Instant, tick: Duration) -> Instant {
    let nanos = (deadline - origin)
        .as_nanos()
        .next_multiple_of(tick.as_nanos());
    origin + Duration::from_nanos(u64::try_from(nanos).unwrap())
}

fn is_sendable<T: Send + Sync + Unpin>(_: &T) {}

// --- when it fires ---

// Kafka's and RussellLuo's wheels round the deadline down: 900 ms on a tick of 1 s fired after 432
// ms.
#[tokio::test(start_paused = true)]
async fn p2_sleep_fires_at_the_first_tick_from_its_deadline_on() {
    for tick in TICKS {
        let wheel = wheel_with(tick);
        let origin = Instant::now();
        for offset in [0, 1, 5, 12_345] {
            for length in LENGTHS_MS.map(ms) {
                time::advance(ms(offset)).await;
                let start = Instant::now();
                wheel.sleep(length).await;
                let due = tick_of(start + length, origin, tick);
                let expected = if length.is_zero() { start } else { due };
                assert_eq!(
                    Instant::now() - start,
                    expected - start,
                    "{length:?} on a tick of {tick:?}"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn p1_sleeps_started_between_ticks_are_never_early() {
    // Tokio's timer rounds up to its own milliseconds, and steps by whole ones from wherever the
    // clock is.
    let tokios_own = ms(2);
    for tick in TICKS {
        for offset in [Duration::from_nanos(1), us(300), us(999)] {
            time::advance(offset).await;
            let wheel = wheel_with(tick);
            for length in LENGTHS_MS {
                time::advance(offset / 2).await;
                let start = Instant::now();
                let length = ms(length) + offset;
                wheel.sleep(length).await;
                let elapsed = start.elapsed();
                assert!(elapsed >= length, "{length:?}, {tick:?}: {elapsed:?}");
                assert!(
                    elapsed < length + tick + tokios_own,
                    "{length:?}, {tick:?}: {elapsed:?}"
                );
            }
        }
    }
}

// pingora-timeout, timerwheel and hierarchical_hash_wheel_timer fire up to 1.8 ms early.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_sleeps_are_never_early_by_the_real_clock() {
    let mut numbers = Numbers(1);
    let mut tasks = task_set();
    for tick in [us(1), ms(1), ms(7)] {
        let wheel = wheel_with(tick);
        for _ in 0..300 {
            let length = us(numbers.below(120_000));
            let sleep_before = us(numbers.below(5_000));
            let wheel = wheel.clone();
            tasks.spawn(async move {
                time::sleep(sleep_before).await;
                let start = std::time::Instant::now();
                wheel.sleep(length).await;
                let elapsed = start.elapsed();
                assert!(elapsed >= length, "{length:?}, {tick:?}: {elapsed:?}");
            });
        }
    }
    tasks.join_all().await;
}

fn task_set() -> tokio::task::JoinSet<()> {
    tokio::task::JoinSet::new()
}

#[tokio::test(start_paused = true)]
async fn zero_or_past_sleep_is_ready_at_its_first_poll() {
    let wheel = start_wheel();
    jump(ms(10));
    let past = Instant::now() - ms(5);
    assert_ready!(poll_idly(&mut wheel.sleep(Duration::ZERO)));
    assert_ready!(poll_idly(&mut wheel.sleep_until(Instant::now())));
    assert_ready!(poll_idly(&mut wheel.sleep_until(past)));
    assert_eq!(wheel.metrics().sleeps_fired, 3);
}

#[tokio::test(start_paused = true)]
async fn due_sleep_is_ready_before_the_actor_ran() {
    let wheel = start_wheel();
    let (woken, waker) = Wakes::new();
    let mut sleep = wheel.sleep(ms(10));
    assert_pending!(poll_with(&mut sleep, &waker));
    wheel.settle().await;
    jump(ms(10));
    assert_ready!(poll_with(&mut sleep, &waker));
    assert!(sleep.is_elapsed());
    wheel.settle().await;
    assert_eq!(woken.count(), 0, "it has seen by itself that it was due");
}

#[tokio::test(start_paused = true)]
async fn fires_an_overdue_sleep_soon_after_its_first_poll() {
    let wheel = start_wheel();
    let mut sleep = task::spawn(wheel.sleep(ms(5)));
    time::advance(ms(20)).await;
    // It was made for a later instant, and is armed without reading the clock. The actor finds it
    // due at once.
    if sleep.poll().is_pending() {
        wheel.settle().await;
        assert!(sleep.is_woken());
        assert_ready!(sleep.poll());
    }
    assert_eq!(wheel.metrics().sleeps_fired, 1);
}

#[tokio::test(start_paused = true)]
async fn shows_its_progress_by_is_elapsed_and_deadline() {
    let wheel = start_wheel();
    let deadline = Instant::now() + ms(5);
    let mut sleep = wheel.sleep_until(deadline);
    is_sendable(&sleep);
    assert_eq!(sleep.deadline(), deadline);
    assert!(!sleep.is_elapsed());
    assert_pending!(poll_idly(&mut sleep));
    assert!(!sleep.is_elapsed());
    time::advance(ms(5)).await;
    wheel.settle().await;
    assert!(sleep.is_elapsed(), "fired, and its task about to run");
    assert_ready!(poll_idly(&mut sleep));
    assert_ready!(poll_idly(&mut sleep), "a completed one stays completed");
    assert!(sleep.is_elapsed());
    reset(&mut sleep, deadline + ms(7));
    assert!(!sleep.is_elapsed());
    assert_eq!(sleep.deadline(), deadline + ms(7));
    assert!(format!("{sleep:?}").starts_with("Sleep"));
}

#[tokio::test(start_paused = true)]
async fn p8_far_sleep_does_not_hide_a_near_one() {
    let wheel = start_wheel();
    let start = Instant::now();
    let years = |n: u64| Duration::from_secs(n * 86_400 * 365);
    let far = [years(2_000), Duration::from_secs(1 << 60), Duration::MAX];
    let mut sleeps: Vec<_> = far.iter().map(|&d| task::spawn(wheel.sleep(d))).collect();
    sleeps.extend(
        [years(2_000), years(1_000_000)]
            .iter()
            .filter_map(|&d| start.checked_add(d))
            .map(|at| task::spawn(wheel.sleep_until(at))),
    );
    for sleep in &mut sleeps {
        assert_pending!(sleep.poll());
        assert!(sleep.deadline() > start + years(29));
    }
    wheel.sleep(Duration::from_nanos(1)).await;
    assert!(start.elapsed() <= ms(1), "{:?}", start.elapsed());
    time::advance(years(100)).await;
    wheel.settle().await;
    for sleep in &mut sleeps {
        assert!(!sleep.is_woken());
        assert_pending!(sleep.poll());
    }
}

#[tokio::test(start_paused = true)]
async fn p8_last_instant_is_accepted_everywhere() {
    let mut last = Instant::now();
    for bit in (0..64).rev() {
        last = last
            .checked_add(Duration::from_secs(1 << bit))
            .unwrap_or(last);
    }
    for bit in (0..30).rev() {
        last = last
            .checked_add(Duration::from_nanos(1 << bit))
            .unwrap_or(last);
    }
    for tick in TICKS {
        let wheel = wheel_with(tick);
        let mut sleep = wheel.sleep_until(last);
        let mut moved = wheel.sleep(ms(5));
        assert_pending!(poll_idly(&mut sleep));
        assert_pending!(poll_idly(&mut moved));
        reset(&mut moved, last);
        wheel.settle().await;
        time::advance(HOUR).await;
        wheel.settle().await;
        assert_pending!(poll_idly(&mut sleep));
        assert_pending!(poll_idly(&mut moved));
        wheel.shutdown().await;
        assert_pending!(poll_idly(&mut moved));
        assert_pending!(poll_idly(&mut wheel.sleep_until(last)));
        reset(&mut sleep, Instant::now());
        assert_ready!(poll_idly(&mut sleep));
    }
}

// --- whom it woken ---

#[tokio::test(start_paused = true)]
async fn p3_only_the_last_of_several_pollers_is_woken() {
    let wheel = start_wheel();
    let (first, first_waker) = Wakes::new();
    let (last, last_waker) = Wakes::new();
    let mut sleep = wheel.sleep(ms(10));
    for waker in [&last_waker, &first_waker, &last_waker, &last_waker] {
        assert_pending!(poll_with(&mut sleep, waker));
    }
    time::advance(ms(9)).await;
    wheel.settle().await;
    assert_eq!(last.count(), 0);
    time::advance(ms(1)).await;
    wheel.settle().await;
    assert_eq!((first.count(), last.count()), (0, 1));
    time::advance(HOUR).await;
    wheel.settle().await;
    assert_eq!((first.count(), last.count()), (0, 1), "exactly once");
    assert_ready!(poll_with(&mut sleep, &first_waker));
}

#[tokio::test(start_paused = true)]
async fn p3_replaced_and_fired_wakers_are_dropped() {
    let wheel = start_wheel();
    let (first, first_waker) = Wakes::new();
    let (last, last_waker) = Wakes::new();
    let mut sleep = wheel.sleep(ms(10));
    assert_pending!(poll_with(&mut sleep, &first_waker));
    assert_pending!(poll_with(&mut sleep, &last_waker));
    drop((first_waker, last_waker));
    assert_eq!(Arc::strong_count(&first), 1);
    assert_eq!(Arc::strong_count(&last), 2);
    time::advance(ms(10)).await;
    wheel.settle().await;
    assert_eq!(Arc::strong_count(&last), 1);
    assert!(sleep.is_elapsed());
}

#[tokio::test(start_paused = true)]
async fn p3_task_that_a_sleep_was_moved_to_is_woken() {
    let wheel = start_wheel();
    let start = Instant::now();
    let mut sleep = wheel.sleep(ms(100));
    for _ in 0..10 {
        #[allow(clippy::async_yields_async)] // it is handed on, not awaited
        let handed_on = tokio::spawn(async move {
            let early = time::timeout(ms(9), &mut sleep).await;
            assert!(early.is_err());
            sleep
        });
        sleep = handed_on.await.unwrap();
    }
    tokio::spawn(sleep).await.unwrap();
    assert_eq!(start.elapsed(), ms(100));
}

#[tokio::test(start_paused = true)]
async fn p4_sleeps_wake_tick_by_tick_however_armed() {
    const SLEEPS: usize = 5000; // several turns of the actor
    for tick in [ms(1), ms(7)] {
        let wheel = wheel_with(tick);
        let start = Instant::now();
        let mut numbers = Numbers(4);
        let woken = Arc::new(Mutex::new(Vec::new()));
        let mut sleeps = Vec::new();
        for _ in 0..SLEEPS {
            let deadline = start + ms(1 + numbers.below(20_000));
            let woken = Arc::clone(&woken);
            let mut sleep = wheel.sleep_until(deadline);
            let waker = waker_fn(move || woken.lock().unwrap().push(deadline));
            assert_pending!(poll_with(&mut sleep, &waker));
            sleeps.push(sleep);
        }
        for _ in 0..20 {
            time::advance(ms(numbers.below(2_500))).await;
        }
        time::advance(ms(20_000)).await;
        wheel.settle().await;
        let woken = woken.lock().unwrap();
        assert_eq!(woken.len(), SLEEPS);
        assert!(woken.is_sorted_by_key(|&at| tick_of(at, start, tick)));
    }
}

#[tokio::test(start_paused = true)]
async fn p4_moved_sleeps_wake_tick_by_tick() {
    let wheel = start_wheel();
    let start = Instant::now();
    let mut numbers = Numbers(5);
    let woken = Arc::new(Mutex::new(Vec::new()));
    let mut sleeps = Vec::new();
    for _ in 0..1000 {
        let deadline = start + ms(1 + numbers.below(5_000));
        let woken = Arc::clone(&woken);
        let mut sleep = wheel.sleep(ms(1 + numbers.below(5_000)));
        let waker = waker_fn(move || woken.lock().unwrap().push(deadline));
        assert_pending!(poll_with(&mut sleep, &waker));
        sleeps.push((sleep, deadline));
    }
    wheel.settle().await;
    for (sleep, deadline) in &mut sleeps {
        reset(sleep, *deadline);
    }
    jump(ms(6_000));
    wheel.settle().await;
    let woken = woken.lock().unwrap();
    assert_eq!(woken.len(), sleeps.len());
    assert!(woken.is_sorted());
}

// --- resets ---

#[tokio::test(start_paused = true)]
async fn p5_only_the_last_reset_counts() {
    let moves: &[&[u64]] = &[
        &[40, 70],
        &[40, 20],
        &[40, 70, 20],
        &[40, 20, 70],
        &[40, 39, 41, 40],
        &[5_000, 1, 300_000],
        &[300_000, 4_096],
        &[63, 64],
        &[64, 63],
        &[1, u64::MAX, 2],
        &[u64::MAX, 10],
    ];
    for settled_between in [true, false] {
        for deadlines in moves {
            let wheel = start_wheel();
            let start = Instant::now();
            let at = |n| start.checked_add(ms(n)).unwrap_or(start + HOUR * 1_000_000);
            let mut sleep = task::spawn(wheel.sleep_until(at(deadlines[0])));
            assert_pending!(sleep.poll());
            for &deadline in &deadlines[1..] {
                if settled_between {
                    wheel.settle().await;
                }
                reset(&mut sleep, at(deadline));
            }
            let last = *deadlines.last().unwrap();
            time::advance(ms(last - 1)).await;
            wheel.settle().await;
            assert!(!sleep.is_woken(), "{deadlines:?}");
            assert_pending!(sleep.poll());
            time::advance(ms(1)).await;
            wheel.settle().await;
            assert!(sleep.is_woken(), "{deadlines:?}");
            assert_ready!(sleep.poll());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn wakes_the_waiter_by_a_reset_to_the_past() {
    let wheel = start_wheel();
    time::advance(ms(100)).await;
    for past in [Instant::now(), Instant::now() - ms(50)] {
        let mut sleep = task::spawn(wheel.sleep(HOUR));
        assert_pending!(sleep.poll());
        wheel.settle().await;
        reset(&mut sleep, past);
        wheel.settle().await;
        assert!(sleep.is_woken());
        assert_ready!(sleep.poll());
    }
}

// DelayQueue's own suite calls this `reset_after_fire_is_pending_again`.
#[tokio::test(start_paused = true)]
async fn becomes_pending_again_by_a_reset_after_firing() {
    let wheel = start_wheel();
    let mut sleep = task::spawn(wheel.sleep(ms(10)));
    for polled_when_fired in [true, false, true, false] {
        assert_pending!(sleep.poll());
        time::advance(ms(10)).await;
        wheel.settle().await;
        assert!(sleep.is_woken());
        if polled_when_fired {
            assert_ready!(sleep.poll());
        }
        reset(&mut sleep, Instant::now() + ms(10));
    }
    assert_pending!(sleep.poll());
    time::advance(ms(9)).await;
    wheel.settle().await;
    assert!(!sleep.is_woken());
}

#[tokio::test(start_paused = true)]
async fn counts_a_reset_before_the_first_poll() {
    let wheel = start_wheel();
    let start = Instant::now();
    let mut later = wheel.sleep(ms(10));
    reset(&mut later, start + ms(30));
    let mut earlier = wheel.sleep(ms(10));
    reset(&mut earlier, start + ms(3));
    let mut from_never = wheel.sleep(Duration::MAX);
    reset(&mut from_never, start + ms(7));
    earlier.await;
    assert_eq!(start.elapsed(), ms(3));
    from_never.await;
    assert_eq!(start.elapsed(), ms(7));
    later.await;
    assert_eq!(start.elapsed(), ms(30));
}

#[tokio::test(start_paused = true)]
async fn p5_applies_a_reset_from_another_task_to_the_waiter() {
    let wheel = start_wheel();
    for (first, second) in [(40, 90), (90, 40), (90, 10)] {
        let start = Instant::now();
        let sleep = Arc::new(Mutex::new(wheel.sleep(ms(first))));
        let waiting = tokio::spawn(wait_for(Arc::clone(&sleep)));
        time::sleep(ms(20)).await;
        reset(&mut sleep.lock().unwrap(), start + ms(second));
        waiting.await.unwrap();
        assert_eq!(start.elapsed(), ms(second.max(20)), "{first} to {second}");
    }
}

#[tokio::test(start_paused = true)]
async fn fires_at_the_last_of_ten_thousand_resets() {
    let wheel = start_wheel();
    let start = Instant::now();
    let (woken, waker) = Wakes::new();
    let mut numbers = Numbers(6);
    let mut sleep = wheel.sleep(ms(1_000_000));
    assert_pending!(poll_with(&mut sleep, &waker));
    for n in 0..10_000 {
        let deadline = start + ms(n + 2) + ms(numbers.below(1 << 20));
        reset(&mut sleep, deadline);
        jump(ms(1));
        if n % 3 == 0 {
            wheel.settle().await;
        }
    }
    assert_eq!(woken.count(), 0);
    reset(&mut sleep, start + ms(20_000));
    sleep.await;
    assert_eq!(start.elapsed(), ms(20_000));
}

// --- races ---

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_resets_that_race_with_firing_lose_no_wake_up() {
    const ROUNDS: usize = 50;
    let wheel = start_wheel();
    let fired = Arc::new(AtomicUsize::new(0));
    let mut tasks = task_set();
    for seed in 0..8 {
        let sleep = Arc::new(Mutex::new(wheel.sleep(ms(1))));
        let (shared, counted) = (Arc::clone(&sleep), Arc::clone(&fired));
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                wait_for(Arc::clone(&shared)).await;
                let mut sleep = shared.lock().unwrap();
                assert!(Instant::now() >= sleep.deadline(), "early");
                counted.fetch_add(1, Ordering::Relaxed);
                reset(&mut sleep, Instant::now() + ms(2));
            }
        });
        let meddling = Arc::clone(&sleep);
        std::thread::spawn(move || {
            let mut numbers = Numbers(seed);
            while Arc::strong_count(&meddling) > 1 {
                std::thread::sleep(us(100 + numbers.below(900)));
                move_pending(&meddling, us(numbers.below(3_000)));
            }
        });
    }
    let all = time::timeout(Duration::from_secs(120), tasks.join_all());
    all.await.expect("a wake-up was lost");
    assert_eq!(fired.load(Ordering::Relaxed), 8 * ROUNDS);
}

/// A reset moves a waiting sleep, but does not arm a fired one again: its task has not seen yet
/// that it fired.
fn move_pending(sleep: &Mutex<Sleep>, by: Duration) {
    let mut sleep = sleep.lock().unwrap();
    if !sleep.is_elapsed() {
        reset(&mut sleep, Instant::now() + by);
    }
}
