//! Timers in a transaction of the user's own.

use std::borrow::Borrow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, Transaction};
use serde::Serialize;
use serde::de::DeserializeOwned;

#[cfg(feature = "cron")]
use super::reading::now;
use super::rows::Call;
use super::schema;
use super::thread::{Batch, Hints};
use super::{charter, describe};
use crate::codec::{Codec, Coder, Json};
use crate::error::{BuildError, Error};
use crate::outcomes::{Moved, Removed, SetIfAbsent};
use crate::store::{Action, Due, Namespace, StoreError, Terms, Write, WriteOutcome, rules};

/// The only part of a namespace in SQLite.
const WHOLE: usize = 0;

/// Sets, moves and removes timers in a transaction of your own, on the file that
/// [`Sqlite`](crate::Sqlite) has opened. With the feature `sqlite`.
///
/// The timer is set if the transaction commits, together with everything else in it. If it is
/// rolled back, or the process dies before the commit, nothing was set.
///
/// The calls are some of those of [`DurableTimers`](crate::DurableTimers), and block. They take
/// effect in the transaction at once, in their order, and count delays from the call. A call that
/// fails changes nothing, and leaves the transaction as it was.
///
/// # When it is delivered
///
/// An instance finds a near timer with its next poll, 1 s by default, or at once if the process
/// that has committed calls [`Sqlite::hint`](crate::Sqlite::hint). Far timers need neither.
///
/// # Locks
///
/// SQLite has one writer at a time. From the first write of your transaction to its end, all calls
/// of all instances on the file wait, for their call timeout at most: keep it short. Begin it with
/// [`TransactionBehavior::Immediate`](rusqlite::TransactionBehavior::Immediate). A deferred one
/// that has read before fails if another connection has written since: [`StoreError::Unavailable`].
///
/// The file has a write-ahead log, and your connection's `PRAGMA synchronous` says what its commits
/// survive: with `FULL`, the default, a crash of the operating system.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tickwheel_durable::rusqlite::{Connection, TransactionBehavior::Immediate};
/// use tickwheel_durable::{Sqlite, SqliteTransaction, builder};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("tickwheel-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("shop.db");
/// let store = Sqlite::open(&path)?;
/// let wheel = tickwheel::TimerWheel::new();
/// let (timers, mut claims) = builder::<String, u32>("orders").start(&wheel, store.clone()).await?;
///
/// let mut shop = Connection::open(&path)?;
/// shop.execute("CREATE TABLE orders (id TEXT PRIMARY KEY, price INTEGER)", ())?;
///
/// let transaction = shop.transaction_with_behavior(Immediate)?;
/// transaction.execute("INSERT INTO orders VALUES ('order 17', 30)", ())?;
/// SqliteTransaction::<String, u32>::new(&transaction, "orders")?
///     .set_timer("order 17", &30, Duration::from_millis(20))?;
/// transaction.commit()?;
/// store.hint("orders")?;
///
/// let claim = claims.recv().await.ok_or("closed")?;
/// assert_eq!((claim.key.as_str(), claim.value), ("order 17", 30));
/// claim.ack().await?;
/// # drop((timers, claims, store, shop));
/// # std::fs::remove_dir_all(folder)?;
/// # Ok(())
/// # }
/// ```
///
/// # Other clients
///
/// In other languages, and with other crates, these statements do the same, in a transaction that
/// begins with `BEGIN IMMEDIATE`. They are for the codec `json` and keys that are strings. Keys
/// have at most 1,024 bytes when they are encoded, and values a mebibyte.
///
/// ```sql
#[doc = include_str!("plain.sql")]
/// ```
pub struct SqliteTransaction<'t, K, V> {
    transaction: &'t Transaction<'t>,
    namespace: Namespace,
    coder: Arc<dyn Coder<K, V>>,
}

