//! A timer that has fired, claimed by this instance.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::error::Error;
use crate::instance::{Lease, RenewGuard};
use crate::store::{How, Version};

/// The fencing token of a claim.
///
/// A later claim under the same key has a greater token, whichever instance has it. A resource that remembers the greatest it
/// has seen for a key, and refuses smaller ones, is safe from a claimant that was held up for longer than its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub(crate) Version);

impl Token {
    /// The token as a number, at least 1.
    pub fn get(self) -> i64 {
        self.0.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// A timer that has fired. From [`Claims`](crate::Claims).
///
/// The claim is this instance's until the lease ends, counted from when it fired; at least half of it is left when the program
/// gets it. Work that may take longer [renews](Self::auto_renew) it; [`dispatch`](crate::Claims::dispatch) does so by itself.
/// [`ack`](Self::ack) it when the work is done. Otherwise the timer is delivered again, by any instance: at once when the claim is dropped, else when the lease has ended.
///
/// Until it is settled or dropped it takes up a part of the instance's [capacity](crate::Builder::capacity).
#[must_use = "a claim that is dropped is released, and its timer is delivered again"]
pub struct Claim<K, V> {
    /// The key it was set under.
    pub key: K,
    /// The value it was set with.
    pub value: V,
    /// When it was due, by the store's clock.
    pub deadline: SystemTime,
    /// How often it has been claimed since it was set, this time included. It is 2 or more after a claim that was not
    /// acknowledged. Claims that no program has received do not count, unless their process crashed.
    pub attempt: u32,
    /// How many occurrences of a repeating timer were missed and are not delivered. See [`Missed`](crate::Missed).
    pub missed: u64,
    pub(crate) lease: Arc<Lease>,
}

impl<K, V> Claim<K, V> {
    /// The fencing token.
    pub fn token(&self) -> Token {
        self.lease.token()
    }

    /// Acknowledges it: the timer is done and will not be delivered again. Of a repeating timer that is this occurrence.
    /// Acknowledging again does nothing.
    ///
    /// A lease that has ended does no harm while nobody else has got the timer.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when the timer was delivered again meanwhile, and nothing is changed. After [`Error::Timeout`] and
    /// [`Error::Store`] it can be tried again; whoever gives up drops the claim, and the timer is delivered again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the claim may have been acknowledged or not.
    pub async fn ack(&self) -> Result<(), Error> {
        self.lease.settle(How::Ack).await
    }

    /// Puts the timer back: it is due again `delay` from now, by the store's clock. The count of
    /// [attempts](Self::attempt) goes on.
    ///
    /// It is then a timer under its key as any other. But if the key has been set again since this one fired, or is that of a
    /// repeating timer, then the newer one keeps the key, and this one is delivered again beside it: its claim is then extended
    /// by `delay`, and can be neither moved nor removed.
    ///
    /// # Errors
    ///
    /// As [`ack`](Self::ack); [`Error::Settled`] for a claim that is settled, or at most once.
    pub async fn again(&self, delay: Duration) -> Result<(), Error> {
        self.lease.settle(How::Again(delay)).await
    }

    /// How much of the lease is left, by what this instance knows: never more than the store grants. Zero once the claim is
    /// settled or lost, and at most once.
    pub fn lease_remaining(&self) -> Duration {
        self.lease.remaining()
    }

    /// Renews the lease until the guard is dropped or the claim settled: each time about half of it is left, together with
    /// others in one call.
    ///
    /// A renewal that comes too late, because the process stood still or the store was away, is logged and counted as
    /// [`lost`](crate::DurableMetrics::lost); [`lease_remaining`](Self::lease_remaining) is zero then.
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
    /// As [`again`](Self::again).
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        self.lease.settle(How::Extend(lease)).await
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Claim<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("key", &self.key)
            .field("value", &self.value)
            .field("deadline", &self.deadline)
            .field("attempt", &self.attempt)
            .field("missed", &self.missed)
            .field("lease", &self.lease)
            .finish()
    }
}
