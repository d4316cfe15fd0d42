//! What follows a handler: its timer is set again, unless the key was removed or set meanwhile.

use std::future::pending;
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::poll;
use tickwheel::{Outcome, SetTimerError, TimerWheel};
use tokio::time::Instant;

use crate::support::{advance, assert_balanced, ms, received, start_on_thread};

/// How long the handlers of these tests take.
const WORK: Duration = ms(50);

/// Handles one timer, whose handler would set it again forever, while `meanwhile` runs 20 ms into
/// its first call. Returns what was handled within a second, with milliseconds.
async fn handled_while(
    meanwhile: impl FnOnce(&tickwheel::KeyedTimers<u32, u32>),
) -> Vec<(u32, u32, u128)> {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, u32>();
    timers.set_timer(1, 0, ms(10)).unwrap();
    let start = Instant::now();
    let log = Mutex::new(Vec::new());
    {
        let (wheel, log) = (&wheel, &log);
        let dispatch = stream.dispatch(4, |expired| async move {
            let at = start.elapsed().as_millis();
            log.lock().unwrap().push((expired.key, expired.value, at));
            wheel.sleep(WORK).await;
            Outcome::Again(expired.value + 1, ms(100))
        });
        let acts = async {
            wheel.sleep(ms(30)).await;
            meanwhile(&timers);
            wheel.sleep(ms(330)).await;
        };
        futures::future::select(pin!(dispatch), pin!(acts)).await;
    }
    drop(stream);
    assert_balanced(&wheel);
    log.into_inner().unwrap()
}

#[tokio::test(start_paused = true)]
async fn sets_a_timer_again_for_its_handler() {
    let handled = handled_while(|_| {}).await;
    assert_eq!(handled, [(1, 0, 10), (1, 1, 160), (1, 2, 310)]);
}

#[tokio::test(start_paused = true)]
async fn removal_while_the_handler_runs_wins() {
    let handled = handled_while(|timers| {
        assert_eq!(timers.remove_timer(&1), Ok(None), "it has expired");
    });
    assert_eq!(handled.await, [(1, 0, 10)]);
}

#[tokio::test(start_paused = true)]
async fn drain_while_the_handler_runs_wins() {
    let handled = handled_while(|timers| assert!(timers.drain().unwrap().is_empty()));
    assert_eq!(handled.await, [(1, 0, 10)]);
}

#[tokio::test(start_paused = true)]
async fn timer_that_is_set_while_the_handler_runs_wins() {
    let handled = handled_while(|timers| {
        assert_eq!(timers.set_timer(1, 7, ms(200)), Ok(None));
    });
    assert_eq!(handled.await, [(1, 0, 10), (1, 7, 230)]);

    let handled = handled_while(|timers| {
        assert_eq!(timers.set_if_absent(1, 7, ms(200)), Ok(None));
        let removed = timers.update(&1, |timer| (*timer.key(), timer.remove()));
        assert_eq!(removed, Ok(Some((1, 7))));
    });
    assert_eq!(handled.await, [(1, 0, 10)], "it was set and removed");
}

#[tokio::test(start_paused = true)]
async fn moving_other_or_absent_timers_supersedes_no_handler() {
    let handled = handled_while(|timers| {
        assert_eq!(timers.move_timer(&1, ms(1)), Ok(false));
        assert_eq!(timers.remove_timer(&2), Ok(None));
        assert_eq!(timers.get(&1), None);
        assert!(timers.is_empty(), "it was received");
    });
    assert_eq!(handled.await, [(1, 0, 10), (1, 1, 160), (1, 2, 310)]);
}

#[tokio::test(start_paused = true)]
async fn runs_one_handler_for_a_key_at_a_time() {
    let handled = handled_while(|timers| {
        // It is due at 40 ms, and the handler runs until 60 ms.
        timers.set_timer(1, 7, ms(10)).unwrap();
        timers.set_timer(2, 8, ms(10)).unwrap();
    });
    let handled = handled.await;
    assert_eq!(handled[..3], [(1, 0, 10), (2, 8, 40), (1, 7, 60)]);
}

