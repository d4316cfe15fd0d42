//! The tables, and how a file is opened.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, Transaction, TransactionBehavior,
};

use super::file::{File, Open};
use super::{describe, lineage};
use crate::store::StoreError;

/// The version of the schema below. A file of another one is refused.
pub(super) const SCHEMA: u32 = 1;

/// A call that finds the file locked tries again after this.
pub(super) const LOCK_RETRY: Duration = Duration::from_micros(500);

/// How often opening tries: for 10 s in all, because another process may be in a long commit.
const TRIES: i32 = 20_000;

/// How many prepared statements are kept; there are fewer.
const STATEMENTS: usize = 64;

/// | column | |
/// |---|---|
/// | `state` | 0 waiting, 1 in flight, 2 dead |
/// | `due`, `deadline` | microseconds since the epoch |
/// | `period` | microseconds, or null |
/// | `schedule` | the text of a row that repeats by one, or null |
/// | `loaded_by` | the id of an instance, or null |
/// | `claimed_by` | the id of the instance that fired a row in flight, or null |
/// | `error` | the last error of a row, or null |
/// | `lacks` | how many due rows an instance wanted and was not given |
/// | `codec` to `parts` | the [charter](crate::store::Charter) of a namespace, and `edition` its number |
///
/// `waiting`, `in_flight` and `dead` say how many rows a namespace has. Each call that changes that
/// keeps them, since to count millions of rows takes seconds. The check of a row is that of
/// [`damage`](super::reading::damage).
///
/// Rows are found by state and key, and by state, by who has loaded them and by when they are due,
/// or have died. Only living instances have rows loaded, and these are in `tickwheel_instances`.
/// `tickwheel_meta` has the version of the schema, the last number of the sequence, and its
/// [`base`](super::lineage).
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS tickwheel_meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID, STRICT;
    INSERT OR IGNORE INTO tickwheel_meta VALUES ('schema', 1), ('sequence', 0);
    CREATE TABLE IF NOT EXISTS tickwheel_namespaces (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, codec TEXT NOT NULL,
        no_overlap INTEGER NOT NULL CHECK (no_overlap IN (0, 1)), at_most_once INTEGER NOT NULL CHECK (at_most_once IN (0, 1)),
        parts INTEGER NOT NULL CHECK (parts > 0), edition INTEGER NOT NULL,
        waiting INTEGER NOT NULL DEFAULT 0, in_flight INTEGER NOT NULL DEFAULT 0, dead INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    CREATE TABLE IF NOT EXISTS tickwheel_instances (
        id INTEGER PRIMARY KEY, namespace INTEGER NOT NULL, alive_until INTEGER NOT NULL, lacks INTEGER NOT NULL,
        name TEXT
    ) STRICT;
    CREATE TABLE IF NOT EXISTS tickwheel_timers (
        version INTEGER PRIMARY KEY,
        namespace INTEGER NOT NULL,
        state INTEGER NOT NULL,
        key BLOB NOT NULL,
        value BLOB NOT NULL,
        due INTEGER NOT NULL,
        deadline INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        period INTEGER,
        loaded_by INTEGER,
        error TEXT,
        schedule TEXT,
        claimed_by INTEGER,
        CHECK (state IN (0, 1, 2) AND due BETWEEN 0 AND 9007199254740991 AND deadline BETWEEN 0 AND 9007199254740991
            AND attempt BETWEEN 0 AND 2147483646 AND (period IS NULL OR period BETWEEN 1 AND 9007199254740991)
            AND (period IS NULL OR schedule IS NULL))
    ) STRICT;
    CREATE UNIQUE INDEX IF NOT EXISTS tickwheel_waiting ON tickwheel_timers (namespace, key) WHERE state = 0;
    CREATE INDEX IF NOT EXISTS tickwheel_in_flight ON tickwheel_timers (namespace, key) WHERE state = 1;
    CREATE INDEX IF NOT EXISTS tickwheel_dead ON tickwheel_timers (namespace, key) WHERE state = 2;
    CREATE INDEX IF NOT EXISTS tickwheel_due ON tickwheel_timers (namespace, state, loaded_by, due);
";

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Calls. It does not wait for locks: its thread does.
    Calls,
    /// Looks. It changes no row, but it may write the log into the file when it is the
    /// [last](super::link).
    Looks,
}

/// Opens a file, and makes the tables if they are not there. Returns a connection for calls and one
/// for looks.
pub(super) fn open(path: &Path) -> Result<(Open, Open), StoreError> {
    let failed = |error| describe(error, path);
    let writer = prepared(path, OpenFlags::default(), path)?;
    let reader = connect(path, Access::Looks).map_err(failed)?;
    let file = File::opened(path, writer.path().unwrap_or_default());
    let both = [writer, reader].map(|connection| Open {
        connection,
        file: file.clone(),
    });
    Ok(both.into())
}

