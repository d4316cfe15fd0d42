//! A timer that has fired, claimed by this instance.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;

use crate::error::Error;
use crate::instance::{End, Lease, RenewGuard};
use crate::retry::Retry;
use crate::store::{Settlement, StoreTime};
use crate::token::Token;

/// A timer that has fired. From [`Claims`](crate::Claims).
///
/// This instance holds the claim until its lease ends. The lease counts from firing, and at least
/// half of it is left when the program receives the claim, unless the whole process stood still
/// during the fire, or the store took longer than a quarter of the lease to answer it. Work that
/// may take longer [renews](Self::auto_renew) it; [`dispatch`](crate::Claims::dispatch) does so by
/// itself. [`ack`](Self::ack) the claim when the work is done. Otherwise any instance delivers the
/// timer again: at once when the claim is dropped, else when the lease has ended.
///
/// A claim takes up one place of the instance's [capacity](crate::Builder::capacity) until it is
/// settled or dropped.
#[must_use = "a claim that is dropped is released, and its timer is delivered again"]
pub struct Claim<K, V> {
    /// The key it was set under.
    pub key: K,
    /// The value it was set with.
    pub value: V,
    /// When it was due, by the store's clock.
    pub deadline: SystemTime,
    /// How often it has been claimed since it was set, this claim included: 2 or more after one
    /// that was not acknowledged. Claims that no program has received do not count, unless their
    /// process crashed.
    pub attempt: u32,
    /// How many occurrences of a repeating timer were missed and are not delivered. See
    /// [`Missed`](crate::Missed).
    pub missed: u64,
    pub(crate) lease: Arc<Lease>,
}

impl<K, V> Claim<K, V> {
    /// The fencing token.
    pub fn token(&self) -> Token {
        self.lease.token()
    }

    /// Acknowledges the claim: the timer, or this occurrence of a repeating timer, is not delivered
    /// again. Acknowledging again does nothing.
    ///
    /// It succeeds after the lease has ended too, unless the timer was delivered again.
    ///
    /// This is one try. A store that does not respond may have acknowledged the claim or not, so
    /// the timer is not put back then: call again, or drop the claim. Dropping it after this was
    /// called goes on [in the background](Self::ack_in_background).
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when the timer was delivered again meanwhile; nothing is changed.
    /// [`Error::Timeout`] and [`Error::Store`] when the store has not taken it.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the claim may have been acknowledged or not. Dropping the claim
    /// does the rest.
    pub async fn ack(&self) -> Result<(), Error> {
        self.lease.end(End::new(Settlement::Ack)).await
    }

    /// Acknowledges the claim, however often that takes: while the store is unreachable, the lease
    /// is renewed and the acknowledgement sent again, with pauses of up to a second, until the
    /// store has taken it or says that the claim is lost. Does not wait.
    /// [`dispatch`](crate::Claims::dispatch) does the same when a handler has ended.
    ///
    /// The claim takes up its place of the [capacity](crate::Builder::capacity) meanwhile. After
    /// [`shutdown`](crate::DurableTimers::shutdown) it goes on until the lease ends.
    ///
    /// The returned future tells the result. It need not be awaited.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tickwheel_durable::{Claims, Error};
    /// # async fn send(_: &str) {}
    /// async fn work(mut claims: Claims<String, String>) {
    ///     while let Some(claim) = claims.recv().await {
    ///         send(&claim.value).await;
    ///         let acknowledged = claim.ack_in_background();
    ///         tokio::spawn(async move {
    ///             if let Err(Error::Lost { token }) = acknowledged.await {
    ///                 eprintln!("the claim {token} was lost: it is delivered again");
    ///             }
    ///         });
    ///     }
    /// }
    /// ```
    pub fn ack_in_background(self) -> Acknowledged {
        Acknowledged(self.lease.end_in_background(End::new(Settlement::Ack)))
    }

