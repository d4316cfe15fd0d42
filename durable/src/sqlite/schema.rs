//! The tables, and how a file is opened.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior};

use super::describe;
use super::file::File;
use crate::store::StoreError;

/// The version of the schema below, after all [`UPGRADES`].
#[allow(clippy::cast_possible_truncation, reason = "they are few")]
pub(super) const SCHEMA: u32 = 1 + UPGRADES.len() as u32;

/// A call that finds the file locked tries again after this.
pub(super) const LOCKED: Duration = Duration::from_micros(500);

/// How often opening tries: for 10 s in all, because another process may be in a long commit.
const TRIES: i32 = 20_000;

/// How many prepared statements are kept; there are fewer.
const STATEMENTS: usize = 64;

/// | column | |
/// |---|---|
/// | `state` | 0 waiting, 1 in flight |
/// | `due`, `deadline` | microseconds since the epoch |
/// | `period` | microseconds, or null |
/// | `loaded_by` | the id of an instance, or null |
/// | `lacks` | how many due rows an instance wanted and was not given |
///
/// `waiting` and `in_flight` say how many rows a namespace has. Each call that changes that keeps
/// them, since to count millions of rows takes seconds.
///
/// Rows are found by the key that waits, the key in flight, and by who has loaded them and when
/// they are due. Only living instances have rows loaded, and these are in `tickwheel_instances`.
/// `tickwheel_meta` has the version of the schema and the last number of the sequence.
pub(super) const TABLES: &str = "
    CREATE TABLE tickwheel_meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID, STRICT;
    INSERT INTO tickwheel_meta VALUES ('schema', 1), ('sequence', 0);
    CREATE TABLE tickwheel_namespaces (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, codec TEXT NOT NULL,
        waiting INTEGER NOT NULL DEFAULT 0, in_flight INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    CREATE TABLE tickwheel_instances (
        id INTEGER PRIMARY KEY, namespace INTEGER NOT NULL, alive_until INTEGER NOT NULL, lacks INTEGER NOT NULL
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
    CREATE INDEX tickwheel_due ON tickwheel_timers (namespace, state, loaded_by, due);
";

/// Whether a row holds what stores write: as [`damage`](super::reading::damage) has it.
macro_rules! sound {
    () => {
        "state IN (0, 1) AND due BETWEEN 0 AND 9007199254740991 AND deadline BETWEEN 0 AND 9007199254740991
            AND attempt BETWEEN 0 AND 2147483647 AND (period IS NULL OR period BETWEEN 1 AND 9007199254740991)
            AND (period IS NULL OR schedule IS NULL)"
    };
}

/// From each version of the schema to the next, the first from version 1. An older file is upgraded
/// when it is opened.
///
/// 2. Dead rows: `died` says when, `error` why. `dead` is how many a namespace has. Rows of timers
///    have the last error, too. The schedule of rows that repeat by one: its text, or null. And the
///    id of the instance that fired a row in flight.
/// 3. The table of timers with checks, which need another table. Rows that hold what no store
///    writes are dead. And the [charter](crate::store::Charter) of a namespace, and its edition.
///    Null until an instance opens the namespace. And the names of instances.
const UPGRADES: [&str; 2] = [
    "
    ALTER TABLE tickwheel_timers ADD COLUMN error TEXT;
    ALTER TABLE tickwheel_timers ADD COLUMN schedule TEXT;
    ALTER TABLE tickwheel_timers ADD COLUMN claimed_by INTEGER;
    ALTER TABLE tickwheel_namespaces ADD COLUMN dead INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE tickwheel_dead (
        version INTEGER PRIMARY KEY,
        namespace INTEGER NOT NULL,
        key BLOB NOT NULL,
        value BLOB NOT NULL,
        died INTEGER NOT NULL,
        deadline INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        error TEXT
    ) STRICT;
    CREATE INDEX tickwheel_dead_key ON tickwheel_dead (namespace, key, died);
    CREATE INDEX tickwheel_dead_died ON tickwheel_dead (namespace, died);
",
    concat!("
    CREATE TABLE tickwheel_sound (
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
        CHECK (", sound!(), ")
    ) STRICT;
    INSERT INTO tickwheel_sound SELECT version, namespace, state, key, value, due, deadline, attempt, period, loaded_by,
        error, schedule, claimed_by FROM tickwheel_timers WHERE ", sound!(), ";
    INSERT INTO tickwheel_dead (version, namespace, key, value, died, deadline, attempt, error)
        SELECT version, namespace, key, value, CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER),
            max(deadline, 0), max(attempt, 0), 'it holds what no store writes'
        FROM tickwheel_timers WHERE NOT (", sound!(), ");
    DROP TABLE tickwheel_timers;
    ALTER TABLE tickwheel_sound RENAME TO tickwheel_timers;
    CREATE UNIQUE INDEX tickwheel_waiting ON tickwheel_timers (namespace, key) WHERE state = 0;
    CREATE INDEX tickwheel_in_flight ON tickwheel_timers (namespace, key) WHERE state = 1;
    CREATE INDEX tickwheel_due ON tickwheel_timers (namespace, state, loaded_by, due);
    UPDATE tickwheel_namespaces SET
        waiting = (SELECT count(*) FROM tickwheel_timers t WHERE t.namespace = tickwheel_namespaces.id AND state = 0),
        in_flight = (SELECT count(*) FROM tickwheel_timers t WHERE t.namespace = tickwheel_namespaces.id AND state = 1),
        dead = (SELECT count(*) FROM tickwheel_dead d WHERE d.namespace = tickwheel_namespaces.id);
    ALTER TABLE tickwheel_namespaces ADD COLUMN no_overlap INTEGER CHECK (no_overlap IN (0, 1));
    ALTER TABLE tickwheel_namespaces ADD COLUMN at_most_once INTEGER CHECK (at_most_once IN (0, 1));
    ALTER TABLE tickwheel_namespaces ADD COLUMN parts INTEGER CHECK (parts > 0);
    ALTER TABLE tickwheel_namespaces ADD COLUMN edition INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE tickwheel_instances ADD COLUMN name TEXT;
"),
];

/// An open file.
pub(super) struct Opened {
    /// Writes. It does not wait for locks: its thread does.
    pub(super) writer: Connection,
    /// Reads only.
    pub(super) reader: Connection,
    pub(super) file: File,
}

/// Opens a file, and makes the tables if they are not there.
pub(super) fn open(path: &Path) -> Result<Opened, StoreError> {
    let failed = |error| describe(error, path);
    let writer = connect(path, OpenFlags::default()).map_err(failed)?;
    let mode = write_ahead(&writer).map_err(failed)?;
    if mode != "wal" {
        return Err(StoreError::refused(format_args!(
            "SQLite file {}: it takes no write-ahead log (its journal mode stays {mode:?}); for timers in memory there is the store Memory",
            path.display()
        )));
    }
    prepare(&writer).map_err(failed)??;
    writer.busy_handler(None).map_err(failed)?;
    let read_only = OpenFlags::default()
        .difference(OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)
        .union(OpenFlags::SQLITE_OPEN_READ_ONLY);
    let reader = connect(path, read_only).map_err(failed)?;
    let file = File::opened(path, writer.path().unwrap_or_default());
    Ok(Opened {
        writer,
        reader,
        file,
    })
}

fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_handler(Some(wait_for_lock))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// Has commits written ahead and waited for. Returns the mode that it has then.
fn write_ahead(connection: &Connection) -> rusqlite::Result<String> {
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))
}

