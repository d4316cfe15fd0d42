//! Wakers that panic, re-enter, or drop sleeps that others wait for; runtimes that starve; sleeps
//! that are dropped while they fire.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::support::{
    HOUR, Numbers, Wakes, builder, jump, ms, poll_idly, poll_with, reset, start_wheel, us,
    wait_for, waker_fn,
};
use tickwheel::Sleep;
use tokio::task::JoinSet;
use tokio::time::{self, Instant};
use tokio_test::{assert_pending, assert_ready};

// --- wakers that panic ---

#[tokio::test(start_paused = true)]
async fn p12_panicking_waker_harms_only_its_own_sleep() {
    let wheel = start_wheel();
    let (woken, waker) = Wakes::new();
    let panicking = waker_fn(|| panic!("a waker's own affair"));
    let mut sleeps: Vec<_> = (0..100).map(|n| wheel.sleep(ms(10 + n % 3))).collect();
    for (n, sleep) in sleeps.iter_mut().enumerate() {
        let waker = if n % 5 == 0 { &panicking } else { &waker };
        assert_pending!(poll_with(sleep, waker));
    }
    time::advance(ms(20)).await;
    wheel.settle().await;
    assert_eq!(woken.count(), 80);
    for sleep in &mut sleeps {
        assert_ready!(poll_idly(sleep));
    }
    let start = Instant::now();
    wheel.sleep(ms(5)).await;
    assert_eq!(start.elapsed(), ms(5));
    assert!(!wheel.is_shutdown());
}

#[tokio::test(start_paused = true)]
async fn p12_survives_a_panic_payload_that_panics_when_dropped() {
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("and once more");
        }
    }

    let wheel = start_wheel();
    let waker = waker_fn(|| std::panic::panic_any(Bomb));
    let mut sleep = wheel.sleep(ms(10));
    assert_pending!(poll_with(&mut sleep, &waker));
    time::advance(ms(10)).await;
    wheel.settle().await;
    assert_ready!(poll_idly(&mut sleep));
    wheel.sleep(ms(5)).await;
}

#[tokio::test(start_paused = true)]
async fn p12_wakes_all_at_the_end_despite_panicking_wakers() {
    let wheel = start_wheel();
    let (woken, waker) = Wakes::new();
    let panicking = waker_fn(|| panic!("a waker's own affair"));
    let mut sleeps: Vec<_> = (0..100).map(|_| wheel.sleep(HOUR)).collect();
    for (n, sleep) in sleeps.iter_mut().enumerate() {
        let waker = if n % 2 == 0 { &panicking } else { &waker };
        assert_pending!(poll_with(sleep, waker));
    }
    wheel.settle().await;
    wheel.shutdown().await;
    assert!(wheel.is_shutdown());
    assert_eq!(woken.count(), 50);
}

#[tokio::test(start_paused = true)]
async fn p12_survives_a_waker_that_panics_when_dropped() {
    struct PanicsOnDrop;

    impl std::task::Wake for PanicsOnDrop {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            panic!("a waker's own affair");
        }
    }

    let wheel = start_wheel();
    let armed = |length| {
        let mut sleep = wheel.sleep(length);
        let waker = Waker::from(Arc::new(PanicsOnDrop));
        assert_pending!(poll_with(&mut sleep, &waker));
        drop(waker); // the sleep has the only reference
        sleep
    };
    // The actor has woken it, which drops it.
    let mut fired = armed(ms(10));
    let start = Instant::now();
    wheel.sleep(ms(20)).await;
    assert_eq!(start.elapsed(), ms(20));
    assert_ready!(poll_idly(&mut fired));
    // The owner drops it, and the panic unwinds into the owner.
    let dropped = armed(ms(10));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(dropped))).is_err());
    // The actor drops it when it ends.
    let mut closed = armed(HOUR);
    wheel.settle().await;
    wheel.shutdown().await;
    assert!(wheel.is_shutdown());
    assert_pending!(poll_idly(&mut closed));
}

#[tokio::test(start_paused = true)]
async fn p12_wakers_that_panic_when_settled_harm_no_timer() {
    let wheel = start_wheel();
    let panicking = waker_fn(|| panic!("a waker's own affair"));
    let (woken, waker) = Wakes::new();
    let (timers, mut expirations) = wheel.keyed();
    timers.set_timer("innocent", (), ms(50)).unwrap();
    let mut settling: Vec<_> = (0..10).map(|_| Box::pin(wheel.settle())).collect();
    for (n, settled) in settling.iter_mut().enumerate() {
        let waker = if n % 2 == 0 { &panicking } else { &waker };
        assert_pending!(poll_with(settled, waker));
    }
    wheel.settle().await;
    assert_eq!(woken.count(), 5);
    assert!(!wheel.is_shutdown());
    assert_eq!(expirations.recv().await.unwrap().key, "innocent");
}

