//! A timer has expired when it is received: readers that are away, sets that a caller holds, and a
//! shutdown with handlers in flight.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use tickwheel::{KeyedTimers, TimerWheel};
use tokio::runtime::{Builder, Runtime};
use tokio::time;

use crate::support::{HANG_TIMEOUT, HOUR, advance, assert_balanced, ms, received};

/// Runtimes with one thread and with two, on the real clock.
fn runtimes() -> [Runtime; 2] {
    let one = Builder::new_current_thread().enable_all().build();
    let two = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    [one, two].map(|runtime| runtime.expect("a runtime"))
}

#[test]
fn p6_due_timers_without_a_reader_can_be_removed_set_and_moved() {
    for runtime in runtimes() {
        runtime.block_on(async {
            let wheel = TimerWheel::new();
            let (timers, mut stream) = wheel.keyed::<u32, u32>();
            for key in 0..4 {
                timers.set_timer(key, key, ms(5)).unwrap();
            }
            time::sleep(ms(20)).await;
            wheel.settle().await;
            assert_eq!(timers.len(), 4);
            assert_eq!(timers.remove_timer(&0), Ok(Some(0)));
            assert_eq!(timers.set_timer(1, 11, ms(100)), Ok(Some(1)));
            assert_eq!(timers.move_timer(&2, ms(100)), Ok(true));
            assert_eq!(received(&mut stream), [(3, 3)]);
            let later = [stream.recv().await, stream.recv().await];
            let later = later.map(|expired| expired.map(|expired| expired.value));
            assert_eq!(later, [Some(11), Some(2)]);
            assert_balanced(&wheel);
        });
    }
}

#[test]
fn p10_interval_of_a_stalled_consumer_comes_once_and_misses_the_rest() {
    for runtime in runtimes() {
        runtime.block_on(async {
            let wheel = TimerWheel::new();
            let (timers, mut stream) = wheel.keyed::<&str, ()>();
            timers.set_interval("check", (), ms(10)).unwrap();
            let deadline = timers.deadline("check").expect("it is set");
            time::sleep(ms(200)).await;
            wheel.settle().await;
            let first = stream.try_recv().expect("it is due");
            let missed = deadline.elapsed().as_millis() / 10;
            assert_eq!(first.deadline, deadline);
            // The clock goes on between the receipt and its reading here.
            assert!((19..=missed).contains(&first.missed.into()), "{missed}");
            // What becomes due then is removed with it.
            time::sleep(ms(50)).await;
            wheel.settle().await;
            assert_eq!(timers.remove_timer("check"), Ok(Some(())));
            assert_eq!(received(&mut stream), []);
            assert_eq!(wheel.metrics().keyed_fired, 1);
            assert_balanced(&wheel);
        });
    }
}

/// Another thread has the lock of the set, until it is told to go on.
fn hold(timers: &KeyedTimers<u8, ()>, key: u8) -> (Sender<()>, JoinHandle<()>) {
    let timers = timers.clone();
    let (go_on, until) = channel();
    let (tell, holds) = channel();
    let holder = thread::spawn(move || {
        let hold = |(): &()| {
            tell.send(()).unwrap();
            until.recv().unwrap();
        };
        assert!(timers.get_with(&key, hold).is_some());
    });
    holds.recv().unwrap();
    (go_on, holder)
}

// The actor took 54,000 turns while a caller held a set in which a timer was due.
#[test]
fn p11_held_set_costs_few_turns_and_delays_no_other_timer() {
    for runtime in runtimes() {
        runtime.block_on(async {
            let wheel = TimerWheel::new();
            let (timers, mut stream) = wheel.keyed::<u8, ()>();
            let (others, mut beats) = wheel.keyed::<u8, ()>();
            timers.set_timer(1, (), HOUR).unwrap();
            timers.set_timer(2, (), ms(20)).unwrap();
            others.set_interval(1, (), ms(10)).unwrap();
            wheel.settle().await;
            let (go_on, holder) = hold(&timers, 1);
            // Metrics would lock the set that is held.
            for _ in 0..20 {
                assert!(beats.recv().await.is_some());
                wheel.sleep(ms(1)).await;
                wheel.settle().await;
            }
            go_on.send(()).unwrap();
            holder.join().unwrap();
            let turns = wheel.metrics().turns;
            assert!(turns < 500, "{turns} turns");
            assert_eq!(received(&mut stream), [(2, ())]);
        });
    }
}

// It waited in a worker for the lock of the set.
#[test]
fn p15_shutdown_waits_for_no_set_that_a_caller_holds() {
    for runtime in runtimes() {
        runtime.block_on(async {
            let wheel = TimerWheel::new();
            let (timers, mut stream) = wheel.keyed::<u8, ()>();
            timers.set_timer(1, (), HOUR).unwrap();
            timers.set_timer(2, (), ms(5)).unwrap();
            time::sleep(ms(10)).await;
            wheel.settle().await;
            let (go_on, holder) = hold(&timers, 1);
            let ended = time::timeout(HANG_TIMEOUT, wheel.shutdown()).await;
            assert!(ended.is_ok(), "it waits");
            go_on.send(()).unwrap();
            holder.join().unwrap();
            assert_eq!(stream.recv().await.map(|expired| expired.key), Some(2));
            assert_eq!(stream.recv().await, None);
            let left: Vec<_> = stream.unexpired().iter().map(|e| e.key).collect();
            assert_eq!(left, [1]);
            assert_balanced(&wheel);
        });
    }
}

/// Handlers run to their end, and get back what they set; retries in their back-off are unexpired.
#[tokio::test(start_paused = true)]
async fn p15_shutdown_loses_nothing_of_handlers_in_flight() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, u32>();
    for key in 0..10 {
        timers.set_timer(key, 0, ms(10)).unwrap();
        timers.set_timer(key + 10, 3, ms(60_000)).unwrap();
    }
    let weak = timers.downgrade();
    let back = Arc::<Mutex<Vec<u32>>>::default();
    let refused = Arc::clone(&back);
    let worker = tokio::spawn(async move {
        let handle = |expired: tickwheel::Expired<u32, u32>| {
            let (weak, refused) = (weak.clone(), Arc::clone(&refused));
            async move {
                time::sleep(ms(50)).await;
                let timers = weak.upgrade().expect("the test has a handle");
                let retry = timers.set_timer(expired.key, expired.value + 1, ms(5_000));
                let (key, value) = retry.expect_err("it is closed").into_inner();
                assert_eq!(value, 1);
                refused.lock().unwrap().push(key);
            }
        };
        stream.dispatch(4, handle).await;
        stream.unexpired()
    });
    advance(&wheel, ms(10)).await;
    tokio::task::yield_now().await;
    wheel.shutdown().await;
    assert!(back.lock().unwrap().is_empty(), "four are in flight");
    let left: Vec<_> = worker.await.unwrap().iter().map(|e| e.key).collect();
    let mut back = back.lock().unwrap().clone();
    back.sort_unstable();
    assert_eq!(back, (0..10).collect::<Vec<_>>());
    assert_eq!(left, (10..20).collect::<Vec<_>>());
    assert_balanced(&wheel);
}
