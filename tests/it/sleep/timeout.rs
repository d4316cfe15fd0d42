//! `Timeout`: which of the two wins, what it costs, and that nothing keeps it from elapsing.

use std::future::{Future, pending, poll_fn, ready};
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use crate::support::{Wakes, jump, ms, poll_idly, poll_with};
use tickwheel::{Elapsed, TimerWheel};
use tokio::sync::{mpsc, oneshot};
use tokio::task::coop;
use tokio::time::{self, Instant};
use tokio_test::{assert_err, assert_ok, assert_pending, assert_ready, task};

#[tokio::test(start_paused = true)]
async fn a_future_that_is_ready_at_once_costs_no_timer() {
    let wheel = TimerWheel::new();
    wheel.settle().await;
    let before = wheel.metrics().commands;
    for limit in [Duration::ZERO, ms(1), Duration::MAX] {
        let mut timeout = task::spawn(wheel.timeout(limit, ready(7)));
        assert_eq!(assert_ready!(timeout.poll()), Ok(7));
    }
    wheel.settle().await;
    // The one message is the barrier's own.
    assert_eq!(wheel.metrics().commands, before + 1);
}

#[tokio::test(start_paused = true)]
async fn a_future_that_completes_in_time_gives_its_output() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let (tx, rx) = oneshot::channel();
    let mut timeout = task::spawn(wheel.timeout(ms(100), rx));
    assert_pending!(timeout.poll());
    time::advance(ms(99)).await;
    wheel.settle().await;
    assert!(!timeout.is_woken());
    tx.send("output").unwrap();
    assert!(timeout.is_woken());
    assert_eq!(assert_ready!(timeout.poll()), Ok(Ok("output")));
    assert_eq!(start.elapsed(), ms(99));
}

#[tokio::test(start_paused = true)]
async fn p3_a_timeout_elapses_at_its_deadline_and_wakes_its_task_once() {
    let wheel = TimerWheel::new();
    let (woken, waker) = Wakes::new();
    let mut timeout = Box::pin(wheel.timeout(ms(100), pending::<()>()));
    assert_pending!(poll_with(&mut timeout, &waker));
    time::advance(ms(99)).await;
    wheel.settle().await;
    assert_eq!(woken.count(), 0);
    assert_pending!(poll_with(&mut timeout, &waker));
    time::advance(ms(1)).await;
    wheel.settle().await;
    assert_eq!(woken.count(), 1);
    assert_err!(assert_ready!(poll_with(&mut timeout, &waker)));
}

#[tokio::test(start_paused = true)]
async fn timeout_at_takes_an_instant() {
    let wheel = TimerWheel::new();
    let deadline = Instant::now() + ms(30);
    assert_err!(wheel.timeout_at(deadline, pending::<()>()).await);
    assert_eq!(Instant::now(), deadline);
    // Passed already: the future still gets its one poll.
    assert_eq!(wheel.timeout_at(deadline, ready(1)).await, Ok(1));
    assert_err!(wheel.timeout_at(deadline, pending::<()>()).await);
    assert_eq!(Instant::now(), deadline);
}

#[tokio::test(start_paused = true)]
async fn when_both_are_ready_the_output_counts() {
    let wheel = TimerWheel::new();
    let (tx, rx) = oneshot::channel();
    let mut timeout = task::spawn(wheel.timeout(ms(10), rx));
    assert_pending!(timeout.poll());
    time::advance(ms(10)).await;
    wheel.settle().await;
    tx.send(()).unwrap();
    assert_ok!(assert_ready!(timeout.poll()).unwrap());
}

