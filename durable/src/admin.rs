//! The operator's view of all timers: lists, release, acknowledge and purge.

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
    List, Purged, Settle, Settled, Settlement, State, StoreError, StoreTime, Stored, Version,
};
use crate::token::Token;

/// The shortest pause between two batches of a purge: long enough for another process to lock the SQLite file.
const PURGE_PAUSE: Duration = Duration::from_millis(2);

/// A view of all timers of a namespace, whichever instance has set or claimed them. Made by
/// [`DurableTimers::admin`](crate::DurableTimers::admin).
///
/// Each call but [`purge`](Self::purge) and long lists is one call of the store. Errors are those of
/// [`DurableTimers`](crate::DurableTimers#errors). Queries delay no other call and no delivery.
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
    position: Position,
}

/// A claim, as the store sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct InFlight {
    /// Its token.
    pub token: Token,
    /// When its lease ends; `None` if it is quarantined.
    pub lease_until: Option<SystemTime>,
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

    /// The next `limit` timers in flight after a position, by the end of their leases. Parked ones come last.
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

    /// The timer with this key: the waiting one, else the one that was delivered last and is not settled.
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

    /// Deletes every timer of the namespace, those in flight included, and returns how many it deleted. It deletes in
    /// [batches](Self::purge_batch), with pauses for other calls.
    ///
    /// It ends when it finds the namespace empty, so it also deletes timers that are set meanwhile. After an error, or
    /// when the future is dropped, deleted timers stay deleted.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn purge(&self) -> Result<u64, Error> {
        let mut rows = 0;
        loop {
            let began = Instant::now();
            let purged = self.purge_batch().await?;
            rows += purged.rows;
            if !purged.more {
                return Ok(rows);
            }
            // Half of the time is for other calls.
            sleep(began.elapsed().max(PURGE_PAUSE)).await;
        }
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

    async fn settle(&self, token: Token, settlement: Settlement) -> Result<(), Error> {
        let settle = Settle {
            token: token.0,
            settlement,
        };
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
            position: Position(stored.due, stored.version),
        }
    }
}

impl<K, V> fmt::Debug for Admin<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("core", &self.core)
            .finish_non_exhaustive()
    }
}
