//! The differences from `tokio::time` that the documentation of `tickwheel::time` lists, where no
//! other test compares both.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::thread;
use std::time::Duration;

use super::{current_thread, multi_thread};
use crate::support::{HOUR, ms};
use futures::FutureExt;
use tickwheel::time::{self, Instant};
use tokio::task::{coop, yield_now};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, task};

#[tokio::test]
async fn sleep_elapses_by_the_clock_before_the_driver_runs() {
    let (mut ours, mut tokios) = loop {
        let mut ours = task::spawn(time::sleep(ms(20)));
        let mut tokios = task::spawn(Box::pin(tokio::time::sleep(ms(20))));
        // On a busy machine it may be late already.
        if ours.poll().is_pending() && tokios.poll().is_pending() {
            break (ours, tokios);
        }
    };
    // No thread drives the runtime meanwhile.
    thread::sleep(ms(25));
    assert_ready!(ours.poll());
    assert_pending!(tokios.poll());

    let deadline = Instant::now() + ms(1);
    ours.enter(|_, sleep| sleep.reset(deadline));
    tokios.enter(|_, sleep| sleep.get_mut().as_mut().reset(deadline));
    thread::sleep(ms(5));
    assert!(ours.is_elapsed());
    assert!(!tokios.is_elapsed());
}

#[tokio::test]
async fn zero_sleep_waits_with_tokio_only() {
    assert_ready!(task::spawn(time::sleep(Duration::ZERO)).poll());
    // Tokio's clock may just have reached a whole millisecond.
    let waits = || {
        task::spawn(Box::pin(tokio::time::sleep(Duration::ZERO)))
            .poll()
            .is_pending()
    };
    assert!(std::iter::repeat_with(waits).take(10).any(|waits| waits));
}

#[tokio::test]
async fn timeout_ignores_the_clock_at_its_first_poll() {
    let mut ours = task::spawn(time::timeout(ms(1), yield_now()));
    let mut tokios = task::spawn(tokio::time::timeout(ms(1), yield_now()));
    // Tokio's driver runs after their deadline.
    tokio::time::sleep(ms(5)).await;
    assert_pending!(ours.poll());
    assert_ready_err!(tokios.poll());
    // The future completes at its second poll, but the actor has its turn before a waiting task is
    // polled again.
    assert!(ours.poll().is_ready());
}

#[tokio::test]
async fn waiting_timeout_elapses_once_the_actor_has_run() {
    let mut ours = task::spawn(time::timeout(ms(20), pending::<()>()));
    let mut tokios = task::spawn(tokio::time::timeout(ms(20), pending::<()>()));
    assert_pending!(ours.poll());
    assert_pending!(tokios.poll());
    // Neither the actor nor Tokio's driver runs meanwhile.
    thread::sleep(ms(25));
    assert_pending!(ours.poll());
    assert_pending!(tokios.poll());
    while !(ours.is_woken() && tokios.is_woken()) {
        tokio::time::sleep(ms(1)).await;
    }
    assert_ready_err!(ours.poll());
    assert_ready_err!(tokios.poll());
}

#[tokio::test]
async fn timeout_that_has_waited_elapses_without_budget() {
    let mut ours = task::spawn(time::timeout(ms(1), pending::<()>()));
    let mut tokios = task::spawn(tokio::time::timeout(ms(1), pending::<()>()));
    assert_pending!(ours.poll());
    assert_pending!(tokios.poll());
    while !(ours.is_woken() && tokios.is_woken()) {
        tokio::time::sleep(ms(1)).await;
    }
    while coop::has_budget_remaining() {
        coop::consume_budget().now_or_never();
    }
    assert_pending!(tokios.poll());
    assert_ready_err!(ours.poll());
}

#[test]
fn sleep_goes_on_where_tokios_panics_without_its_runtime() {
    let gone = multi_thread(1);
    let (ours, tokios) = {
        let _within = gone.enter();
        (time::sleep(ms(5)), tokio::time::sleep(ms(5)))
    };
    drop(gone);
    let here = current_thread();
    let mut tokios = pin!(tokios);
    let polled = catch_unwind(AssertUnwindSafe(|| here.block_on(tokios.as_mut())));
    assert!(polled.is_err(), "Tokio's panics");
    let deadline = ours.deadline();
    here.block_on(ours);
    assert!(Instant::now() >= deadline);
}

#[test]
fn runtime_counts_two_more_tasks() {
    let runtime = current_thread();
    runtime.block_on(async {
        let before = runtime.metrics().num_alive_tasks();
        drop(tokio::time::sleep(HOUR));
        assert_eq!(runtime.metrics().num_alive_tasks(), before);
        drop(time::sleep(HOUR));
        drop(time::sleep(HOUR));
        assert_eq!(runtime.metrics().num_alive_tasks(), before + 2);
    });
}
