//! The handle that sets, moves and removes durable timers.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::admin::Admin;
use crate::claim::Token;
use crate::codec::Coder;
use crate::error::Error;
use crate::instance::{Core, Group, Instance, Life};
use crate::metrics::DurableMetrics;
use crate::store::{Action, Counts, Due, State, Write, Written};

/// The shortest period of a repeating timer.
const MIN_PERIOD: Duration = Duration::from_millis(1);

/// Sets, moves and removes the timers of a namespace. Made by [`Builder::start`](crate::Builder::start).
///
/// Cheap to clone, and usable from any task. A call returns when its write is durable in the store; concurrent calls share a
/// write. The last call on a key wins, whichever instance makes it: once it has returned, what it replaced is never delivered.
///
/// # Errors
///
/// All calls fail with [`Error::Store`] when the store says that it failed, and with [`Error::Timeout`] when it says nothing
/// for the [call timeout](crate::Builder::call_timeout), which counts from the call. Whether the call took effect is not known
/// then, and the same call may be made again. Keys and values that are too long or cannot be encoded, and a
/// [`period`](Error::Period) that is too short, are refused before anything is sent.
///
/// # Cancel safety
///
/// If a future is dropped, its call may have taken effect or not.
pub struct DurableTimers<K, V> {
    core: Arc<Core>,
    writes: Group<Write, Written>,
    coder: Arc<dyn Coder<K, V>>,
    life: Arc<Life>,
}

/// What [`DurableTimers::set_if_absent`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum SetIfAbsent {
    /// It is set.
    Set,
    /// The key has a timer already.
    Present,
    /// The key has a timer that has fired and is not settled.
    InFlight(Token),
}

/// What [`DurableTimers::move_timer`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Moved {
    /// It is moved. Its old deadline will never be delivered.
    Yes,
    /// There is no such timer.
    Absent,
    /// It has fired and is not settled. Nothing was changed.
    InFlight(Token),
}

/// What [`DurableTimers::remove_timer`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Removed<V> {
    /// It is removed and will never be delivered.
    Value(V),
    /// There is no such timer.
    Absent,
    /// It has fired and is not settled. Nothing was changed.
    InFlight(Token),
}

impl<K, V> DurableTimers<K, V> {
    pub(crate) fn new(instance: &Instance, coder: Arc<dyn Coder<K, V>>) -> Self {
        DurableTimers {
            core: Arc::clone(&instance.core),
            writes: instance.writes.clone(),
            coder,
            life: Arc::clone(&instance.life),
        }
    }

    /// Sets a timer that is due `delay` from now, by the store's clock. If the key has a timer already, its value and deadline
    /// are replaced, and it repeats no more. A claim of that key that is not settled is left alone.
    ///
    /// A delay too long to be represented, over 200 years, is never.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors).
    pub async fn set_timer(&self, key: &K, value: &V, delay: Duration) -> Result<(), Error> {
        let write = self.set(key, value, Due::In(delay), None, false);
        self.write(write?).await.map(drop)
    }

    /// Sets a timer that is due at `deadline`, by the store's clock. One in the past is due at once. Otherwise as
    /// [`set_timer`](Self::set_timer).
    ///
    /// # Errors
    ///
    /// See [above](Self#errors).
    pub async fn set_timer_at(
        &self,
        key: &K,
        value: &V,
        deadline: SystemTime,
    ) -> Result<(), Error> {
        let write = self.set(key, value, Due::At(deadline.into()), None, false);
        self.write(write?).await.map(drop)
    }

    /// Sets a timer that is due every `period`, the first time one period from now, until it is removed or set again.
    ///
    /// Each deadline is the one before plus the period, however late it is delivered and whether it is acknowledged or not: an
    /// occurrence that is not settled when the next is due does not hold it up. What becomes of missed ones says
    /// [`Builder::missed`](crate::Builder::missed). Moving the timer shifts its schedule.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors). The period must be at least a millisecond.
    pub async fn set_interval(&self, key: &K, value: &V, period: Duration) -> Result<(), Error> {
        if period < MIN_PERIOD {
            return Err(Error::Period {
                value: period,
                min: MIN_PERIOD,
            });
        }
        let write = self.set(key, value, Due::In(period), Some(period), false);
        self.write(write?).await.map(drop)
    }

    /// Sets a timer unless the key has one, waiting or in flight.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors).
    pub async fn set_if_absent(
        &self,
        key: &K,
        value: &V,
        delay: Duration,
    ) -> Result<SetIfAbsent, Error> {
        let write = self.set(key, value, Due::In(delay), None, true);
        Ok(match self.write(write?).await? {
            Written::Armed { .. } => SetIfAbsent::Set,
            Written::InFlight(token) => SetIfAbsent::InFlight(Token(token)),
            _ => SetIfAbsent::Present,
        })
    }

