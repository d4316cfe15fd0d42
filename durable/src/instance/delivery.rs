//! The queue between the instance, which fires, and the stream of claims.
//!
//! It is bounded by the capacity: each claim in it holds a permit.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

use super::lease::Lease;
use crate::store::Fired;

/// A timer that this instance has fired.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) fired: Fired,
    pub(crate) lease: Lease,
    /// When the lease has surely ended, counted from the answer to the fire; `None` if the store has deleted the timer.
    pub(crate) until: Option<Instant>,
}

impl Delivery {
    /// Whether the lease has ended while this waited to be received, so that it is [given up](crate::protocol#the-argument).
    pub(crate) fn has_lapsed(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now())
    }
}

/// Deliveries that wait to be received.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Delivery>,
    receiver: Option<Waker>,
    closed: bool,
}

impl Deliveries {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds deliveries. Once closed, they are dropped, which releases them.
    pub(crate) fn push(&self, deliveries: Vec<Delivery>) {
        let receiver = {
            let mut state = self.lock();
            if state.closed {
                None
            } else {
                state.queue.extend(deliveries);
                state.receiver.take()
            }
        };
        if let Some(receiver) = receiver {
            receiver.wake();
        }
    }

    /// Takes the next one; `None` once closed.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let mut state = self.lock();
        if let Some(delivery) = state.queue.pop_front() {
            return Poll::Ready(Some(delivery));
        }
        if state.closed {
            return Poll::Ready(None);
        }
        let stale = state.receiver.replace(cx.waker().clone());
        drop(state);
        drop(stale);
        Poll::Pending
    }

    /// Ends the stream, and returns what was not received and can be released. The rest comes before the end.
    pub(crate) fn close(&self) -> Vec<Delivery> {
        let (unreceived, receiver) = {
            let mut state = self.lock();
            state.closed = true;
            let queue = std::mem::take(&mut state.queue).into_iter();
            let (held, gone): (Vec<_>, _) = queue.partition(|delivery| delivery.lease.is_held());
            state.queue = gone.into();
            (held, state.receiver.take())
        };
        if let Some(receiver) = receiver {
            receiver.wake();
        }
        unreceived
    }
}
