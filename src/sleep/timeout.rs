//! A future with a deadline.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::task::coop;

use crate::error::Elapsed;
use crate::sleep::Sleep;

pin_project! {
    /// A future that has until a deadline to complete. Made by [`TimerWheel::timeout`](crate::TimerWheel::timeout) and
    /// [`timeout_at`](crate::TimerWheel::timeout_at).
    ///
    /// Each poll polls the inner future first, then looks at the deadline. The timer is armed by the first poll at
    /// which the inner future is pending: one that is ready at once costs none.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the inner future and cancels the timer.
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

    /// The inner future. Never panics.
    pub fn get_ref(&self) -> &F {
        &self.future
    }

    /// The inner future. Never panics.
    pub fn get_mut(&mut self) -> &mut F {
        &mut self.future
    }

    /// Takes the inner future back; the timer is cancelled. Never panics.
    pub fn into_inner(self) -> F {
        self.future
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let has_waited = this.sleep.has_waited();
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        if this.sleep.poll_elapsed(cx).is_pending() {
            return Poll::Pending;
        }
        // Being too late costs budget like any progress. But a future that uses all of it up at each poll must not
        // keep its own deadline from being seen: a timeout that has been pending before has let others run.
        match coop::poll_proceed(cx) {
            Poll::Ready(budget) => budget.made_progress(),
            Poll::Pending if !has_waited => return Poll::Pending,
            Poll::Pending => {}
        }
        Poll::Ready(Err(Elapsed::new()))
    }
}
