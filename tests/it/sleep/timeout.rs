//! `Timeout`: which of the two wins, what it costs, and that nothing keeps it from elapsing.

use std::future::{Future, pending, poll_fn, ready};
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use crate::support::{Wakes, jump, ms, poll_idly, poll_with, start_wheel};
use tickwheel::Elapsed;
use tokio::sync::{mpsc, oneshot};
use tokio::task::coop;
use tokio::time::{self, Instant};
use tokio_test::{assert_err, assert_ok, assert_pending, assert_ready, task};

#[tokio::test(start_paused = true)]
async fn arms_no_timer_for_a_future_that_is_ready_at_once() {
    let wheel = start_wheel();
    wheel.settle().await;
    let before = wheel.metrics().commands;
    for limit in [Duration::ZERO, ms(1), Duration::MAX] {
        let mut timeout = task::spawn(wheel.timeout(limit, ready(7)));
        assert_eq!(assert_ready!(timeout.poll()), Ok(7));
    }
    wheel.settle().await;
    // The one command is that of the settle.
    assert_eq!(wheel.metrics().commands, before + 1);
}

#[tokio::test(start_paused = true)]
async fn returns_the_output_of_a_future_that_completes_in_time() {
    let wheel = start_wheel();
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
async fn p3_elapses_at_the_deadline_and_wakes_its_task_once() {
    let wheel = start_wheel();
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
async fn takes_an_instant_by_timeout_at() {
    let wheel = start_wheel();
    let deadline = Instant::now() + ms(30);
    assert_err!(wheel.timeout_at(deadline, pending::<()>()).await);
    assert_eq!(Instant::now(), deadline);
    // Passed already: the future still gets its one poll.
    assert_eq!(wheel.timeout_at(deadline, ready(1)).await, Ok(1));
    assert_err!(wheel.timeout_at(deadline, pending::<()>()).await);
    assert_eq!(Instant::now(), deadline);
}

#[tokio::test(start_paused = true)]
async fn prefers_the_output_when_both_are_ready() {
    let wheel = start_wheel();
    let (tx, rx) = oneshot::channel();
    let mut timeout = task::spawn(wheel.timeout(ms(10), rx));
    assert_pending!(timeout.poll());
    time::advance(ms(10)).await;
    wheel.settle().await;
    tx.send(()).unwrap();
    assert_ok!(assert_ready!(timeout.poll()).unwrap());
}

#[tokio::test(start_paused = true)]
async fn p8_timeout_too_long_to_represent_sets_no_limit() {
    let wheel = start_wheel();
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
async fn accepts_anything_that_becomes_a_future() {
    struct Request(u32);

    impl IntoFuture for Request {
        type Output = u32;
        type IntoFuture = std::future::Ready<u32>;

        fn into_future(self) -> Self::IntoFuture {
            ready(self.0)
        }
    }

    let wheel = start_wheel();
    assert_eq!(wheel.timeout(ms(1), Request(3)).await, Ok(3));
    assert_eq!(wheel.timeout_at(Instant::now(), Request(4)).await, Ok(4));
}

#[tokio::test(start_paused = true)]
async fn p7_completed_or_dropped_timeout_wakes_no_task() {
    let wheel = start_wheel();
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
async fn gives_access_to_the_inner_future() {
    let wheel = start_wheel();
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
async fn elapses_the_shorter_of_nested_timeouts() {
    let wheel = start_wheel();
    let start = Instant::now();
    let inner_first = wheel.timeout(ms(50), wheel.timeout(ms(20), pending::<()>()));
    assert!(matches!(inner_first.await, Ok(Err(_))));
    assert_eq!(start.elapsed(), ms(20));
    let outer_first = wheel.timeout(ms(20), wheel.timeout(ms(50), pending::<()>()));
    assert!(outer_first.await.is_err());
    assert_eq!(start.elapsed(), ms(40));
}

#[tokio::test(start_paused = true)]
async fn p12_future_that_panics_drops_only_its_own_timer() {
    let wheel = start_wheel();
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
async fn p11_timeout_elapses_over_a_future_that_uses_the_budget() {
    let wheel = start_wheel();
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
async fn p11_timeout_elapses_over_a_channel_that_is_always_full() {
    let wheel = start_wheel();
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
async fn p11_timeouts_that_elapse_at_once_let_others_run() {
    let wheel = start_wheel();
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
async fn waits_its_turn_in_a_task_without_budget() {
    let wheel = start_wheel();
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
fn converts_elapsed_into_an_io_error_that_timed_out() {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let elapsed: Elapsed = runtime.block_on(async {
        let wheel = start_wheel();
        wheel.timeout(ms(1), pending::<()>()).await.unwrap_err()
    });
    let error: &dyn std::error::Error = &elapsed;
    assert!(!error.to_string().is_empty());
    assert_eq!(elapsed, elapsed.clone());
    assert_eq!(io::Error::from(elapsed).kind(), io::ErrorKind::TimedOut);
}

#[tokio::test(start_paused = true)]
async fn is_as_sendable_and_movable_as_its_future() {
    fn check<T: Send + Sync + Unpin>(_: &T) {}
    let wheel = start_wheel();
    check(&wheel.timeout(ms(1), ready(())));
    let mut pinned: Pin<Box<_>> = Box::pin(wheel.timeout(ms(1), async {
        time::sleep(ms(5)).await; // not Unpin
    }));
    assert_err!((&mut pinned).await);
    assert!(format!("{:?}", wheel.timeout(ms(1), ready(()))).contains("Timeout"));
}
