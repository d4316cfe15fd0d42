//! Timeouts: a future with a deadline to complete by.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::task::coop;

use crate::clock::CAN_PAUSE;
use crate::error::Elapsed;
use crate::sleep::Sleep;
use crate::sleep::on_tokio::OnTokio;
use crate::sleep::on_wheel::{OnWheel, Stage, WheelEnded};
use crate::sleep::timer::Timer;

pin_project! {
    /// A future with a deadline to complete by. Made by
    /// [`TimerWheel::timeout`](crate::TimerWheel::timeout) and
    /// [`timeout_at`](crate::TimerWheel::timeout_at).
    ///
    /// Each poll polls the inner future first, and checks the deadline only if that is pending: if
    /// both are ready, the output counts. The first poll at which the inner future is pending arms
    /// the timer.
    ///
    /// * The timeout elapses however its future uses up the task's cooperative budget.
    /// * A timeout that waits elapses once the actor has fired it. Its polls do not read the clock,
    ///   which is most of what they would cost, unless its future has used up the task's
    ///   cooperative budget. The first poll does not read it either, if the timeout was made for a
    ///   duration above zero. (A [`Sleep`](crate::Sleep) reads it at each poll.)
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the inner future and cancels the timer.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let wheel = tickwheel::TimerWheel::new();
    /// let stuck = std::future::pending::<()>();
    /// let mut limited = Box::pin(wheel.timeout(Duration::from_secs(1), stuck));
    ///
    /// assert!(limited.as_mut().await.is_err());
    /// # }
    /// ```
    #[doc(alias = "deadline")]
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    #[derive(Debug)]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        sleep: Sleep,
    }
}

impl<F> Timeout<F> {
    pub(crate) fn new(future: F, sleep: Sleep) -> Self {
        Timeout { future, sleep }
    }

    /// The inner future.
    pub fn get_ref(&self) -> &F {
        &self.future
    }

    /// The inner future.
    pub fn get_mut(&mut self) -> &mut F {
        &mut self.future
    }

    /// Takes the inner future back, and cancels the timer.
    pub fn into_inner(self) -> F {
        self.future
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // Without `test-util` the timer is Tokio's after a shutdown only.
        let had_budget = !CAN_PAUSE || has_budget();
        let stage = this.sleep.timer.stage();
        // This poll only arms the timer.
        let is_new = matches!(stage, Some(Stage::New));
        let may_exceed_budget = !is_new && stage.is_some_and(may_exceed_budget);
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        let elapsed = this.sleep.poll_shown(|timer| {
            if is_new && timer.arm(cx) {
                return Poll::Pending;
            }
            poll_any(timer, had_budget, may_exceed_budget, cx)
        });
        elapsed.map(Err)
    }
}

/// Polls the timer in any stage.
#[inline(never)]
fn poll_any(
    timer: &mut Timer,
    had_budget: bool,
    may_exceed_budget: bool,
    cx: &mut Context<'_>,
) -> Poll<Elapsed> {
    let on_wheel =
        |timer: &mut OnWheel, cx: &mut Context<'_>| match ready!(poll_on_wheel(timer, cx)) {
            Ok(()) => elapse(may_exceed_budget, cx).map(Ok),
            Err(ended) => Poll::Ready(Err(ended)),
        };
    let on_tokio = |timer: &mut OnTokio, cx: &mut Context<'_>| poll_on_tokio(timer, had_budget, cx);
    timer.poll_by(cx, on_wheel, on_tokio)
}

fn poll_on_wheel(timer: &mut OnWheel, cx: &mut Context<'_>) -> Poll<Result<(), WheelEnded>> {
    match timer.stage {
        Stage::New => timer.poll_arm(cx),
        // Reading the clock would take a quarter of the time of a timeout that is polled three
        // times. A future that uses the budget up may keep the actor from running.
        Stage::Armed => timer.poll_armed(cx, !has_budget()),
        _ => timer.poll(cx),
    }
}

/// Polls the timer without budget if the future has used the budget up, as Tokio's timeout does.
#[cold]
fn poll_on_tokio(timer: &mut OnTokio, had_budget: bool, cx: &mut Context<'_>) -> Poll<Elapsed> {
    if had_budget && !has_budget() {
        let unconstrained = coop::unconstrained(poll_fn(|cx| timer.poll(cx)));
        ready!(pin!(unconstrained).poll(cx));
    } else {
        ready!(timer.poll(cx));
    }
    Poll::Ready(Elapsed::new())
}

/// Whether a timeout in this stage that turns out to have elapsed does so without budget.
///
/// Elapsing costs budget like any progress, or a loop of timeouts that elapse at once would let no
/// other task run. But a future that uses all of the budget at each poll must not keep its timeout
/// from elapsing. So the timeout elapses without budget if its own future used the budget up, or if
/// it has been pending before, since other tasks have run then.
#[inline]
fn may_exceed_budget(before: Stage) -> bool {
    match before {
        Stage::New | Stage::NewUnchecked | Stage::Reset => has_budget(),
        Stage::Armed | Stage::Done => true,
    }
}

#[inline(never)]
fn has_budget() -> bool {
    coop::has_budget_remaining()
}

/// The deadline has passed: takes a unit of the cooperative budget, or completes without one if it
/// may.
#[cold]
fn elapse(may_exceed_budget: bool, cx: &mut Context<'_>) -> Poll<Elapsed> {
    match coop::poll_proceed(cx) {
        Poll::Ready(budget) => budget.made_progress(),
        Poll::Pending if may_exceed_budget => {}
        Poll::Pending => return Poll::Pending,
    }
    Poll::Ready(Elapsed::new())
}
