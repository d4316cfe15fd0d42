//! The thread that looks: it owns a connection that changes nothing.
//!
//! In a file with a write-ahead log a reader sees the state at its beginning, waits for no writer,
//! and no writer waits for it. So a look at millions of rows delays no call and no delivery. It
//! sees every call that returned before the look began.

use std::sync::mpsc;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::describe;
use super::link::Link;
use super::thread::response;
use crate::store::{Answer, StoreError};

type Look = Box<dyn FnOnce(&mut Looker) + Send>;

/// Sends looks to the thread, which ends with the last clone.
#[derive(Clone)]
pub(super) struct Looks {
    queue: mpsc::Sender<Look>,
}

impl Looks {
    pub(super) fn start(link: Link) -> Result<Self, StoreError> {
        let (queue, looks) = mpsc::channel::<Look>();
        let mut looker = Looker { link };
        let thread = std::thread::Builder::new().name("tickwheel-sqlite-looks".into());
        let started = thread.spawn(move || looks.into_iter().for_each(|look| look(&mut looker)));
        started
            .map_err(|error| StoreError::unavailable("no thread for SQLite").because_of(error))?;
        Ok(Looks { queue })
    }

    /// Looks, on the thread. All that `look` reads is of one instant.
    pub(super) fn ask<T, F>(&self, look: F) -> Answer<'static, T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<Result<T, StoreError>> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let look = Box::new(move |looker: &mut Looker| {
            if !reply.is_closed() {
                let answer = looker.look(look);
                looker.link.end_turn();
                // The caller may give up meanwhile.
                let _ = reply.send(answer);
            }
        });
        let sent = self.queue.send(look).is_ok();
        response(sent, answer)
    }
}

struct Looker {
    link: Link,
}

impl Looker {
    fn look<T>(
        &mut self,
        look: impl FnOnce(&Connection) -> rusqlite::Result<Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let open = self.link.open()?;
        let in_transaction = || {
            // Deferred: it locks nothing. Ends when it is dropped.
            let transaction = open.connection.unchecked_transaction()?;
            look(&transaction)
        };
        let answer = in_transaction().map_err(|error| describe(error, open.file.path()));
        open.file.check()?;
        answer?
    }
}
