//! The thread that owns the connection.
//!
//! It takes every call that waits, up to a bound, and runs them in one transaction. It sends the
//! responses after the commit. So calls that come while a commit waits for the disk share the next
//! one.
//!
//! # Other processes
//!
//! 1. One transaction at a time has the lock of the file, from its start to the end of its commit.
//!    SQLite has no queue for the lock: a thread that waits for it tries again and again.
//! 2. The thread tries for as long as a caller waits for the response, since callers bring their
//!    own limit.
//! 3. A busy process would take the lock again at once. When commits are slow, that leaves so
//!    little time between them that other processes try in vain for seconds. So after a long turn
//!    the thread leaves the lock free for longer than other processes pause between attempts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};
use tokio::sync::{Notify, oneshot};

use super::describe;
use super::link::{Link, Open};
use super::reading::now;
use super::schema::LOCK_RETRY;
use crate::lock::lock;
use crate::store::{Answer, Namespace, StoreError, Version};

/// One transaction takes at most this many calls.
const CALLS: usize = 64;

/// A pause, which is much shorter, follows a turn that was longer than this.
pub(super) const LONG_TURN: Duration = Duration::from_millis(15);

/// Longer than the pause between two attempts to take the lock.
pub(super) const PAUSE: Duration = Duration::from_micros(750);

/// While there are calls, the file is brought up to its log so often.
const ADVANCE: Duration = Duration::from_secs(30);

/// A thread that waits longer for the lock logs a warning.
const LONG_WAIT: Duration = Duration::from_secs(1);

/// A call: runs within a transaction, and is finished when its outcome is known.
trait Job: Send {
    /// Whether the caller has stopped waiting for the response.
    fn is_given_up(&self) -> bool;
    fn run(&mut self, batch: &Batch<'_>) -> rusqlite::Result<()>;
    fn finish(self: Box<Self>, outcome: Result<(), StoreError>);
}

/// A call with a caller that waits for the response.
struct Question<T, F> {
    run: Option<F>,
    answer: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Job for Question<T, F>
where
    T: Send,
    F: FnOnce(&Batch<'_>) -> rusqlite::Result<Result<T, StoreError>> + Send,
{
    fn is_given_up(&self) -> bool {
        self.reply.is_closed()
    }

    fn run(&mut self, batch: &Batch<'_>) -> rusqlite::Result<()> {
        if let Some(run) = self.run.take() {
            self.answer = Some(run(batch)?);
        }
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Result<(), StoreError>) {
        let Question { answer, reply, .. } = *self;
        let not_run = || Err(StoreError::unavailable("the call was not run"));
        let answer = outcome.and_then(|()| answer.unwrap_or_else(not_run));
        // The caller may have stopped waiting.
        let _ = reply.send(answer);
    }
}

/// A transaction in which calls run.
pub(super) struct Batch<'a> {
    pub(super) connection: &'a Connection,
    hints: &'a Hints,
}

impl<'a> Batch<'a> {
    pub(super) fn new(connection: &'a Connection, hints: &'a Hints) -> Self {
        Batch { connection, hints }
    }

    /// The next so many versions: the first of them. They are never behind the clock, so they grow
    /// also in a file that was restored.
    pub(super) fn versions(&self, count: usize) -> rusqlite::Result<Version> {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let sql = "UPDATE tickwheel_meta SET value = max(value + 1, ?2) + ?1 - 1 WHERE name = 'sequence' RETURNING value";
        let mut update = self.connection.prepare_cached(sql)?;
        let now = now().as_micros();
        let last: i64 = update.query_row([count, now], |row| row.get(0))?;
        Ok(Version(last - count + 1))
    }

    /// Notifies instances on clones of this store of near rows that no instance has loaded. Their
    /// loads queue on this thread, behind the call and its commit.
    pub(super) fn hint(&self, namespace: &Namespace) {
        self.hints.notify(namespace);
    }
}

/// Hints among the clones of a store.
#[derive(Debug, Default)]
pub(super) struct Hints {
    waiting: Mutex<HashMap<Namespace, Arc<Notify>>>,
}

impl Hints {
    fn of(&self, namespace: &Namespace) -> Arc<Notify> {
        let mut waiting = lock(&self.waiting);
        Arc::clone(waiting.entry(namespace.clone()).or_default())
    }

    pub(super) fn notify(&self, namespace: &Namespace) {
        self.of(namespace).notify_waiters();
    }

    pub(super) async fn wait(&self, namespace: &Namespace) {
        self.of(namespace).notified().await;
    }
}

/// Sends calls to the thread, which ends with the last clone.
#[derive(Clone)]
pub(super) struct Thread {
    jobs: mpsc::Sender<Box<dyn Job>>,
    hints: Arc<Hints>,
}

impl Thread {
    pub(super) fn start(link: Link) -> Result<Self, StoreError> {
        let (jobs, queue) = mpsc::channel();
        let hints = Arc::<Hints>::default();
        let worker = Worker {
            link,
            queue,
            hints: Arc::clone(&hints),
        };
        let thread = std::thread::Builder::new().name("tickwheel-sqlite".into());
        let started = thread.spawn(|| worker.run());
        started
            .map_err(|error| StoreError::unavailable("no thread for SQLite").because_of(error))?;
        Ok(Thread { jobs, hints })
    }