    /// Puts the timer back: it is due again `delay` from now, by the store's clock. The count of
    /// [attempts](Self::attempt) goes on. After the last of
    /// [`max_attempts`](crate::Builder::max_attempts) the timer is
    /// [dead](crate::operating#timers-that-fail) instead.
    ///
    /// It is then an ordinary timer under its key. If the key was set again since this timer fired,
    /// or belongs to a repeating timer, the newer timer keeps the key. This one is delivered again
    /// beside it after `delay`, and can be neither moved nor removed.
    ///
    /// # Errors
    ///
    /// [`Error::Settled`] for a claim that is settled or delivered at most once. [`Error::Lost`]
    /// when the timer was delivered again meanwhile. [`Error::Timeout`] and [`Error::Store`] when
    /// the store has not taken it.
    pub async fn retry_after(&self, delay: Duration) -> Result<(), Error> {
        self.fail(Retry::after(delay)).await
    }

    /// Says that the work has failed, as a handler of [`dispatch`](crate::Claims::dispatch) does
    /// that returns an error: the timer is [put back](Self::retry_after) with the error, or is
    /// [dead](crate::operating#timers-that-fail) after its last attempt.
    ///
    /// # Errors
    ///
    /// [`Error::Settled`] for a claim that is settled or delivered at most once. [`Error::Lost`]
    /// when the timer was delivered again meanwhile. [`Error::Timeout`] and [`Error::Store`] when
    /// the store has not taken it.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tickwheel_durable::{Claims, Error};
    /// # async fn transcode(_: &str) -> std::io::Result<()> { Ok(()) }
    /// async fn work(mut claims: Claims<String, String>) -> Result<(), Error> {
    ///     while let Some(claim) = claims.recv().await {
    ///         match transcode(&claim.value).await {
    ///             Ok(()) => claim.ack().await?,
    ///             Err(error) => claim.fail(error).await?,
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub async fn fail(&self, retry: impl Into<Retry>) -> Result<(), Error> {
        let end = self.lease.end_after(retry.into());
        self.lease.end(end).await
    }

    /// How much of the lease is left, as this instance knows it: no more than the store grants,
    /// unless the store took longer than a quarter of the lease to answer the fire. Zero once the
    /// claim is settled or lost, and for one delivered at most once.
    pub fn lease_remaining(&self) -> Duration {
        self.lease.remaining()
    }

    /// Renews the lease, each time about half of it is left, until the guard is dropped or the
    /// claim settled. Renewals of several claims share a call.
    ///
    /// A renewal that comes too late, because the process stood still or the store was unreachable,
    /// is logged and counted as [`lost`](crate::DurableMetrics::lost).
    /// [`lease_remaining`](Self::lease_remaining) is zero then.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tickwheel_durable::{Claims, Error};
    /// # async fn transcode(_: &str) {}
    /// async fn work(mut claims: Claims<String, String>) -> Result<(), Error> {
    ///     while let Some(claim) = claims.recv().await {
    ///         let _renewing = claim.auto_renew();
    ///         transcode(&claim.value).await;
    ///         claim.ack().await?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn auto_renew(&self) -> RenewGuard {
        self.lease.keep(false)
    }

    /// Makes the lease end `lease` from now, whether that is later or earlier than before.
    ///
    /// # Errors
    ///
    /// [`Error::Settled`] for a claim that is settled or delivered at most once. [`Error::Lost`]
    /// when the timer was delivered again meanwhile. [`Error::Timeout`] and [`Error::Store`] when
    /// the store has not taken it.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        self.lease.end(End::new(Settlement::Extend(lease))).await
    }
}

/// The result of [`Claim::ack_in_background`]. Dropping it changes nothing.
///
/// The errors are [`Error::Lost`]; [`Error::Store`] and [`Error::Timeout`] when the lease has ended
/// after a shutdown; and [`Error::Closed`] when the runtime of the instance has ended.
#[derive(Debug)]
pub struct Acknowledged(oneshot::Receiver<Result<(), Error>>);

impl Future for Acknowledged {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let told = ready!(Pin::new(&mut self.0).poll(cx));
        Poll::Ready(told.unwrap_or(Err(Error::Closed)))
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Claim<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("key", &self.key)
            .field("value", &self.value)
            .field("deadline", &StoreTime::from(self.deadline))
            .field("attempt", &self.attempt)
            .field("missed", &self.missed)
            .field("token", &self.token())
            .finish_non_exhaustive()
    }
}
