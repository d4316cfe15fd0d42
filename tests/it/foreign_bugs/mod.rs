//! Bugs that other timer systems have or had, each with a test.
//!
//! | | system | shape | test |
//! |---|---|---|---|
//! | 1 | go-zero | a move compares slot numbers, not distances | `b01_fires_every_single_move_at_its_new_deadline` |
//! | 2 | go-zero | fires twice after a short move; deaf after a drain; deadlocks in it; a second stop panics | `b02_*` |
//! | 3 | go-zero before 2020 | the tombstone of an old entry deletes the new one's key | `b03_keeps_the_new_timer_despite_remains_of_the_old` |
//! | 4 | tao | separate queues for add and cancel | `b04_never_fires_when_set_then_removed_by_one_task` |
//! | 5 | tao | the loop waits for the consumer, and callers wait for the loop | `b05_blocks_no_call_without_a_consumer_or_after_the_end` |
//! | 6 | netpoll | off beyond the first queue; fine ticks divide by zero; active connections expire | `b06_*` |
//! | 7 | Kafka, RussellLuo, pingora, ... | deadlines round down | `b07_fires_no_timer_before_its_deadline` |
//! | 8 | RussellLuo | size 0 recurses; a task for each timer; entries left behind | `b08_*`, `pure_wheel::b08_*` |
//! | 9 | go-zero, akka | ticks are counted, so they lag; stale time after idling | `b09_*` |
//! | 10 | Netty, Dubbo | cancelled stay until due; counted twice; unbounded | `b10_*` |
//! | 11 | Tokio, `DelayQueue` | a far timer in the current slot hides nearer ones; far deadlines panic | `b11_*`, `pure_wheel::b11_*` |
//! | 12 | `DelayQueue` | a stale key removes another timer | `b12_*`, `pure_wheel::b12_*` |
//! | 13 | pingora-timeout | a notification between check and wait is lost | `b13_every_sleeper_wakes` |
//! | 14 | many | the level is computed from the duration, though the window slid | `pure_wheel::b14_*` |
//! | 15 | many | wakes up with nothing to do | `b15_wakes_no_idle_wheel` |

mod pure_wheel;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tickwheel::BuildError;
use tokio::runtime::Handle;
use tokio::time::{self, Instant};

use crate::support::{advance, builder, ms, received, start_wheel};

// go-zero: of all single moves, a quarter fired one rotation early or late.
#[tokio::test(start_paused = true)]
async fn b01_fires_every_single_move_at_its_new_deadline() {
    const FAR: u64 = 22;
    for slots in [2, 4, 8] {
        let wheel = builder().slots(slots).start().unwrap();
        let (timers, mut stream) = wheel.keyed();
        let start = Instant::now();
        // The timer is set to fire at `from`, and moved at `at` to fire `by` later.
        let moves = || {
            let pairs = (1..FAR).flat_map(|from| (0..from).map(move |at| (from, at)));
            pairs.flat_map(|(from, at)| (0..FAR).map(move |by| (from, at, by)))
        };
        for key in moves() {
            timers.set_timer(key, (), ms(key.0)).unwrap();
        }
        let mut fired = HashMap::new();
        for at in 0..3 * FAR {
            wheel.settle().await;
            for key in moves().filter(|key| key.1 == at) {
                timers.move_timer(&key, ms(key.2)).unwrap();
            }
            wheel.settle().await;
            while let Ok(expired) = stream.try_recv() {
                let again = fired.insert(expired.key, start.elapsed());
                assert_eq!(again, None, "{:?} fired twice", expired.key);
            }
            time::advance(ms(1)).await;
        }
        assert!(timers.is_empty());
        for key in moves() {
            assert_eq!(
                fired.get(&key),
                Some(&ms(key.1 + key.2)),
                "{key:?}, {slots} slots"
            );
        }
    }
}

