//! Which wheel is the current one, where runtimes meet on a thread.
//!
//! Each test compares with what Tokio does: a timer belongs to the runtime whose handle is entered. Which wheel a timer
//! is on shows in the wheel's counts, and whether it fires shows that its runtime is driven.

use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Instant as RealInstant;

use super::{current_thread, made, multi_thread, paused};
use crate::support::{HOUR, ms, poll_idly};
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

/// Sleeps for an hour of virtual time, and checks that no real hour has passed.
async fn sleeps_an_hour_here() {
    let before = made();
    let (start, real_start) = (Instant::now(), RealInstant::now());
    time::sleep(HOUR).await;
    assert_eq!(start.elapsed(), HOUR);
    assert!(real_start.elapsed() < HOUR / 60);
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
            paused().block_on(async {
                sleeps_an_hour_here().await;
                tokio::spawn(sleeps_an_hour_here()).await.unwrap();
            });
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
        // Nobody drives the foreign runtime from here: its own worker does.
        futures::executor::block_on(sleep);
    });
}

#[test]
fn follows_the_paused_clock_of_the_runtime_entered_within_a_task() {
    let outer = multi_thread(2);
    let foreign = paused();
    let handle = foreign.handle().clone();
    let (send, sleeps) = mpsc::channel();
    in_a_task_of(&outer, move || {
        let within = handle.enter();
        let deadline = Instant::now() + HOUR;
        send.send((deadline, time::sleep(HOUR))).unwrap();
        drop(within);
    });
    foreign.block_on(async {
        let (deadline, sleep) = sleeps.recv().unwrap();
        assert_eq!(sleep.deadline(), deadline);
        sleep.await;
        assert_eq!(Instant::now(), deadline);
    });
}

#[test]
fn pops_back_when_guards_are_dropped() {
    let (outer, inner) = (multi_thread(1), paused());
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

#[test]
fn uses_the_runtime_that_drives_a_local_set() {
    for runtime in [current_thread(), multi_thread(2)] {
        let local = LocalSet::new();
        local.block_on(&runtime, async {
            sleeps_here().await;
            task::spawn_local(sleeps_here()).await.unwrap();
        });
    }
    let runtime = paused();
    LocalSet::new().block_on(&runtime, async {
        task::spawn_local(sleeps_an_hour_here()).await.unwrap();
    });
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

#[test]
fn keeps_a_paused_runtime_and_a_running_one_apart() {
    let barrier = Barrier::new(2);
    let in_turn = |runtime: Runtime, test: fn(&Runtime)| {
        for _ in 0..10 {
            barrier.wait();
            test(&runtime);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| in_turn(paused(), |paused| paused.block_on(sleeps_an_hour_here())));
        scope.spawn(|| in_turn(current_thread(), |running| running.block_on(sleeps_here())));
    });
    // And on one thread.
    let (paused, running) = (paused(), current_thread());
    for _ in 0..10 {
        paused.block_on(sleeps_an_hour_here());
        running.block_on(sleeps_here());
    }
}

#[test]
fn fires_by_the_clock_of_its_runtime_when_awaited_in_another() {
    let (running, paused) = (multi_thread(1), paused());
    let began = RealInstant::now();
    let task = running.spawn(async { (time::sleep(ms(50)), time::sleep(ms(50))) });
    let (mut polled, awaited) = running.block_on(task).unwrap();
    paused.block_on(async {
        assert!(poll_idly(&mut polled).is_pending());
        tokio::time::advance(HOUR).await;
        // An hour has passed on this clock, and next to nothing on theirs.
        assert!(poll_idly(&mut polled).is_pending());
        awaited.await;
        polled.await;
    });
    assert!(began.elapsed() >= ms(50));
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
