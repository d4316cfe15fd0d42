//! The queue between the instance, which fires, and the stream of claims; and the demand that it fires for.
//!
//! The rules are [those of demand](crate::protocol#demand). What they need to know of the program is kept here: how many claims
//! it waits for, and how many it may be given ahead.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::lease::Lease;
use crate::store::Fired;

/// A timer that this instance has fired.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) fired: Fired,
    pub(crate) lease: Lease,
}

/// What the program can take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want {
    /// At once.
    pub(crate) now: usize,
    /// At most so many more while it is quick.
    pub(crate) ahead: usize,
}

/// Deliveries that wait to be received.
#[derive(Debug)]
pub(crate) struct Deliveries {
    state: Mutex<State>,
    /// Tells the task that fires that the program can take more.
    asked: Notify,
    /// A program that receives nothing for so long is not quick.
    quick: Duration,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Delivery>,
    receiver: Option<Waker>,
    /// How many claims the program waits for; zero while it does not.
    wanted: usize,
    /// How many claims may wait for the program, as long as it is quick.
    ahead: usize,
    /// How many are being fired.
    firing: usize,
    /// When the program last received a claim.
    received: Option<Instant>,
    closed: bool,
    /// The program has stopped receiving.
    abandoned: bool,
}

impl State {
    fn ahead(&self, quick: Duration) -> usize {
        match self.received {
            Some(received) if received.elapsed() < quick => self.ahead,
            _ => 0,
        }
    }
}

impl Deliveries {
    pub(super) fn new(quick: Duration) -> Self {
        Deliveries {
            state: Mutex::default(),
            asked: Notify::new(),
            quick,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many more claims the program can take, and how many of these are ahead of it.
    pub(super) fn demand(&self) -> (usize, usize) {
        let state = self.lock();
        let ahead = state.ahead(self.quick);
        let there = state.queue.len() + state.firing;
        ((state.wanted + ahead).saturating_sub(there), ahead)
    }

    /// Returns when the program can take a claim.
    pub(super) async fn demanded(&self) {
        while self.demand().0 == 0 {
            self.asked.notified().await;
        }
    }

    /// So many are being fired, until the next [`push`](Self::push).
    pub(super) fn begin_firing(&self, rows: usize) {
        self.lock().firing = rows;
    }

    /// Adds what was fired. It is closed after the last call of this.
    pub(super) fn push(&self, deliveries: Vec<Delivery>) {
        let receiver = {
            let mut state = self.lock();
            state.firing = 0;
            state.queue.extend(deliveries);
            if state.queue.is_empty() {
                None
            } else {
                state.receiver.take()
            }
        };
        if let Some(receiver) = receiver {
            receiver.wake();
        }
    }

    /// Takes the next one; `None` once closed.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>, want: Want) -> Poll<Option<Delivery>> {
        let mut state = self.lock();
        if let Some(delivery) = state.queue.pop_front() {
            state.received = Some(Instant::now());
            state.wanted = 0;
            drop(state);
            self.asked.notify_one();
            return Poll::Ready(Some(delivery));
        }
        if state.closed {
            return Poll::Ready(None);
        }
        if state.wanted == 0 {
            // It has received since it last waited. If that was soon, twice as many may wait for it next time.
            state.ahead = match state.received {
                Some(received) if received.elapsed() < self.quick => 2 * state.ahead + 1,
                _ => 0,
            };
        }
        state.ahead = state.ahead.min(want.ahead);
        state.wanted = want.now;
        let stale = state.receiver.replace(cx.waker().clone());
        drop(state);
        drop(stale);
        self.asked.notify_one();
        Poll::Pending
    }

    /// When the first one has waited too long to be handed out.
    pub(super) fn stale_at(&self) -> Option<Instant> {
        self.lock().queue.front()?.lease.stale_at()
    }

    /// Takes out what has waited too long. The program has not come for it, so nothing is fired until it does.
    pub(super) fn take_stale(&self) -> Vec<Delivery> {
        let mut state = self.lock();
        let mut stale = Vec::new();
        while state
            .queue
            .front()
            .is_some_and(|first| first.lease.is_stale())
        {
            stale.extend(state.queue.pop_front());
        }
        if !stale.is_empty() {
            (state.wanted, state.ahead) = (0, 0);
        }
        stale
    }

    /// Notes that the program has stopped receiving.
    pub(super) fn abandon(&self) {
        let gone = {
            let mut state = self.lock();
            state.abandoned = true;
            // `close` releases the rest.
            let closed = state.closed;
            closed.then(|| std::mem::take(&mut state.queue))
        };
        drop(gone);
    }

    /// Ends the stream, and returns what was not received and can be released. The rest comes before the end.
    pub(super) fn close(&self) -> Vec<Delivery> {
        let (unreceived, receiver) = {
            let mut state = self.lock();
            state.closed = true;
            let queue = std::mem::take(&mut state.queue).into_iter();
            let (held, gone): (Vec<_>, Vec<_>) =
                queue.partition(|delivery| delivery.lease.is_held());
            if !state.abandoned {
                state.queue = gone.into();
            }
            (held, state.receiver.take())
        };
        if let Some(receiver) = receiver {
            receiver.wake();
        }
        unreceived
    }
}
