//! Drops while a thread ends: a panic there aborts the process, and with it the tests.
//!
//! Tokio's own thread-local is gone by then, if the thread used another one first. A Tokio that has
//! paused any clock in the process then panics when it is asked for the time.

use std::any::Any;
use std::cell::RefCell;
use std::env;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};
use std::thread;

use crate::support::{HANG_TIMEOUT, HOUR, ms, poll_idly, poll_with, waker_fn};
use tickwheel::{Expirations, Sleep, TimerWheel};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::yield_now;
use tokio::time::Instant;
use tokio_test::assert_pending;

/// How many cancelled sleeps a thread keeps.
const POOLED: usize = 128;

/// How many commands of a thread wake the actor.
const QUEUE_BOUND: usize = 512;

/// A wheel with an actor that waits. It takes no command while the test does not drive the runtime.
fn wheel_at_rest() -> (Runtime, TimerWheel) {
    drop(
        { Builder::new_current_thread() }
            .enable_time()
            .start_paused(true)
            .build(),
    );
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let wheel = runtime.block_on(async { TimerWheel::new() });
    (runtime, wheel)
}

fn rest(runtime: &Runtime, wheel: &TimerWheel) {
    runtime.block_on(async {
        wheel.settle().await;
        for _ in 0..10 {
            yield_now().await;
        }
    });
}

fn armed_sleeps(wheel: &TimerWheel, count: usize) -> Vec<Sleep> {
    let mut sleeps: Vec<_> = (0..count).map(|_| wheel.sleep(HOUR)).collect();
    for sleep in &mut sleeps {
        assert_pending!(poll_idly(sleep));
    }
    sleeps
}

#[test]
fn releases_pooled_sleeps_in_a_thread_that_ends() {
    let (runtime, wheel) = wheel_at_rest();
    let sleeps = armed_sleeps(&wheel, POOLED + QUEUE_BOUND - POOLED / 2);
    rest(&runtime, &wheel);
    // Half of what the pool gives up fills the queue, so the thread notifies the actor when it
    // ends.
    thread::spawn(move || drop(sleeps)).join().unwrap();
    rest(&runtime, &wheel);
    assert_eq!(
        wheel.metrics().sleeps_cancelled,
        (QUEUE_BOUND + POOLED / 2) as u64
    );
    assert_eq!(wheel.metrics().sleeps_pending, 0);
}

#[test]
fn drops_what_a_thread_local_holds_in_a_thread_that_ends() {
    thread_local! {
        static HELD: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
    }

    let (runtime, wheel) = wheel_at_rest();
    let sleeps = armed_sleeps(&wheel, POOLED + 2 * QUEUE_BOUND);
    let idle = wheel.idle_timer(HOUR);
    let guard = idle.busy();
    let (timers, _stream) = wheel.keyed::<u32, ()>();
    timers.set_timer(1, (), HOUR).unwrap();
    let (reaper, _idle) = wheel.reaper::<u32, ()>(HOUR);
    let watch = reaper.watch(1, ()).unwrap();
    rest(&runtime, &wheel);
    let there = wheel.clone();
    thread::spawn(move || {
        HELD.with_borrow_mut(|held| {
            held.extend([
                Box::new(sleeps) as Box<dyn Any>,
                Box::new(guard),
                Box::new(idle),
            ]);
            held.extend([
                Box::new(timers) as Box<dyn Any>,
                Box::new(watch),
                Box::new(reaper),
            ]);
        });
        drop(there.sleep(ms(1)));
    })
    .join()
    .unwrap();
    rest(&runtime, &wheel);
    let metrics = wheel.metrics();
    assert_eq!((metrics.sleeps_pending, metrics.keyed_pending), (0, 1));
}

/// Waits when it is dropped, without a runtime, until its sleep has completed.
struct SleepsAtLast(Sleep, mpsc::Sender<Instant>);

impl Drop for SleepsAtLast {
    fn drop(&mut self) {
        let is_gone = |error: tokio::runtime::TryCurrentError| error.is_thread_local_destroyed();
        assert!(Handle::try_current().is_err_and(is_gone));
        let (woken, wake) = mpsc::channel();
        let waker = waker_fn(move || woken.send(()).unwrap());
        while poll_with(&mut self.0, &waker).is_pending() {
            wake.recv_timeout(HANG_TIMEOUT).unwrap();
        }
        self.1.send(self.0.deadline()).unwrap();
    }
}

/// How many threads end with sleeps of an ended wheel. Four of five aborted the process.
const ENDING_THREADS: usize = 16;

