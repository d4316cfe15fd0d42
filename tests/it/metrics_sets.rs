//! The counts in `metrics` of sets of keyed timers that are made and dropped.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::support::{HOUR, ms, start_on_thread};
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
fn p16_set_is_counted_once_while_it_is_dropped() {
    const READS: usize = 3_000;
    let wheel = start_on_thread(TimerWheel::builder());
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
    struct Reads(TimerWheel, mpsc::Sender<(u64, u64)>);

    impl Drop for Reads {
        fn drop(&mut self) {
            let metrics = self.0.metrics();
            let counts = (metrics.keyed_set, metrics.keyed_drained);
            self.1.send(counts).unwrap();
        }
    }

    let wheel = start_on_thread(TimerWheel::builder());
    let (timers, expirations) = wheel.keyed::<u32, Reads>();
    let (tell, told) = mpsc::channel();
    let value = Reads(wheel.clone(), tell);
    timers.set_timer(1, value, HOUR).unwrap();
    drop((timers, expirations));
    assert_eq!(told.recv(), Ok((1, 1)));
    futures::executor::block_on(wheel.settle());
    assert_eq!(wheel.metrics().keyed_pending, 0);
}

#[track_caller]
fn assert_balanced(metrics: &WheelMetrics) {
    assert_eq!(
        metrics.keyed_set,
        metrics.keyed_pending
            + metrics.keyed_fired
            + metrics.keyed_removed
            + metrics.keyed_replaced
            + metrics.keyed_drained,
        "{metrics:?}"
    );
}

/// Tells threads to stop, also when the test fails.
#[derive(Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn p16_counters_add_up_in_every_snapshot() {
    const READS: usize = 3_000;
    let wheel = start_on_thread(TimerWheel::builder());
    let (timers, mut expirations) = wheel.keyed::<u32, u32>();
    thread::scope(|scope| {
        let stop = StopOnDrop::default();
        for thread in 0..2 {
            let (timers, stop) = (timers.clone(), Arc::clone(&stop.0));
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    timers.set_timer(thread, 1, HOUR).unwrap();
                    timers.set_timer(thread, 2, HOUR).unwrap();
                    timers.move_timer(&thread, HOUR + ms(1)).unwrap();
                    timers.remove_timer(&thread).unwrap();
                    timers.set_interval(10 + thread, 3, ms(1)).unwrap();
                    timers.set_timer(20 + thread, 4, ms(1)).unwrap();
                }
            });
        }
        for _ in 0..READS {
            assert_balanced(&wheel.metrics());
            while expirations.try_recv().is_ok() {}
        }
    });
    drop((timers, expirations));
    futures::executor::block_on(wheel.settle());
    let metrics = wheel.metrics();
    assert_balanced(&metrics);
    assert_eq!(metrics.keyed_pending, 0);
}

/// Regression: reading the counts locked each set.
#[test]
fn reads_the_counts_while_a_set_is_locked() {
    /// Its `Eq`, which runs under the lock, waits for the sender to go, ten seconds at most.
    struct Waits(Option<Waiter>);

    struct Waiter {
        begun: mpsc::Sender<()>,
        until: Mutex<mpsc::Receiver<()>>,
        was_freed: Arc<AtomicBool>,
    }

    impl Hash for Waits {
        fn hash<H: Hasher>(&self, _: &mut H) {}
    }

    impl PartialEq for Waits {
        fn eq(&self, other: &Self) -> bool {
            if let Some(waiter) = self.0.as_ref().or(other.0.as_ref()) {
                waiter.begun.send(()).unwrap();
                let until = waiter.until.lock().unwrap();
                let end = until.recv_timeout(Duration::from_secs(10));
                let was_freed = end == Err(RecvTimeoutError::Disconnected);
                waiter.was_freed.store(was_freed, Ordering::SeqCst);
            }
            true
        }
    }

    impl Eq for Waits {}

    let wheel = start_on_thread(TimerWheel::builder());
    let (timers, _expirations) = wheel.keyed::<Waits, u32>();
    timers.set_timer(Waits(None), 1, HOUR).unwrap();
    let was_freed = Arc::new(AtomicBool::new(false));
    let (begun, has_begun) = mpsc::channel();
    let (free, until) = mpsc::channel();
    let key = Waits(Some(Waiter {
        begun,
        until: Mutex::new(until),
        was_freed: Arc::clone(&was_freed),
    }));
    let metrics = thread::scope(|scope| {
        scope.spawn(|| timers.set_timer(key, 2, HOUR).unwrap());
        has_begun.recv().unwrap();
        let metrics = wheel.metrics();
        drop(free);
        metrics
    });
    assert!(
        was_freed.load(Ordering::SeqCst),
        "`metrics` waited for the lock"
    );
    assert_eq!((metrics.keyed_set, metrics.keyed_pending), (1, 1));
    assert_eq!(wheel.metrics().keyed_replaced, 1);
}