#[tokio::test(start_paused = true)]
async fn p8_a_timeout_too_long_to_be_represented_is_no_limit() {
    let wheel = TimerWheel::new();
    let (tx, rx) = oneshot::channel();
    let mut timeout = task::spawn(wheel.timeout(Duration::MAX, rx));
    assert_pending!(timeout.poll());
    time::advance(Duration::from_secs(86_400 * 365 * 200)).await;
    wheel.settle().await;
    assert_pending!(timeout.poll());
    tx.send(1).unwrap();
    assert_eq!(assert_ready!(timeout.poll()), Ok(Ok(1)));
    // A ready one, too.
    assert_eq!(wheel.timeout(Duration::MAX, ready(2)).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_is_made_of_anything_that_becomes_a_future() {
    struct Request(u32);

    impl IntoFuture for Request {
        type Output = u32;
        type IntoFuture = std::future::Ready<u32>;

        fn into_future(self) -> Self::IntoFuture {
            ready(self.0)
        }
    }

    let wheel = TimerWheel::new();
    assert_eq!(wheel.timeout(ms(1), Request(3)).await, Ok(3));
    assert_eq!(wheel.timeout_at(Instant::now(), Request(4)).await, Ok(4));
}

#[tokio::test(start_paused = true)]
async fn p7_a_timeout_that_completed_or_was_dropped_wakes_nobody_at_its_deadline() {
    let wheel = TimerWheel::new();
    let (woken, waker) = Wakes::new();
    let (tx, rx) = oneshot::channel();
    let mut completed = wheel.timeout(ms(10), rx);
    assert_pending!(poll_with(&mut completed, &waker));
    let mut dropped = Box::pin(wheel.timeout(ms(10), pending::<()>()));
    assert_pending!(poll_with(&mut dropped, &waker));
    wheel.settle().await;
    tx.send(()).unwrap();
    assert_eq!(woken.count(), 1, "by the channel");
    assert_eq!(assert_ready!(poll_with(&mut completed, &waker)), Ok(Ok(())));
    drop((completed, dropped));
    time::advance(ms(20)).await;
    wheel.settle().await;
    assert_eq!(woken.count(), 1);
    assert_eq!(wheel.metrics().sleeps_cancelled, 2);
}

#[tokio::test(start_paused = true)]
async fn the_inner_future_can_be_looked_at_changed_and_taken_back() {
    let wheel = TimerWheel::new();
    let (tx, rx) = oneshot::channel::<u32>();
    let mut timeout = wheel.timeout(ms(10), rx);
    assert_pending!(poll_idly(&mut timeout));
    assert!(timeout.get_ref().is_empty());
    timeout.get_mut().close();
    assert!(tx.is_closed());
    assert!(timeout.into_inner().await.is_err());
    let metrics = wheel.metrics();
    assert_eq!((metrics.sleeps_pending, metrics.sleeps_cancelled), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn of_nested_timeouts_the_shorter_elapses() {
    let wheel = TimerWheel::new();
    let start = Instant::now();
    let inner_first = wheel.timeout(ms(50), wheel.timeout(ms(20), pending::<()>()));
    assert!(matches!(inner_first.await, Ok(Err(_))));
    assert_eq!(start.elapsed(), ms(20));
    let outer_first = wheel.timeout(ms(20), wheel.timeout(ms(50), pending::<()>()));
    assert!(outer_first.await.is_err());
    assert_eq!(start.elapsed(), ms(40));
}

#[tokio::test(start_paused = true)]
async fn p12_a_future_that_panics_takes_its_timer_with_it_and_nothing_else() {
    let wheel = TimerWheel::new();
    let panics = wheel.timeout(ms(10), async {
        tokio::task::yield_now().await;
        panic!("the future's own affair");
    });
    assert!(tokio::spawn(panics).await.unwrap_err().is_panic());
    assert_err!(wheel.timeout(ms(20), pending::<()>()).await);
    let metrics = wheel.metrics();
    assert_eq!(metrics.sleeps_pending, 0);
    assert_eq!((metrics.sleeps_fired, metrics.sleeps_cancelled), (1, 1));
}

/// Uses up the task's budget at each poll and is never done.
fn use_up_budget() -> impl Future<Output = ()> {
    poll_fn(|cx| {
        while let Poll::Ready(budget) = coop::poll_proceed(cx) {
            budget.made_progress();
        }
        Poll::Pending
    })
}

#[tokio::test(start_paused = true)]
async fn p11_a_future_that_uses_up_the_budget_does_not_keep_its_timeout_from_elapsing() {
    let wheel = TimerWheel::new();
    let mut polls = 0;
    let mut busy = Box::pin(use_up_budget());
    let busy = poll_fn(|cx| {
        polls += 1;
        assert!(polls < 100, "the timeout never elapses");
        jump(ms(1));
        busy.as_mut().poll(cx)
    });
    assert_err!(wheel.timeout(ms(10), busy).await);
    assert!(polls >= 10, "early: {polls}");
}

#[tokio::test(start_paused = true)]
async fn p11_a_channel_that_is_always_full_does_not_keep_its_timeout_from_elapsing() {
    let wheel = TimerWheel::new();
    let (tx, mut rx) = mpsc::unbounded_channel();
    let drain = async {
        loop {
            tx.send(()).unwrap();
            rx.recv().await.unwrap();
            jump(Duration::from_micros(100));
        }
    };
    let outcome = time::timeout(Duration::from_secs(60), wheel.timeout(ms(100), drain));
    assert_err!(
        outcome
            .await
            .expect("the outer one would have to elapse first")
    );
}

#[tokio::test(start_paused = true)]
async fn p11_a_loop_of_timeouts_that_elapse_at_once_lets_other_tasks_run() {
    let wheel = TimerWheel::new();
    let (tx, mut rx) = oneshot::channel();
    tokio::spawn(async move { tx.send(()).unwrap() });
    let mut rounds = 0;
    while rx.try_recv().is_err() {
        rounds += 1;
        assert!(rounds < 10_000, "the other task was starved");
        assert_err!(wheel.timeout(Duration::ZERO, pending::<()>()).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_within_a_task_without_budget_waits_its_turn_as_anything_else() {
    let wheel = TimerWheel::new();
    let mut timeout = Box::pin(wheel.timeout(Duration::ZERO, pending::<()>()));
    let mut polls = 0;
    poll_fn(|cx| {
        polls += 1;
        if polls == 1 {
            assert_pending!(pin!(use_up_budget()).poll(cx));
            assert_pending!(
                timeout.as_mut().poll(cx),
                "no budget before it, none for it"
            );
            return Poll::Pending;
        }
        assert_err!(assert_ready!(timeout.as_mut().poll(cx)));
        Poll::Ready(())
    })
    .await;
    assert_eq!(
        polls, 2,
        "having been refused for lack of budget, it woke its task"
    );
}

#[test]
fn elapsed_is_an_error_of_its_own_and_an_io_error_that_timed_out() {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let elapsed: Elapsed = runtime.block_on(async {
        let wheel = TimerWheel::new();
        wheel.timeout(ms(1), pending::<()>()).await.unwrap_err()
    });
    let error: &dyn std::error::Error = &elapsed;
    assert!(!error.to_string().is_empty());
    assert_eq!(elapsed, elapsed.clone());
    assert_eq!(io::Error::from(elapsed).kind(), io::ErrorKind::TimedOut);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_is_as_sendable_and_movable_as_its_future() {
    fn check<T: Send + Sync + Unpin>(_: &T) {}
    let wheel = TimerWheel::new();
    check(&wheel.timeout(ms(1), ready(())));
    let mut pinned: Pin<Box<_>> = Box::pin(wheel.timeout(ms(1), async {
        time::sleep(ms(5)).await; // not Unpin
    }));
    assert_err!((&mut pinned).await);
    assert!(format!("{:?}", wheel.timeout(ms(1), ready(()))).contains("Timeout"));
}
