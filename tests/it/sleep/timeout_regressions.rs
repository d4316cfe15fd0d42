//! Timeouts that never elapsed: their future used the budget up at each poll.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::support::{HANG_TIMEOUT, HOUR, jump, ms, start_wheel};
use tickwheel::{Timeout, TimerWheel};
use tokio::io::AsyncReadExt;
use tokio::task::coop;
use tokio::time::{self, Instant};
use tokio_test::{assert_err, assert_ok, assert_pending, assert_ready};

/// Never completes, and uses up the task's budget at each poll.
async fn read_nothing_for_ever() {
    let mut buffer = [0; 1];
    loop {
        let _ = tokio::io::empty().read(&mut buffer).await;
    }
}

/// Awaits a timeout that is to elapse; gives up after some time by a clock that no budget stops.
async fn assert_elapses<F: Future>(what: &str, timeout: Timeout<F>) {
    let began = std::time::Instant::now();
    let mut timeout = pin!(timeout);
    let elapsed = poll_fn(|cx| {
        assert!(began.elapsed() < HANG_TIMEOUT, "{what}: hangs");
        timeout.as_mut().poll(cx).map(|result| result.is_err())
    });
    assert!(elapsed.await, "{what}");
}

/// Every kind of deadline that has passed already, or will soon.
async fn assert_all_elapse(wheel: &TimerWheel) {
    let hog = read_nothing_for_ever;
    let now = Instant::now();
    assert_elapses("zero", wheel.timeout(Duration::ZERO, hog())).await;
    assert_elapses("now", wheel.timeout_at(now, hog())).await;
    let past = now.checked_sub(ms(5)).unwrap_or(now);
    assert_elapses("past", wheel.timeout_at(past, hog())).await;
    assert_elapses("soon", wheel.timeout(ms(5), hog())).await;
    let soon = Instant::now() + ms(5);
    assert_elapses("at", wheel.timeout_at(soon, hog())).await;
    // A machine that stops for as long as the inner limit lets the outer one see a ready future.
    assert_elapses("nested", wheel.timeout(ms(5), wheel.timeout(HOUR, hog()))).await;
}

#[tokio::test]
async fn timeout_elapses_though_its_future_uses_the_budget_up() {
    assert_all_elapse(&start_wheel()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeout_elapses_on_a_worker_without_budget() {
    let wheel = start_wheel();
    tokio::spawn(async move { assert_all_elapse(&wheel).await })
        .await
        .unwrap();
}

#[tokio::test]
async fn timeout_elapses_after_shutdown_without_budget() {
    let wheel = start_wheel();
    wheel.shutdown().await;
    assert_all_elapse(&wheel).await;
}

#[tokio::test]
async fn elapses_when_the_wheel_is_shut_down_under_it() {
    let wheel = start_wheel();
    let timeout = wheel.timeout(ms(50), read_nothing_for_ever());
    let elapses = tokio::spawn(assert_elapses("pending at the shutdown", timeout));
    time::sleep(ms(5)).await;
    wheel.shutdown().await;
    elapses.await.unwrap();
}

/// Polls the timeout in a task, and moves the clock by a millisecond at each poll; returns the
/// number of polls.
async fn polls_until_it_elapses<F: Future>(timeout: Timeout<F>) -> usize {
    tokio::task::yield_now().await; // for a whole budget
    let mut timeout = pin!(timeout);
    let mut polls = 0;
    poll_fn(|cx| {
        polls += 1;
        assert!(polls < 100, "it never elapses");
        let polled = timeout.as_mut().poll(cx);
        jump(ms(1));
        polled.map(|result| assert!(result.is_err()))
    })
    .await;
    polls
}

#[tokio::test(start_paused = true)]
async fn elapses_at_the_poll_that_finds_it_due() {
    let wheel = start_wheel();
    let now = Instant::now();
    let hog = read_nothing_for_ever;
    for _ in 0..2 {
        assert_eq!(
            polls_until_it_elapses(wheel.timeout_at(now, hog())).await,
            1
        );
        assert_eq!(
            polls_until_it_elapses(wheel.timeout(Duration::ZERO, hog())).await,
            1
        );
        assert_eq!(polls_until_it_elapses(wheel.timeout(ms(7), hog())).await, 8);
        wheel.shutdown().await; // and then once more
    }
}

#[tokio::test(start_paused = true)]
async fn lets_others_run_in_a_loop_of_greedy_timeouts() {
    let wheel = start_wheel();
    for _ in 0..2 {
        let other = tokio::spawn(async {});
        let mut rounds = 0;
        while !other.is_finished() {
            rounds += 1;
            assert!(rounds < 10_000, "the other task was starved");
            assert_err!(wheel.timeout(Duration::ZERO, read_nothing_for_ever()).await);
        }
        let other = tokio::spawn(async {});
        while !other.is_finished() {
            rounds += 1;
            assert!(rounds < 10_000, "the other task was starved");
            let now = Instant::now();
            assert_err!(wheel.timeout_at(now, std::future::pending::<()>()).await);
        }
        wheel.shutdown().await; // and then once more
    }
}

#[tokio::test(start_paused = true)]
async fn waits_for_budget_that_was_gone_before_its_first_poll() {
    let wheel = start_wheel();
    let mut timeout = pin!(wheel.timeout(Duration::ZERO, read_nothing_for_ever()));
    let mut polls = 0;
    poll_fn(|cx| {
        polls += 1;
        if polls == 1 {
            while let Poll::Ready(budget) = coop::poll_proceed(cx) {
                budget.made_progress();
            }
            assert_pending!(timeout.as_mut().poll(cx));
            return Poll::Pending;
        }
        assert_err!(assert_ready!(timeout.as_mut().poll(cx)));
        Poll::Ready(())
    })
    .await;
    assert_eq!(polls, 2);
}

// A timeout polls its future before it reads a clock.
#[tokio::test(start_paused = true)]
async fn prefers_a_ready_output_to_a_passed_deadline() {
    let wheel = start_wheel();
    let timeout = wheel.timeout(ms(10), std::future::ready(1));
    jump(ms(50));
    assert_ok!(timeout.await);
    let overdue = wheel.timeout(ms(10), std::future::pending::<()>());
    jump(ms(50));
    let start = Instant::now();
    assert_err!(overdue.await);
    assert!(start.elapsed() <= ms(1), "{:?}", start.elapsed());
}
