//! The counts in `metrics` of sets of keyed timers that are made and dropped.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::{HOUR, ms};
use tickwheel::{TimerWheel, WheelMetrics};

/// Each count of keyed timers that can only grow.
fn growing(metrics: &WheelMetrics) -> [u64; 6] {
    [
        metrics.keyed_set,
        metrics.keyed_fired,
        metrics.keyed_removed,
        metrics.keyed_replaced,
        metrics.keyed_drained,
        metrics.keyed_moved,
    ]
}

#[test]
fn p16_counts_a_set_once_while_it_is_dropped() {
    const READS: usize = 3_000;
    let wheel = TimerWheel::builder().dedicated_thread().start().unwrap();
    let (begun, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    let (timers, _expirations) = wheel.keyed::<u32, u32>();
                    begun.fetch_add(1, Ordering::SeqCst);
                    timers.set_timer(1, 1, HOUR).unwrap();
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let mut before = [0; 6];
        for read in 0..READS {
            let at_least = done.load(Ordering::SeqCst);
            let now = growing(&wheel.metrics());
            let at_most = begun.load(Ordering::SeqCst);
            let shrunk = now.iter().zip(before).any(|(now, before)| *now < before);
            let counted = now[0];
            if shrunk || counted < at_least || counted > at_most {
                stop.store(true, Ordering::SeqCst);
                panic!(
                    "read {read}: {now:?} after {before:?}, of {at_least} to {at_most} that were set"
                );
            }
            before = now;
        }
        stop.store(true, Ordering::SeqCst);
    });
    let metrics = wheel.metrics();
    assert_eq!(metrics.keyed_set, begun.into_inner());
    assert_eq!(metrics.keyed_drained, metrics.keyed_set);
    assert_eq!(metrics.keyed_pending, 0);
}

#[tokio::test(start_paused = true)]
async fn keeps_counting_sets_that_outlive_the_wheel() {
    let wheel = TimerWheel::new();
    let (timers, mut expirations) = wheel.keyed::<u32, u32>();
    timers.set_timer(1, 1, ms(5)).unwrap();
    timers.set_timer(2, 2, HOUR).unwrap();
    assert_eq!(expirations.recv().await.unwrap().key, 1);
    wheel.shutdown().await;
    assert_eq!(growing(&wheel.metrics())[..2], [2, 1]);
    // A set that is made after the end changes no count.
    drop(wheel.keyed::<u32, u32>());
    drop((timers, expirations));
    let metrics = wheel.metrics();
    assert_eq!((metrics.keyed_set, metrics.keyed_fired), (2, 1));
    assert_eq!((metrics.keyed_drained, metrics.keyed_pending), (1, 0));
    wheel.sleep(Duration::from_millis(1)).await;
}

#[test]
fn can_be_read_while_a_value_is_dropped_with_its_set() {
    struct Reads(TimerWheel);

    impl Drop for Reads {
        fn drop(&mut self) {
            let metrics = self.0.metrics();
            assert_eq!((metrics.keyed_set, metrics.keyed_drained), (1, 1));
        }
    }

    let wheel = TimerWheel::builder().dedicated_thread().start().unwrap();
    let (timers, expirations) = wheel.keyed::<u32, Reads>();
    timers.set_timer(1, Reads(wheel.clone()), HOUR).unwrap();
    drop((timers, expirations));
    futures::executor::block_on(wheel.settle());
    assert_eq!(wheel.metrics().keyed_pending, 0);
}
