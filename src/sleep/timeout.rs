//! Timeouts: a future with a deadline to complete by.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::task::coop;

use crate::clock::CAN_PAUSE;
use crate::error::Elapsed;
use crate::sleep::{Sleep, Stage};

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
    /// * A timeout that waits elapses once the actor has fired it. Its polls do not read the clock, which is most of what
    ///   they would cost, unless its future has used up the task's cooperative budget. Nor does the first poll of a
    ///   timeout made for a duration above zero. (A [`Sleep`](crate::Sleep) reads it at each poll.)
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
        let had_budget = !CAN_PAUSE || has_budget();
        // This poll only arms the timer.
        let is_new = matches!(this.sleep.stage, Stage::New);
        let may_exceed_budget = !is_new && may_exceed_budget(this.sleep.stage);
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        let elapsed = this.sleep.poll_shown(|sleep| {
            if CAN_PAUSE && sleep.is_tokios() {
                return poll_tokios(sleep, had_budget, cx);
            }
            ready!(if is_new {
                sleep.poll_arm(cx)
            } else {
                poll_again(sleep, cx)
            });
            elapse(may_exceed_budget, cx)
        });
        elapsed.map(Err)
    }
}

/// Polls the timer of a timeout that has more to do than to arm it.
#[inline(never)]
fn poll_again(sleep: &mut Sleep, cx: &mut Context<'_>) -> Poll<()> {
    match sleep.stage {
        // Reading the clock would take a quarter of the time of a timeout that is polled three times. A future that uses
        // the budget up may keep the actor from running.
        Stage::Armed => sleep.poll_armed(cx, !has_budget()),
        _ => sleep.poll_elapsed(cx),
    }
}

/// Polls the timer without budget if the future has used the budget up, as Tokio's timeout does.
#[cold]
fn poll_tokios(sleep: &mut Sleep, had_budget: bool, cx: &mut Context<'_>) -> Poll<Elapsed> {
    if had_budget && !has_budget() {
        let unconstrained = coop::unconstrained(poll_fn(|cx| sleep.poll_tokios(cx)));
        ready!(pin!(unconstrained).poll(cx));
    } else {
        ready!(sleep.poll_tokios(cx));
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
        Stage::Armed | Stage::Fallback | Stage::Tokio | Stage::TokioUnarmed | Stage::Done => true,
        Stage::New | Stage::NewUnchecked | Stage::Reset => has_budget(),
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
