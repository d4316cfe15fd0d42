//! Whether a file belongs to the write-ahead log beside it.
//!
//! SQLite cannot tell: a backup that is copied over a file whose log a killed process has left is
//! undone by that log, or damaged. So `base` in `tickwheel_meta` is a number of the sequence that
//! the file alone, without its log, has reached.
//!
//! 1. `base` is written into the log after it was read of the file alone. The file alone only moves
//!    forward, so it never has less, also if a process dies in the middle of a checkpoint.
//! 2. A backup from before the last `base` has less, and is refused beside the log.
//! 3. A file that was restored by the library of SQLite under an open connection has a smaller
//!    number itself: `base` is never greater than the sequence beside it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior};

use crate::store::StoreError;

/// Refuses a file that is older than the log beside it.
pub(super) fn check(path: &Path) -> Result<(), StoreError> {
    let log = beside(path, "-wal");
    let has_log = log.metadata().is_ok_and(|log| log.len() > 0);
    if !has_log || !path.is_file() {
        return Ok(());
    }
    // In this order: meanwhile a living process may move the file forward. Who cannot read it finds
    // out why when it is opened.
    let base = || {
        let both = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        number(&both, "base")
    };
    let Ok(Some(base)) = base() else {
        return Ok(());
    };
    match in_file_alone(path) {
        Ok(found) if found.is_none_or(|found| found < base) => {
            Err(StoreError::refused(format_args!(
                "SQLite file {} is older than its write-ahead log {}: it was restored beside the log of the file that was there before. \
                 Delete that log and the file that ends with -shm, and restore it again",
                path.display(),
                log.display()
            )))
        }
        _ => Ok(()),
    }
}

/// Notes how far the file alone has come. One that has a part of the log may not be readable alone.
pub(super) fn note(transaction: &Connection, path: &Path) -> rusqlite::Result<()> {
    let Ok(Some(found)) = in_file_alone(path) else {
        return Ok(());
    };
    let note = "INSERT INTO tickwheel_meta SELECT 'base', min(value, ?1) FROM tickwheel_meta WHERE name = 'sequence'
        ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE value IS NOT excluded.value";
    transaction.execute(note, [found]).map(drop)
}

/// Writes the log into the file, as far as others let it, and notes how far the file has come.
pub(super) fn advance(connection: &Connection, path: &Path) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(()))?;
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    note(&transaction, path)?;
    transaction.commit()
}

/// The number of the sequence in the file, whatever its log says. None if it has no tables.
fn in_file_alone(path: &Path) -> rusqlite::Result<Option<i64>> {
    let mut uri = "file:".to_owned();
    for &byte in path.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || b"/\\:.-_".contains(&byte) {
            uri.push(byte.into());
        } else {
            let _ = write!(uri, "%{byte:02x}");
        }
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let file = Connection::open_with_flags(uri + "?immutable=1", flags)?;
    let tables = "SELECT 1 FROM sqlite_schema WHERE name = 'tickwheel_meta'";
    match file.query_row(tables, (), |_| Ok(())).optional()? {
        Some(()) => number(&file, "sequence"),
        None => Ok(None),
    }
}

fn number(connection: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    let select = "SELECT value FROM tickwheel_meta WHERE name = ?1";
    let found = connection.query_row(select, [name], |row| row.get(0));
    found.optional()
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}
