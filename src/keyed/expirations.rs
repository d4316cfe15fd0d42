//! [`Expirations`]: the stream of keyed timers that have expired.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::{FusedStream, Stream};
use tokio::task::coop;

use super::error::TryRecvError;
use super::expired::{Cause, Expired};
use super::receipt::Reader;
use super::stream::{ExpirationSource, Veto};
use super::unexpired::Unexpired;
use crate::shared::SleepContext;

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
    pub(super) set: Arc<dyn ExpirationSource<K, V>>,
    pub(super) reader: Reader,
    /// The wheel that counts how long a handler takes.
    pub(super) context: Arc<SleepContext>,
    /// How long a handler may take.
    pub(super) handler_timeout: Option<Duration>,
    /// A poll has found that there will be no more.
    has_ended: bool,
}

impl<K, V> Expirations<K, V> {
    pub(crate) fn new(set: Arc<dyn ExpirationSource<K, V>>, context: &Arc<SleepContext>) -> Self {
        Expirations {
            set,
            reader: Reader::new(),
            context: Arc::clone(context),
            handler_timeout: None,
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
        self.poll_recv_if(cx, &mut |_, _, _| true)
    }

    fn poll_recv_if(
        &mut self,
        cx: &mut Context<'_>,
        may_expire: &mut Veto<'_, K, V>,
    ) -> Poll<Option<Expired<K, V>>> {
        let budget = ready!(coop::poll_proceed(cx));
        let received = ready!(self.set.poll_recv(&mut self.reader, cx, may_expire));
        budget.made_progress();
        self.has_ended = received.is_none();
        Poll::Ready(received)
    }

    /// Waits like [`recv`](Self::recv), and asks before a watch of a [`Reaper`](crate::Reaper)
    /// expires. If `may_expire` returns `false`, the watch is kept for another idle duration, as
    /// after a touch: its guard is watched throughout, and none of its touches returns `false`.
    ///
    /// `may_expire` sees the key, the value, which it may change, and why the watch would expire:
    /// [`Idle`](Cause::Idle) or [`MaxAge`](Cause::MaxAge). A watch that was [ended by
    /// `expire_now`](crate::WatchGuard::expire_now) has ended already, and a keyed timer expires at
    /// its deadline: both are received without asking. A touch during the call keeps a watch
    /// that would be idle, whatever the answer; then `may_expire` is asked again when the watch is
    /// due once more.
    ///
    /// `may_expire` runs while the set is locked. It must be quick, and must not call back into the
    /// set, except for touches, nor drop a [`WatchGuard`](crate::WatchGuard) or
    /// [`BusyGuard`](crate::BusyGuard) of it.
    ///
    /// # Panics
    ///
    /// Panics if `may_expire` does. The watch is still due then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Examples
    ///
    /// A silent peer gets two pings before its connection ends:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// struct Peer {
    ///     pings: u32,
    /// }
    ///
    /// let (reaper, mut idle) = wheel.reaper::<u32, Peer>(Duration::from_secs(60));
    /// let start = Instant::now();
    /// let connection = reaper.watch(1, Peer { pings: 0 })?;
    ///
    /// let ended = idle.recv_if(|_key, peer, _cause| {
    ///     assert!(connection.touch_at(start), "it is still watched");
    ///     let has_had_both = peer.pings == 2;
    ///     peer.pings += 1; // and send one
    ///     has_had_both
    /// });
    /// assert_eq!(ended.await.ok_or("closed")?.key, 1);
    /// assert_eq!(start.elapsed(), Duration::from_secs(3 * 60));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "veto")]
    #[doc(alias = "keep")]
    pub async fn recv_if(
        &mut self,
        mut may_expire: impl FnMut(&K, &mut V, Cause) -> bool,
    ) -> Option<Expired<K, V>> {
        poll_fn(|cx| self.poll_recv_if(cx, &mut may_expire)).await
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

    /// Returns the timers that had not expired when the wheel was [shut
    /// down](crate::TimerWheel::shutdown), earliest first. A second call returns nothing, and so
    /// does a call while the wheel runs.
    pub fn unexpired(&mut self) -> Vec<Unexpired<K, V>> {
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
