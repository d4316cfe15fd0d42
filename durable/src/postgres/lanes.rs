//! The connections of a store, and which calls use which.
//!
//! | lane | calls | because |
//! |---|---|---|
//! | write, settle, fire, load | one at a time each | a load of thousands of rows delays no claim, and a set that waits for a locked row delays no acknowledgement |
//! | admin: counts, lists, purges | one at a time | a call that reads many rows delays no other |
//! | read | any number at once, pipelined | they change nothing, and look at the rows of one key |
//!
//! Two lanes connect at the start, since two connections show whether each has a process of the
//! server to itself. The others connect at their first use. Each connects again when its connection
//! was lost. A store with fewer connections lets the last lanes share one.
//!
//! A server that hangs keeps its connections. A call that is dropped without a response gives its
//! connection up; a read that is dropped does so if no other read had a response meanwhile.
//!
//! # Order
//!
//! Calls take effect in their order, also after one that was dropped or lost its connection. Its
//! statement may still wait for a lock in the server, and would take effect after what is called
//! next. So:
//!
//! 1. A call takes the connection out of its lane and puts it back when it has its response.
//!    Without a response the connection is closed, and the server's process goes on the list of
//!    *orphans*.
//! 2. Before any call sends a statement, it has the server end all orphans, and waits until they
//!    are gone. It knows each by a lock that its process took at set-up. One that holds the lock no
//!    more has ended the call, and a pooler may have given it to another client.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard as StdMutexGuard};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio_postgres::{Error, Row};

use super::dial::dial;
use super::hints::Hints;
use super::options::MAX_CONNECTIONS;
use super::pooler;
use super::schema::Tables;
use super::session::{Backend, Parameters, Session};
use super::target::{Target, is_conflict, is_lost, may_be_for_a_hint};
use crate::jitter::jittered;
use crate::lock::lock;
use crate::store::StoreError;

/// A batch that had a conflict with another one runs again after this delay.
const CONFLICT: Duration = Duration::from_millis(2);

/// Calls that change something or look at many rows, each kind on its own connection.
///
/// In this order: with fewer connections the last ones share one.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lane {
    Fire,
    Settle,
    Write,
    Load,
    Admin,
}

/// One for each lane, one for reads, and one that listens.
const _: () = assert!(MAX_CONNECTIONS == Lane::Admin as usize + 3);

/// The connections.
pub(super) struct Lanes {
    target: Target,
    /// The tables that were found last.
    tables: StdMutex<Tables>,
    /// How often they were found to be others, which were made again.
    made_again: AtomicU64,
    exclusive: Vec<Mutex<Option<Session>>>,
    shared: Mutex<Option<Arc<Session>>>,
    orphans: StdMutex<Vec<Backend>>,
    hints: Arc<Hints>,
}

impl Lanes {
    /// Connects for reads and writes. Makes the tables if they are not there.
    pub(super) async fn connect(
        target: Target,
        connections: usize,
        hints: Arc<Hints>,
    ) -> Result<Self, StoreError> {
        let reads = dial(&target).await?;
        let writes = dial(&target).await?;
        pooler::refuse_shared([&reads, &writes], &target).await?;
        let reads = Session::first(reads, &target).await?;
        let tables = reads.tables().clone();
        let writes = Session::on(writes, &target, &tables).await?;
        let exclusive = (0..connections - 2).map(|_| Mutex::default());
        let lanes = Lanes {
            target,
            tables: StdMutex::new(tables),
            made_again: AtomicU64::new(0),
            exclusive: exclusive.collect(),
            shared: Mutex::new(Some(Arc::new(reads))),
            orphans: StdMutex::default(),
            hints,
        };
        *lanes.place(Lane::Write).lock().await = Some(writes);
        Ok(lanes)
    }

    fn place(&self, lane: Lane) -> &Mutex<Option<Session>> {
        &self.exclusive[(lane as usize).min(self.exclusive.len() - 1)]
    }

    /// Another connection. The first one that leads to tables which were made again fails: numbers
    /// that the caller knows may be those of other namespaces there.
    async fn session(&self) -> Result<Session, StoreError> {
        let client = dial(&self.target).await?;
        let known = lock(&self.tables).clone();
        let session = Session::on(client, &self.target, &known).await?;
        if session.tables().are(&known) {
            return Ok(session);
        }
        *lock(&self.tables) = session.tables().clone();
        self.made_again.fetch_add(1, Ordering::AcqRel);
        Err(self.target.unavailable(
            "the tables were dropped and made again, so this call changes nothing; the next one uses them",
        ))
    }

