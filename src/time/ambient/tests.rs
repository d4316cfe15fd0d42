//! What a slot says when it is trusted, and what stays of wheels. The tests of the whole do not get to trust: Tokio's
//! clock can be paused in them.

use std::sync::Weak;
use std::thread;

use tokio::runtime::{Builder, Runtime};
use tokio::task::{block_in_place, spawn_blocking};

use super::*;
use crate::clock;
use crate::shared::SleepContext;

const HOUR: Duration = Duration::from_secs(3600);

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

fn multi_thread() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let builder = builder.worker_threads(1).enable_time();
    builder.build().unwrap()
}

/// The wheel of the current runtime, which Tokio is asked for.
fn asked(now: Instant) -> TimerWheel {
    with_wheel(now, TimerWheel::clone)
}

/// The wheel in the slot, if it is trusted.
fn trusted(now: Instant) -> Option<TimerWheel> {
    with_slot(TimerWheel::clone, |slot| slot.is_trusted(now)).ok()
}

/// Runs the test in a task that makes no use of other threads.
fn in_a_task(runtime: &Runtime, test: impl FnOnce() + Send + 'static) {
    let task = runtime.spawn(async { test() });
    runtime.block_on(task).unwrap();
}

#[test]
fn trusts_in_a_task_of_a_multi_thread_runtime_for_a_while() {
    in_a_task(&multi_thread(), || {
        let now = clock::now();
        assert!(trusted(now).is_none(), "nobody has asked");
        let wheel = asked(now);
        let last = now + TRUST - Duration::from_nanos(1);
        assert!(trusted(now).unwrap().is_same(&wheel));
        assert!(trusted(last).unwrap().is_same(&wheel));
        assert!(trusted(now + TRUST).is_none());
        // Asking again prolongs it; being trusted does not.
        assert!(asked(now + TRUST).is_same(&wheel));
        assert!(trusted(now + TRUST).unwrap().is_same(&wheel));
        assert!(trusted(now + 2 * TRUST).is_none());
    });
}

#[test]
fn trusts_no_wheel_of_a_current_thread_runtime() {
    in_a_task(&current_thread(), || {
        let now = clock::now();
        let wheel = asked(now);
        assert!(trusted(now).is_none());
        assert!(asked(now).is_same(&wheel));
        assert!(trusted(now).is_none());
    });
}

#[test]
fn trusts_nothing_outside_of_tasks() {
    let runtime = multi_thread();
    let now = clock::now();
    let wheel = runtime.block_on(async {
        let wheel = asked(now);
        assert!(trusted(now).is_none(), "that is no task");
        wheel
    });
    assert!(trusted(now).is_none(), "no runtime is left");
    let _within = runtime.enter();
    assert!(asked(now).is_same(&wheel));
    assert!(trusted(now).is_none());
}

#[test]
fn trusts_no_wheel_that_has_ended() {
    let runtime = multi_thread();
    let now = clock::now();
    let (first, second) = runtime
        .block_on(runtime.spawn(async move {
            let first = asked(now);
            first.shutdown().await;
            assert!(trusted(now).is_none());
            let second = asked(now);
            assert!(trusted(now).unwrap().is_same(&second));
            (first, second)
        }))
        .unwrap();
    assert!(!first.is_same(&second) && first.is_shutdown());
    drop(runtime);
    assert!(second.is_shutdown());
}

#[test]
fn keeps_timers_of_a_foreign_runtime_on_a_wheel_that_is_driven() {
    let foreign = current_thread();
    in_a_task(&multi_thread(), move || {
        let now = clock::now();
        let outer = asked(now);
        let inner = block_in_place(|| {
            foreign.block_on(async {
                // What trust gets wrong: the timer is on the wheel around, which another thread drives by now.
                let wheel = trusted(now).unwrap();
                assert!(wheel.is_same(&outer));
                wheel.sleep(Duration::from_millis(5)).await;
                assert!(trusted(now + TRUST).is_none());
                // And from then on, since the thread asks, it is the foreign one's.
                let inner = asked(now + TRUST);
                assert!(!inner.is_same(&outer));
                assert!(trusted(now + TRUST).is_none());
                inner
            })
        });
        assert!(asked(now).is_same(&outer));
        assert!(!inner.is_shutdown());
        block_in_place(|| drop(foreign));
        assert!(inner.is_shutdown());
    });
}

#[test]
fn asks_on_a_blocking_thread_that_enters_another_runtime() {
    let (outer, foreign) = (multi_thread(), current_thread());
    let blocking = move || {
        let now = clock::now();
        let wheel = asked(now);
        foreign.block_on(async { assert!(!asked(now).is_same(&wheel)) });
        // The slot has the foreign runtime's wheel, which is not driven any more.
        assert!(trusted(now).is_none());
        assert!(asked(now).is_same(&wheel));
    };
    outer.block_on(async { spawn_blocking(blocking).await.unwrap() });
}

#[test]
fn keeps_nothing_of_a_thousand_runtimes() {
    let mut ids = Vec::new();
    let mut wheels: Vec<Weak<SleepContext>> = Vec::new();
    for n in 0..1000 {
        let runtime = if n % 50 == 0 {
            multi_thread()
        } else {
            current_thread()
        };
        let wheel = runtime.block_on(async {
            drop(super::super::sleep(HOUR));
            super::super::sleep(Duration::ZERO).await;
            super::super::wheel()
        });
        assert!(registry::contains(runtime.handle().id()));
        assert_eq!(wheel.metrics().sleeps_made, 2, "it is a new wheel");
        ids.push(runtime.handle().id());
        wheels.push(wheel.downgrade());
        drop(runtime);
        assert!(wheel.is_shutdown());
    }
    assert!(!ids.into_iter().any(registry::contains));
    // This thread's slot has one, and its pools have theirs until it opens others.
    let kept = || wheels.iter().filter(|w| w.upgrade().is_some()).count();
    assert!(kept() <= 17, "{} wheels are kept", kept());
}

#[test]
fn finds_wheels_while_the_slot_is_borrowed() {
    let (outer, inner) = (current_thread(), current_thread());
    let now = clock::now();
    outer.block_on(async {
        let first = asked(now);
        // A subscriber that is told of the clock may come back here.
        let second = with_wheel(now, |_| {
            let _within = inner.enter();
            asked(now)
        });
        assert!(!second.is_same(&first));
        assert!(asked(now).is_same(&first));
        let _within = inner.enter();
        assert!(asked(now).is_same(&second));
    });
}

#[test]
fn lets_the_last_handle_go_with_its_thread() {
    let runtime = multi_thread();
    let handle = runtime.handle().clone();
    let thread = thread::spawn(move || {
        let _within = handle.enter();
        let wheel = asked(clock::now());
        (wheel.downgrade(), drop(wheel.sleep(HOUR))).0
    });
    let wheel = thread.join().unwrap();
    assert!(wheel.upgrade().is_some(), "the registry has it");
    drop(runtime);
    assert!(wheel.upgrade().is_none());
}