/// Makes the tables if they are not there, or upgrades them.
fn prepare(connection: &Connection) -> rusqlite::Result<Result<(), StoreError>> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    if version(&transaction)? == 0 {
        transaction.execute_batch(TABLES)?;
    }
    let found = version(&transaction)?;
    for (_, upgrade) in (1..).zip(UPGRADES).filter(|(from, _)| *from >= found) {
        transaction.execute_batch(upgrade)?;
    }
    if found < SCHEMA {
        let sql = "UPDATE tickwheel_meta SET value = ?1 WHERE name = 'schema'";
        transaction.execute(sql, [SCHEMA])?;
    }
    let checked = check(&transaction)?;
    transaction.commit()?;
    Ok(checked)
}

/// The version of the schema, from 1 on, or 0 if there are no tables.
fn version(connection: &Connection) -> rusqlite::Result<u32> {
    let tables = "SELECT 1 FROM sqlite_schema WHERE name = 'tickwheel_meta'";
    let exist = connection.query_row(tables, (), |_| Ok(())).optional()?;
    if exist.is_none() {
        return Ok(0);
    }
    let schema = "SELECT value FROM tickwheel_meta WHERE name = 'schema'";
    connection.query_row(schema, (), |row| row.get(0))
}

/// Whether there are tables that can be used.
pub(super) fn check(connection: &Connection) -> rusqlite::Result<Result<(), StoreError>> {
    let (found, supported) = (version(connection)?, SCHEMA);
    if found < supported {
        let path = connection.path().unwrap_or_default();
        return Ok(Err(StoreError::refused(format_args!(
            "SQLite file {path} has no timers of schema version {supported}: open it with `Sqlite::open` first"
        ))));
    }
    if found > supported {
        return Ok(Err(StoreError::Schema { found, supported }));
    }
    Ok(Ok(()))
}

/// Waits a little for another process. The pause does not grow with the number of tries.
fn wait_for_lock(tries: i32) -> bool {
    sleep(LOCKED);
    tries < TRIES
}
