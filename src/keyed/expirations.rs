//! The stream of keyed timers that have fired.

use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::task::coop;
use tokio::time::Instant;

use super::receive::{Empty, Source};
use crate::panic::{catch_panic, report};

/// A keyed timer that has fired, or was drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Expired<K, V> {
    /// The key it was set under.
    pub key: K,
    /// The value it was set with.
    pub value: V,
    /// When it was to fire: the instant it was last set or moved to.
    pub deadline: Instant,
}

/// The timers of one set that fire, by tick, and within one in the order in which they were armed. Made by
/// [`TimerWheel::keyed`](crate::TimerWheel::keyed).
///
/// The actor never waits for it: expirations that are not received are kept, without bound. It ends, with `None`, after
/// the wheel is shut down or once no handle is left and no timer pending, when all that has fired is received.
///
/// Dropping it closes the set: pending timers are dropped, and setting one is an error.
pub struct Expirations<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    set: Arc<dyn Source<K, V>>,
}

impl<K, V> Expirations<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    pub(crate) fn new(set: Arc<dyn Source<K, V>>) -> Self {
        Expirations { set }
    }

    /// Waits for the next expiration; `None` when there will be none any more. Never panics.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn recv(&mut self) -> Option<Expired<K, V>> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Polls for the next expiration; `None` when there will be none any more. Never panics.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Expired<K, V>>> {
        let mut one = None;
        ready!(self.poll_into(cx, 1, &mut |expired| one = Some(expired)));
        Poll::Ready(one)
    }

    /// The next expiration, if there is one now. Never panics.
    ///
    /// # Errors
    ///
    /// [`Empty`](TryRecvError::Empty) when there may be one later, [`Disconnected`](TryRecvError::Disconnected) when
    /// there will be none any more.
    pub fn try_recv(&mut self) -> Result<Expired<K, V>, TryRecvError> {
        self.set.try_recv().map_err(|empty| match empty {
            Empty::ForNow => TryRecvError::Empty,
            Empty::Finished => TryRecvError::Disconnected,
        })
    }

    /// Waits for expirations and appends at most `limit` of them to `into`; returns how many. Zero when there will be
    /// none any more, or when `limit` is zero. Never panics.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn recv_many(&mut self, into: &mut Vec<Expired<K, V>>, limit: usize) -> usize {
        if limit == 0 {
            return 0;
        }
        poll_fn(|cx| self.poll_into(cx, limit, &mut |expired| into.push(expired))).await
    }

    /// Runs `handler` on each expiration, at most `concurrency` at once, until there are none any more and all
    /// handlers have finished. A concurrency of zero counts as one.
    ///
    /// The handlers run within this future: on the task that awaits it, concurrently but not in parallel. One that
    /// panics is logged and counts as finished. They may set, move and remove timers of the same set.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the handlers that have not finished. Expirations that were not handed to one stay in
    /// the stream.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let wheel = tickwheel::TimerWheel::new();
    /// let (timers, mut expirations) = wheel.keyed::<u32, &str>();
    /// timers.set_timer(1, "retry", Duration::from_secs(5)).unwrap();
    /// drop(timers); // the stream ends when the timer has fired
    ///
    /// expirations
    ///     .dispatch(16, |expired| async move {
    ///         println!("{}: {}", expired.key, expired.value);
    ///     })
    ///     .await;
    /// # }
    /// ```
    pub async fn dispatch<H, F>(&mut self, concurrency: usize, mut handler: H)
    where
        H: FnMut(Expired<K, V>) -> F,
        F: Future<Output = ()>,
    {
        let concurrency = concurrency.max(1);
        let mut running = FuturesUnordered::new();
        let mut open = true;
        poll_fn(|cx| {
            loop {
                while let Poll::Ready(Some(finished)) = running.poll_next_unpin(cx) {
                    if let Err(panic) = finished {
                        report("a handler", panic);
                    }
                }
                if !open {
                    return if running.is_empty() {
                        Poll::Ready(())
                    } else {
                        Poll::Pending
                    };
                }
                if running.len() >= concurrency {
                    return Poll::Pending;
                }
                match ready!(self.poll_recv(cx)) {
                    Some(expired) => {
                        let handling = catch_panic("a handler", || handler(expired));
                        running.extend(handling.map(|f| AssertUnwindSafe(f).catch_unwind()));
                    }
                    None => open = false,
                }
            }
        })
        .await;
    }

    /// After the wheel was shut down: the timers that had not fired, earliest first. A second call returns nothing, and
    /// so does one while the wheel runs. Never panics.
    pub fn unexpired(&mut self) -> Vec<Expired<K, V>> {
        self.set.unexpired()
    }

    fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        limit: usize,
        out: &mut dyn FnMut(Expired<K, V>),
    ) -> Poll<usize> {
        let budget = ready!(coop::poll_proceed(cx));
        let received = ready!(self.set.poll_recv(cx, limit, out));
        budget.made_progress();
        Poll::Ready(received)
    }
}

impl<K, V> Stream for Expirations<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    type Item = Expired<K, V>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Expired<K, V>>> {
        self.poll_recv(cx)
    }
}

impl<K, V> Drop for Expirations<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    fn drop(&mut self) {
        self.set.unread();
    }
}

impl<K, V> fmt::Debug for Expirations<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expirations")
            .field("set", &self.set)
            .finish()
    }
}