#[tokio::test(start_paused = true)]
async fn p12_wakers_that_panic_in_a_queue_skip_no_step() {
    let wheel = start_wheel();
    let panicking = waker_fn(|| panic!("a waker's own affair"));
    let (woken, waker) = Wakes::new();
    let (timers, mut expirations) = wheel.keyed::<u32, ()>();
    timers.set_timer(1, (), HOUR).unwrap();
    let mut on_the_wheel = wheel.sleep(HOUR);
    assert_pending!(poll_with(&mut on_the_wheel, &waker));
    wheel.settle().await;
    // All of these are queued when the actor ends.
    let mut ending: Vec<_> = (0..6).map(|_| Box::pin(wheel.shutdown())).collect();
    let mut settling: Vec<_> = (0..6).map(|_| Box::pin(wheel.settle())).collect();
    for n in 0..6 {
        let waker = if n % 2 == 0 { &panicking } else { &waker };
        assert_pending!(poll_with(&mut settling[n], waker));
        assert_pending!(poll_with(&mut ending[n], waker));
    }
    let mut in_a_queue = wheel.sleep(HOUR);
    assert_pending!(poll_with(&mut in_a_queue, &waker));
    time::timeout(HOUR / 2, wheel.shutdown()).await.unwrap();
    assert!(wheel.is_shutdown());
    assert_eq!(woken.count(), 3 + 3 + 2);
    assert!(expirations.recv().await.is_none());
    assert_eq!(expirations.unexpired().len(), 1);
}

// --- wakers that come back ---

#[tokio::test(start_paused = true)]
async fn p7_sleep_dropped_on_its_tick_wakes_no_task() {
    let wheel = start_wheel();
    let (woken, waker) = Wakes::new();
    for settled in [true, false] {
        let mut sleep = wheel.sleep(ms(10));
        assert_pending!(poll_with(&mut sleep, &waker));
        if settled {
            wheel.settle().await;
        }
        jump(ms(10)); // the actor has not run
        drop(sleep);
        wheel.settle().await;
        time::advance(HOUR).await;
        wheel.settle().await;
        assert_eq!(woken.count(), 0);
    }
    assert_eq!(wheel.metrics().sleeps_cancelled, 2);
}

#[tokio::test(start_paused = true)]
async fn p7_sleep_dropped_by_another_waker_wakes_no_task() {
    let wheel = start_wheel();
    let (woken, waker) = Wakes::new();
    let start = Instant::now();
    for length in [10, 11, 5000] {
        let mut others = Vec::new();
        // There are more sleeps on both sides of the one that drops them than the actor takes off
        // the wheel in one step.
        let armed: Vec<_> = (0..200)
            .map(|_| {
                let mut sleep = wheel.sleep(ms(length));
                assert_pending!(poll_with(&mut sleep, &waker));
                sleep
            })
            .collect();
        let victims = Arc::new(Mutex::new(armed));
        let seen = Arc::clone(&victims);
        let dropping = waker_fn(move || drop(std::mem::take(&mut *seen.lock().unwrap())));
        let mut first = wheel.sleep(ms(length - 1));
        assert_pending!(poll_with(&mut first, &dropping));
        others.push(first);
        jump(ms(length));
        wheel.settle().await;
        assert!(victims.lock().unwrap().is_empty());
        assert_eq!(woken.count(), 0, "{length}");
    }
    assert_eq!(wheel.metrics().sleeps_cancelled, 600);
    assert_eq!(start.elapsed(), ms(10 + 11 + 5000));
}

