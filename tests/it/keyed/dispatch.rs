//! `Expirations::dispatch`: handlers, a bounded number at once.

use std::pin::pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::poll;
use tickwheel::TimerWheel;
use tokio::time::Instant;

use crate::support::{advance, assert_balanced, ms, received};

/// How many handlers run, and how many did at most.
#[derive(Default)]
struct Gauge {
    running: AtomicUsize,
    most: AtomicUsize,
    total: AtomicUsize,
}

struct Running<'a>(&'a Gauge);

impl Gauge {
    fn enter(&self) -> Running<'_> {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        self.total.fetch_add(1, Ordering::SeqCst);
        Running(self)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn runs_as_many_handlers_at_once_as_allowed() {
    for (concurrency, expected) in [(0, 1), (1, 1), (7, 7), (1000, 100)] {
        let wheel = TimerWheel::new();
        let (timers, mut stream) = wheel.keyed();
        for key in 0..100 {
            timers.set_timer(key, (), ms(1)).unwrap();
        }
        drop(timers);
        let gauge = Gauge::default();
        let dispatch = stream.dispatch(concurrency, |_| async {
            let _running = gauge.enter();
            wheel.sleep(ms(10)).await;
        });
        dispatch.await;
        assert_eq!(gauge.most.load(Ordering::SeqCst), expected);
        assert_eq!(gauge.total.load(Ordering::SeqCst), 100);
        assert_eq!(gauge.running.load(Ordering::SeqCst), 0, "all have finished");
    }
}

#[tokio::test(start_paused = true)]
async fn runs_other_handlers_beside_a_slow_one() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    for key in 0..10 {
        timers.set_timer(key, (), ms(10 * key)).unwrap();
    }
    drop(timers);
    let start = Instant::now();
    let finished = Mutex::new(Vec::new());
    let dispatch = stream.dispatch(2, |expired| {
        let (wheel, finished) = (&wheel, &finished);
        async move {
            if expired.key == 0 {
                wheel.sleep(ms(10_000)).await;
            }
            let at = start.elapsed().as_millis();
            finished.lock().unwrap().push((expired.key, at));
        }
    });
    dispatch.await;
    let mut expected: Vec<_> = (1..10).map(|key| (key, u128::from(10 * key))).collect();
    expected.push((0, 10_000));
    assert_eq!(*finished.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn lets_a_handler_use_the_timers_of_its_set() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    timers.set_timer(0, 0, ms(10)).unwrap();
    let log = Mutex::new(Vec::new());
    let start = Instant::now();
    let handle = Mutex::new(Some(timers));
    let dispatch = stream.dispatch(4, |expired| {
        let timers = handle.lock().unwrap().clone();
        let (log, handle) = (&log, &handle);
        async move {
            let timers = timers.expect("dropped by the last handler only");
            log.lock()
                .unwrap()
                .push((expired.key, start.elapsed().as_millis()));
            match expired.key {
                0 => {
                    timers.set_timer(0, 1, ms(10)).unwrap();
                    timers.set_timer(1, 0, ms(1000)).unwrap();
                    timers.set_timer(2, 0, ms(1000)).unwrap();
                    timers.set_timer(3, 0, ms(1000)).unwrap();
                    if expired.value == 1 {
                        timers.move_timer(&1, ms(5)).unwrap();
                        timers.remove_timer(&2).unwrap();
                        timers.remove_timer(&0).unwrap();
                    }
                }
                1 => {
                    let drained = timers.drain().unwrap();
                    assert_eq!(drained.iter().map(|e| e.key).collect::<Vec<_>>(), [3]);
                    timers.set_timer(4, 0, ms(0)).unwrap();
                }
                _ => *handle.lock().unwrap() = None,
            }
        }
    });
    dispatch.await;
    assert_eq!(*log.lock().unwrap(), [(0, 10), (0, 20), (1, 25), (4, 25)]);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn keeps_the_rest_in_the_stream_when_dispatch_is_dropped() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    for key in 0..10 {
        timers.set_timer(key, (), ms(0)).unwrap();
    }
    wheel.settle().await;
    let gauge = Arc::<Gauge>::default();
    {
        let mut dispatch = pin!(stream.dispatch(3, |_| async {
            let _running = gauge.enter();
            std::future::pending::<()>().await;
        }));
        assert!(poll!(&mut dispatch).is_pending());
        assert_eq!(gauge.running.load(Ordering::SeqCst), 3);
    }
    assert_eq!(gauge.running.load(Ordering::SeqCst), 0);
    let keys: Vec<_> = received(&mut stream)
        .into_iter()
        .map(|(key, ())| key)
        .collect();
    assert_eq!(keys, [3, 4, 5, 6, 7, 8, 9]);
}

#[tokio::test(start_paused = true)]
async fn p12_handler_that_panics_counts_as_finished() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    for key in 0..30 {
        timers.set_timer(key, (), ms(key)).unwrap();
    }
    drop(timers);
    let gauge = Gauge::default();
    let finished = AtomicUsize::new(0);
    let dispatch = stream.dispatch(2, |expired| {
        // Handlers panic before they return a future, at its first poll, and after it waited.
        assert!(expired.key % 5 != 1, "the closure panics");
        let (wheel, gauge, finished) = (&wheel, &gauge, &finished);
        async move {
            let _running = gauge.enter();
            assert!(expired.key % 5 != 2, "the handler panics at once");
            wheel.sleep(ms(3)).await;
            assert!(expired.key % 5 != 3, "the handler panics late");
            finished.fetch_add(1, Ordering::SeqCst);
        }
    });
    dispatch.await;
    assert_eq!(finished.load(Ordering::SeqCst), 12);
    assert_eq!(gauge.total.load(Ordering::SeqCst), 24);
    assert_eq!(gauge.running.load(Ordering::SeqCst), 0);
    assert!(gauge.most.load(Ordering::SeqCst) <= 2);
}

