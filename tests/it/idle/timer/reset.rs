//! A new idle duration, beside touches, an actor that puts the timer off, and tasks that poll it.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tickwheel::IdleTimer;
use tokio::time::{self, Instant};
use tokio_test::task::{self, Spawn};
use tokio_test::{assert_pending, assert_ready};

use crate::support::{advance, ms, start_wheel};

/// Which task waits for the timer when it gets its new duration.
#[derive(Debug, Clone, Copy)]
enum Waiting {
    First,
    /// It has polled the timer again since the actor put the timer off.
    Again,
    /// Another task has polled it last.
    Other,
}

// The timer was touched at 5 s of 10, so the actor put its sleep off to 15 s. A duration of 5 s
// from then on is due at the deadline that the sleep was given first, so it was not moved, and no
// task was woken.
#[tokio::test(start_paused = true)]
async fn shorter_duration_wakes_the_waiting_task_after_put_off() {
    for touched in [0, 3, 5, 9] {
        for reset in [8, 11, 14] {
            for idle in [1, 2, 5, 7, 10, 20] {
                for waiting in [Waiting::First, Waiting::Again, Waiting::Other] {
                    wakes_when_due(touched, reset, idle, waiting).await;
                }
            }
        }
    }
}

fn poll(task: &mut Spawn<()>, idle: &mut IdleTimer) -> Poll<()> {
    task.enter(|cx, _| Pin::new(idle).poll(cx))
}

/// All times are seconds.
async fn wakes_when_due(touched: u64, reset: u64, new_idle: u64, waiting: Waiting) {
    let seconds = Duration::from_secs;
    let due = touched + new_idle;
    let is_idle_before = touched + 10 <= reset;
    if touched > reset || is_idle_before {
        return;
    }
    let wheel = start_wheel();
    let start = Instant::now();
    let mut idle = wheel.idle_timer(seconds(10));
    let mut first = task::spawn(());
    let mut other = task::spawn(());
    assert_pending!(poll(&mut first, &mut idle));
    advance(&wheel, seconds(touched)).await;
    assert!(idle.touch());
    advance(&wheel, start + seconds(reset) - Instant::now()).await;
    let waits = match waiting {
        Waiting::First => &mut first,
        Waiting::Again => {
            assert_pending!(poll(&mut first, &mut idle));
            &mut first
        }
        Waiting::Other => {
            assert_pending!(poll(&mut other, &mut idle));
            &mut other
        }
    };
    let case = format!("touched at {touched}, {new_idle} from {reset} on, {waiting:?}");
    idle.set_idle_duration(seconds(new_idle));
    wheel.settle().await;
    if due > reset {
        assert!(!waits.is_woken(), "early: {case}");
        let just_before = start + seconds(due - 1) + ms(999);
        advance(&wheel, just_before - Instant::now()).await;
        assert!(!waits.is_woken(), "early: {case}");
        advance(&wheel, ms(1)).await;
    }
    assert!(waits.is_woken(), "late: {case}");
    assert_ready!(poll(waits, &mut idle), "{case}");
}

// With the sleep left at its old deadline the timer was polled again and again, without end.
#[tokio::test(start_paused = true)]
async fn endless_duration_wakes_no_task_at_old_deadline() {
    let wheel = start_wheel();
    let mut idle = task::spawn(wheel.idle_timer(ms(100)));
    assert_pending!(idle.poll());
    idle.set_idle_duration(Duration::MAX);
    time::advance(ms(200)).await;
    assert_pending!(idle.poll());
    assert!(!idle.is_woken(), "it asks to be polled again");
    advance(&wheel, ms(200)).await;
    assert!(!idle.is_woken());
}
