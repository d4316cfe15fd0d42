//! How a file is opened, and its tables come to be.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, Transaction, TransactionBehavior,
};

use super::file::{File, Open};
use super::{describe, lineage};
use crate::migrations::{Migration, SchemaVersion};
use crate::store::StoreError;

/// The files below `migrations/sqlite`, from version 1 on. They say what the tables are.
pub(super) const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        up: include_str!("../../migrations/sqlite/1.sql"),
        down: include_str!("../../migrations/sqlite/1.down.sql"),
    },
    #[cfg(tickwheel_next_schema)]
    Migration {
        version: 2,
        up: include_str!("../../tests/next/migrations/sqlite/2.sql"),
        down: include_str!("../../tests/next/migrations/sqlite/2.down.sql"),
    },
];

/// The version of the schema that is known.
#[allow(clippy::cast_possible_truncation, reason = "they are few")]
pub(super) const SCHEMA: u32 = MIGRATIONS.len() as u32;

/// A call that finds the file locked tries again after this.
pub(super) const LOCK_RETRY: Duration = Duration::from_micros(500);

/// How often opening tries: for 10 s in all, because another process may be in a long commit.
const TRIES: i32 = 20_000;

/// How many prepared statements are kept; there are fewer.
const STATEMENTS: usize = 64;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Calls. It does not wait for locks: its thread does.
    Calls,
    /// Looks. It changes no row, but it may write the log into the file when it is the
    /// [last](super::link).
    Looks,
}

/// Opens a file, and makes or upgrades the tables. Returns a connection for calls and one
/// for looks.
pub(super) fn open(path: &Path) -> Result<(Open, Open), StoreError> {
    let failed = |error| describe(error, path);
    let writer = writer(path, OpenFlags::default(), path)?;
    prepare(&writer).map_err(failed)??;
    writer.busy_handler(None).map_err(failed)?;
    let reader = connect(path, Access::Looks).map_err(failed)?;
    let file = File::opened(path, writer.path().unwrap_or_default());
    let both = [writer, reader].map(|connection| Open {
        connection,
        file: file.clone(),
    });
    Ok(both.into())
}

/// Opens a file again, by the name that SQLite has given it. Whether its schema is still for this
/// version is for the calls to find out: settles need it whatever it is.
pub(super) fn reopen(name: &Path, path: &Path, access: Access) -> Result<Open, StoreError> {
    let failed = |error| describe(error, path);
    let connection = match access {
        Access::Calls => {
            let connection = writer(name, existing(), path)?;
            note_lineage(&connection).map_err(failed)?;
            connection.busy_handler(None).map_err(failed)?;
            connection
        }
        Access::Looks => {
            let connection = connect(name, access).map_err(failed)?;
            // A first read makes the files beside it.
            tables(&connection).map_err(failed)??;
            connection
        }
    };
    let file = File::opened(path, connection.path().unwrap_or_default());
    Ok(Open { connection, file })
}

/// A connection for calls.
fn writer(name: &Path, flags: OpenFlags, path: &Path) -> Result<Connection, StoreError> {
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

/// Makes the tables or upgrades them.
fn prepare(connection: &Connection) -> rusqlite::Result<Result<(), StoreError>> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    if version(&transaction)?.version < SCHEMA {
        take_steps(&transaction, SCHEMA)?;
    }
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
    if version(connection)?.version == 0 {
        take_steps(connection, SCHEMA)?;
    }
    Ok(())
}

fn take_steps(connection: &Connection, to: u32) -> rusqlite::Result<()> {
    let SchemaVersion { version, .. } = version(connection)?;
    for file in Migration::steps(MIGRATIONS, version, to) {
        connection.execute_batch(file)?;
    }
    Ok(())
}

/// Notes the file in tables of any version.
fn note_lineage(connection: &Connection) -> rusqlite::Result<()> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    make(&transaction)?;
    let path = connection.path().unwrap_or_default();
    lineage::note(&transaction, Path::new(path))?;
    transaction.commit()
}

/// Takes the steps to a version of the schema, up or down, in one transaction.
pub(super) fn migrate(path: &Path, to: u32) -> rusqlite::Result<SchemaVersion> {
    let connection = connect_with(path, existing())?;
    let transaction = Transaction::new_unchecked(&connection, TransactionBehavior::Immediate)?;
    take_steps(&transaction, to)?;
    let version = version(&transaction)?;
    transaction.commit()?;
    Ok(version)
}

/// The version of a file's tables, which are left as they are.
pub(super) fn version_of(path: &Path) -> rusqlite::Result<SchemaVersion> {
    version(&connect(path, Access::Looks)?)
}

/// The version of the schema, from 1 on, or 0 if there are no tables.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<SchemaVersion> {
    let tables = "SELECT 1 FROM sqlite_schema WHERE name = 'tickwheel_meta'";
    let exist = connection.query_row(tables, (), |_| Ok(())).optional()?;
    if exist.is_none() {
        return Ok(SchemaVersion::new(0, 0));
    }
    let number = |name| {
        let sql = "SELECT value FROM tickwheel_meta WHERE name = ?1";
        let number = connection.query_row(sql, [name], |row| row.get(0));
        Ok::<u32, rusqlite::Error>(number.optional()?.unwrap_or(0))
    };
    Ok(SchemaVersion::new(
        number("schema")?,
        number("readable_by")?,
    ))
}

/// Whether an error says that there are no tables.
pub(super) fn is_missing(error: &rusqlite::Error) -> bool {
    error.to_string().contains("no such table: tickwheel_")
}

/// The version of tables that have to be there.
fn tables(connection: &Connection) -> rusqlite::Result<Result<SchemaVersion, StoreError>> {
    let version = version(connection)?;
    if version.version > 0 {
        return Ok(Ok(version));
    }
    let path = connection.path().unwrap_or_default();
    Ok(Err(StoreError::refused(format_args!(
        "SQLite file {path} has no timers: open it with `Sqlite::open` first"
    ))))
}

/// Whether there are tables that can be used.
pub(super) fn check(connection: &Connection) -> rusqlite::Result<Result<(), StoreError>> {
    Ok(tables(connection)?.and_then(|version| version.check(SCHEMA)))
}

/// Waits a little for another process. The pause does not grow with the number of tries.
fn wait_for_lock(tries: i32) -> bool {
    sleep(LOCK_RETRY);
    tries < TRIES
}