#[tokio::test(start_paused = true)]
async fn timer_that_waits_for_a_handler_can_be_moved_and_removed() {
    for remove in [false, true] {
        let wheel = TimerWheel::new();
        let (timers, mut stream) = wheel.keyed::<u32, u32>();
        timers.set_timer(1, 0, ms(0)).unwrap();
        let start = Instant::now();
        let log = Mutex::new(Vec::new());
        let (wheel, log, weak) = (&wheel, &log, timers.downgrade());
        let dispatch = stream.dispatch(4, |expired| async move {
            let at = start.elapsed().as_millis();
            log.lock().unwrap().push((expired.value, at));
            wheel.sleep(WORK).await;
        });
        let acts = async {
            wheel.sleep(ms(5)).await;
            timers.set_timer(1, 1, ms(5)).unwrap();
            wheel.sleep(ms(20)).await;
            assert_eq!(timers.len(), 1, "it is due, and waits");
            if remove {
                assert_eq!(timers.remove_timer(&1), Ok(Some(1)));
            } else {
                assert_eq!(timers.move_timer(&1, ms(100)), Ok(true));
            }
            drop(timers);
        };
        futures::join!(dispatch, acts);
        let moved: &[_] = if remove {
            &[(0, 0)]
        } else {
            &[(0, 0), (1, 125)]
        };
        assert_eq!(*log.lock().unwrap(), moved);
        assert!(weak.upgrade().is_none());
        assert_balanced(wheel);
    }
}

#[tokio::test(start_paused = true)]
async fn repeating_timer_waits_for_its_handler_and_misses_periods() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, ()>();
    timers.set_interval(1, (), ms(10)).unwrap();
    let start = Instant::now();
    let log = Mutex::new(Vec::new());
    let (wheel, log, timers) = (&wheel, &log, &timers);
    let mut dispatch = pin!(stream.dispatch(4, |expired| async move {
        let at = start.elapsed().as_millis();
        log.lock().unwrap().push((at, expired.missed));
        wheel.sleep(ms(35)).await;
        if at == 45 {
            timers.remove_timer(&1).unwrap();
        }
        // It repeats: that wins.
        Outcome::Again((), ms(1))
    }));
    futures::future::select(&mut dispatch, pin!(wheel.sleep(ms(500)))).await;
    assert_eq!(*log.lock().unwrap(), [(10, 0), (45, 2)]);
}

#[tokio::test(start_paused = true)]
async fn stream_goes_on_while_a_handler_may_set_its_timer_again() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, u32>();
    timers.set_timer(1, 1, ms(10)).unwrap();
    // Neither a handle of the set nor one of the wheel is left.
    drop((timers, wheel));
    let start = Instant::now();
    let dispatch = stream.dispatch(4, |expired| async move {
        tokio::time::sleep(WORK).await;
        if expired.value < 3 {
            Outcome::Again(expired.value + 1, ms(100))
        } else {
            Outcome::Done
        }
    });
    dispatch.await;
    assert_eq!(start.elapsed(), ms(10 + 3 * 50 + 2 * 100));
}