#[tokio::test(start_paused = true)]
async fn lets_a_waker_use_the_wheel() {
    let wheel = start_wheel();
    let (woken, waker) = Wakes::new();
    let made = Arc::new(Mutex::new(Vec::<Sleep>::new()));
    let moved = Arc::new(Mutex::new(wheel.sleep(HOUR)));
    assert_pending!(poll_with(&mut *moved.lock().unwrap(), &waker));
    let (inside, kept, to_move) = (wheel.clone(), Arc::clone(&made), Arc::clone(&moved));
    let busy = waker_fn(move || {
        // The waker arms sleeps, one of them due already, drops some, moves one, reads the metrics
        // and sets a keyed timer.
        for n in 0..300 {
            let mut sleep = inside.sleep(ms(n % 10));
            if poll_with(&mut sleep, &waker).is_pending() && n % 3 == 0 {
                kept.lock().unwrap().push(sleep);
            }
        }
        reset(&mut to_move.lock().unwrap(), Instant::now() + ms(3));
        assert!(inside.metrics().sleeps_made >= 300);
        let (timers, expirations) = inside.keyed::<u32, ()>();
        timers.set_timer(1, (), ms(1)).unwrap();
        drop((timers, expirations));
    });
    let mut sleep = wheel.sleep(ms(10));
    assert_pending!(poll_with(&mut sleep, &busy));
    time::advance(ms(10)).await;
    wheel.settle().await;
    assert_eq!(wheel.metrics().keyed_drained, 1, "its last step");
    let kept = made.lock().unwrap().len();
    assert!(kept > 50);
    assert_eq!(woken.count(), 0);
    time::advance(ms(10)).await;
    wheel.settle().await;
    assert_eq!(woken.count(), kept + 1);
}

#[tokio::test(start_paused = true)]
async fn holds_no_lock_when_a_waker_polls_its_own_sleep() {
    let wheel = start_wheel();
    let rounds = Arc::new(AtomicUsize::new(0));
    let sleep = Arc::new(Mutex::new(wheel.sleep(ms(1))));
    let (counted, again) = (Arc::clone(&rounds), Arc::downgrade(&sleep));
    let own = Arc::new(Mutex::new(None::<Waker>));
    let own_again = Arc::clone(&own);
    let waker = waker_fn(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        let Some(sleep) = Weak::upgrade(&again) else {
            return;
        };
        let waker = own_again.lock().unwrap().clone().unwrap();
        let mut sleep = sleep.try_lock().expect("no task polls it now");
        assert_ready!(poll_with(&mut *sleep, &waker));
        reset(&mut sleep, Instant::now() + ms(1));
        assert_pending!(poll_with(&mut *sleep, &waker));
    });
    *own.lock().unwrap() = Some(waker.clone());
    assert_pending!(poll_with(&mut *sleep.lock().unwrap(), &waker));
    for n in 1..=100 {
        time::advance(ms(1)).await;
        wheel.settle().await;
        assert_eq!(rounds.load(Ordering::SeqCst), n);
    }
    own.lock().unwrap().take(); // else it would hold itself
}

#[tokio::test(start_paused = true)]
async fn holds_no_lock_when_a_dropped_waker_drops_sleeps() {
    struct Holds {
        _held: Mutex<Sleep>,
    }

    impl std::task::Wake for Holds {
        fn wake(self: Arc<Self>) {}
    }

    let wheel = start_wheel();
    let (woken, counting) = Wakes::new();
    let holding = |length| {
        let mut held = wheel.sleep(length);
        assert_pending!(poll_with(&mut held, &counting));
        Waker::from(Arc::new(Holds {
            _held: Mutex::new(held),
        }))
    };
    // Replaced by another, cancelled, fired, moved and cancelled.
    let mut replaced = wheel.sleep(ms(10));
    assert_pending!(poll_with(&mut replaced, &holding(ms(10))));
    assert_pending!(poll_with(&mut replaced, &counting));
    let mut cancelled = wheel.sleep(ms(10));
    assert_pending!(poll_with(&mut cancelled, &holding(ms(10))));
    drop(cancelled);
    let mut fired = wheel.sleep(ms(9));
    assert_pending!(poll_with(&mut fired, &holding(ms(10))));
    let mut moved = wheel.sleep(ms(9));
    assert_pending!(poll_with(&mut moved, &holding(ms(10))));
    reset(&mut moved, Instant::now());
    drop(moved);
    jump(ms(10));
    wheel.settle().await;
    assert_eq!(woken.count(), 1, "the one that replaced another");
    let metrics = wheel.metrics();
    assert_eq!((metrics.sleeps_fired, metrics.sleeps_cancelled), (2, 6));
}

// --- runtimes that starve ---

#[tokio::test]
async fn due_sleeps_are_ready_at_once_after_a_starved_runtime() {
    let wheel = start_wheel();
    let mut tasks = JoinSet::new();
    for n in 0..100 {
        let wheel = wheel.clone();
        tasks.spawn(async move {
            let deadline = Instant::now() + ms(n % 30);
            wheel.sleep_until(deadline).await;
            assert!(Instant::now() >= deadline);
        });
    }
    let mut sleep = wheel.sleep(ms(20));
    // Pending, unless the machine stops for as long.
    let _ = poll_idly(&mut sleep);
    tokio::task::yield_now().await;
    std::thread::sleep(ms(40)); // a task blocks the only thread
    assert_ready!(poll_idly(&mut sleep));
    tasks.join_all().await;
    assert_eq!(wheel.metrics().sleeps_pending, 0);
}