// go-zero: a move to less than a tick fires at once and leaves the entry behind.
#[tokio::test(start_paused = true)]
async fn b02_fires_once_when_moved_to_less_than_a_tick() {
    let wheel = builder().tick(ms(10)).start().unwrap();
    let (timers, mut stream) = wheel.keyed();
    for nanos in [0, 1, 999_999, 9_999_999] {
        timers.set_timer(nanos, (), ms(50)).unwrap();
        wheel.settle().await;
        timers
            .move_timer(&nanos, Duration::from_nanos(nanos))
            .unwrap();
        advance(&wheel, ms(10)).await;
        assert_eq!(stream.try_recv().map(|e| e.key), Ok(nanos));
        advance(&wheel, ms(1000)).await;
        assert!(stream.try_recv().is_err(), "fired twice");
    }
}

// go-zero: a key set again after a drain never fires, and setting one from the drain's callback
// deadlocks.
#[tokio::test(start_paused = true)]
async fn b02_sets_drained_keys_again_while_handling_them() {
    let wheel = start_wheel();
    let (timers, mut stream) = wheel.keyed();
    for key in 0..100 {
        timers.set_timer(key, 1, ms(40)).unwrap();
    }
    advance(&wheel, ms(20)).await;
    for expired in timers.drain().unwrap() {
        timers.set_timer(expired.key, 2, ms(40)).unwrap();
    }
    advance(&wheel, ms(20)).await;
    assert!(stream.try_recv().is_err(), "the old deadline");
    advance(&wheel, ms(20)).await;
    for key in 0..100 {
        assert_eq!(stream.try_recv().map(|e| (e.key, e.value)), Ok((key, 2)));
    }
}

// go-zero: the second stop closes a closed channel.
#[tokio::test(start_paused = true)]
async fn b02_shuts_down_twice_as_once() {
    let wheel = start_wheel();
    let clone = wheel.clone();
    tokio::join!(wheel.shutdown(), clone.shutdown(), wheel.shutdown());
    clone.shutdown().await;
    assert!(wheel.is_shutdown());
}

// go-zero before 2020: removing marked the old entry, and when the wheel reached its bucket its key
// was deleted.
#[tokio::test(start_paused = true)]
async fn b03_keeps_the_new_timer_despite_remains_of_the_old() {
    let wheel = start_wheel();
    let (timers, mut stream) = wheel.keyed();
    timers.set_timer("removed", 1, ms(10)).unwrap();
    timers.set_timer("replaced", 1, ms(10)).unwrap();
    timers.set_timer("moved", 1, ms(10)).unwrap();
    timers.set_timer("fired", 1, ms(5)).unwrap();
    timers.set_timer("unread", 1, ms(5)).unwrap();
    advance(&wheel, ms(5)).await;
    assert_eq!(stream.try_recv().map(|e| e.key), Ok("fired"));
    timers.remove_timer("removed").unwrap();
    timers.move_timer("moved", ms(20)).unwrap();
    for key in ["removed", "replaced", "fired", "unread"] {
        timers.set_timer(key, 2, ms(20)).unwrap();
    }
    advance(&wheel, ms(19)).await;
    assert!(stream.try_recv().is_err());
    for key in ["removed", "replaced", "moved", "fired", "unread"] {
        assert!(timers.deadline(key).is_some(), "{key} is still there");
    }
    advance(&wheel, ms(1)).await;
    let values: Vec<_> = std::iter::from_fn(|| stream.try_recv().ok().map(|e| e.value)).collect();
    assert_eq!(values, [1, 2, 2, 2, 2], "the moved one was armed first");
}