#[tokio::test(start_paused = true)]
async fn expiration_counts_for_the_limit_while_its_handler_runs() {
    let wheel = TimerWheel::builder().max_keyed(1).start().unwrap();
    let (timers, mut stream) = wheel.keyed::<u32, u32>();
    timers.set_timer(1, 1, ms(10)).unwrap();
    let (calls, wheel, timers) = (&AtomicUsize::new(0), &wheel, &timers);
    {
        let mut dispatch = pin!(stream.dispatch(4, |expired| async move {
            calls.fetch_add(1, Ordering::Relaxed);
            let refused = timers.set_timer(2, 0, ms(1));
            assert_eq!(refused, Err(SetTimerError::Full(2, 0)));
            // A refused call supersedes nothing.
            let refused = timers.set_timer(1, 0, ms(1));
            assert_eq!(refused, Err(SetTimerError::Full(1, 0)));
            if expired.value == 1 {
                Outcome::Again(2, ms(10))
            } else {
                Outcome::Done
            }
        }));
        futures::future::select(&mut dispatch, pin!(wheel.sleep(ms(100)))).await;
        assert_eq!(calls.load(Ordering::Relaxed), 2);
        assert_eq!(timers.set_timer(2, 0, ms(1000)), Ok(None), "there is room");
    }
    drop(stream);
    assert_balanced(wheel);
}

#[tokio::test(start_paused = true)]
async fn dropped_dispatch_leaves_waiting_timers_and_room() {
    let wheel = TimerWheel::builder().max_keyed(3).start().unwrap();
    let (timers, mut stream) = wheel.keyed::<u32, u32>();
    for key in 0..3 {
        timers.set_timer(key, 0, ms(0)).unwrap();
    }
    wheel.settle().await;
    {
        let mut dispatch = pin!(stream.dispatch(2, |_| pending::<()>()));
        assert!(poll!(&mut dispatch).is_pending());
        assert_eq!(timers.len(), 1, "two are in hand");
    }
    assert_eq!(received(&mut stream), [(2, 0)]);
    for key in 0..3 {
        assert_eq!(timers.set_timer(key, 1, ms(0)), Ok(None), "there is room");
    }
    wheel.settle().await;
    {
        // The second dispatch finds a timer due whose key it has in hand.
        let mut dispatch = pin!(stream.dispatch(4, |_| pending::<()>()));
        assert!(poll!(&mut dispatch).is_pending());
        assert!(timers.set_timer(0, 2, ms(0)).is_err(), "all count");
    }
    let sets: Vec<_> = (0..2)
        .map(|value| timers.set_timer(0, value, ms(0)))
        .collect();
    assert!(sets[1].is_ok());
    wheel.settle().await;
    assert_eq!(received(&mut stream), [(0, 1)]);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn timer_that_waited_for_a_dropped_handler_is_received() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, u32>();
    timers.set_timer(1, 0, ms(0)).unwrap();
    wheel.settle().await;
    {
        let mut dispatch = pin!(stream.dispatch(2, |_| pending::<()>()));
        assert!(poll!(&mut dispatch).is_pending());
        timers.set_timer(1, 1, ms(0)).unwrap();
        advance(&wheel, ms(5)).await;
        assert!(poll!(&mut dispatch).is_pending());
        assert_eq!(timers.len(), 1);
    }
    assert_eq!(received(&mut stream), [(1, 1)]);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn timer_that_is_set_again_after_the_shutdown_is_unexpired() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, &str>();
    timers.set_timer(1, "first", ms(10)).unwrap();
    {
        let wheel = &wheel;
        let dispatch = stream.dispatch(1, |_| async move {
            wheel.shutdown().await;
            Outcome::Again("second", ms(10))
        });
        dispatch.await;
    }
    let left: Vec<_> = stream
        .unexpired()
        .iter()
        .map(|e| (e.key, e.value))
        .collect();
    assert_eq!(left, [(1, "second")]);
}

#[tokio::test(start_paused = true)]
async fn handler_that_takes_too_long_is_dropped() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, ()>();
    for key in 0..20 {
        timers.set_timer(key, (), ms(0)).unwrap();
    }
    drop(timers);
    let start = Instant::now();
    let finished = AtomicUsize::new(0);
    let (wheel, finished) = (&wheel, &finished);
    let dispatch = stream
        .handler_timeout(ms(100))
        .dispatch(4, |expired| async move {
            if expired.key % 5 == 0 {
                pending::<()>().await;
            }
            wheel.sleep(ms(99)).await;
            finished.fetch_add(1, Ordering::Relaxed);
        });
    dispatch.await;
    assert_eq!(finished.load(Ordering::Relaxed), 16);
    assert_eq!(
        start.elapsed(),
        ms(498),
        "each of the four has a turn that takes 100 ms or 99"
    );
}