    /// Sets many timers, as [`set_timer`](Self::set_timer) each, in this order. They share as few writes as there can be.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors). If a key or value is refused, none is set. Otherwise, after an error, some may be set.
    pub async fn set_many<'a>(
        &self,
        timers: impl IntoIterator<Item = (&'a K, &'a V, Duration)>,
    ) -> Result<(), Error>
    where
        K: 'a,
        V: 'a,
    {
        let writes = timers
            .into_iter()
            .map(|(key, value, delay)| self.set(key, value, Due::In(delay), None, false));
        let writes = writes.collect::<Result<Vec<_>, _>>()?;
        let answers: Vec<_> = writes.into_iter().map(|write| self.write(write)).collect();
        for answer in answers {
            answer.await?;
        }
        Ok(())
    }

    /// Moves the timer with this key: it is due `delay` from now, by the store's clock, earlier or later than before. Its value
    /// stays.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors).
    pub async fn move_timer(&self, key: &K, delay: Duration) -> Result<Moved, Error> {
        self.move_to(key, Due::In(delay)).await
    }

    /// Moves the timer with this key: it is due at `deadline`. Otherwise as [`move_timer`](Self::move_timer).
    ///
    /// # Errors
    ///
    /// See [above](Self#errors).
    pub async fn move_timer_at(&self, key: &K, deadline: SystemTime) -> Result<Moved, Error> {
        self.move_to(key, Due::At(deadline.into())).await
    }

    /// Removes the timer with this key, and returns its value.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors). After [`Error::Decode`] it is removed.
    pub async fn remove_timer(&self, key: &K) -> Result<Removed<V>, Error> {
        let key = self.coder.encode_key(key)?;
        let action = Action::Remove;
        Ok(match self.write(Write { key, action }).await? {
            Written::Removed { value, .. } => Removed::Value(self.coder.decode_value(&value)?),
            Written::InFlight(token) => Removed::InFlight(Token(token)),
            _ => Removed::Absent,
        })
    }

    /// When the timer with this key is due, by the store's clock. `None` if there is none, or it has fired.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors).
    pub async fn deadline(&self, key: &K) -> Result<Option<SystemTime>, Error> {
        let key = self.coder.encode_key(key)?;
        let stored = self.core.calls.get(key).await?;
        let waiting = stored.filter(|row| row.state == State::Waiting);
        Ok(waiting.map(|row| row.due.into()))
    }

    /// How many timers there are, and when the earliest is due.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors).
    pub async fn counts(&self) -> Result<Counts, Error> {
        self.core.calls.count().await
    }

    /// A view of all timers of the namespace, for operators.
    pub fn admin(&self) -> Admin<K, V> {
        Admin::new(Arc::clone(&self.core), Arc::clone(&self.coder))
    }

    /// What this instance has done.
    pub fn metrics(&self) -> DurableMetrics {
        self.core.read_metrics()
    }

    /// Ends this instance's claims: the stream of [`Claims`](crate::Claims) ends, what was fired and not received is released,
    /// and what was loaded is given back, so that other instances need not wait for anything. Claims that the program holds can
    /// still be settled, and handles go on writing.
    ///
    /// Returns when that is done, or after the call timeout if the store does not answer; then others wait for a few polls.
    pub async fn shutdown(&self) {
        self.life.stop();
        self.life.ended().await;
    }

    async fn move_to(&self, key: &K, due: Due) -> Result<Moved, Error> {
        let key = self.coder.encode_key(key)?;
        let action = Action::Move { due };
        Ok(match self.write(Write { key, action }).await? {
            Written::Armed { .. } => Moved::Yes,
            Written::InFlight(token) => Moved::InFlight(Token(token)),
            _ => Moved::Absent,
        })
    }

    fn set(
        &self,
        key: &K,
        value: &V,
        due: Due,
        period: Option<Duration>,
        if_absent: bool,
    ) -> Result<Write, Error> {
        Ok(Write {
            key: self.coder.encode_key(key)?,
            action: Action::Set {
                value: self.coder.encode_value(value)?,
                due,
                period,
                if_absent,
            },
        })
    }

    fn write(&self, write: Write) -> impl Future<Output = Result<Written, Error>> + use<K, V> {
        self.writes.submit(write)
    }
}

impl<K, V> Clone for DurableTimers<K, V> {
    fn clone(&self) -> Self {
        DurableTimers {
            core: Arc::clone(&self.core),
            writes: self.writes.clone(),
            coder: Arc::clone(&self.coder),
            life: Arc::clone(&self.life),
        }
    }
}

impl<K, V> fmt::Debug for DurableTimers<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableTimers")
            .field("core", &self.core)
            .finish_non_exhaustive()
    }
}
