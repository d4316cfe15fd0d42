//! The current wheel where runtimes meet on a thread.
//!
//! Each test compares with what Tokio does: a timer belongs to the runtime that is entered.
//! Which wheel a timer is on shows in the wheel's counts, and whether it fires shows that its
//! runtime is driven. The package `tests/plain` runs them too, in a build where no clock can be
//! paused.

use std::pin::pin;
use std::sync::{Barrier, mpsc};
use std::task::{Context, Waker};
use std::thread;

use super::{HOUR, current_thread, made, ms, multi_thread};
use tickwheel::TimerWheel;
use tickwheel::time::{self, Instant};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::{self, LocalSet};

/// Sleeps in the current runtime, and checks that its wheel had the sleep.
async fn sleeps_here() {
    let before = made();
    let start = Instant::now();
    time::sleep(ms(2)).await;
    assert!(start.elapsed() >= ms(2));
    assert_eq!(made(), before + 1);
}

/// Runs a test in a task of a multi-thread runtime, on a thread that has used the runtime's wheel.
fn in_a_task_of(runtime: &Runtime, test: impl FnOnce() + Send + 'static) {
    let task = async {
        sleeps_here().await;
        // Not awaited: from here on the task stays on its thread.
        drop(time::sleep(HOUR));
        let before = made();
        test();
        assert_eq!(made(), before, "the task's runtime had the timers");
    };
    runtime.block_on(async { tokio::spawn(task).await.unwrap() });
}

#[test]
fn alternates_between_two_runtimes_on_a_thread() {
    let runtimes = [current_thread(), current_thread(), multi_thread(1)];
    for round in 0..10 {
        for runtime in &runtimes {
            runtime.block_on(async {
                assert_eq!(made(), round);
                sleeps_here().await;
            });
        }
    }
}

#[test]
fn starts_a_wheel_for_a_runtime_after_another_was_dropped() {
    for _ in 0..3 {
        for runtime in [current_thread(), multi_thread(2)] {
            runtime.block_on(async {
                assert_eq!(made(), 0, "it is a new wheel");
                sleeps_here().await;
                tokio::spawn(sleeps_here()).await.unwrap();
            });
        }
    }
}

#[test]
fn uses_the_runtime_blocked_on_within_block_in_place() {
    let outer = multi_thread(1);
    in_a_task_of(&outer, || {
        task::block_in_place(|| {
            for foreign in [current_thread(), multi_thread(1)] {
                foreign.block_on(async {
                    sleeps_here().await;
                    tokio::spawn(sleeps_here()).await.unwrap();
                });
            }
        });
    });
}

#[test]
fn fires_in_a_foreign_runtime_while_the_outer_one_is_stuck() {
    let mut builder = Builder::new_multi_thread();
    let builder = builder.worker_threads(1).max_blocking_threads(1);
    let outer = builder.enable_time().build().unwrap();
    let (release, stuck) = mpsc::channel::<()>();
    // The only thread that could take over from the worker.
    outer.spawn_blocking(move || stuck.recv());
    in_a_task_of(&outer, move || {
        task::block_in_place(|| {
            for foreign in [current_thread(), multi_thread(1)] {
                foreign.block_on(sleeps_here());
            }
        });
        release.send(()).unwrap();
    });
}

#[test]
fn uses_the_runtime_entered_within_a_task() {
    let outer = multi_thread(2);
    let foreign = multi_thread(1);
    let handle = foreign.handle().clone();
    in_a_task_of(&outer, move || {
        let within = handle.enter();
        assert_eq!(made(), 0);
        let sleep = time::sleep(ms(5));
        assert_eq!(made(), 1);
        drop(within);
        // The foreign runtime is driven by its own worker, not from here.
        futures::executor::block_on(sleep);
    });
}

#[test]
fn uses_the_runtime_that_drives_a_local_set() {
    for runtime in [current_thread(), multi_thread(2)] {
        let local = LocalSet::new();
        local.block_on(&runtime, async {
            sleeps_here().await;
            task::spawn_local(sleeps_here()).await.unwrap();
        });
    }
}

#[test]
fn uses_its_runtime_on_blocking_threads() {
    let blocking = || {
        drop(time::sleep(HOUR));
        Handle::current().block_on(sleeps_here());
        let foreign = current_thread();
        foreign.block_on(sleeps_here());
        made()
    };
    let runtime = multi_thread(2);
    runtime.block_on(async {
        for n in 1..4 {
            let made = task::spawn_blocking(blocking).await.unwrap();
            assert_eq!(made, 2 * n);
        }
    });
}

#[test]
fn uses_the_runtime_entered_on_a_plain_thread() {
    let runtimes = [multi_thread(1), multi_thread(1)];
    let handles = [0, 1].map(|n: usize| runtimes[n].handle().clone());
    let thread = thread::spawn(move || {
        for round in 1..4 {
            for handle in &handles {
                let _within = handle.enter();
                let start = Instant::now();
                futures::executor::block_on(time::sleep(ms(2)));
                assert!(start.elapsed() >= ms(2));
                assert_eq!(made(), round);
            }
        }
    });
    thread.join().unwrap();
}

/// The future that a `current_thread` runtime blocks on can keep another runtime entered while
/// tasks run.
#[test]
fn wheel_runs_while_another_runtime_stays_entered() {
    let untimed = Builder::new_current_thread().build().unwrap();
    for foreign in [current_thread(), untimed] {
        current_thread().block_on(async {
            let (timers, mut expirations) = time::wheel().keyed();
            // Tokio's timer is registered with this runtime.
            let mut control = pin!(tokio::time::sleep(ms(10_000)));
            let mut cx = Context::from_waker(Waker::noop());
            assert!(control.as_mut().poll(&mut cx).is_pending());
            let _within = foreign.enter();
            for round in 0..3 {
                timers.set_timer(round, (), ms(2)).unwrap();
                tokio::select! {
                    biased;
                    expired = expirations.recv() => assert_eq!(expired.unwrap().key, round),
                    () = &mut control => panic!("the timer did not expire"),
                }
            }
        });
    }
}

#[test]
fn starts_one_wheel_when_threads_meet() {
    for _ in 0..20 {
        let runtime = multi_thread(2);
        let barrier = Barrier::new(4);
        let wheels: Vec<TimerWheel> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let _within = runtime.enter();
                        barrier.wait();
                        drop(time::sleep(HOUR));
                        time::wheel()
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let counts = wheels.iter().map(|wheel| wheel.metrics().sleeps_made);
        assert_eq!(counts.collect::<Vec<_>>(), [4; 4]);
    }
}

#[test]
fn pops_back_when_guards_are_dropped() {
    let (outer, inner) = (multi_thread(1), current_thread());
    let _outer = outer.enter();
    drop(time::sleep(HOUR));
    assert_eq!(made(), 1);
    {
        let _inner = inner.enter();
        assert_eq!(made(), 0);
        drop(time::sleep(HOUR));
        assert_eq!(made(), 1);
    }
    drop(time::sleep(HOUR));
    assert_eq!(made(), 2);
}