#[tokio::test(start_paused = true)]
async fn handler_of_a_watch_sets_nothing_again() {
    let wheel = TimerWheel::new();
    let (reaper, mut stream) = wheel.reaper::<u32, ()>(ms(10));
    let _watch = reaper.watch(1, ()).unwrap();
    drop(reaper);
    let calls = AtomicUsize::new(0);
    let calls = &calls;
    let dispatch = stream.dispatch(4, |_| async move {
        calls.fetch_add(1, Ordering::Relaxed);
        Outcome::Again((), ms(10))
    });
    dispatch.await;
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_balanced(&wheel);
}

/// A key whose clone panics.
#[derive(PartialEq, Eq, Hash)]
struct Unclonable(u32);

impl Clone for Unclonable {
    fn clone(&self) -> Self {
        assert!(self.0 != 1, "the clone of a key panics");
        Unclonable(self.0)
    }
}

#[tokio::test(start_paused = true)]
async fn p12_timer_whose_key_cannot_be_cloned_is_removed() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<Unclonable, ()>();
    for key in 0..3 {
        timers.set_timer(Unclonable(key), (), ms(10)).unwrap();
    }
    drop(timers);
    let handled = Mutex::new(Vec::new());
    let dispatch = stream.dispatch(4, |expired| {
        handled.lock().unwrap().push(expired.key.0);
        async {}
    });
    dispatch.await;
    assert_eq!(*handled.lock().unwrap(), [0, 2]);
    assert_eq!(wheel.metrics().keyed_removed, 1);
    assert_balanced(&wheel);
}

/// A key whose comparison panics while told to.
#[derive(Clone)]
struct Incomparable(u32, std::sync::Arc<std::sync::atomic::AtomicBool>);

impl PartialEq for Incomparable {
    fn eq(&self, other: &Self) -> bool {
        assert!(
            !self.1.load(Ordering::Relaxed),
            "the comparison of keys panics"
        );
        self.0 == other.0
    }
}

impl Eq for Incomparable {}

