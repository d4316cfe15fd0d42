//! The operator's view of all timers: lists, releases, dead timers, and purge.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::codec::Coder;
use crate::error::Error;
use crate::instance::Core;
use crate::store::{
    DeadRows, List, Purged, Retried, Settle, Settled, Settlement, State, StoreError, StoreTime,
    Stored, Version,
};
use crate::token::Token;

/// The shortest pause between two batches of a call that changes many rows: long enough for another process to lock the SQLite file.
const PAUSE: Duration = Duration::from_millis(2);

/// A view of all timers of a namespace, whichever instance has set or claimed them. Made by
/// [`DurableTimers::admin`](crate::DurableTimers::admin).
///
/// Each call but [`purge`](Self::purge), those about many dead timers, and long lists is one call of the store. Errors are
/// those of [`DurableTimers`](crate::DurableTimers#errors). Queries delay no other call and no delivery.
///
/// # Dead timers
///
/// A timer that has [failed for good](crate::operating#timers-that-fail) is dead: listed by [`dead`](Self::dead), and
/// retried or discarded by its token, by its key, or with all others. Of a retry and a discard of the same timer one takes
/// effect, and the other returns that it has found nothing.
///
/// A retried timer is due at once, and its attempts begin again. If its key has a newer timer, it is delivered beside it.
///
/// A timer whose key an [open transaction of yours](crate::Postgres#in-your-own-transaction) has changed in PostgreSQL is
/// neither retried nor discarded. The others are, and then the call fails with
/// [`StoreError::Unavailable`].
///
/// ```
/// # async fn example(timers: tickwheel_durable::DurableTimers<String, u32>) -> Result<(), tickwheel_durable::Error> {
/// let admin = timers.admin();
/// for entry in admin.dead(None, 100).await? {
///     println!("{:?} failed {} times: {:?}", entry.key, entry.attempt, entry.error);
/// }
/// admin.retry_dead_key("order 17").await?;
/// admin.discard_all_dead().await?;
/// # Ok(())
/// # }
/// ```
pub struct Admin<K, V> {
    core: Arc<Core>,
    coder: Arc<dyn Coder<K, V>>,
}

/// A timer as it lies in the store.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Entry<K, V> {
    /// Its key, if it decodes.
    pub key: Result<K, Error>,
    /// Its value, if it decodes.
    pub value: Result<V, Error>,
    /// Its deadline, by the store's clock.
    pub deadline: SystemTime,
    /// How often it has been delivered.
    pub attempt: u32,
    /// The period of a repeating timer. `None` for an occurrence in flight.
    pub period: Option<Duration>,
    /// Whether an instance has loaded it onto its wheel.
    pub loaded: bool,
    /// Its claim, if it has fired and is not settled.
    pub in_flight: Option<InFlight>,
    /// Its death, if it has failed for good.
    pub dead: Option<Dead>,
    /// The error of its last attempt that failed with one.
    pub error: Option<String>,
    position: Position,
}

/// A claim, as the store sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct InFlight {
    /// Its token.
    pub token: Token,
    /// When its lease ends; `None` if it is quarantined, as by an earlier version of this crate.
    pub lease_until: Option<SystemTime>,
}

/// The death of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dead {
    /// The token of its last claim.
    pub token: Token,
    /// When it died, by the store's clock.
    pub since: SystemTime,
}

/// A position in a list, to continue after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position(StoreTime, Version);

impl<K, V> Entry<K, V> {
    /// Its position in the list, to continue after it.
    pub fn position(&self) -> Position {
        self.position
    }
}

impl<K, V> Admin<K, V> {
    pub(crate) fn new(core: Arc<Core>, coder: Arc<dyn Coder<K, V>>) -> Self {
        Admin { core, coder }
    }

