//! The tables, and how a file is opened.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::describe;
use crate::store::StoreError;

/// The version of the schema below.
const SCHEMA: u32 = 1;

/// A statement that finds the file locked tries again after this, so many times: 2 s in all.
const LOCKED: Duration = Duration::from_micros(500);
const TRIES: i32 = 4_000;

/// How many prepared statements are kept; there are fewer.
const STATEMENTS: usize = 64;

/// | column | |
/// |---|---|
/// | `state` | 0 waiting, 1 in flight |
/// | `due`, `deadline` | microseconds since the epoch |
/// | `period` | microseconds, or null |
/// | `loaded_by` | the id of an instance, or null |
///
/// Rows are found by the key that waits, the key in flight, when those that nobody has loaded are due, and who has loaded
/// them. `tickwheel_meta` has the version of the schema and the last number of the sequence.
const TABLES: &str = "
    CREATE TABLE tickwheel_meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID, STRICT;
    INSERT INTO tickwheel_meta VALUES ('schema', 1), ('sequence', 0);
    CREATE TABLE tickwheel_namespaces (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, codec TEXT NOT NULL) STRICT;
    CREATE TABLE tickwheel_instances (
        id INTEGER PRIMARY KEY, namespace INTEGER NOT NULL, alive_until INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE tickwheel_timers (
        version INTEGER PRIMARY KEY,
        namespace INTEGER NOT NULL,
        state INTEGER NOT NULL,
        key BLOB NOT NULL,
        value BLOB NOT NULL,
        due INTEGER NOT NULL,
        deadline INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        period INTEGER,
        loaded_by INTEGER
    ) STRICT;
    CREATE UNIQUE INDEX tickwheel_waiting ON tickwheel_timers (namespace, key) WHERE state = 0;
    CREATE INDEX tickwheel_in_flight ON tickwheel_timers (namespace, key) WHERE state = 1;
    CREATE INDEX tickwheel_due ON tickwheel_timers (namespace, state, due) WHERE loaded_by IS NULL;
    CREATE INDEX tickwheel_loaded ON tickwheel_timers (loaded_by) WHERE loaded_by IS NOT NULL;
";

/// Opens a file, and makes the tables if they are not there.
pub(super) fn connect(path: &Path) -> Result<Connection, StoreError> {
    let (connection, found) = prepare(path).map_err(|error| describe(&error, path))?;
    if found > SCHEMA {
        return Err(StoreError::Schema {
            found,
            supported: SCHEMA,
        });
    }
    Ok(connection)
}

/// The connection, and the version of the schema in the file.
fn prepare(path: &Path) -> rusqlite::Result<(Connection, u32)> {
    let mut connection = Connection::open(path)?;
    connection.busy_handler(Some(wait_for_lock))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let tables = "SELECT 1 FROM sqlite_schema WHERE name = 'tickwheel_meta'";
    let exists = transaction.query_row(tables, (), |_| Ok(())).optional()?;
    if exists.is_none() {
        transaction.execute_batch(TABLES)?;
    }
    let schema = "SELECT value FROM tickwheel_meta WHERE name = 'schema'";
    let found = transaction.query_row(schema, (), |row| row.get(0))?;
    transaction.commit()?;
    Ok((connection, found))
}

/// Waits a little for another process, however often it was asked: those who wait longer have no longer pauses.
fn wait_for_lock(tries: i32) -> bool {
    sleep(LOCKED);
    tries < TRIES
}