impl std::hash::Hash for Incomparable {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[tokio::test(start_paused = true)]
async fn p12_comparison_that_panics_in_a_dispatch_loses_no_timer() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<Incomparable, u32>();
    let panics = std::sync::Arc::<std::sync::atomic::AtomicBool>::default();
    let key = || Incomparable(1, std::sync::Arc::clone(&panics));
    timers.set_timer(key(), 0, ms(0)).unwrap();
    wheel.settle().await;
    {
        let mut dispatch = Box::pin(stream.dispatch(2, |_| pending::<()>()));
        assert!(poll!(&mut dispatch).is_pending());
        timers.set_timer(key(), 1, ms(0)).unwrap();
        wheel.settle().await;
        panics.store(true, Ordering::Relaxed);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let poll = || dispatch.as_mut().poll(&mut cx).is_ready();
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(poll));
        assert!(unwound.is_err());
        panics.store(false, Ordering::Relaxed);
    }
    assert_eq!(stream.recv().await.map(|expired| expired.value), Some(1));
    assert_balanced(&wheel);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spawned_handlers_run_side_by_side() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, u32>();
    for key in 0..2 {
        timers.set_timer(key, 0, ms(0)).unwrap();
    }
    drop(timers);
    // Two handlers that block until both run: on one task that would last for ever.
    let (here, there) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    let mut ends = vec![(here.0, there.1), (there.0, here.1)];
    let calls = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&calls);
    let dispatching = tokio::spawn(async move {
        let handler = |expired: tickwheel::Expired<u32, u32>| {
            let end = (expired.value == 0).then(|| ends.pop()).flatten();
            let calls = std::sync::Arc::clone(&counted);
            async move {
                calls.fetch_add(1, Ordering::Relaxed);
                let Some((here, there)) = end else {
                    return Outcome::Done;
                };
                let met = tokio::task::spawn_blocking(move || {
                    here.send(()).unwrap();
                    there.recv().unwrap();
                });
                met.await.unwrap();
                Outcome::Again(1, ms(1))
            }
        };
        stream.dispatch_spawned(2, handler).await;
    });
    dispatching.await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 4);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn dropped_dispatch_aborts_spawned_handlers() {
    struct Dropped(std::sync::Arc<AtomicUsize>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, ()>();
    for key in 0..5 {
        timers.set_timer(key, (), ms(0)).unwrap();
    }
    wheel.settle().await;
    let dropped = std::sync::Arc::<AtomicUsize>::default();
    {
        let mut dispatch = pin!(stream.dispatch_spawned(3, |expired| {
            let dropped = Dropped(std::sync::Arc::clone(&dropped));
            async move {
                let _dropped = dropped;
                assert!(expired.key != 0, "a spawned handler panics");
                pending::<()>().await;
            }
        }));
        for _ in 0..10 {
            assert!(poll!(&mut dispatch).is_pending());
            tokio::task::yield_now().await;
        }
    }
    tokio::task::yield_now().await;
    assert_eq!(dropped.load(Ordering::Relaxed), 4, "one has panicked");
    assert_eq!(received(&mut stream), [(4, ())]);
    assert_balanced(&wheel);
}

/// What handlers have done with one key.
#[derive(Default)]
struct Seen {
    running: AtomicUsize,
    started: AtomicUsize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_removed_timers_are_not_tried_again_whatever_threads_do() {
    const THREADS: u64 = 2;
    const ROUNDS: u64 = 500;
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u64, u64>();
    // Each round has a key of its own, which is set, perhaps set again, and removed.
    let seen: std::sync::Arc<Vec<Seen>> =
        std::sync::Arc::new((0..THREADS * ROUNDS).map(|_| Seen::default()).collect());
    let handlers = std::sync::Arc::clone(&seen);
    let dispatching = tokio::spawn(async move {
        let handle = |expired: tickwheel::Expired<u64, u64>| {
            let seen = std::sync::Arc::clone(&handlers);
            async move {
                let key = &seen[usize::try_from(expired.key).unwrap()];
                let running = key.running.fetch_add(1, Ordering::SeqCst);
                assert_eq!(running, 0, "one handler for a key at a time");
                let started = key.started.fetch_add(1, Ordering::SeqCst) as u64;
                tokio::time::sleep(ms(started % 2)).await;
                key.running.fetch_sub(1, Ordering::SeqCst);
                assert!(expired.value % 64 != 63, "some handlers panic");
                Outcome::Again(
                    expired.value + 1,
                    Duration::from_micros(expired.value % 3 * 200),
                )
            }
        };
        stream.dispatch_spawned(64, handle).await;
    });
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (timers, seen) = (timers.clone(), std::sync::Arc::clone(&seen));
            std::thread::spawn(move || {
                let mut removed = Vec::new();
                for round in 0..ROUNDS {
                    let key = thread * ROUNDS + round;
                    timers.set_timer(key, round, ms(0)).unwrap();
                    let index = usize::try_from(key).unwrap();
                    // Every other one is removed while a handler runs, or may.
                    while round % 2 == 0 && seen[index].started.load(Ordering::SeqCst) == 0 {
                        std::thread::yield_now();
                    }
                    if round % 5 == 0 {
                        timers.set_timer(key, round, ms(0)).unwrap();
                    }
                    timers.remove_timer(&key).unwrap();
                    let started = seen[usize::try_from(key).unwrap()]
                        .started
                        .load(Ordering::SeqCst);
                    removed.push((key, started));
                }
                std::thread::sleep(ms(20));
                for (key, started) in removed {
                    let after = seen[usize::try_from(key).unwrap()]
                        .started
                        .load(Ordering::SeqCst);
                    let more = after - started;
                    // One that was received before the removal may begin after it.
                    assert!(
                        more <= 1,
                        "{more} handlers of key {key} began after its removal"
                    );
                }
            })
        })
        .collect();
    drop(timers);
    for thread in threads {
        let joined = tokio::task::spawn_blocking(move || thread.join());
        assert!(joined.await.unwrap().is_ok());
    }
    dispatching.await.unwrap();
    assert!(
        seen.iter()
            .any(|key| key.started.load(Ordering::SeqCst) > 1),
        "some were tried again"
    );
    assert!(
        seen.iter()
            .all(|key| key.running.load(Ordering::SeqCst) == 0)
    );
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn timer_that_waits_for_a_handler_is_handled_after_the_shutdown() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, u32>();
    timers.set_timer(1, 0, ms(0)).unwrap();
    let handled = Mutex::new(Vec::new());
    {
        let (wheel, timers, handled) = (&wheel, &timers, &handled);
        let dispatch = stream.dispatch(4, |expired| async move {
            handled.lock().unwrap().push(expired.value);
            if expired.value == 0 {
                timers.set_timer(1, 1, ms(5)).unwrap();
                wheel.sleep(ms(20)).await;
                wheel.shutdown().await;
            }
        });
        dispatch.await;
    }
    assert_eq!(*handled.lock().unwrap(), [0, 1]);
    assert!(stream.unexpired().is_empty());
}

