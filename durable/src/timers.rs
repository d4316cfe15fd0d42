//! The handle that sets, moves and removes durable timers.

use std::borrow::Borrow;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::try_join_all;
use serde::Serialize;
use tokio::time::Instant;

use crate::admin::Admin;
use crate::codec::Coder;
use crate::error::Error;
use crate::instance::{Cores, Group, Instance, Shutdown};
use crate::metrics::DurableMetrics;
use crate::outcomes::{Moved, Removed, SetIfAbsent};
use crate::store::{Action, Counts, Due, Missed, State, Write, WriteOutcome};

/// The shortest period of a repeating timer.
const MIN_PERIOD: Duration = Duration::from_millis(1);

/// Sets, moves and removes the timers of a namespace. Made by
/// [`Builder::start`](crate::Builder::start).
///
/// Cheap to clone, and usable from any task. A call returns when its write is durable in the store;
/// concurrent calls share a write. The last call on a key wins, whichever instance makes it: once
/// it has returned, what it replaced is never delivered.
///
/// A key may be given in any form that the key type borrows as and that has the same encoding, as
/// with a map: where keys are `String`s, `remove_timer("upload")` does. The compiler asks for type
/// annotations (E0283) at `&"upload".into()`, which may be of any type that a `String` borrows as.
///
/// # Errors
///
/// All calls fail with [`Error::Store`] when the store reports a failure, and with
/// [`Error::Timeout`] when it does not respond within the [call
/// timeout](crate::Builder::call_timeout), which counts from the call. Then the call may have taken
/// effect or not, and may be made again. It takes no effect later: the store refuses it. Keys and
/// values that are too long or cannot be encoded, and a [`period`](Error::Period) that is too
/// short, are refused before anything is sent.
///
/// # Cancel safety
///
/// If a future is dropped, its call may have taken effect or not.
pub struct DurableTimers<K, V> {
    /// The reporter publishes their counters.
    pub(crate) cores: Arc<Cores>,
    /// Those of each part.
    writes: Arc<[Group<Write, WriteOutcome>]>,
    coder: Arc<dyn Coder<K, V>>,
    shutdown: Arc<Shutdown>,
}

impl<K, V> DurableTimers<K, V> {
    pub(crate) fn new(instance: &Instance, coder: Arc<dyn Coder<K, V>>) -> Self {
        DurableTimers {
            cores: Arc::clone(&instance.cores),
            writes: Arc::clone(&instance.writes),
            coder,
            shutdown: Arc::clone(&instance.shutdown),
        }
    }

