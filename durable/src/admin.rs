//! What an operator looks at, and the few things an operator does.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::sleep;

use crate::claim::Token;
use crate::codec::Coder;
use crate::error::Error;
use crate::instance::Core;
use crate::store::{How, List, Purged, Settle, Settled, State, StoreTime, Stored, Version};

/// Between two batches of a purge. Long enough for other processes to get at a locked SQLite file.
const PURGE_PAUSE: Duration = Duration::from_millis(2);

/// A view of all timers of a namespace, whichever instance has set or claimed them. From
/// [`DurableTimers::admin`](crate::DurableTimers::admin).
///
/// Each call but [`purge`](Self::purge) is one call of the store; its errors are those of
/// [`DurableTimers`](crate::DurableTimers#errors).
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
    /// When it is, or was, due.
    pub deadline: SystemTime,
    /// How often it has been delivered.
    pub attempt: u32,
    /// If it repeats: how often. Of an occurrence in flight it is `None`.
    pub period: Option<Duration>,
    /// Whether an instance has loaded it onto its wheel.
    pub loaded: bool,
    /// If it has fired and is not settled: by which claim.
    pub in_flight: Option<InFlight>,
    position: Position,
}

/// A claim, as the store sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct InFlight {
    /// Its token.
    pub token: Token,
    /// When its lease ends; `None` if it is parked.
    pub lease_until: Option<SystemTime>,
}

/// Where a list goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position(StoreTime, Version);

impl<K, V> Entry<K, V> {
    /// Its position in the list, to read on after it.
    pub fn position(&self) -> Position {
        self.position
    }
}

impl<K, V> Admin<K, V> {
    pub(crate) fn new(core: Arc<Core>, coder: Arc<dyn Coder<K, V>>) -> Self {
        Admin { core, coder }
    }

    /// The next `limit` timers that wait, earliest deadline first, after a position.
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

    /// The next `limit` timers in flight, by the end of their leases, after a position. Those parked come last.
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

    /// The timer with this key: the one that waits, else the one that was delivered last and is not settled.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn get(&self, key: &K) -> Result<Option<Entry<K, V>>, Error> {
        let key = self.coder.encode_key(key)?;
        let stored = self.core.calls.get(key).await?;
        Ok(stored.map(|stored| self.entry(&stored)))
    }

    /// Releases a claim, whoever has it: the timer is delivered again at once. That is how a parked one comes back.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when there is no such claim; otherwise see [above](Self).
    pub async fn release(&self, token: Token) -> Result<(), Error> {
        self.settle(token, How::Release).await
    }

    /// Acknowledges a claim, whoever has it: that is how a parked timer is thrown away.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release).
    pub async fn discard(&self, token: Token) -> Result<(), Error> {
        self.settle(token, How::Ack).await
    }

    /// Deletes every timer of the namespace, those in flight included, and returns how many there were: batch by batch, as
    /// [`purge_batch`](Self::purge_batch) does, with pauses in which other calls get their turn.
    ///
    /// It ends when it has found the namespace empty, so it also deletes timers that are set meanwhile. What was deleted before
    /// an error, or before the future was dropped, stays deleted.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn purge(&self) -> Result<u64, Error> {
        let mut rows = 0;
        loop {
            let purged = self.purge_batch().await?;
            rows += purged.rows;
            if !purged.more {
                return Ok(rows);
            }
            sleep(PURGE_PAUSE).await;
        }
    }

    /// Deletes some timers of the namespace, as many as the store can delete without delaying other calls. For those who show
    /// the progress of a long purge, or end it early:
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

    async fn settle(&self, token: Token, how: How) -> Result<(), Error> {
        let settle = Settle {
            token: token.0,
            how,
        };
        // For any instance to load.
        let mut near = self.core.near();
        near.loader = None;
        let settled = self.core.calls.settle(vec![settle], near).await?;
        if settled == [Settled::Lost] {
            return Err(Error::Lost { token });
        }
        Ok(())
    }

    async fn list(
        &self,
        state: State,
        after: Option<Position>,
        limit: usize,
    ) -> Result<Vec<Entry<K, V>>, Error> {
        let after = after.map(|Position(due, version)| (due, version));
        let request = List {
            state,
            after,
            limit,
        };
        let stored = self.core.calls.list(request).await?;
        Ok(stored.iter().map(|stored| self.entry(stored)).collect())
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