#[tokio::test(start_paused = true)]
async fn ends_dispatch_after_shutdown_once_all_is_handled() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    for key in 0..10 {
        timers.set_timer(key, (), ms(key % 2 * 1000)).unwrap();
    }
    advance(&wheel, ms(1)).await;
    let handled = Mutex::new(Vec::new());
    {
        let dispatch = stream.dispatch(1, |expired| {
            let (wheel, handled) = (&wheel, &handled);
            async move {
                wheel.shutdown().await;
                handled.lock().unwrap().push(expired.key);
            }
        });
        dispatch.await;
    }
    assert_eq!(*handled.lock().unwrap(), [0, 2, 4, 6, 8]);
    let left: Vec<_> = stream.unexpired().iter().map(|e| e.key).collect();
    assert_eq!(left, [1, 3, 5, 7, 9]);
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the drop of a handler panics");
    }
}

#[tokio::test(start_paused = true)]
async fn p12_goes_on_after_a_handler_whose_drop_panics() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    for key in 0..30 {
        timers.set_timer(key, (), ms(key)).unwrap();
    }
    drop(timers);
    let finished = AtomicUsize::new(0);
    let dispatch = stream.dispatch(2, |expired| {
        // Dropped with the future, after it has finished.
        let bomb = (expired.key % 3 == 1).then(|| Bomb);
        let (wheel, finished) = (&wheel, &finished);
        async move {
            wheel.sleep(ms(3)).await;
            finished.fetch_add(1, Ordering::SeqCst);
            drop(bomb);
        }
    });
    dispatch.await;
    assert_eq!(finished.load(Ordering::SeqCst), 30);

    // So does one that is dropped before it has finished.
    let (timers, mut stream) = wheel.keyed();
    for key in 0..4 {
        timers.set_timer(key, (), ms(0)).unwrap();
    }
    wheel.settle().await;
    {
        let mut dispatch = pin!(stream.dispatch(3, |_| async {
            let _bomb = Bomb;
            std::future::pending::<()>().await;
        }));
        assert!(poll!(&mut dispatch).is_pending());
    }
    assert_eq!(received(&mut stream), [(3, ())]);
    assert_balanced(&wheel);
}

/// A future that finishes at its first poll, and panics when it is dropped.
struct Ready(Bomb);

impl Future for Ready {
    type Output = ();

    fn poll(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        let Ready(_) = &*self;
        std::task::Poll::Ready(())
    }
}

#[tokio::test(start_paused = true)]
async fn p12_goes_on_after_a_finished_handler_whose_drop_panics() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    for key in 0..10 {
        timers.set_timer(key, (), ms(key)).unwrap();
    }
    drop(timers);
    let mut called = 0;
    let dispatch = stream.dispatch(1, |_| {
        called += 1;
        Ready(Bomb)
    });
    dispatch.await;
    assert_eq!(called, 10);
}