    /// Sets a timer that is due `delay` from now, by the store's clock. If the key has a timer
    /// already, its value and deadline are replaced, and it stops repeating. An unsettled claim of
    /// the key is left alone.
    ///
    /// A delay of over 200 years cannot be represented: the timer never fires.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors).
    pub async fn set_timer<Q>(&self, key: &Q, value: &V, delay: Duration) -> Result<(), Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let write = self.set(key, value, Due::In(delay), None, false);
        self.submit(write?).await.map(drop)
    }

    /// Sets a timer that is due at `deadline`, by the store's clock. One in the past is due at
    /// once. Otherwise as [`set_timer`](Self::set_timer).
    ///
    /// # Errors
    ///
    /// See [above](Self#errors).
    pub async fn set_timer_at<Q>(
        &self,
        key: &Q,
        value: &V,
        deadline: SystemTime,
    ) -> Result<(), Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let write = self.set(key, value, Due::At(deadline.into()), None, false);
        self.submit(write?).await.map(drop)
    }

    /// Sets a timer that is due every `period`, the first time one period from now, until it is
    /// removed or set again.
    ///
    /// Each deadline is the one before plus the period, however late an occurrence is delivered. An
    /// unsettled occurrence does not delay the next. [`Builder::missed`](crate::Builder::missed)
    /// decides what happens to missed occurrences. Moving the timer shifts its schedule.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors). The period must be at least a millisecond.
    pub async fn set_interval<Q>(&self, key: &Q, value: &V, period: Duration) -> Result<(), Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        check_period(period)?;
        let write = self.set(key, value, Due::In(period), Some(period), false);
        self.submit(write?).await.map(drop)
    }

    /// Sets a timer that is due at `first` and every `period` after it. If `first` has passed, it
    /// is due for the first time at the next of these instants: every day at an hour, say, whenever
    /// the program starts. Otherwise as [`set_interval`](Self::set_interval).
    ///
    /// The instants are equally far apart, so a clock on the wall shows another hour after it was
    /// changed.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors). The period must be at least a millisecond.
    pub async fn set_interval_at<Q>(
        &self,
        key: &Q,
        value: &V,
        first: SystemTime,
        period: Duration,
    ) -> Result<(), Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        check_period(period)?;
        let key = self.coder.encode_key(&key)?;
        let core = self.cores.of_key(&key);
        let until = core.call_until();
        let (first, now) = (first.into(), core.fresh_now(until).await?);
        let first = if first > now {
            first
        } else {
            Missed::Skip.next(first, period, now).due
        };
        let value = self.coder.encode_value(value)?;
        let action = Action::set(value, Due::At(first), Some(period), false);
        let written = self.submit_until(Write { key, action }, until);
        written.await.map(drop)
    }

    /// Sets a timer that is due whenever clocks in a time zone show a time of a cron expression,
    /// until it is removed or set to something else. With the feature `cron`. [The
    /// guide](crate::calendars) says what expressions mean.
    ///
    /// If the timer waits with the same expression and zone already, it keeps its deadline and only
    /// its value is replaced. So a program can set its timers each time it starts, and an
    /// occurrence that is overdue then is delivered. Moving the timer moves one occurrence.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors). [`Error::Cron`] when the expression is not valid or never
    /// occurs, and when there is no such zone.
    #[cfg(feature = "cron")]
    #[cfg_attr(docsrs, doc(cfg(feature = "cron")))]
    pub async fn set_cron<Q>(
        &self,
        key: &Q,
        value: &V,
        expression: &str,
        zone: &str,
    ) -> Result<(), Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let (write, until) = self.cron(key, value, expression, zone, false).await?;
        self.submit_until(write, until).await.map(drop)
    }

    /// Says which feature it needs.
    #[cfg(not(feature = "cron"))]
    #[doc(hidden)]
    #[allow(clippy::unused_async)]
    pub async fn set_cron<Q>(&self, key: &Q, _: &V, _: &str, _: &str) -> Result<(), Error>
    where
        Q: crate::cron::FeatureCron + ?Sized,
    {
        key.is_off()
    }

    /// Sets a timer by a cron expression, as [`set_cron`](Self::set_cron) does, unless the key has
    /// a timer, waiting or in flight. With the feature `cron`.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors). [`Error::Cron`] when the expression is not valid or never
    /// occurs, and when there is no such zone.
    #[cfg(feature = "cron")]
    #[cfg_attr(docsrs, doc(cfg(feature = "cron")))]
    pub async fn set_cron_if_absent<Q>(
        &self,
        key: &Q,
        value: &V,
        expression: &str,
        zone: &str,
    ) -> Result<SetIfAbsent, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let (write, until) = self.cron(key, value, expression, zone, true).await?;
        self.if_absent(write, until).await
    }

    /// Says which feature it needs.
    #[cfg(not(feature = "cron"))]
    #[doc(hidden)]
    #[allow(clippy::unused_async)]
    pub async fn set_cron_if_absent<Q>(
        &self,
        key: &Q,
        _: &V,
        _: &str,
        _: &str,
    ) -> Result<SetIfAbsent, Error>
    where
        Q: crate::cron::FeatureCron + ?Sized,
    {
        key.is_off()
    }

    /// A write that sets a timer by a cron expression, and when its call gives up.
    #[cfg(feature = "cron")]
    async fn cron<Q>(
        &self,
        key: &Q,
        value: &V,
        expression: &str,
        zone: &str,
        if_absent: bool,
    ) -> Result<(Write, Instant), Error>
    where
        Q: Serialize + ?Sized,
    {
        let key = self.coder.encode_key(&key)?;
        let core = self.cores.of_key(&key);
        let until = core.call_until();
        let now = core.fresh_now(until).await?;
        let (expression, zone) = (expression.to_owned(), zone.to_owned());
        // A search may take milliseconds.
        let search = move || crate::cron::Cron::first(&expression, &zone, now);
        let first = tokio::task::spawn_blocking(search).await;
        // It is cancelled when the runtime shuts down.
        let (schedule, first) = first.map_err(|_| Error::Closed)?.map_err(Error::Cron)?;
        let action = Action::Set {
            value: self.coder.encode_value(value)?,
            due: Due::At(first),
            period: None,
            schedule: Some(schedule),
            if_absent,
        };
        Ok((Write { key, action }, until))
    }

    /// Sets a timer unless the key has one, waiting or in flight.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors).
    pub async fn set_if_absent<Q>(
        &self,
        key: &Q,
        value: &V,
        delay: Duration,
    ) -> Result<SetIfAbsent, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let write = self.set(key, value, Due::In(delay), None, true)?;
        self.submit_if_absent(write).await
    }

    /// Sets a timer that repeats every `period`, as [`set_interval`](Self::set_interval) does,
    /// unless the key has a timer, waiting or in flight. So a program that sets its timers each
    /// time it starts delays none of them.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors). The period must be at least a millisecond.
    pub async fn set_interval_if_absent<Q>(
        &self,
        key: &Q,
        value: &V,
        period: Duration,
    ) -> Result<SetIfAbsent, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        check_period(period)?;
        let write = self.set(key, value, Due::In(period), Some(period), true)?;
        self.submit_if_absent(write).await
    }

    /// Sets many timers, in this order, as [`set_timer`](Self::set_timer) sets each. They share as
    /// few writes as possible.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors). If a key or value is refused, none is set. Otherwise, after an
    /// error, some may be set.
    pub async fn set_many<'a, Q>(
        &self,
        timers: impl IntoIterator<Item = (&'a Q, &'a V, Duration)>,
    ) -> Result<(), Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized + 'a,
        V: 'a,
    {
        let writes = timers
            .into_iter()
            .map(|(key, value, delay)| self.set(key, value, Due::In(delay), None, false));
        let writes = writes.collect::<Result<Vec<_>, _>>()?;
        let answers: Vec<_> = writes.into_iter().map(|write| self.submit(write)).collect();
        for answer in answers {
            answer.await?;
        }
        Ok(())
    }

    /// Moves the timer with this key: it is due `delay` from now, by the store's clock, earlier or
    /// later than before. Its value stays.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors).
    pub async fn move_timer<Q>(&self, key: &Q, delay: Duration) -> Result<Moved, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        self.move_to(key, Due::In(delay)).await
    }

    /// Moves the timer with this key: it is due at `deadline`. Otherwise as
    /// [`move_timer`](Self::move_timer).
    ///
    /// # Errors
    ///
    /// See [above](Self#errors).
    pub async fn move_timer_at<Q>(&self, key: &Q, deadline: SystemTime) -> Result<Moved, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        self.move_to(key, Due::At(deadline.into())).await
    }

    /// Removes the timer with this key, and returns its value.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors). After [`Error::Decode`] it is removed.
    pub async fn remove_timer<Q>(&self, key: &Q) -> Result<Removed<V>, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let key = self.coder.encode_key(&key)?;
        let (action, part) = (Action::Remove, self.cores.part_of(&key));
        let written = self.writes[part].submit(Write { key, action });
        Removed::of(written.await?, part, |value| self.coder.decode_value(value))
    }

    /// When the timer with this key is due, by the store's clock. `None` if there is none, or it
    /// has fired.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors).
    pub async fn deadline<Q>(&self, key: &Q) -> Result<Option<SystemTime>, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let key = self.coder.encode_key(&key)?;
        let calls = &self.cores.of_key(&key).calls;
        let asking = calls.ask("rows_of", |store, space| store.rows_of(space, key, 1));
        let rows = asking.await?;
        let waiting = rows.first().filter(|row| row.state == State::Waiting);
        Ok(waiting.map(|row| row.due.into()))
    }

    /// How many timers there are, and when the earliest is due. The query takes milliseconds and
    /// delays no other call, however many there are. PostgreSQL returns [an
    /// estimate](Counts::is_estimate) when there are very many.
    ///
    /// # Errors
    ///
    /// See [above](Self#errors).
    pub async fn counts(&self) -> Result<Counts, Error> {
        let counting = self
            .cores
            .iter()
            .map(|core| core.calls.ask("count", |store, space| store.count(space)));
        let counts = try_join_all(counting).await?;
        // There is one part at least.
        Ok(counts.into_iter().reduce(Counts::with).unwrap_or_default())
    }

    /// A view of all timers of the namespace, for operators.
    pub fn admin(&self) -> Admin<K, V> {
        Admin::new(Arc::clone(&self.cores), Arc::clone(&self.coder))
    }

    /// A snapshot of this instance's counters.
    pub fn metrics(&self) -> DurableMetrics {
        self.cores.read_metrics()
    }

    /// Ends this instance's claiming. The stream of [`Claims`](crate::Claims) ends, claims that
    /// were not received are released, and loaded timers are unloaded for other instances to take
    /// at once. Claims that the program holds can still be settled, and handles go on writing.
    ///
    /// Returns when that is done, and the store has given back what it holds open: the file of the
    /// last instance on [`Sqlite`](crate::Sqlite) is whole then, and again after each later call.
    /// If the store does not respond, it returns after a few call timeouts, and other instances
    /// take the timers a few polls later.
    pub async fn shutdown(&self) {
        self.shutdown.stop();
        self.shutdown.ended().await;
        self.cores.close_store().await;
    }

    /// Sends a write to the part that has its key.
    fn submit(
        &self,
        write: Write,
    ) -> impl Future<Output = Result<WriteOutcome, Error>> + use<K, V> {
        self.writes[self.cores.part_of(&write.key)].submit(write)
    }

    /// Sends a write of a call that has begun earlier and gives up then.
    fn submit_until(
        &self,
        write: Write,
        until: Instant,
    ) -> impl Future<Output = Result<WriteOutcome, Error>> + use<K, V> {
        self.writes[self.cores.part_of(&write.key)].submit_until(write, until)
    }

    async fn submit_if_absent(&self, write: Write) -> Result<SetIfAbsent, Error> {
        let until = self.cores.of_key(&write.key).call_until();
        self.if_absent(write, until).await
    }

    /// Sends a write that sets a timer if it is absent.
    async fn if_absent(&self, write: Write, until: Instant) -> Result<SetIfAbsent, Error> {
        let part = self.cores.part_of(&write.key);
        let written = self.writes[part].submit_until(write, until).await?;
        Ok(SetIfAbsent::of(&written, part))
    }

    async fn move_to<Q>(&self, key: &Q, due: Due) -> Result<Moved, Error>
    where
        Q: Serialize + ?Sized,
    {
        let key = self.coder.encode_key(&key)?;
        let (action, part) = (Action::Move { due }, self.cores.part_of(&key));
        let written = self.writes[part].submit(Write { key, action });
        Ok(Moved::of(&written.await?, part))
    }

    fn set<Q>(
        &self,
        key: &Q,
        value: &V,
        due: Due,
        period: Option<Duration>,
        if_absent: bool,
    ) -> Result<Write, Error>
    where
        Q: Serialize + ?Sized,
    {
        Ok(Write {
            key: self.coder.encode_key(&key)?,
            action: Action::set(self.coder.encode_value(value)?, due, period, if_absent),
        })
    }
}

fn check_period(period: Duration) -> Result<(), Error> {
    if period < MIN_PERIOD {
        return Err(Error::Period {
            value: period,
            min: MIN_PERIOD,
        });
    }
    Ok(())
}

impl<K, V> Clone for DurableTimers<K, V> {
    fn clone(&self) -> Self {
        DurableTimers {
            cores: Arc::clone(&self.cores),
            writes: Arc::clone(&self.writes),
            coder: Arc::clone(&self.coder),
            shutdown: Arc::clone(&self.shutdown),
        }
    }
}

opaque!(DurableTimers<K, V>, |timers| namespace: timers.cores.namespace());
