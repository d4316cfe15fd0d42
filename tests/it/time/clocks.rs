//! The current wheel where a runtime with a paused clock meets one with a running clock.

use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Instant as RealInstant;

use super::{HOUR, current_thread, made, ms, multi_thread, paused};
use crate::support::poll_idly;
use tickwheel::time::{self, Instant};
use tokio::runtime::Runtime;
use tokio::task::{self, LocalSet};

/// Sleeps in the current runtime, and checks that its wheel had the sleep.
async fn sleeps_here() {
    let before = made();
    time::sleep(ms(2)).await;
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

#[test]
fn uses_the_paused_runtime_blocked_on_within_a_task() {
    let outer = multi_thread(1);
    let task = outer.spawn(async {
        sleeps_here().await;
        let before = made();
        task::block_in_place(|| {
            paused().block_on(async {
                sleeps_an_hour_here().await;
                tokio::spawn(sleeps_an_hour_here()).await.unwrap();
            });
        });
        assert_eq!(made(), before, "the task's runtime had the timers");
    });
    outer.block_on(task).unwrap();
}

#[test]
fn uses_the_paused_runtime_that_drives_a_local_set() {
    let runtime = paused();
    LocalSet::new().block_on(&runtime, async {
        task::spawn_local(sleeps_an_hour_here()).await.unwrap();
    });
}

#[test]
fn runtime_entered_within_a_task_rules_by_its_paused_clock() {
    let outer = multi_thread(2);
    let foreign = paused();
    let handle = foreign.handle().clone();
    let (send, sleeps) = mpsc::channel();
    let task = outer.spawn(async move {
        drop(time::sleep(HOUR));
        let _within = handle.enter();
        let deadline = Instant::now() + HOUR;
        send.send((deadline, time::sleep(HOUR))).unwrap();
    });
    outer.block_on(task).unwrap();
    foreign.block_on(async {
        let (deadline, sleep) = sleeps.recv().unwrap();
        assert_eq!(sleep.deadline(), deadline);
        sleep.await;
        assert_eq!(Instant::now(), deadline);
    });
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
    let task = running.spawn(async { (time::sleep(HOUR), time::sleep(ms(50))) });
    let (mut polled, awaited) = running.block_on(task).unwrap();
    paused.block_on(async {
        assert!(poll_idly(&mut polled).is_pending());
        tokio::time::advance(2 * HOUR).await;
        // Two hours have passed on this clock, and next to nothing on theirs.
        assert!(poll_idly(&mut polled).is_pending());
        awaited.await;
        polled.set_deadline(Instant::from_std(RealInstant::now() + ms(50)));
        polled.await;
    });
    assert!(began.elapsed() >= ms(50));
}