/// Lets a thread-local poll sleeps of an ended wheel, as its thread ends.
fn sleep_in_ending_threads() {
    thread_local! {
        static HELD: RefCell<Vec<SleepsAtLast>> = const { RefCell::new(Vec::new()) };
    }

    let (ended, completed) = mpsc::channel();
    for _ in 0..ENDING_THREADS {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let wheel = runtime.block_on(async { TimerWheel::new() });
        let mut sleeps: Vec<_> = (0..3).map(|_| wheel.sleep(ms(20))).collect();
        // One has waited on the wheel, one was reset, one is new.
        let _ = poll_idly(&mut sleeps[0]);
        sleeps[1].set_deadline(Instant::now() + ms(20));
        runtime.block_on(wheel.shutdown());
        drop(runtime);
        let ended = ended.clone();
        let thread = thread::spawn(move || {
            // The destructor of what is used first runs last.
            HELD.with_borrow_mut(|held| {
                held.extend(sleeps.into_iter().map(|s| SleepsAtLast(s, ended.clone())));
            });
            assert!(Handle::try_current().is_err());
        });
        thread.join().unwrap();
    }
    drop(ended);
    let completed: Vec<Instant> = completed.iter().collect();
    assert_eq!(completed.len(), 3 * ENDING_THREADS);
    assert!(completed.iter().all(|&deadline| deadline <= Instant::now()));
}

#[test]
fn sleep_of_an_ended_wheel_goes_on_in_a_thread_that_ends() {
    const PROGRAM: &str = "TICKWHEEL_TEST_SLEEPS_IN_ENDING_THREADS";

    if env::var_os(PROGRAM).is_some() {
        return sleep_in_ending_threads();
    }
    // A panic in a thread-local's destructor aborts the process, so it takes another.
    let test = "sleep::ending_threads::sleep_of_an_ended_wheel_goes_on_in_a_thread_that_ends";
    let program = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(PROGRAM, "1")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&program.stderr);
    assert!(program.status.success(), "{}\n{errors}", program.status);
}

/// What the thread-locals of a worker hold.
struct HeldByWorker(Vec<Box<dyn Any>>);

impl Drop for HeldByWorker {
    fn drop(&mut self) {
        for held in &mut self.0 {
            // The wheel may be running, ending or gone.
            if let Some(sleep) = held.downcast_mut::<Sleep>() {
                let _ = poll_idly(sleep);
                sleep.set_deadline(Instant::now() + ms(1));
                let _ = poll_idly(sleep);
            }
            if let Some(stream) = held.downcast_mut::<Expirations<u32, u32>>() {
                let _ = stream.try_recv();
                let _ = stream.poll_recv(&mut Context::from_waker(Waker::noop()));
            }
        }
    }
}

/// Ends a runtime with two workers whose thread-locals hold timers of every kind.
fn end_a_runtime_with_timers(round: u32) {
    thread_local! {
        static HELD: RefCell<Vec<HeldByWorker>> = const { RefCell::new(Vec::new()) };
    }

    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let wheel = runtime.block_on(async { TimerWheel::new() });
    let arrived = Arc::new(AtomicUsize::new(0));
    let tasks = [0, 1].map(|n| {
        let (wheel, arrived) = (wheel.clone(), Arc::clone(&arrived));
        runtime.spawn(async move {
            // It blocks its worker until the other task is here, so there is one on each. Tokio may
            // put both on one worker: then the first goes on after a moment.
            arrived.fetch_add(1, Ordering::SeqCst);
            for _ in 0..50 {
                if arrived.load(Ordering::SeqCst) == 2 {
                    break;
                }
                thread::sleep(ms(1));
            }
            let (timers, stream) = wheel.keyed::<u32, u32>();
            for key in 0..100 {
                timers.set_timer(key, key, ms(u64::from(key % 10))).unwrap();
            }
            let (reaper, idle) = wheel.reaper::<u32, u32>(ms(5));
            let watch = reaper.watch(n, n).unwrap();
            let timer = wheel.idle_timer(ms(5));
            let mut held: Vec<Box<dyn Any>> = vec![Box::new(timer.busy()), Box::new(timer)];
            held.extend((0..200).map(|n| {
                let mut sleep = wheel.sleep(ms(n));
                let _ = poll_idly(&mut sleep);
                Box::new(sleep) as Box<dyn Any>
            }));
            held.extend([
                Box::new(timers) as Box<dyn Any>,
                Box::new(stream),
                Box::new(watch),
                Box::new(reaper),
                Box::new(idle),
                Box::new(wheel),
            ]);
            HELD.with_borrow_mut(|all| all.push(HeldByWorker(held)));
        })
    });
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
        if round % 2 == 0 {
            tokio::time::sleep(ms(u64::from(round % 7))).await;
        }
    });
    match round % 3 {
        0 => drop(wheel),
        1 => runtime.block_on(wheel.shutdown()),
        _ => {}
    }
    drop(runtime);
}

#[test]
fn runtime_ends_whatever_the_thread_locals_of_its_workers_hold() {
    let (ended, ends) = mpsc::channel();
    thread::spawn(move || {
        for round in 0..24 {
            end_a_runtime_with_timers(round);
            ended.send(round).unwrap();
        }
    });
    for round in 0..24 {
        assert_eq!(ends.recv_timeout(HANG_TIMEOUT), Ok(round));
    }
}
