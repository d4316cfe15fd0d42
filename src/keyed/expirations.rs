//! [`Expirations`]: the stream of keyed timers that have expired.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::{FusedStream, Stream};
use futures_util::StreamExt;
use tokio::task::coop;

use super::dispatch::Handler;
use super::error::TryRecvError;
use super::expired::Expired;
use super::receipt::Reader;
use super::stream::ExpirationSource;

/// The expirations of one set of timers. Made by [`TimerWheel::keyed`](crate::TimerWheel::keyed)
/// and [`TimerWheel::reaper`](crate::TimerWheel::reaper).
///
/// Expirations come by tick, and within a tick in the order of arming. If thousands are set at once
/// for deadlines that have passed, the order holds within parts of them. The actor never waits for
/// the consumer.
///
/// A timer expires as it is received. One that is due and was not received yet is still in its set:
/// it can be removed, moved, set again or touched, and counts for
/// [`max_keyed`](crate::Builder::max_keyed), which so bounds what waits for a consumer.
///
/// The stream ends, with `None`, once the consumer has received everything that is due and either
/// the wheel is shut down, or no handle and no timer is left.
///
/// Dropping it closes the set: it drops pending timers, and setting one is an error.
#[must_use = "dropping the stream closes the set"]
pub struct Expirations<K, V> {
    set: Arc<dyn ExpirationSource<K, V>>,
    reader: Reader,
    /// A poll has found that there will be no more.
    has_ended: bool,
}

impl<K, V> Expirations<K, V> {
    pub(crate) fn new(set: Arc<dyn ExpirationSource<K, V>>) -> Self {
        Expirations {
            set,
            reader: Reader::new(),
            has_ended: false,
        }
    }

    /// Waits for the next expiration; `None` when there will be no more.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    #[doc(alias = "next")]
    pub async fn recv(&mut self) -> Option<Expired<K, V>> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Polls for the next expiration; `None` when there will be no more.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Expired<K, V>>> {
        let budget = ready!(coop::poll_proceed(cx));
        let received = ready!(self.set.poll_recv(&mut self.reader, cx));
        budget.made_progress();
        self.has_ended = received.is_none();
        Poll::Ready(received)
    }

    /// Returns the next expiration if one is due.
    ///
    /// It waits for nobody: where [`recv`](Self::recv) lets [others have their
    /// turn](crate::Reaper#after-a-stall) before a watch is found to be idle, this decides at once.
    ///
    /// # Errors
    ///
    /// [`Empty`](TryRecvError::Empty) when there may be one later, [`Closed`](TryRecvError::Closed)
    /// when there will be no more.
    pub fn try_recv(&mut self) -> Result<Expired<K, V>, TryRecvError> {
        self.set.try_recv(&mut self.reader)
    }

    /// Waits for expirations and appends at most `limit` of them to `into`. Returns how many; zero
    /// when there will be no more, or when `limit` is zero. Reserves room in `into` for at most 256
    /// at a time. Of a reaper it appends the watches that were due with the first one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (timers, mut expirations) = wheel.keyed::<u32, ()>();
    /// for key in 0..100 {
    ///     timers.set_timer(key, (), Duration::from_secs(5)).unwrap();
    /// }
    ///
    /// let mut batch = Vec::new();
    /// while batch.len() < 100 {
    ///     expirations.recv_many(&mut batch, 64).await;
    /// }
    /// assert!(batch.iter().map(|expired| expired.key).eq(0..100));
    /// # }
    /// ```
    #[doc(alias = "batch")]
    pub async fn recv_many(&mut self, into: &mut Vec<Expired<K, V>>, limit: usize) -> usize {
        if limit == 0 {
            return 0;
        }
        let Some(first) = self.recv().await else {
            return 0;
        };
        into.push(first);
        1 + self.set.recv_more(&mut self.reader, limit - 1, into)
    }

    /// Runs `handler` for each expiration, at most `concurrency` of them at once, until there are
    /// no more and all handlers have finished. A concurrency of zero counts as one.
    ///
    /// The handlers run concurrently, all on the task that awaits this future. A handler that
    /// panics is logged and counts as finished. Handlers may set, move and remove timers of the
    /// same set; one that owns a [`KeyedTimers`](crate::KeyedTimers) keeps the stream from ending,
    /// a [`WeakKeyedTimers`](crate::WeakKeyedTimers) does not.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the unfinished handlers. The stream keeps expirations without a
    /// handler.
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
    /// drop(timers); // the stream ends when the timer has expired
    ///
    /// expirations
    ///     .dispatch(16, |expired| async move {
    ///         println!("{}: {}", expired.key, expired.value);
    ///     })
    ///     .await;
    /// # }
    /// ```
    #[doc(alias = "for_each_concurrent")]
    #[doc(alias = "workers")]
    pub async fn dispatch<H, F>(&mut self, concurrency: usize, mut handler: H)
    where
        H: FnMut(Expired<K, V>) -> F,
        F: Future<Output = ()>,
    {
        self.for_each_concurrent(concurrency.max(1), |expired| {
            Handler::call(|| handler(expired))
        })
        .await;
    }

    /// Returns the timers that had not expired when the wheel was [shut
    /// down](crate::TimerWheel::shutdown), earliest first. A second call returns nothing, and so
    /// does a call while the wheel runs.
    pub fn unexpired(&mut self) -> Vec<Expired<K, V>> {
        self.set.unexpired()
    }
}

impl<K, V> Stream for Expirations<K, V> {
    type Item = Expired<K, V>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Expired<K, V>>> {
        self.poll_recv(cx)
    }
}

impl<K, V> FusedStream for Expirations<K, V> {
    /// Whether a poll has returned `None`: there will be no more expirations.
    fn is_terminated(&self) -> bool {
        self.has_ended
    }
}

impl<K, V> Drop for Expirations<K, V> {
    fn drop(&mut self) {
        self.set.close();
    }
}

impl<K, V> fmt::Debug for Expirations<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expirations")
            .field("set", &self.set)
            .field("has_ended", &self.has_ended)
            .finish_non_exhaustive()
    }
}
