//! A store in an SQLite file.
//!
//! ```text
//! calls of instances --> queue --> one thread: BEGIN, every call that waits, COMMIT --> responses
//! looks (rows, counts) --> queue --> another thread, another connection, which only reads
//! ```
//!
//! A commit waits for the disk, and calls that come meanwhile share the next one. Each call has a
//! savepoint: one that fails leaves the others alone. `rows` has the SQL that the
//! rules in `store` need, `reading` that of the looks.

mod charter;
mod file;
mod inspect;
mod lineage;
mod link;
mod looks;
mod purge;
mod reading;
mod rows;
mod schema;
#[cfg(test)]
mod tests;
mod thread;
mod transaction;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use link::Link;
use looks::Looks;
use rusqlite::{Connection, ErrorCode};

use crate::migrations::{Migration, SchemaVersion};
use crate::store::{
    Answer, BoxFuture, ChangedRows, Charter, Counts, DeadChange, DeadRows, Fire, FireReport,
    Inspect, InstanceId, List, Load, Loaded, Namespace, NamespaceError, Opened, Settle, Settled,
    Store, StoreError, Stored, Terms, Version, Write, WriteOutcome, rules,
};
use rows::Call;
use schema::Access;
use thread::Thread;
pub use transaction::SqliteTransaction;

/// A store in an SQLite file. With the feature `sqlite`, which is on by default.
///
/// Any number of processes on one host may use the file at once. Clones share two connections, one
/// for all calls and one for looks ([`deadline`](crate::DurableTimers::deadline),
/// [`counts`](crate::DurableTimers::counts), [`Admin`](crate::Admin)), each with its own thread. A
/// look delays no call, however many timers there are. The calls keep the counts: rows that other
/// programs delete stay counted.
///
/// A commit is on the disk when a call returns (write-ahead log, `synchronous=FULL`): it survives a
/// crash of the process and of the operating system, as far as the disk does what it says. Every
/// commit waits for the disk, so calls that come meanwhile share the next one.
///
/// The store's clock is the host's. Instances in one process that share clones give each other
/// hints of near timers. A timer that is due soon and set by a *process* that does not claim is
/// found by the poll of those that do; one that claims fires what it sets itself.
///
/// [`SqliteTransaction`] sets timers in a transaction of your own on the file.
///
/// Processes take turns, a commit each, so a process that is stopped in the middle of its turn
/// (`SIGSTOP`, a debugger) blocks all others until it goes on or ends. Calls then wait for as long
/// as their callers do.
///
/// When the file is deleted or replaced while it is open, each call fails with an error that names
/// it, until the file is opened again.
///
/// While it is open, a part of what is committed lies in the file beside it that ends with `-wal`.
/// [`shutdown`](crate::DurableTimers::shutdown) of the last instance, and
/// [`close`](crate::Store::close), leave one whole file, unless another process has it open. A
/// process that is killed leaves both, and the next one that opens the file goes on with them.
/// [Backups](crate::backups#sqlite) says how to copy and restore it.
///
/// A transaction of yours that stays open, also one that only reads, keeps SQLite from using the
/// write-ahead log again from its beginning. The file `-wal` grows with each commit until the
/// transaction ends, and keeps its size: keep such transactions short.
///
/// The tables are named `tickwheel_*` and can lie in a file with others. Network file systems are
/// no place for SQLite files that several processes write.
///
/// # Examples
///
/// ```no_run
/// use tickwheel_durable::{Sqlite, builder};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let wheel = tickwheel::TimerWheel::new();
/// let store = Sqlite::open("orders.db")?;
/// let (timers, claims) = builder::<String, u32>("orders").start(&wheel, store).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Sqlite {
    path: Arc<Path>,
    thread: Thread,
    looks: Looks,
    /// Whether it [rests](link).
    rests: Arc<AtomicBool>,
}

impl Sqlite {
    /// The files in the folder `migrations/sqlite` of this package: SQL that makes the tables and
    /// changes them, and the ways back: see [`Migration`].
    pub const MIGRATIONS: &'static [Migration] = schema::MIGRATIONS;

