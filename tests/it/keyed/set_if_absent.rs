//! `set_if_absent` and `get`.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tickwheel::{ClosedError, SetTimerError, TimerWheel};
use tokio::time::Instant;

use crate::support::{advance, assert_balanced, jump, ms, received, timed};

#[tokio::test(start_paused = true)]
async fn set_if_absent_leaves_a_pending_timer_as_it_is() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let start = Instant::now();
    assert_eq!(timers.set_if_absent('k', 1, ms(10)), Ok(None));
    assert_eq!(timers.set_if_absent('k', 2, ms(1)), Ok(Some(('k', 2))));
    assert_eq!(timers.get(&'k'), Some(1));
    assert_eq!(timers.deadline(&'k'), Some(start + ms(10)));
    assert_eq!(timed(&mut stream, start, 1).await, [('k', 1, 10)]);

    assert_eq!(timers.get(&'k'), None, "it has expired");
    assert_eq!(timers.set_if_absent('k', 3, ms(5)), Ok(None));
    assert_eq!(timed(&mut stream, start, 1).await, [('k', 3, 15)]);
    let metrics = wheel.metrics();
    assert_eq!((metrics.keyed_set, metrics.keyed_replaced), (2, 0));
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn set_if_absent_takes_an_instant_too() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let start = Instant::now();
    assert_eq!(timers.set_if_absent_at('k', 1, start + ms(10)), Ok(None));
    let refused = timers.set_if_absent_at('k', 2, start);
    assert_eq!(refused, Ok(Some(('k', 2))));
    assert_eq!(timers.set_if_absent_at('j', 3, start - ms(1)), Ok(None));
    let expected = [('j', 3, 0), ('k', 1, 10)];
    assert_eq!(timed(&mut stream, start, 2).await, expected);
}

#[tokio::test(start_paused = true)]
async fn set_if_absent_leaves_a_due_timer_to_its_delivery() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    timers.set_timer('k', 1, ms(10)).unwrap();
    wheel.settle().await;
    jump(ms(10));
    assert_eq!(timers.set_if_absent('k', 2, ms(10)), Ok(Some(('k', 2))));
    wheel.settle().await;
    assert_eq!(received(&mut stream), [('k', 1)]);
}

#[tokio::test(start_paused = true)]
async fn set_if_absent_is_refused_only_when_it_would_set() {
    let wheel = TimerWheel::builder().max_keyed(1).start().unwrap();
    let (timers, stream) = wheel.keyed();
    assert_eq!(timers.set_if_absent(1, 'a', ms(5)), Ok(None));
    assert_eq!(timers.set_if_absent(1, 'b', ms(5)), Ok(Some((1, 'b'))));
    let full = timers.set_if_absent(2, 'c', ms(5));
    assert_eq!(full, Err(SetTimerError::Full(2, 'c')));
    drop(stream);
    let closed = timers.set_if_absent(1, 'd', ms(5));
    assert_eq!(
        closed,
        Err(SetTimerError::Closed(1, 'd', ClosedError::StreamDropped))
    );
}

#[tokio::test(start_paused = true)]
async fn set_if_absent_of_a_removed_key_keeps_only_the_new_timer() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let start = Instant::now();
    for settles in [false, true] {
        timers.set_timer('k', 1, ms(5)).unwrap();
        if settles {
            wheel.settle().await;
        }
        assert_eq!(timers.remove_timer(&'k'), Ok(Some(1)));
        assert_eq!(timers.set_if_absent('k', 2, ms(50)), Ok(None));
        advance(&wheel, ms(49)).await;
        assert_eq!(received(&mut stream), []);
        advance(&wheel, ms(1)).await;
        assert_eq!(received(&mut stream), [('k', 2)]);
    }
    assert_eq!(start.elapsed(), ms(100));
}

/// Threads race for a key while others remove and replace it. Exactly one of them sets each timer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn set_if_absent_lets_one_of_many_threads_pass() {
    const THREADS: usize = 4;
    const ROUNDS: u64 = 2_000;
    let wheel = TimerWheel::new();
    let (timers, stream) = wheel.keyed::<u64, usize>();
    let passed: Vec<AtomicUsize> = (0..ROUNDS).map(|_| AtomicUsize::new(0)).collect();
    let barrier = Barrier::new(THREADS);
    tokio::task::block_in_place(|| {
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (timers, passed, barrier) = (&timers, &passed, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for key in 0..ROUNDS {
                        let hour = ms(3_600_000);
                        match timers.set_if_absent(key, thread, hour).unwrap() {
                            None => {
                                passed[usize::try_from(key).unwrap()]
                                    .fetch_add(1, Ordering::SeqCst);
                            }
                            Some(back) => {
                                assert_eq!(back, (key, thread), "its own");
                                assert_ne!(timers.get(&key), Some(thread), "another set it");
                            }
                        }
                    }
                });
            }
        });
    });
    assert!(passed.iter().all(|n| n.load(Ordering::SeqCst) == 1));
    drop(stream);
    assert_eq!(wheel.metrics().keyed_set, ROUNDS);
}
