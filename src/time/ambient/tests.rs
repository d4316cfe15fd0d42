//! Tests of the ambient wheels: the copy that each thread keeps, and the end of wheels.

use std::sync::{Arc, Weak};
use std::thread;

use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::shared::Shared;

const HOUR: Duration = Duration::from_secs(3600);

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

fn multi_thread() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let builder = builder.worker_threads(1).enable_time();
    builder.build().unwrap()
}

/// The wheel of the current runtime.
fn found() -> TimerWheel {
    wheel()
}

#[test]
fn ended_runtimes_leave_nothing_behind() {
    let mut ids = Vec::new();
    let mut wheels: Vec<Weak<Shared>> = Vec::new();
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
        wheels.push(Arc::downgrade(wheel.shared()));
        drop(runtime);
        assert!(wheel.is_shutdown());
    }
    assert!(!ids.into_iter().any(registry::contains));
    // This thread's slot has one, and its pools have theirs until it opens others.
    let kept = || wheels.iter().filter(|w| w.upgrade().is_some()).count();
    assert!(kept() <= 17, "{} wheels are kept", kept());
}

#[test]
fn wheels_are_found_while_the_slot_is_borrowed() {
    let (outer, inner) = (current_thread(), current_thread());
    outer.block_on(async {
        let first = found();
        // A subscriber that receives the clock's warning may come back here.
        let second = with_last_used(|_| {
            let _within = inner.enter();
            found()
        });
        let second = second.expect("the first is current");
        assert!(!second.is_same(&first));
        assert!(found().is_same(&first));
        let _within = inner.enter();
        assert!(found().is_same(&second));
    });
}

#[test]
fn another_wheel_starts_after_one_has_ended() {
    let runtime = multi_thread();
    let (first, second) = runtime.block_on(async {
        let first = found();
        first.shutdown().await;
        (first, found())
    });
    assert!(!first.is_same(&second) && first.is_shutdown());
    drop(runtime);
    assert!(second.is_shutdown());
}

#[test]
fn last_handle_is_dropped_with_its_thread() {
    let runtime = multi_thread();
    let handle = runtime.handle().clone();
    let thread = thread::spawn(move || {
        let _within = handle.enter();
        let wheel = found();
        (Arc::downgrade(wheel.shared()), drop(wheel.sleep(HOUR))).0
    });
    let wheel = thread.join().unwrap();
    assert!(wheel.upgrade().is_some(), "the registry has it");
    drop(runtime);
    assert!(wheel.upgrade().is_none());
}
