//! Promises P4, P5 and P11 under many timers and many commands. Progress is counted in turns, not
//! in time.

use std::cell::Cell;
use std::rc::Rc;

use tickwheel::TimerWheel;
use tokio::task::{self, LocalSet};
use tokio::time::{self, Instant};

use crate::support::{advance, assert_balanced, ms, received};

const STORM: u64 = 150_000;

/// Counts how often another task has its turn while `work` is done.
async fn turns_of_another_task(work: impl Future<Output = ()>) -> u64 {
    let local = LocalSet::new();
    let turns = Rc::new(Cell::new(0));
    let counter = Rc::clone(&turns);
    local
        .run_until(async move {
            let other = task::spawn_local(async move {
                loop {
                    counter.set(counter.get() + 1);
                    task::yield_now().await;
                }
            });
            work.await;
            other.abort();
        })
        .await;
    turns.get()
}

#[tokio::test(start_paused = true)]
async fn p4_p11_storm_keeps_order_and_lets_others_run() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    // In the order of keys but for those that are moved: they come last, and in the order of the
    // moves.
    for key in 0..STORM {
        let early_or_late = if key % 3 == 0 { 20 } else { 100_000 };
        let delay = if key % 10 == 0 { early_or_late } else { 50 };
        timers.set_timer(key, (), ms(delay)).unwrap();
    }
    wheel.settle().await;
    for key in (0..STORM).rev().filter(|key| key % 10 == 0) {
        timers.move_timer(&key, ms(50)).unwrap();
    }
    let turns = turns_of_another_task(async {
        let before = wheel.metrics().turns;
        advance(&wheel, ms(50)).await;
        let bounded = wheel.metrics().turns - before;
        assert!(
            bounded >= STORM / 5000,
            "{bounded} turns are too few to be bounded"
        );
    });
    let turns = turns.await;
    assert!(turns >= STORM / 5000, "another task had {turns} turns");
    let keys = received(&mut stream).into_iter().map(|(key, ())| key);
    let unmoved = (0..STORM).filter(|key| key % 10 != 0);
    let moved = (0..STORM).rev().filter(|key| key % 10 == 0);
    assert!(keys.eq(unmoved.chain(moved)));
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p11_commands_progress_in_the_midst_of_a_storm() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let (others, mut other_stream) = wheel.keyed();
    for key in 0..STORM {
        timers.set_timer(key, (), ms(50)).unwrap();
    }
    wheel.settle().await;
    // The actor takes a turn of the storm.
    time::advance(ms(50)).await;
    task::yield_now().await;
    assert_eq!(received(&mut stream), [], "it is not over");
    let before = wheel.metrics();
    others.set_timer((), (), ms(0)).unwrap();
    others.set_timer((), (), ms(50)).unwrap();
    others.move_timer(&(), ms(0)).unwrap();
    // What the storm has reached can be removed, and so can what it has not.
    let mut taken = 0;
    for key in (0..500).chain(STORM - 500..STORM) {
        taken += usize::from(timers.remove_timer(&key).unwrap().is_some());
    }
    assert_eq!(taken, 1000);
    while wheel.metrics().commands == before.commands {
        assert_eq!(
            received(&mut stream),
            [],
            "commands do not wait for its end"
        );
        task::yield_now().await;
    }
    wheel.settle().await;
    assert_eq!(received(&mut other_stream), [((), ())]);
    let keys = received(&mut stream).into_iter().map(|(key, ())| key);
    assert!(keys.eq(500..STORM - 500));
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p11_heartbeat_is_punctual_in_a_flood_of_commands() {
    let wheel = TimerWheel::new();
    let (timers, _stream) = wheel.keyed();
    let (heart, mut beats) = wheel.keyed();
    let start = Instant::now();
    heart.set_interval((), (), ms(10)).unwrap();
    let (mut n, mut come) = (0_u64, 0);
    for millis in 1..=200_u64 {
        for _ in 0..3000 {
            n += 1;
            let key = n * 7919 % 50_000;
            match n % 4 {
                0 | 1 => drop(timers.set_timer(key, n, ms(1000 + n % 500)).unwrap()),
                2 => assert_eq!(
                    timers.contains(&key),
                    timers.move_timer(&key, ms(n % 5000)).unwrap()
                ),
                _ => drop(timers.remove_timer(&key).unwrap()),
            }
        }
        time::advance(ms(1)).await;
        // The actor has one turn a millisecond, so that many that a beat due at 10 n has to come in
        // the next ones.
        let due = millis / 10;
        come += received(&mut beats).len() as u64;
        assert!(heart.deadline(&()).unwrap() + ms(5) > Instant::now());
        assert!(come + 1 >= due, "{come} of {due} by {millis} ms");
    }
    wheel.settle().await;
    assert_eq!(start.elapsed(), ms(200));
    assert_eq!(come + received(&mut beats).len() as u64, 20);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p11_other_tasks_run_in_a_flood_of_commands() {
    let wheel = TimerWheel::new();
    let (timers, _stream) = wheel.keyed();
    for key in 0..STORM {
        timers.set_timer(key, (), ms(1000 + key)).unwrap();
    }
    let turns = turns_of_another_task(wheel.settle()).await;
    assert!(turns >= STORM / 10_000, "another task had {turns} turns");
    let turns = turns_of_another_task(async {
        for key in 0..STORM {
            timers.move_timer(&key, ms(key % 500 + 1)).unwrap();
        }
        wheel.settle().await;
    });
    let turns = turns.await;
    assert!(turns >= STORM / 10_000, "another task had {turns} turns");
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p5_moves_to_later_send_no_command() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    for key in 0..1000 {
        timers.set_timer(key, (), ms(100)).unwrap();
    }
    wheel.settle().await;
    let before = wheel.metrics();
    for round in 1..50 {
        time::advance(ms(1)).await;
        for key in 0..1000 {
            timers.move_timer(&key, ms(100 + round)).unwrap();
        }
    }
    let after = wheel.metrics();
    assert_eq!(after.commands, before.commands);
    assert_eq!(after.wake_ups, before.wake_ups);
    advance(&wheel, ms(148)).await;
    assert_eq!(received(&mut stream), []);
    assert!(
        wheel.metrics().rescheduled <= before.rescheduled + 1000,
        "each is rescheduled once"
    );
    advance(&wheel, ms(1)).await;
    assert_eq!(received(&mut stream).len(), 1000);
}

#[tokio::test(start_paused = true)]
async fn p4_timers_due_behind_old_commands_expire_in_order() {
    // More commands than a turn applies: the first part must not fire before the second is applied.
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let n = 20_000_u64;
    for key in 0..n {
        timers.set_timer(key, (), ms(n - key)).unwrap();
    }
    time::advance(ms(2 * n)).await;
    wheel.settle().await;
    let keys = received(&mut stream).into_iter().map(|(key, ())| key);
    assert!(
        keys.eq((0..n).rev()),
        "by tick, though the last are applied last"
    );
}

// In an earlier version, a turn that used up its budget at the last due item stopped before the
// current tick. Timers that had come off the wheel and were due after that waited for the next
// notification.
#[tokio::test(start_paused = true)]
async fn p2_moved_timer_expires_after_a_turn_that_ended_short() {
    // The numbers of other timers cover every part of a turn's budget.
    for others in 0..1100 {
        let wheel = TimerWheel::new();
        let (timers, mut stream) = wheel.keyed();
        timers.set_timer(u64::MAX, (), ms(10)).unwrap();
        for key in 0..others {
            timers.set_timer(key, (), ms(10)).unwrap();
        }
        wheel.settle().await;
        timers.move_timer(&u64::MAX, ms(15)).unwrap();
        time::advance(ms(20)).await;
        for _ in 0..10 {
            task::yield_now().await;
        }
        let received = received(&mut stream).len() as u64;
        assert_eq!(received, others + 1, "one was left behind");
        assert!(timers.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn p2_fires_on_time_despite_rescheduling_on_the_way() {
    let wheel = TimerWheel::builder().slots(2).start().unwrap();
    let (timers, mut stream) = wheel.keyed();
    timers.set_timer("moved", (), ms(10)).unwrap();
    // It cascades at 64, 96, 112 and 120.
    timers.set_timer("far", (), ms(127)).unwrap();
    wheel.settle().await;
    timers.move_timer("moved", ms(115)).unwrap();
    time::advance(ms(119)).await;
    let start = Instant::now();
    assert_eq!(stream.recv().await.map(|e| e.key), Some("moved"));
    assert_eq!(start.elapsed(), ms(0), "it was due when the wait began");
}

/// More timers are due at one tick than a turn reaches. Then one is moved to before that tick, and
/// another is set in between, before, while and after the wheel reaches them.
#[tokio::test(start_paused = true)]
async fn p4_due_timer_moved_into_the_past_expires_first() {
    const STORM: u32 = 6_000;
    let moved = [0, 1, STORM / 2, STORM - 1];
    for (moved, turns) in moved.into_iter().flat_map(|m| (0..6).map(move |n| (m, n))) {
        let wheel = TimerWheel::new();
        let (timers, mut stream) = wheel.keyed();
        let start = Instant::now();
        for key in 0..STORM {
            timers.set_timer(key, (), ms(5)).unwrap();
        }
        wheel.settle().await;
        time::advance(ms(5)).await;
        for _ in 0..turns {
            task::yield_now().await;
        }
        timers.move_timer_at(&moved, start + ms(2)).unwrap();
        timers.set_timer_at(STORM, (), start + ms(3)).unwrap();
        wheel.settle().await;
        let keys: Vec<_> = received(&mut stream).into_iter().map(|(k, ())| k).collect();
        let rest = (0..STORM).filter(|&key| key != moved);
        let expected: Vec<_> = [moved, STORM].into_iter().chain(rest).collect();
        assert_eq!(keys, expected, "{moved} was moved after {turns}");
    }
}