    pub(super) fn hints(&self) -> &Hints {
        &self.hints
    }

    /// Runs a call on the thread.
    pub(super) fn call<T, F>(&self, run: F) -> Answer<'static, T>
    where
        T: Send + 'static,
        F: FnOnce(&Batch<'_>) -> rusqlite::Result<Result<T, StoreError>> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Question {
            run: Some(run),
            answer: None,
            reply,
        });
        let sent = self.jobs.send(job).is_ok();
        response(sent, answer)
    }
}

/// The response of a thread to a job, if it was sent.
pub(super) fn response<T: Send + 'static>(
    sent: bool,
    answer: oneshot::Receiver<Result<T, StoreError>>,
) -> Answer<'static, T> {
    Box::pin(async move {
        let answer = if sent { answer.await.ok() } else { None };
        answer.unwrap_or_else(|| {
            Err(StoreError::unavailable(
                "the thread of the SQLite file has ended",
            ))
        })
    })
}

struct Worker {
    link: Link,
    queue: mpsc::Receiver<Box<dyn Job>>,
    hints: Arc<Hints>,
}

impl Worker {
    fn run(mut self) {
        let mut advanced = Instant::now();
        while let Ok(first) = self.queue.recv() {
            let waiting = self.queue.try_iter().take(CALLS - 1);
            let mut jobs: Vec<_> = std::iter::once(first).chain(waiting).collect();
            let began = Instant::now();
            let outcome = match self.link.open() {
                Ok(open) => {
                    let hints = &self.hints;
                    Turn { open, hints }.transaction(&mut jobs)
                }
                Err(error) => Err(error),
            };
            self.link.end_turn();
            finish(&mut jobs, &outcome);
            if advanced.elapsed() > ADVANCE {
                advanced = Instant::now();
                self.link.advance();
            }
            if began.elapsed() > LONG_TURN {
                sleep(PAUSE);
            }
        }
    }
}

/// One turn of the thread.
struct Turn<'a> {
    open: &'a Open,
    hints: &'a Hints,
}

impl Turn<'_> {
    /// Runs calls and commits them together. Those that have not succeeded have their responses,
    /// and only the others are left.
    fn transaction(&self, jobs: &mut Vec<Box<dyn Job>>) -> Result<(), StoreError> {
        let mut done = Vec::with_capacity(jobs.len());
        for mut job in jobs.drain(..) {
            // No transaction is open at first, and after an error that has rolled one back, such as
            // a full disk.
            let begun = if self.open.connection.is_autocommit() {
                self.begin(&*job)
            } else {
                Ok(!job.is_given_up())
            };
            let ran = match begun {
                Ok(true) => self.savepoint(&mut *job),
                Ok(false) => continue,
                Err(error) => Err(error),
            };
            match ran {
                Ok(()) => done.push(job),
                Err(error) => {
                    let error = describe(error, self.open.file.path());
                    job.finish(Err(error.clone()));
                    if self.open.connection.is_autocommit() {
                        finish(&mut done, &Err(error));
                    }
                }
            }
        }
        *jobs = done;
        if self.open.connection.is_autocommit() {
            return Ok(());
        }
        self.commit()
    }

    /// Starts a transaction. Waits for the lock for as long as the caller waits: `false` if the
    /// caller has stopped waiting.
    fn begin(&self, job: &dyn Job) -> rusqlite::Result<bool> {
        let began = Instant::now();
        let mut is_told = false;
        while !job.is_given_up() {
            match self.execute("BEGIN IMMEDIATE") {
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {}
                begun => return begun.map(|()| true),
            }
            if !is_told && began.elapsed() > LONG_WAIT {
                is_told = true;
                tracing::warn!(
                    file = %self.open.file.path().display(),
                    "SQLite: the file is locked by another connection, and calls wait for it"
                );
            }
            sleep(LOCK_RETRY);
        }
        Ok(false)
    }

    fn commit(&self) -> Result<(), StoreError> {
        let committed = self.execute("COMMIT");
        if committed.is_err() && !self.open.connection.is_autocommit() {
            // The transaction is still open, which no later one could be.
            let _ = self.execute("ROLLBACK");
        }
        committed.map_err(|error| describe(error, self.open.file.path()))?;
        self.open.file.check()
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        let connection = &self.open.connection;
        connection.prepare_cached(sql)?.execute(()).map(drop)
    }

    /// Runs a call in a savepoint.
    fn savepoint(&self, job: &mut dyn Job) -> rusqlite::Result<()> {
        let connection = &self.open.connection;
        self.execute("SAVEPOINT a_call")?;
        let ran = job.run(&Batch::new(connection, self.hints));
        if ran.is_err() && !connection.is_autocommit() {
            self.execute("ROLLBACK TO a_call")?;
        }
        if !connection.is_autocommit() {
            self.execute("RELEASE a_call")?;
        }
        ran
    }
}

fn finish(jobs: &mut Vec<Box<dyn Job>>, outcome: &Result<(), StoreError>) {
    for job in jobs.drain(..) {
        job.finish(outcome.clone());
    }
}
