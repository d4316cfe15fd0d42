//! The connection of a thread to the file, and its end.
//!
//! The last connection to a file copies the write-ahead log into the file and removes the log. So
//! that one whole file is left, however the ends of connections meet:
//!
//! 1. Every connection may write: one that is opened read-only leaves the log where it is.
//! 2. Connections of one process are closed one after the other. SQLite asks for the whole file to
//!    find out whether a connection is the last, and two that ask at once refuse each other.
//! 3. Other processes may close at the same moment. A thread that still finds the log opens the
//!    file once more and closes it, a few times, after pauses that differ.
//! 4. After [`close`](crate::Store::close) the store *rests*: a thread closes its connection after
//!    each turn, before it sends the responses, and opens it again for the next one. So the file is
//!    whole whenever no call is running. The next load of an instance ends the rest.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use rusqlite::Connection;

use super::file::File;
use super::schema::{Access, connect, reopen};
use super::{describe, lineage};
use crate::jitter::jittered;
use crate::lock::lock;
use crate::store::StoreError;

/// A thread looks so often for a log that another process has left.
const LOOKS_FOR_LOG: u32 = 4;

/// It waits about so long before each of them but the first.
const LOG_PAUSE: Duration = Duration::from_millis(4);

/// Held while a connection of this process is closed.
static CLOSING: Mutex<()> = Mutex::new(());

/// An open connection.
pub(super) struct Open {
    pub(super) connection: Connection,
    pub(super) file: File,
}

/// The connection of a thread, open or not.
pub(super) struct Link {
    access: Access,
    open: Option<Open>,
    /// The file as its caller has named it, and as SQLite does.
    path: PathBuf,
    name: PathBuf,
    rests: Arc<AtomicBool>,
}

impl Link {
    pub(super) fn new(open: Open, access: Access, rests: &Arc<AtomicBool>) -> Self {
        Link {
            access,
            path: open.file.path().to_owned(),
            name: open.connection.path().unwrap_or_default().into(),
            open: Some(open),
            rests: Arc::clone(rests),
        }
    }

    /// The connection, which is opened again after a rest. The file is not made again.
    pub(super) fn open(&mut self) -> Result<&Open, StoreError> {
        let open = match self.open.take() {
            Some(open) => open,
            None => reopen(&self.name, &self.path, self.access)?,
        };
        Ok(self.open.insert(open))
    }

    /// Ends a turn, whose responses have not been sent yet.
    pub(super) fn end_turn(&mut self) {
        if self.rests.load(Ordering::Acquire) {
            self.close();
        }
    }

    /// Brings the file up to its log, if it is open. What cannot be done now is done later.
    pub(super) fn advance(&self) {
        if let Some(open) = &self.open {
            let _ = lineage::advance(&open.connection, &self.name);
        }
    }

    fn close(&mut self) {
        let Some(Open { connection, file }) = self.open.take() else {
            return;
        };
        let _closing = lock(&CLOSING);
        drop(connection);
        for number in 0..LOOKS_FOR_LOG {
            if !file.log().exists() {
                return;
            }
            if number > 0 {
                sleep(jittered(LOG_PAUSE));
            }
            // The connection is closed at once. What fails here has failed for the caller, too.
            let opened =
                connect(&self.name, self.access).map_err(|error| describe(error, &self.path));
            let _ = opened
                .map(|again| again.query_row("SELECT count(*) FROM sqlite_schema", (), |_| Ok(())));
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}