/// Opens a file again, by the name that SQLite has given it.
pub(super) fn reopen(name: &Path, path: &Path, access: Access) -> Result<Open, StoreError> {
    let failed = |error| describe(error, path);
    let connection = match access {
        Access::Calls => prepared(name, existing(), path)?,
        Access::Looks => {
            let connection = connect(name, access).map_err(failed)?;
            // A first read makes the files beside it.
            check(&connection).map_err(failed)??;
            connection
        }
    };
    let file = File::opened(path, connection.path().unwrap_or_default());
    Ok(Open { connection, file })
}

/// A connection for calls to a file with tables.
fn prepared(name: &Path, flags: OpenFlags, path: &Path) -> Result<Connection, StoreError> {
    let failed = |error| describe(error, path);
    lineage::check(name)?;
    let writer = connect_with(name, flags).map_err(failed)?;
    let mode = write_ahead(&writer).map_err(failed)?;
    if mode != "wal" {
        return Err(StoreError::refused(format_args!(
            "SQLite file {}: it takes no write-ahead log (its journal mode stays {mode:?}); for timers in memory there is the store Memory",
            path.display()
        )));
    }
    prepare(&writer).map_err(failed)??;
    writer.busy_handler(None).map_err(failed)?;
    Ok(writer)
}

/// Connects to a file that is there, for calls or for looks.
pub(super) fn connect(name: &Path, access: Access) -> rusqlite::Result<Connection> {
    let connection = connect_with(name, existing())?;
    if access == Access::Looks {
        connection.pragma_update(None, "query_only", true)?;
    }
    Ok(connection)
}

/// Makes no file.
fn existing() -> OpenFlags {
    OpenFlags::default().difference(OpenFlags::SQLITE_OPEN_CREATE)
}

fn connect_with(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_handler(Some(wait_for_lock))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// Has commits written ahead and waited for. Returns the mode that it has then.
fn write_ahead(connection: &Connection) -> rusqlite::Result<String> {
    connection.pragma_update(None, "synchronous", "FULL")?;
    // SQLite asks no busy handler where another process changes the mode of a new file.
    let mut tries = 0..;
    loop {
        match connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0)) {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && tries.next().is_some_and(wait_for_lock) => {}
            mode => return mode,
        }
    }
}

/// Makes the tables if they are not there, and compares their version.
fn prepare(connection: &Connection) -> rusqlite::Result<Result<(), StoreError>> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    make(&transaction)?;
    let checked = check(&transaction)?;
    if checked.is_ok() {
        let path = connection.path().unwrap_or_default();
        lineage::note(&transaction, Path::new(path))?;
    }
    transaction.commit()?;
    Ok(checked)
}

/// Makes the tables if they are not there, or those that are gone.
pub(super) fn make(connection: &Connection) -> rusqlite::Result<()> {
    if version(connection)? == 0 {
        connection.execute_batch(TABLES)?;
    }
    Ok(())
}

/// The version of the schema, from 1 on, or 0 if there are no tables.
fn version(connection: &Connection) -> rusqlite::Result<u32> {
    let tables = "SELECT 1 FROM sqlite_schema WHERE name = 'tickwheel_meta'";
    let exist = connection.query_row(tables, (), |_| Ok(())).optional()?;
    if exist.is_none() {
        return Ok(0);
    }
    let schema = "SELECT value FROM tickwheel_meta WHERE name = 'schema'";
    let version = connection.query_row(schema, (), |row| row.get(0));
    Ok(version.optional()?.unwrap_or(0))
}

/// Whether an error says that there are no tables.
pub(super) fn is_missing(error: &rusqlite::Error) -> bool {
    error.to_string().contains("no such table: tickwheel_")
}

/// Whether there are tables that can be used.
pub(super) fn check(connection: &Connection) -> rusqlite::Result<Result<(), StoreError>> {
    Ok(match version(connection)? {
        SCHEMA => Ok(()),
        0 => {
            let path = connection.path().unwrap_or_default();
            Err(StoreError::refused(format_args!(
                "SQLite file {path} has no timers: open it with `Sqlite::open` first"
            )))
        }
        found => Err(StoreError::schema(found, SCHEMA)),
    })
}

/// Waits a little for another process. The pause does not grow with the number of tries.
fn wait_for_lock(tries: i32) -> bool {
    sleep(LOCK_RETRY);
    tries < TRIES
}