    /// The next `limit` waiting timers after a position, earliest deadline first.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn pending(
        &self,
        after: Option<Position>,
        limit: usize,
    ) -> Result<Vec<Entry<K, V>>, Error> {
        self.list(State::Waiting, after, limit).await
    }

    /// The next `limit` timers in flight after a position, by the end of their leases. Quarantined ones come last.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn in_flight(
        &self,
        after: Option<Position>,
        limit: usize,
    ) -> Result<Vec<Entry<K, V>>, Error> {
        self.list(State::InFlight, after, limit).await
    }

    /// The next `limit` dead timers after a position, those that died first before others.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn dead(
        &self,
        after: Option<Position>,
        limit: usize,
    ) -> Result<Vec<Entry<K, V>>, Error> {
        self.list(State::Dead, after, limit).await
    }

    /// Retries the dead timer with this token. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn retry_dead(&self, token: Token) -> Result<bool, Error> {
        Ok(self.retry(|| DeadRows::Token(token.0)).await? > 0)
    }

    /// Retries the dead timers with this key. Returns how many there were: of a repeating timer each occurrence dies for
    /// itself.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn retry_dead_key<Q>(&self, key: &Q) -> Result<u64, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let key = self.coder.encode_key(&key)?;
        self.retry(|| DeadRows::Key(key.clone())).await
    }

    /// Retries all timers that are dead now, those that died first before others. Returns how many there were.
    ///
    /// After an error, or when the future is dropped, some may have been retried.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn retry_all_dead(&self) -> Result<u64, Error> {
        let began = Instant::now();
        // One that dies again meanwhile is not retried again.
        self.retry(|| DeadRows::OlderThan(began.elapsed())).await
    }

    /// Discards the dead timer with this token. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn discard_dead(&self, token: Token) -> Result<bool, Error> {
        Ok(self.discard_rows(|| DeadRows::Token(token.0)).await? > 0)
    }

    /// Discards the dead timers with this key. Returns how many there were.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn discard_dead_key<Q>(&self, key: &Q) -> Result<u64, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let key = self.coder.encode_key(&key)?;
        self.discard_rows(|| DeadRows::Key(key.clone())).await
    }

    /// Discards all timers that are dead now. Returns how many there were.
    ///
    /// After an error, or when the future is dropped, some may have been discarded.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn discard_all_dead(&self) -> Result<u64, Error> {
        let began = Instant::now();
        self.discard_rows(|| DeadRows::OlderThan(began.elapsed()))
            .await
    }

    /// The timer with this key: the waiting one, else the one that was delivered last and is not settled, else the one that
    /// died last.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn get<Q>(&self, key: &Q) -> Result<Option<Entry<K, V>>, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let key = self.coder.encode_key(&key)?;
        let stored = self.core.calls.get(key).await?;
        Ok(stored.map(|stored| self.entry(&stored)))
    }

    /// Releases a claim of any instance: the timer is delivered again at once. Use it to retry a quarantined timer.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when there is no such claim; otherwise see [above](Self).
    pub async fn release(&self, token: Token) -> Result<(), Error> {
        self.settle(token, Settlement::Release).await
    }

    /// Acknowledges a claim of any instance. Use it to discard a quarantined timer.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release).
    pub async fn discard(&self, token: Token) -> Result<(), Error> {
        self.settle(token, Settlement::Ack).await
    }

    /// Deletes every timer of the namespace, those in flight and dead ones included, and returns how many it deleted. It deletes in
    /// [batches](Self::purge_batch), with pauses for other calls.
    ///
    /// It ends when it finds the namespace empty, so it also deletes timers that are set meanwhile. After an error, or
    /// when the future is dropped, deleted timers stay deleted.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn purge(&self) -> Result<u64, Error> {
        in_steps(async || {
            let Purged { rows, more } = self.purge_batch().await?;
            Ok((rows, more))
        })
        .await
    }

    /// Deletes as many timers of the namespace as the store can delete without delaying other calls. Use it to show the
    /// progress of a long purge, or to end it early:
    ///
    /// ```
    /// # async fn purge(admin: tickwheel_durable::Admin<String, u32>) -> Result<(), tickwheel_durable::Error> {
    /// let mut deleted = 0;
    /// loop {
    ///     let purged = admin.purge_batch().await?;
    ///     deleted += purged.rows;
    ///     println!("{deleted} deleted");
    ///     if !purged.more {
    ///         break;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn purge_batch(&self) -> Result<Purged, Error> {
        self.core.calls.purge().await
    }

    async fn retry(&self, which: impl Fn() -> DeadRows) -> Result<u64, Error> {
        in_steps(async || {
            let Retried { rows, more } = self.core.calls.retry_dead(which()).await?;
            Ok((rows, more))
        })
        .await
    }

    async fn discard_rows(&self, which: impl Fn() -> DeadRows) -> Result<u64, Error> {
        in_steps(async || {
            let Purged { rows, more } = self.core.calls.discard_dead(which()).await?;
            Ok((rows, more))
        })
        .await
    }

    async fn settle(&self, token: Token, settlement: Settlement) -> Result<(), Error> {
        let settle = Settle::new(token.0, settlement);
        // Any instance may load it.
        let mut near = self.core.near();
        near.loader = None;
        let settled = self.core.calls.settle(vec![settle], near).await?;
        match settled[..] {
            [Settled::Lost] => Err(Error::Lost { token }),
            [Settled::Locked] => Err(Error::Store(StoreError::unavailable(format_args!(
                "a transaction has changed the key of token {token} and has not ended"
            )))),
            _ => Ok(()),
        }
    }

    async fn list(
        &self,
        state: State,
        after: Option<Position>,
        limit: usize,
    ) -> Result<Vec<Entry<K, V>>, Error> {
        let mut entries = Vec::new();
        let mut after = after.map(|Position(due, version)| (due, version));
        // The store may return fewer rows.
        while entries.len() < limit {
            let request = List {
                state,
                after,
                limit: limit - entries.len(),
            };
            let stored = self.core.calls.list(request).await?;
            let Some(last) = stored.last() else { break };
            after = Some((last.due, last.version));
            entries.extend(stored.iter().map(|stored| self.entry(stored)));
        }
        Ok(entries)
    }

    fn entry(&self, stored: &Stored) -> Entry<K, V> {
        let lease_until = Some(stored.due).filter(|due| !due.is_never());
        Entry {
            key: self.coder.decode_key(&stored.key),
            value: self.coder.decode_value(&stored.value),
            deadline: stored.deadline.into(),
            attempt: stored.attempt,
            period: stored.period,
            loaded: stored.loaded_by.is_some(),
            in_flight: (stored.state == State::InFlight).then(|| InFlight {
                token: Token(stored.version),
                lease_until: lease_until.map(SystemTime::from),
            }),
            dead: (stored.state == State::Dead).then(|| Dead {
                token: Token(stored.version),
                since: stored.due.into(),
            }),
            error: stored.error.clone(),
            position: Position(stored.due, stored.version),
        }
    }
}

/// Repeats a call that returns how many rows it has changed, and whether there are more. Returns the sum.
async fn in_steps(step: impl AsyncFn() -> Result<(u64, bool), Error>) -> Result<u64, Error> {
    let mut sum = 0;
    loop {
        let began = Instant::now();
        let (rows, more) = step().await?;
        sum += rows;
        if !more {
            return Ok(sum);
        }
        // Half of the time is for other calls.
        sleep(began.elapsed().max(PAUSE)).await;
    }
}

impl<K, V> fmt::Debug for Admin<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("core", &self.core)
            .finish_non_exhaustive()
    }
}
