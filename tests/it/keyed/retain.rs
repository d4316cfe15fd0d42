//! `KeyedTimers::retain`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tickwheel::TimerWheel;
use tokio::time::Instant;

use crate::support::{Numbers, advance, assert_balanced, jump, ms, received};

#[tokio::test(start_paused = true)]
async fn retain_visits_each_timer_once_and_removes_those_refused() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u64, u64>();
    let start = Instant::now();
    for key in 0..1_000 {
        timers.set_timer(key, key, ms(10 + key)).unwrap();
        if key == 500 {
            wheel.settle().await;
        }
    }
    let mut visited = HashMap::new();
    timers
        .retain(|&key, value, deadline| {
            assert_eq!(deadline, start + ms(10 + key));
            *visited.entry(key).or_insert(0) += 1;
            *value *= 2;
            key % 2 == 0
        })
        .unwrap();
    assert_eq!(visited.len(), 1_000);
    assert!(visited.values().all(|&n| n == 1));
    assert_eq!(timers.len(), 500);
    advance(&wheel, ms(2_000)).await;
    let expected: Vec<_> = (0..500).map(|n| (2 * n, 4 * n)).collect();
    assert_eq!(received(&mut stream), expected);
    assert_eq!(wheel.metrics().keyed_removed, 500);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn retain_stops_repeating_timers_and_takes_due_ones_back() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<char, u64>();
    timers.set_interval('r', 1, ms(5)).unwrap();
    timers.set_timer('d', 2, ms(5)).unwrap();
    wheel.settle().await;
    jump(ms(5));
    timers.retain(|_, _, _| false).unwrap();
    advance(&wheel, ms(100)).await;
    assert_eq!(received(&mut stream), []);
    assert_eq!(wheel.metrics().keyed_removed, 2);
    // The indices are as good as new.
    timers.set_timer('r', 3, ms(5)).unwrap();
    advance(&wheel, ms(100)).await;
    assert_eq!(received(&mut stream), [('r', 3)]);
}

#[tokio::test(start_paused = true)]
async fn retain_of_a_closed_set_is_an_error() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    timers.set_timer(1, (), ms(5)).unwrap();
    wheel.shutdown().await;
    let retained = timers.retain(|_, (), _| unreachable!("nothing is visited"));
    assert!(retained.is_err());
    assert_eq!(stream.unexpired().len(), 1);
}

/// Timers that no other thread touches are visited by every call, whatever others set, move, remove
/// and drop beside them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retain_misses_no_timer_while_threads_change_others() {
    const LASTING: u64 = 2_000;
    let wheel = TimerWheel::new();
    let (timers, stream) = wheel.keyed::<u64, u64>();
    let hour = ms(3_600_000);
    for key in 0..LASTING {
        timers.set_timer(key * 2, 0, hour).unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let others: Vec<_> = (1..3)
        .map(|thread| {
            let (timers, stop) = (timers.clone(), Arc::clone(&stop));
            thread::spawn(move || {
                let mut random = Numbers(thread);
                while !stop.load(Ordering::Relaxed) {
                    let key = random.below(4_096) * 2 + 1;
                    timers.set_timer(key, 0, ms(random.below(16))).unwrap();
                    timers.move_timer(&(key ^ 2), hour).unwrap();
                    timers.remove_timer(&(key ^ 4)).unwrap();
                }
            })
        })
        .collect();
    tokio::task::block_in_place(|| {
        for round in 1..=50 {
            let mut visited = 0;
            timers
                .retain(|&key, value, _| {
                    if key % 2 == 0 {
                        visited += 1;
                        *value += 1;
                        assert_eq!(*value, round, "once in each round");
                    }
                    key % 2 == 0 || key % 5 == 0
                })
                .unwrap();
            assert_eq!(visited, LASTING);
        }
        stop.store(true, Ordering::Relaxed);
        for other in others {
            other.join().unwrap();
        }
    });
    drop(stream);
    wheel.settle().await;
    assert_balanced(&wheel);
}
