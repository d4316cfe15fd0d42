//! The operator's view of all timers: lists, changes, releases, dead timers, and purge.

mod change;
mod dead;
mod entry;

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::future::try_join_all;
use serde::Serialize;

pub use change::Changed;
pub use entry::{Dead, Entry, InFlight, Position};

use crate::codec::Coder;
use crate::error::Error;
use crate::instance::{Core, Cores, in_steps};
use crate::store::{
    ChangedRows, Charter, List, MAX_KEY_ROWS, PrefixCursor, PrefixRows, Settle, Settled,
    Settlement, State, StoreError, StoreTime, Stored, StoredInstance, Version,
};
use crate::token::Token;

/// A view of all timers of a namespace, whichever instance has set or claimed them. Made by
/// [`DurableTimers::admin`](crate::DurableTimers::admin).
///
/// Each call but [`amend`](Self::amend), [`purge`](Self::purge), those about many timers, and long
/// lists is one call of the store for each part. Errors are those of
/// [`DurableTimers`](crate::DurableTimers#errors), but here the call timeout counts for each call
/// of the store. An instance that has not called the store for a minute, or whose namespace was
/// amended, makes one or two more before a change of a waiting timer. Queries delay no other call
/// and no delivery.
///
/// # Dead timers
///
/// A timer that has [failed for good](crate::operating#timers-that-fail) is dead: listed by
/// [`dead`](Self::dead), and retried or discarded by its token, by its key, or with all others.
/// Either a retry or a discard of the same timer takes effect, and the other one returns that it
/// has found nothing.
///
/// A retried timer is due at once, and its attempts begin again. If its key has a newer timer, it
/// is delivered beside it.
///
/// A timer whose key an [open transaction of yours](crate::Postgres#in-your-own-transaction) has
/// changed in PostgreSQL is neither retried nor discarded. The others are, and then the call fails
/// with [`StoreError::Unavailable`].
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
    cores: Arc<Cores>,
    coder: Arc<dyn Coder<K, V>>,
}

/// An instance of the namespace, as the store sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Its entry in the store.
    pub instance: StoredInstance,
    /// Whether it is the instance of this [`Admin`].
    pub is_own: bool,
}

/// A position in a list by prefix, where the next page begins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PrefixPosition(usize, Option<PrefixCursor>);

impl<K, V> Admin<K, V> {
    pub(crate) fn new(cores: Arc<Cores>, coder: Arc<dyn Coder<K, V>>) -> Self {
        Admin { cores, coder }
    }