impl<'t, K, V> SqliteTransaction<'t, K, V>
where
    K: Serialize + DeserializeOwned,
    V: Serialize + DeserializeOwned,
{
    /// Timers of a namespace that an instance has opened, encoded as [`Json`].
    ///
    /// # Errors
    ///
    /// [`BuildError::Namespace`] when the name is not valid. [`BuildError::Open`] when the
    /// namespace was not opened, or with another codec; when the file has no timers, or its schema
    /// is not for this version; and when SQLite fails.
    pub fn new(transaction: &'t Transaction<'t>, namespace: &str) -> Result<Self, BuildError> {
        Self::with_codec(transaction, namespace, Json)
    }

    /// Timers of a namespace that are encoded by `codec`, as
    /// [`Builder::codec`](crate::Builder::codec) says. Otherwise as [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// [`BuildError::Namespace`] when the name is not valid. [`BuildError::Open`] when the
    /// namespace was not opened, or with another codec; when the file has no timers, or its schema
    /// is not for this version; and when SQLite fails.
    pub fn with_codec(
        transaction: &'t Transaction<'t>,
        namespace: &str,
        codec: impl Codec,
    ) -> Result<Self, BuildError> {
        let namespace = Namespace::new(namespace)?;
        let checked = schema::check(transaction).and_then(|checked| match checked {
            Ok(()) => charter::check_codec(transaction, &namespace, codec.name()),
            Err(error) => Ok(Err(error)),
        });
        let checked = checked.unwrap_or_else(|error| Err(describe(error, &path(transaction))));
        checked.map_err(|error| BuildError::Open(Error::Store(error)))?;
        Ok(SqliteTransaction {
            transaction,
            namespace,
            coder: Arc::new(codec),
        })
    }
}