// A wheel that counts ticks lags for good once it was late; one with a stale time fires a burst
// of fresh timers early.
#[tokio::test(start_paused = true)]
async fn p1_p2_new_sleeps_fire_on_time_after_starvation() {
    let wheel = start_wheel();
    for gap in [ms(100), HOUR, HOUR * 24 * 365] {
        let mut overdue = wheel.sleep(ms(10));
        assert_pending!(poll_idly(&mut overdue));
        wheel.settle().await;
        jump(gap);
        // The actor has not taken a turn since the clock moved.
        let start = Instant::now();
        let (woken, waker) = Wakes::new();
        let mut sleeps: Vec<_> = [1, 64, 100, 5000].map(|n| wheel.sleep(ms(n))).into();
        for sleep in &mut sleeps {
            assert_pending!(poll_with(sleep, &waker));
        }
        wheel.settle().await;
        assert!(overdue.is_elapsed());
        assert_eq!(woken.count(), 0);
        for sleep in sleeps {
            let deadline = sleep.deadline();
            sleep.await;
            assert_eq!(Instant::now(), deadline);
        }
        assert_eq!(start.elapsed(), ms(5000));
    }
}

// --- races ---

#[test]
fn p7_drops_that_race_with_firing_wake_no_task() {
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(2).enable_time().build().unwrap();
    let wheel = builder().runtime(runtime.handle().clone()).start().unwrap();
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let wheel = &wheel;
            scope.spawn(move || {
                let mut numbers = Numbers(seed);
                let mut fired = 0;
                for _ in 0..300 {
                    let mut batch: Vec<_> = (0..10)
                        .map(|_| {
                            let (woken, waker) = Wakes::new();
                            let mut sleep = wheel.sleep(us(1 + numbers.below(3_000)));
                            let waits = poll_with(&mut sleep, &waker).is_pending();
                            (sleep, woken, waits)
                        })
                        .collect();
                    std::thread::sleep(us(numbers.below(2_000)));
                    let dropped: Vec<_> = batch
                        .drain(..)
                        .map(|(sleep, woken, waits)| {
                            let elapsed = waits && sleep.is_elapsed();
                            drop(sleep);
                            // The actor may still be waking a sleep that fired during the drop.
                            (elapsed, woken)
                        })
                        .collect();
                    for (elapsed, woken) in dropped {
                        while Arc::strong_count(&woken) > 1 {
                            std::thread::yield_now();
                        }
                        let count = woken.count();
                        assert!(count <= 1);
                        assert!(count == 1 || !elapsed);
                        fired += count;
                    }
                }
                assert!(fired > 0, "none was in time to race");
            });
        }
    });
    let metrics = wheel.metrics();
    let over = metrics.sleeps_fired + metrics.sleeps_cancelled;
    assert_eq!((metrics.sleeps_made, over), (6000, 6000));
}

#[test]
fn p3_two_threads_that_poll_in_turn_lose_no_wake_up() {
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(2).enable_time().build().unwrap();
    runtime.block_on(async {
        let wheel = start_wheel();
        let mut rounds = JoinSet::new();
        for seed in 0..200 {
            let wheel = wheel.clone();
            rounds.spawn(async move {
                let mut numbers = Numbers(seed);
                for _ in 0..4 {
                    let sleep = Arc::new(Mutex::new(wheel.sleep(us(numbers.below(4_000)))));
                    let polling = Arc::clone(&sleep);
                    // Polls it for a while, so that the other task's waker is replaced, and then
                    // resumes that task.
                    let (told, tell) = tokio::sync::oneshot::channel();
                    let pause = us(numbers.below(4_000));
                    tokio::spawn(async move {
                        let _ = time::timeout(pause, wait_for(polling)).await;
                        let _ = told.send(());
                    });
                    let first = futures::poll!(Box::pin(wait_for(Arc::clone(&sleep))));
                    if first == Poll::Pending {
                        tell.await.unwrap();
                        wait_for(sleep).await;
                    }
                }
            });
        }
        let all = time::timeout(Duration::from_secs(120), rounds.join_all());
        all.await.expect("a sleep hangs");
    });
}