// tao: adding and cancelling travel by two channels, of which the loop picks one at random.
#[tokio::test(start_paused = true)]
async fn b04_never_fires_when_set_then_removed_by_one_task() {
    let wheel = start_wheel();
    let (timers, mut stream) = wheel.keyed();
    for key in 0..10_000 {
        timers.set_timer(key, (), ms(key % 3)).unwrap();
        timers.remove_timer(&key).unwrap();
        if key % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    advance(&wheel, ms(1000)).await;
    assert!(stream.try_recv().is_err());
    let m = wheel.metrics();
    assert_eq!((m.keyed_removed, m.keyed_fired), (10_000, 0));
}

// tao: without a reader the loop blocks, and with it every caller.
#[tokio::test(start_paused = true)]
async fn b05_blocks_no_call_without_a_consumer_or_after_the_end() {
    let wheel = start_wheel();
    let (timers, stream) = wheel.keyed();
    for key in 0..20_000 {
        timers.set_timer(key, (), ms(key % 10)).unwrap();
    }
    advance(&wheel, ms(10)).await;
    assert_eq!(timers.len(), 20_000, "all are due, and unreceived");
    assert_eq!(timers.set_timer(1, (), ms(10)), Ok(Some(())));
    assert_eq!(timers.remove_timer(&1), Ok(Some(())));
    wheel.shutdown().await;
    assert!(timers.set_timer(1, (), ms(10)).is_err());
    assert!(timers.drain().is_err());
    drop(stream);
}

// netpoll: an insertion beyond the first queue is off: in base 10 a delay of 20 fired at 11.
#[tokio::test(start_paused = true)]
async fn b06_keeps_delays_beyond_the_first_level() {
    for slots in [2, 8, 16] {
        let wheel = builder().slots(slots).start().unwrap();
        let (timers, mut stream) = wheel.keyed();
        let n = slots as u64;
        let start = Instant::now();
        let mut delays: Vec<_> = (0..2 * n * n + 3).collect();
        delays.extend([n.pow(3) - 1, n.pow(3), n.pow(3) + 1, n.pow(4), n.pow(4) + n]);
        delays.sort_unstable();
        delays.dedup();
        for &delay in &delays {
            timers.set_timer(delay, (), ms(delay)).unwrap();
        }
        for &delay in &delays {
            let expired = stream.recv().await.unwrap();
            assert_eq!((expired.key, start.elapsed()), (delay, ms(delay)));
        }
    }
}

// netpoll: ticks under a second divide by zero.
#[tokio::test(start_paused = true)]
async fn b06_works_with_ticks_far_below_a_second() {
    for micros in [1, 10, 999, 1000] {
        let tick = Duration::from_micros(micros);
        let wheel = builder().tick(tick).start().unwrap();
        let start = Instant::now();
        let (timers, mut stream) = wheel.keyed();
        timers.set_timer((), (), ms(30)).unwrap();
        assert!(stream.recv().await.is_some());
        assert!(start.elapsed() >= ms(30) && start.elapsed() < ms(33));
    }
}

// netpoll: the idle timeout is not stored, so touching does not prolong it and active connections
// are kicked.
#[tokio::test(start_paused = true)]
async fn b06_never_fires_what_is_moved_before_each_deadline() {
    let wheel = builder().slots(4).start().unwrap();
    let (timers, mut stream) = wheel.keyed();
    timers.set_timer("active", (), ms(20)).unwrap();
    for _ in 0..1000 {
        advance(&wheel, ms(19)).await;
        assert!(stream.try_recv().is_err());
        timers.move_timer("active", ms(20)).unwrap();
    }
    let left = Instant::now();
    assert!(stream.recv().await.is_some());
    assert_eq!(left.elapsed(), ms(20));
}

// Kafka, RussellLuo: 900 ms on a 1 s tick fired after 432 ms. pingora, timerwheel,
// hierarchical_hash_wheel_timer: up to 1.8 ms early.
#[tokio::test(start_paused = true)]
async fn b07_fires_no_timer_before_its_deadline() {
    let wheel = builder().tick(ms(1000)).start().unwrap();
    let (timers, mut stream) = wheel.keyed();
    for offset in [0, 1, 99, 100, 101, 432, 468, 500, 568, 900, 999] {
        for delay in [1, 100, 500, 900, 999, 1000, 1001, 64_000, 64_900] {
            // Each round ends on a whole second; the next one starts `offset` after it.
            time::advance(ms(offset)).await;
            let start = Instant::now();
            timers.set_timer((), (), ms(delay)).unwrap();
            let mut sleep = Box::pin(wheel.sleep(ms(delay)));
            assert!(futures::poll!(&mut sleep).is_pending());
            stream.recv().await.unwrap();
            let late = start
                .elapsed()
                .checked_sub(ms(delay))
                .expect("a timer fired early");
            assert!(late < ms(1000), "offset {offset}, delay {delay}: {late:?}");
            sleep.await;
            assert!(start.elapsed() >= ms(delay), "a sleep was early");
        }
    }
}

// RussellLuo: a wheel of size 0 recurses until the stack overflows. The size is no setting here,
// and the tick is checked.
#[tokio::test(start_paused = true)]
async fn b08_rejects_settings_that_make_no_wheel() {
    let error = builder().tick(Duration::ZERO).start().unwrap_err();
    assert!(matches!(error, BuildError::Tick { .. }));
}

// RussellLuo: a goroutine for each task that fires; 113,000 of them for 200,000 timers.
#[tokio::test(start_paused = true)]
async fn b08_spawns_no_tasks_for_timers_that_fire() {
    let wheel = start_wheel();
    let (timers, mut stream) = wheel.keyed();
    for key in 0..20_000_u32 {
        timers.set_timer(key, (), ms(5)).unwrap();
    }
    advance(&wheel, ms(5)).await;
    assert_eq!(received(&mut stream).len(), 20_000);
    assert_eq!(
        Handle::current().metrics().num_alive_tasks(),
        1,
        "the actor"
    );
}

// go-zero: the ticks are counted, so a wheel that was late once stays late.
#[tokio::test(start_paused = true)]
async fn b09_timers_fire_after_a_standstill_and_later_ones_in_time() {
    let wheel = start_wheel();
    let (timers, mut stream) = wheel.keyed();
    for key in 1..=50_u64 {
        timers.set_timer(key, (), ms(key * 100)).unwrap();
    }
    wheel.settle().await;
    // No task runs for three seconds.
    let start = Instant::now();
    advance(&wheel, ms(3000)).await;
    for key in 1..=30 {
        assert_eq!(
            stream.try_recv().map(|e| e.key),
            Ok(key),
            "late, but all at once"
        );
    }
    for key in 31..=50 {
        assert_eq!(stream.recv().await.map(|e| e.key), Some(key));
        assert_eq!(start.elapsed(), ms(key * 100), "in time");
    }
}

// akka: a wheel with a stale time after idling fires a burst of fresh timers early.
#[tokio::test(start_paused = true)]
async fn b09_fires_no_timer_early_after_long_idling() {
    let wheel = start_wheel();
    let (timers, mut stream) = wheel.keyed();
    for hours in 1..20 {
        time::advance(Duration::from_secs(3600 * hours)).await;
        let start = Instant::now();
        for key in 0..100 {
            timers.set_timer(key, (), ms(10)).unwrap();
        }
        for _ in 0..100 {
            stream.recv().await.unwrap();
            assert_eq!(start.elapsed(), ms(10));
        }
    }
}

// Netty: cancelled timeouts stay, with the objects they hold, until its wheel reaches their bucket.
#[tokio::test(start_paused = true)]
async fn b10_drops_what_a_cancelled_timer_holds_at_once() {
    let wheel = start_wheel();
    let (timers, _stream) = wheel.keyed();
    let held = Arc::new(());
    for key in 0..1000 {
        timers
            .set_timer(key, Arc::clone(&held), Duration::from_secs(3600))
            .unwrap();
    }
    wheel.settle().await;
    for key in 0..1000 {
        timers.remove_timer(&key).unwrap();
        assert_eq!(Arc::strong_count(&held), 1000 - key);
    }
}

// Netty: `pendingTimeouts` went down twice, by the cancelling and by the slot; Dubbo's copy still
// does that.
#[tokio::test(start_paused = true)]
async fn b10_timer_is_counted_down_once() {
    let wheel = start_wheel();
    let (timers, mut stream) = wheel.keyed();
    timers.set_timer("stays", (), ms(1_000_000)).unwrap();
    for round in 0..100 {
        timers.set_timer("k", (), ms(1)).unwrap();
        assert_eq!(timers.len(), 2);
        if round % 2 == 0 {
            time::advance(ms(1)).await;
        }
        timers.remove_timer("k").unwrap();
        timers.remove_timer("k").unwrap();
        advance(&wheel, ms(1)).await;
        timers.remove_timer("k").unwrap();
        assert_eq!((timers.len(), wheel.metrics().keyed_pending), (1, 1));
        while stream.try_recv().is_ok() {}
    }
    assert_eq!(timers.drain().unwrap().len(), 1);
    assert_eq!(timers.len(), 0);
}

// Netty: `stop()` did not cancel; and pending timeouts had no bound, and ran out of memory.
#[tokio::test(start_paused = true)]
async fn b10_returns_what_was_pending_and_limits_it() {
    let wheel = builder().max_keyed(100).start().unwrap();
    let (timers, mut stream) = wheel.keyed();
    let set = (0..1000).filter(|&key| timers.set_timer(key, (), ms(10)).is_ok());
    assert_eq!(set.count(), 100);
    wheel.shutdown().await;
    time::advance(ms(1000)).await;
    assert_eq!(stream.recv().await, None, "none fires any more");
    assert_eq!(stream.unexpired().len(), 100);
}

// `DelayQueue` panics on deadlines of 2^36 ms and more.
#[tokio::test(start_paused = true)]
async fn b11_far_deadlines_neither_panic_nor_hide_near_ones() {
    let wheel = start_wheel();
    let (timers, mut stream) = wheel.keyed();
    time::advance(ms(70)).await;
    for bit in 30..64 {
        timers
            .set_timer(bit, (), Duration::from_millis(1 << bit))
            .unwrap();
        timers.set_timer(bit + 100, (), ms(1)).unwrap();
        timers
            .move_timer(&(bit + 100), Duration::from_millis((1 << bit) - 1))
            .unwrap();
    }
    timers.set_timer(0, (), ms(300)).unwrap();
    let start = Instant::now();
    assert_eq!(stream.recv().await.map(|e| e.key), Some(0));
    assert_eq!(start.elapsed(), ms(300));
    wheel
        .timeout(Duration::MAX, wheel.sleep(ms(300)))
        .await
        .unwrap();
    assert_eq!(start.elapsed(), ms(600));
}

// The same for keyed timers, which are named by their keys: a slot used again belongs to its new
// key alone.
#[tokio::test(start_paused = true)]
async fn b12_keeps_a_new_timer_despite_a_stale_key() {
    let wheel = start_wheel();
    let (timers, mut stream) = wheel.keyed();
    for key in 0..100 {
        timers.set_timer(key, key, ms(5)).unwrap();
        for old in 0..key {
            timers.remove_timer(&old).unwrap();
            timers.move_timer(&old, ms(9)).unwrap();
        }
        if key % 2 == 0 {
            assert_eq!(timers.remove_timer(&key), Ok(Some(key)));
        } else {
            advance(&wheel, ms(5)).await;
            assert_eq!(stream.try_recv().map(|e| e.value), Ok(key));
        }
    }
}

// pingora-timeout: it loads its flag, then makes the future that is notified; a notification
// between the two is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b13_every_sleeper_wakes() {
    let wheel = start_wheel();
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    let tasks: Vec<_> = (0..64_u64)
        .map(|task| {
            let wheel = wheel.clone();
            tokio::spawn(async move {
                for n in 0..100 {
                    wheel
                        .sleep(Duration::from_micros(task * n * 7 % 2000))
                        .await;
                }
            })
        })
        .collect();
    // The same for a consumer that waits while the actor delivers, again and again.
    for key in 0..200 {
        timers
            .set_timer(key, (), Duration::from_micros(key * 13 % 1500))
            .unwrap();
        let received = time::timeout(Duration::from_secs(120), stream.recv()).await;
        assert_eq!(received.expect("left behind").map(|e| e.key), Some(key));
    }
    for task in tasks {
        let done = time::timeout(Duration::from_secs(120), task).await;
        done.expect("a sleeper is left behind").unwrap();
    }
}

// Many: one crate wakes 860 times a second with nothing to do, others about 100 times.
#[tokio::test(start_paused = true)]
async fn b15_wakes_no_idle_wheel() {
    let wheel = start_wheel();
    let (timers, mut stream) = wheel.keyed();
    wheel.settle().await;
    let before = wheel.metrics().wake_ups;
    time::sleep(Duration::from_secs(86_400)).await;
    assert_eq!(wheel.metrics().wake_ups, before, "with nothing to wait for");

    let start = Instant::now();
    timers
        .set_timer((), (), Duration::from_secs(86_400 * 300))
        .unwrap();
    stream.recv().await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(86_400 * 300));
    let woken = wheel.metrics().wake_ups - before;
    // 300 days are 2^37.9 ticks of 0.1 ms: five levels of 256 slots. One more, since the setting
    // itself woke it.
    assert!(woken <= 6, "woke {woken} times for one timer");
}