    /// How often the tables were found to be others. What was known of namespaces before is void.
    pub(super) fn made_again(&self) -> u64 {
        self.made_again.load(Ordering::Acquire)
    }

    fn orphans(&self) -> StdMutexGuard<'_, Vec<Backend>> {
        lock(&self.orphans)
    }

    /// Runs a statement that only reads, beside others.
    pub(super) async fn read(
        &self,
        sql: &'static str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        let session = self.shared().await?;
        let asked = session.read();
        self.end_orphans(&session).await?;
        let outcome = session.query(sql, parameters).await;
        asked.answered();
        outcome.map_err(|error| self.target.describe(error))
    }

    /// Runs a statement alone in its lane.
    pub(super) async fn query(
        &self,
        lane: Lane,
        sql: &'static str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        let mut answers = self.transaction(lane, &[(sql, parameters)]).await?;
        Ok(answers.remove(0))
    }

    /// Runs statements in one transaction, alone in their lane. They run again when the server says
    /// that nothing of them has happened, and without hints if it has no room for these.
    pub(super) async fn transaction(
        &self,
        lane: Lane,
        queries: &[(&'static str, &Parameters<'_>)],
    ) -> Result<Vec<Vec<Row>>, StoreError> {
        Ok(self.transaction_on(lane, queries).await?.0)
    }

    /// As [`transaction`](Self::transaction), and tells which process of the server has run it.
    pub(super) async fn transaction_on(
        &self,
        lane: Lane,
        queries: &[(&'static str, &Parameters<'_>)],
    ) -> Result<(Vec<Vec<Row>>, Backend), StoreError> {
        let mut hints = true;
        loop {
            let session = self.exclusive(lane).await?;
            let backend = session.backend();
            let outcome = if hints {
                session.transaction(queries).await
            } else {
                session.transaction_without_hints(queries).await
            };
            session.put_back(outcome.as_ref().err());
            match outcome {
                Ok(answer) => return Ok((answer, backend)),
                Err(error) if hints && may_be_for_a_hint(&error) => {
                    hints = false;
                    self.hints.queue_is(true, &self.target);
                }
                Err(error) if is_conflict(&error) => tokio::time::sleep(jittered(CONFLICT)).await,
                Err(error) => return Err(self.target.describe(error)),
            }
        }
    }

    async fn shared(&self) -> Result<Arc<Session>, StoreError> {
        let mut shared = self.shared.lock().await;
        if let Some(session) = shared.as_ref().filter(|session| !session.is_closed()) {
            return Ok(Arc::clone(session));
        }
        let session = Arc::new(self.session().await?);
        *shared = Some(Arc::clone(&session));
        Ok(session)
    }

    async fn exclusive(&self, lane: Lane) -> Result<InUse<'_>, StoreError> {
        let mut place = self.place(lane).lock().await;
        let session = match place.take().filter(|session| !session.is_closed()) {
            Some(session) => session,
            None => self.session().await?,
        };
        if let Err(error) = self.end_orphans(&session).await {
            *place = Some(session).filter(|session| !session.is_closed());
            return Err(error);
        }
        Ok(InUse {
            lanes: self,
            place,
            session: Some(session),
        })
    }

    async fn end_orphans(&self, session: &Session) -> Result<(), StoreError> {
        let orphans = self.orphans().clone();
        if orphans.is_empty() {
            return Ok(());
        }
        let ended = session.terminate(&orphans).await;
        if !ended.map_err(|error| self.target.describe(error))? {
            let why = "the server does not end a process after its call was given up";
            return Err(self.target.unavailable(why));
        }
        self.orphans().retain(|orphan| !orphans.contains(orphan));
        Ok(())
    }
}

/// A connection taken out of its lane.
struct InUse<'a> {
    lanes: &'a Lanes,
    place: MutexGuard<'a, Option<Session>>,
    session: Option<Session>,
}

impl InUse<'_> {
    /// The server has responded, perhaps with an error: puts the connection back, unless it is
    /// lost.
    fn put_back(mut self, error: Option<&Error>) {
        if error.is_none_or(|error| !is_lost(error)) {
            *self.place = self.session.take();
        }
    }
}

impl Deref for InUse<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session
            .as_ref()
            .expect("it is put back when this goes")
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            self.lanes.orphans().push(session.backend());
            self.lanes.hints.given_up.notify_waiters();
        }
    }
}