impl<K, V> SqliteTransaction<'_, K, V> {
    /// Sets a timer, as [`DurableTimers::set_timer`](crate::DurableTimers::set_timer).
    ///
    /// # Errors
    ///
    /// [`Error::Store`] when SQLite fails. Keys and values that are too long or cannot be encoded
    /// are refused.
    pub fn set_timer<Q>(&self, key: &Q, value: &V, delay: Duration) -> Result<(), Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        self.set(key, value, Due::In(delay), false).map(drop)
    }

    /// Sets a timer, as [`DurableTimers::set_timer_at`](crate::DurableTimers::set_timer_at).
    ///
    /// # Errors
    ///
    /// [`Error::Store`] when SQLite fails. Keys and values that are too long or cannot be encoded
    /// are refused.
    pub fn set_timer_at<Q>(&self, key: &Q, value: &V, deadline: SystemTime) -> Result<(), Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        self.set(key, value, Due::At(deadline.into()), false)
            .map(drop)
    }

    /// Sets a timer that repeats, as [`DurableTimers::set_cron`](crate::DurableTimers::set_cron).
    /// With the feature `cron`.
    ///
    /// # Errors
    ///
    /// As [`set_timer`](Self::set_timer), and [`Error::Cron`] when the expression or the zone is
    /// none, and when the expression never occurs.
    #[cfg(feature = "cron")]
    #[cfg_attr(docsrs, doc(cfg(feature = "cron")))]
    pub fn set_cron<Q>(&self, key: &Q, value: &V, expression: &str, zone: &str) -> Result<(), Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let first = crate::cron::Cron::first(expression, zone, now());
        let (schedule, first) = first.map_err(Error::Cron)?;
        let value = self.coder.encode_value(value)?;
        let action = Action::set_scheduled(value, Due::At(first), schedule);
        self.write(key, action).map(drop)
    }

    /// Says which feature it needs.
    #[cfg(not(feature = "cron"))]
    #[doc(hidden)]
    pub fn set_cron<Q>(&self, key: &Q, _: &V, _: &str, _: &str) -> Result<(), Error>
    where
        Q: crate::cron::FeatureCron + ?Sized,
    {
        key.is_off()
    }

    /// Sets a timer unless the key has one, waiting or in flight.
    ///
    /// # Errors
    ///
    /// [`Error::Store`] when SQLite fails. Keys and values that are too long or cannot be encoded
    /// are refused.
    pub fn set_if_absent<Q>(
        &self,
        key: &Q,
        value: &V,
        delay: Duration,
    ) -> Result<SetIfAbsent, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let written = self.set(key, value, Due::In(delay), true)?;
        Ok(SetIfAbsent::of(&written, WHOLE))
    }

    /// Moves a timer, as [`DurableTimers::move_timer`](crate::DurableTimers::move_timer).
    ///
    /// # Errors
    ///
    /// [`Error::Store`] when SQLite fails. Keys and values that are too long or cannot be encoded
    /// are refused.
    pub fn move_timer<Q>(&self, key: &Q, delay: Duration) -> Result<Moved, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        self.move_to(key, Due::In(delay))
    }

    /// Moves a timer, as [`DurableTimers::move_timer_at`](crate::DurableTimers::move_timer_at).
    ///
    /// # Errors
    ///
    /// [`Error::Store`] when SQLite fails. Keys and values that are too long or cannot be encoded
    /// are refused.
    pub fn move_timer_at<Q>(&self, key: &Q, deadline: SystemTime) -> Result<Moved, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        self.move_to(key, Due::At(deadline.into()))
    }

    /// Removes a timer, as [`DurableTimers::remove_timer`](crate::DurableTimers::remove_timer).
    ///
    /// # Errors
    ///
    /// As [`set_timer`](Self::set_timer). After [`Error::Decode`] it is removed.
    pub fn remove_timer<Q>(&self, key: &Q) -> Result<Removed<V>, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let written = self.write(key, Action::Remove)?;
        Removed::of(written, WHOLE, |value| self.coder.decode_value(value))
    }

    fn set<Q>(&self, key: &Q, value: &V, due: Due, if_absent: bool) -> Result<WriteOutcome, Error>
    where
        Q: Serialize + ?Sized,
    {
        let value = self.coder.encode_value(value)?;
        self.write(key, Action::set(value, due, None, if_absent))
    }

    fn move_to<Q>(&self, key: &Q, due: Due) -> Result<Moved, Error>
    where
        Q: Serialize + ?Sized,
    {
        let written = self.write(key, Action::move_to(due))?;
        Ok(Moved::of(&written, WHOLE))
    }

    fn write<Q>(&self, key: &Q, action: Action) -> Result<WriteOutcome, Error>
    where
        Q: Serialize + ?Sized,
    {
        let write = Write::new(self.coder.encode_key(&key)?, action);
        let written = self.in_savepoint(write);
        let written = written.unwrap_or_else(|error| Err(describe(error, &path(self.transaction))));
        written.map_err(Error::Store)
    }

    /// Writes in a savepoint, so that nothing is left of a call that fails.
    fn in_savepoint(&self, write: Write) -> rusqlite::Result<Result<WriteOutcome, StoreError>> {
        let connection: &Connection = self.transaction;
        connection.execute_batch("SAVEPOINT tickwheel_call")?;
        let written = self.run(connection, write);
        let ends = match written {
            Ok(Ok(_)) => "RELEASE tickwheel_call",
            _ => "ROLLBACK TO tickwheel_call; RELEASE tickwheel_call",
        };
        // An error such as a full disk may have rolled the whole transaction back.
        if !connection.is_autocommit() {
            connection.execute_batch(ends)?;
        }
        written
    }

    fn run(
        &self,
        connection: &Connection,
        write: Write,
    ) -> rusqlite::Result<Result<WriteOutcome, StoreError>> {
        // Instances cannot be notified before the commit.
        let hints = Hints::default();
        let batch = Batch::new(connection, &hints, 0);
        let mut call = match Call::new(&batch, &self.namespace, Some(Terms::NONE))? {
            Ok(call) => call,
            Err(error) => return Ok(Err(error)),
        };
        let mut writes = vec![write].into_iter();
        let mut written = rules::write(&mut call, &mut writes, Terms::NONE)?;
        call.finish(&self.namespace)?;
        Ok(Ok(written.remove(0)))
    }
}

fn path(connection: &Connection) -> PathBuf {
    connection.path().unwrap_or_default().into()
}

opaque!(SqliteTransaction<'t, K, V>, |it| namespace: it.namespace);