#[tokio::test(start_paused = true)]
async fn forgotten_dispatch_keeps_no_room() {
    let wheel = TimerWheel::builder().max_keyed(2).start().unwrap();
    let (timers, mut stream) = wheel.keyed::<u32, u32>();
    for key in 0..2 {
        timers.set_timer(key, 0, ms(0)).unwrap();
    }
    wheel.settle().await;
    {
        let mut dispatch = Box::pin(stream.dispatch(2, |_| pending::<()>()));
        assert!(poll!(&mut dispatch).is_pending());
        std::mem::forget(dispatch);
    }
    {
        let mut dispatch = pin!(stream.dispatch(2, |_| pending::<()>()));
        assert!(poll!(&mut dispatch).is_pending());
    }
    for key in 0..2 {
        assert_eq!(timers.set_timer(key, 1, ms(0)), Ok(None), "there is room");
    }
    wheel.settle().await;
    assert_eq!(received(&mut stream), [(0, 1), (1, 1)]);
}

/// What a handler returns. Its conversion panics.
struct Unconvertible;

impl<V> From<Unconvertible> for Outcome<V> {
    fn from(_: Unconvertible) -> Self {
        panic!("the conversion of an outcome panics");
    }
}

#[tokio::test(start_paused = true)]
async fn p12_outcome_that_cannot_be_converted_is_done() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, ()>();
    for key in 0..3 {
        timers.set_timer(key, (), ms(0)).unwrap();
    }
    drop(timers);
    let calls = AtomicUsize::new(0);
    let dispatch = stream.dispatch(1, |_| async {
        calls.fetch_add(1, Ordering::Relaxed);
        Unconvertible
    });
    dispatch.await;
    assert_eq!(calls.load(Ordering::Relaxed), 3);
    assert_balanced(&wheel);
}

#[test]
fn spawning_outside_a_runtime_loses_no_expiration() {
    let wheel = start_on_thread(TimerWheel::builder());
    let (timers, mut stream) = wheel.keyed::<u32, ()>();
    timers.set_timer(1, (), ms(0)).unwrap();
    let outside = std::panic::AssertUnwindSafe(|| {
        futures::executor::block_on(stream.dispatch_spawned(1, |_| async {}));
    });
    assert!(std::panic::catch_unwind(outside).is_err());
    assert_eq!(
        futures::executor::block_on(stream.recv()).map(|expired| expired.key),
        Some(1)
    );
}