    /// The version of the tables of a file, which need not be for this version of the crate, or 0
    /// if it has none. Changes none. Blocks for as long as that takes.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), but for [`StoreError::Schema`].
    pub fn schema_version(path: impl AsRef<Path>) -> Result<SchemaVersion, StoreError> {
        let path = path.as_ref();
        lineage::check(path)?;
        schema::version_of(path).map_err(|error| describe(error, path))
    }

    /// Takes the [steps](Self::MIGRATIONS) to a version of the schema, up or down, in one
    /// transaction. Blocks for as long as that takes.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), but for [`StoreError::Schema`].
    pub fn migrate(path: impl AsRef<Path>, to: u32) -> Result<SchemaVersion, StoreError> {
        let path = path.as_ref();
        lineage::check(path)?;
        schema::migrate(path, to).map_err(|error| describe(error, path))
    }

    /// Opens a file, and makes it if there is none. Upgrades the tables of an earlier version.
    /// Blocks for as long as that takes.
    ///
    /// # Errors
    ///
    /// [`StoreError::Refused`] when the file cannot be opened, is read-only or no database;
    /// [`StoreError::Schema`] when a later version of this crate has changed it so that this one
    /// cannot use it;
    /// [`StoreError::Unavailable`] when it is locked. Each names the file.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let path = path.into();
        let rests = Arc::default();
        let (writer, reader) = schema::open(&path)?;
        Ok(Sqlite {
            path: path.into(),
            looks: Looks::start(Link::new(reader, Access::Looks, &rests))?,
            thread: Thread::start(Link::new(writer, Access::Calls, &rests))?,
            rests,
        })
    }

    /// Has the instances on clones of this store look for near timers of a namespace at once,
    /// instead of with their next poll. For a process that has set some in [a transaction of its
    /// own](SqliteTransaction), after the commit.
    ///
    /// # Errors
    ///
    /// [`NamespaceError`] when the name is not valid.
    pub fn hint(&self, namespace: &str) -> Result<(), NamespaceError> {
        self.thread.hints().notify(&Namespace::new(namespace)?);
        Ok(())
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

opaque!(Sqlite, |store| path: store.path);

impl Store for Sqlite {
    fn open(&self, namespace: &Namespace, charter: &Charter) -> Answer<'_, Opened> {
        let (name, charter) = (namespace.clone(), charter.clone());
        self.thread
            .call(move |batch| charter::open(batch, &name, &charter))
    }

    fn amend(&self, namespace: &Namespace, charter: &Charter) -> Answer<'_, ()> {
        let (name, charter) = (namespace.clone(), charter.clone());
        let amending = self.call_under(namespace, Terms::NONE, move |call| {
            charter::amend(call.batch, &name, &charter)
        });
        Box::pin(async move { amending.await? })
    }

    fn write(
        &self,
        namespace: &Namespace,
        writes: Vec<Write>,
        near: Terms,
    ) -> Answer<'_, Vec<WriteOutcome>> {
        let mut step = self.write_step(namespace, writes.into_iter(), near);
        let (store, namespace) = (self.clone(), namespace.clone());
        Box::pin(async move {
            let mut written = Vec::new();
            loop {
                let (outcomes, rest) = step.await?;
                written.extend(outcomes);
                if rest.len() == 0 {
                    return Ok(written);
                }
                step = store.write_step(&namespace, rest, near);
            }
        })
    }

    fn load(&self, namespace: &Namespace, request: Load) -> Answer<'_, Loaded> {
        // An instance lives.
        self.rests.store(false, Ordering::Release);
        let near = Terms::NONE.under(request.edition);
        self.call_under(namespace, near, move |call| rules::load(call, &request))
    }

    fn fire(&self, namespace: &Namespace, request: Fire) -> Answer<'_, FireReport> {
        self.call_under(namespace, request.near, move |call| {
            rules::fire(call, &request)
        })
    }

    fn settle(
        &self,
        namespace: &Namespace,
        settles: Vec<Settle>,
        near: Terms,
    ) -> Answer<'_, Vec<Settled>> {
        self.call(namespace, move |call| rules::settle(call, settles, near))
    }

    fn unload(&self, namespace: &Namespace, instance: InstanceId) -> Answer<'_, InstanceId> {
        self.call(namespace, move |call| call.unload(instance))
    }

    fn unmark(
        &self,
        namespace: &Namespace,
        instance: InstanceId,
        versions: Vec<Version>,
    ) -> Answer<'_, Vec<Version>> {
        self.call(namespace, move |call| call.unmark(instance, &versions))
    }

    fn rows_of(
        &self,
        namespace: &Namespace,
        key: Vec<u8>,
        limit: usize,
    ) -> Answer<'_, Vec<Stored>> {
        self.look(namespace, move |connection, namespace| {
            reading::rows_of(connection, namespace, &key, limit)
        })
    }

    fn list(&self, namespace: &Namespace, request: List) -> Answer<'_, Vec<Stored>> {
        self.look(namespace, move |connection, namespace| {
            reading::list(connection, namespace, request)
        })
    }

    fn count(&self, namespace: &Namespace) -> Answer<'_, Counts> {
        self.look(namespace, reading::count)
    }

    fn purge(&self, namespace: &Namespace) -> Answer<'_, ChangedRows> {
        self.call_under(namespace, Terms::NONE, purge::purge)
    }

    fn change_dead(
        &self,
        namespace: &Namespace,
        which: DeadRows,
        change: DeadChange,
    ) -> Answer<'_, ChangedRows> {
        self.call_under(namespace, Terms::NONE, move |call| {
            rules::change_dead(call, &which, change)
        })
    }

    fn inspect(&self) -> &dyn Inspect {
        self
    }

    fn hinted(&self, namespace: &Namespace) -> BoxFuture<'_, Option<InstanceId>> {
        let namespace = namespace.clone();
        Box::pin(async move {
            self.thread.hints().wait(&namespace).await;
            None
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.rests.store(true, Ordering::Release);
        // Each thread closes its connection after the turn in which it does nothing.
        let look = self.looks.ask(|_| Ok(Ok(())));
        let call = self.thread.call(|_| Ok(Ok(())));
        Box::pin(async move {
            // A connection that cannot be opened is closed.
            let _ = look.await;
            let _ = call.await;
        })
    }
}