    /// The [charter](Charter) of the namespace, as it is now.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn charter(&self) -> Result<Charter, Error> {
        // There is one part at least, and the first one decides.
        charter_of(self.cores.of_part(0)).await
    }

    /// Amends the charter of the namespace. Instances that differ from it, this one too, stop
    /// loading, firing and writing with their next call, and others start. Claims can still be
    /// settled.
    ///
    /// To change a setting such as [`no_overlap`](crate::Builder::no_overlap) while instances run:
    /// amend the charter, and replace the instances. Timers are late by as long as that takes.
    ///
    /// # Errors
    ///
    /// See [above](Self). [`StoreError::Refused`] when the codec or the number of parts is another
    /// one: they never change.
    ///
    /// After another error amend again, to either charter: what was amended is put back as far as
    /// the store can be reached, and in a namespace of several parts some may keep the amendment.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(timers: tickwheel_durable::DurableTimers<String, u32>) -> Result<(), tickwheel_durable::Error> {
    /// let admin = timers.admin();
    /// let mut charter = admin.charter().await?;
    /// charter.no_overlap = true;
    /// admin.amend(&charter).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn amend(&self, charter: &Charter) -> Result<(), Error> {
        let mut former = Vec::new();
        for core in self.cores.iter() {
            let was = charter_of(core).await?;
            was.check_amendment(core.calls.namespace(), charter)?;
            former.push(was);
        }
        for (part, core) in self.cores.iter().enumerate() {
            if let Err(error) = core.calls.amend(charter).await {
                // An instance stops where one part differs.
                for (core, was) in self.cores.iter().zip(&former).take(part + 1) {
                    if let Err(error) = core.calls.amend(was).await {
                        tracing::warn!(namespace = %core.calls.namespace(), error = %format_args!("{error:#}"), "an amendment could not be taken back: amend the charter again");
                    }
                }
                return Err(error);
            }
        }
        Ok(())
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

    /// The next `limit` timers in flight after a position, by the end of their leases.
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

    /// The timer with this key: the waiting one, else the one that was delivered last and is not
    /// settled, else the dead one that was delivered last.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn get<Q>(&self, key: &Q) -> Result<Option<Entry<K, V>>, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let entries = self.latest_of(key, 1).await?;
        Ok(entries.into_iter().next())
    }

    /// All timers with this key: the waiting one, then those in flight, then the dead ones, each
    /// from the latest on. At most [`MAX_KEY_ROWS`] of each.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn all_of<Q>(&self, key: &Q) -> Result<Vec<Entry<K, V>>, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        self.latest_of(key, MAX_KEY_ROWS).await
    }

    async fn latest_of<Q>(&self, key: &Q, limit: usize) -> Result<Vec<Entry<K, V>>, Error>
    where
        Q: Serialize + ?Sized,
    {
        let key = self.coder.encode_key(&key)?;
        let part = self.cores.part_of(&key);
        let calls = &self.cores.of_part(part).calls;
        let asking = calls.ask("rows_of", |store, space| store.rows_of(space, key, limit));
        let rows = asking.await?;
        Ok(rows.iter().map(|stored| self.entry(part, stored)).collect())
    }

    /// A page of the timers in one state with encoded keys that begin with some bytes, and where
    /// the next page begins. `None` after the last one. A page may be empty although others follow.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn with_prefix(
        &self,
        state: State,
        prefix: impl Into<Vec<u8>>,
        after: Option<PrefixPosition>,
        limit: usize,
    ) -> Result<(Vec<Entry<K, V>>, Option<PrefixPosition>), Error> {
        let PrefixPosition(part, after) = after.unwrap_or_default();
        let Some(core) = self.cores.iter().nth(part) else {
            return Ok((Vec::new(), None));
        };
        let mut request = PrefixRows::new(state, prefix.into(), limit);
        request.after = after;
        let asking = core.calls.ask("rows_with_prefix", |store, space| {
            store.inspect().rows_with_prefix(space, request)
        });
        let page = asking.await?;
        let next = match page.next {
            Some(next) => Some(PrefixPosition(part, Some(next))),
            None => (part + 1 < self.cores.iter().len()).then_some(PrefixPosition(part + 1, None)),
        };
        let entries = page.rows.iter().map(|stored| self.entry(part, stored));
        Ok((entries.collect(), next))
    }

    /// The instances of the namespace.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn instances(&self) -> Result<Vec<Member>, Error> {
        let asking = self.cores.iter().map(async |core| {
            let own = core.id();
            let asking = core
                .calls
                .ask("instances", |store, space| store.inspect().instances(space));
            let instances = asking.await?.into_iter();
            Ok::<_, Error>(instances.map(move |instance| Member {
                is_own: instance.id == own,
                instance,
            }))
        });
        Ok(try_join_all(asking).await?.into_iter().flatten().collect())
    }

    /// How many timers wait whose deadlines lie between each of these ascending times and the next,
    /// the first of both included. Counting stops at [some thousands](crate::store::MAX_DUE_COUNT)
    /// for each.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn count_due(&self, times: &[SystemTime]) -> Result<Vec<u64>, Error> {
        let times: Vec<_> = times.iter().copied().map(StoreTime::from).collect();
        let counting = self.cores.iter().map(|core| {
            let times = times.clone();
            core.calls.ask("count_due", |store, space| {
                store.inspect().count_due(space, times)
            })
        });
        let mut sums = vec![0; times.len().saturating_sub(1)];
        for counts in try_join_all(counting).await? {
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += count;
            }
        }
        Ok(sums)
    }

    /// Releases a claim of any instance: the timer is delivered again at once. The attempt that is
    /// cut off does not count, so it is never the last one.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when there is no such claim; otherwise see [above](Self).
    pub async fn release(&self, token: Token) -> Result<(), Error> {
        self.settle(token, Settlement::Unfire).await
    }

    /// Acknowledges a claim of any instance.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when there is no such claim; otherwise see [above](Self).
    pub async fn discard(&self, token: Token) -> Result<(), Error> {
        self.settle(token, Settlement::Ack).await
    }

    /// Deletes every timer of the namespace, those in flight and dead ones included, and returns
    /// how many it deleted. It deletes in [batches](Self::purge_batch), with pauses for other
    /// calls.
    ///
    /// It ends when it finds the namespace empty, so it also deletes timers that are set meanwhile.
    /// After an error, or when the future is dropped, deleted timers stay deleted.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn purge(&self) -> Result<u64, Error> {
        Ok(in_steps(|| self.purge_batch()).await?.rows)
    }

    /// Deletes as many timers of the namespace as the store can delete without delaying other
    /// calls. Use it to show the progress of a long purge, or to end it early:
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
    pub async fn purge_batch(&self) -> Result<ChangedRows, Error> {
        let mut purged = ChangedRows::default();
        for core in self.cores.iter() {
            let step = core
                .calls
                .ask("purge", |store, space| store.purge(space))
                .await?;
            purged = ChangedRows::new(purged.rows + step.rows, purged.more || step.more);
        }
        Ok(purged)
    }

    async fn settle(&self, token: Token, settlement: Settlement) -> Result<(), Error> {
        let core = self.cores.of_token(token).ok_or(Error::Lost { token })?;
        let settle = Settle::new(token.version, settlement);
        // Any instance may load it.
        let mut near = core.near();
        near.loader = None;
        let settled = core.calls.settle(vec![settle], near).await?;
        match settled[..] {
            [Settled::Lost] => Err(Error::Lost { token }),
            [Settled::Locked] => Err(Error::Store(StoreError::locked(&format!(
                "the key of token {token}"
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
        let listing = self.cores.iter().enumerate().map(async |(part, core)| {
            let after = after.as_ref().map(|&Position(due, version, last)| {
                // Rows with the same deadline and version come in the order of their parts.
                (due, Version(version.0 - i64::from(part > last)))
            });
            let rows = list(core, state, after, limit).await?;
            Ok::<_, Error>(rows.into_iter().map(move |row| (part, row)))
        });
        let mut rows: Vec<_> = try_join_all(listing).await?.into_iter().flatten().collect();
        rows.sort_by_key(|(part, row)| (row.due, row.version, *part));
        rows.truncate(limit);
        let entries = rows.iter().map(|(part, row)| self.entry(*part, row));
        Ok(entries.collect())
    }

    fn entry(&self, part: usize, stored: &Stored) -> Entry<K, V> {
        let token = Token {
            version: stored.version,
            part,
        };
        let lease_until = Some(stored.due).filter(|due| !due.is_never());
        Entry {
            key: self.coder.decode_key(&stored.key),
            value: self.coder.decode_value(&stored.value),
            deadline: stored.deadline.into(),
            attempt: stored.attempt,
            period: stored.period,
            schedule: stored.schedule.clone(),
            loaded: stored.loaded_by.is_some_and(|id| !id.is_left()),
            in_flight: (stored.state == State::InFlight).then(|| InFlight {
                token,
                lease_until: lease_until.map(SystemTime::from),
                by: stored.claimed_by,
            }),
            dead: (stored.state == State::Dead).then(|| Dead {
                token,
                since: stored.due.into(),
            }),
            error: stored.error.clone(),
            position: Position(stored.due, stored.version, part),
        }
    }
}

async fn charter_of(core: &Core) -> Result<Charter, Error> {
    let asking = (core.calls).ask("charter", |store, space| store.inspect().charter(space));
    let charter = asking.await?;
    charter.ok_or_else(|| Error::Store(StoreError::refused("the namespace is not there")))
}

/// The next rows of a part.
async fn list(
    core: &Core,
    state: State,
    mut after: Option<(StoreTime, Version)>,
    limit: usize,
) -> Result<Vec<Stored>, Error> {
    let mut rows = Vec::new();
    // The store may return fewer rows.
    while rows.len() < limit {
        let request = List {
            state,
            after,
            limit: limit - rows.len(),
        };
        let listing = (core.calls).ask("list", |store, space| store.list(space, request));
        let stored = listing.await?;
        let Some(last) = stored.last() else { break };
        after = Some((last.due, last.version));
        rows.extend(stored);
    }
    Ok(rows)
}

opaque!(Admin<K, V>, |admin| namespace: admin.cores.namespace());