impl Sqlite {
    fn look<T, F>(&self, namespace: &Namespace, look: F) -> Answer<'static, T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, i64) -> rusqlite::Result<T> + Send + 'static,
    {
        let name = namespace.clone();
        self.looks.ask(move |connection| {
            let found = charter::namespace(connection, &name)?;
            Ok(match found.and_then(charter::Found::check_schema) {
                Ok(found) => Ok(look(connection, found.id)?),
                Err(error) => Err(error),
            })
        })
    }

    /// Makes a step of a batch of writes. Returns what is left of it.
    fn write_step(
        &self,
        namespace: &Namespace,
        mut writes: std::vec::IntoIter<Write>,
        near: Terms,
    ) -> Answer<'static, (Vec<WriteOutcome>, std::vec::IntoIter<Write>)> {
        self.call_under(namespace, near, move |call| {
            let written = rules::write(call, &mut writes, near)?;
            Ok((written, writes))
        })
    }

    /// Runs a call that settles or unloads, under any charter and schema.
    fn call<T, F>(&self, namespace: &Namespace, run: F) -> Answer<'static, T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Call<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        self.call_if(namespace, None, run)
    }

    fn call_under<T, F>(&self, namespace: &Namespace, near: Terms, run: F) -> Answer<'static, T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Call<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        self.call_if(namespace, Some(near), run)
    }

    fn call_if<T, F>(
        &self,
        namespace: &Namespace,
        near: Option<Terms>,
        run: F,
    ) -> Answer<'static, T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Call<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let name = namespace.clone();
        self.thread.call(move |batch| {
            let mut call = match Call::new(batch, &name, near)? {
                Ok(call) => call,
                Err(error) => return Ok(Err(error)),
            };
            let answer = run(&mut call)?;
            call.finish(&name)?;
            Ok(Ok(answer))
        })
    }
}

/// Says of which file SQLite says what, and whether it may pass.
fn describe(error: rusqlite::Error, path: &Path) -> StoreError {
    let message = format!("SQLite file {}", path.display());
    let described = match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::SystemIoFailure
            | ErrorCode::OutOfMemory
            | ErrorCode::OperationInterrupted
            | ErrorCode::OperationAborted
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::SchemaChanged,
        ) => StoreError::unavailable(message),
        _ => StoreError::refused(message),
    };
    described.because_of(error)
}
