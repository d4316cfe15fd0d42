//! The one way from an instance to its store: every call has a time limit, a span, and is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use tracing::Instrument;

use crate::error::Error;
use crate::metrics::{Failing, Metrics};
use crate::store::{
    Answer, ChangedRows, Charter, Edition, Fire, FireReport, InstanceId, Load, Loaded, Namespace,
    Opened, PrefixChange, Settle, Settled, Store, StoreError, Terms, Write, WriteOutcome,
};

/// The calls of one instance on one namespace.
pub(crate) struct Calls {
    store: Arc<dyn Store>,
    namespace: Namespace,
    /// What the settings of the instance are. The store compares them with the charter of the
    /// namespace.
    charter: Charter,
    /// The edition of the charter that the instance has found to agree with, or 0: it has to open
    /// the namespace first.
    edition: AtomicI64,
    /// Whether the latest opening has found a difference.
    differs: AtomicBool,
    /// The edition with which the namespace was made, or 0 before it was opened.
    made: AtomicI64,
    limit: Duration,
    metrics: Arc<Metrics>,
    /// Whether a call has failed since this was last read. Rows may be marked that are on no wheel.
    lost_answer: AtomicBool,
    kinds: [CallKind; 4],
}

/// The shortest pause between two steps: long enough for another process to lock the SQLite file.
const PAUSE: Duration = Duration::from_millis(2);

/// Makes steps until there are no more. Returns their sum.
///
/// Not an `AsyncFn`: callers could not spawn the future.
pub(crate) async fn in_steps<F>(mut step: impl FnMut() -> F) -> Result<ChangedRows, Error>
where
    F: Future<Output = Result<ChangedRows, Error>>,
{
    let mut sum = ChangedRows::default();
    loop {
        let began = Instant::now();
        sum = sum.and(step().await?);
        if !sum.more {
            return Ok(sum);
        }
        // Half of the time is for other calls.
        sleep(began.elapsed().max(PAUSE)).await;
    }
}

/// Openings of the namespace for another call. That one has failed if they fail, and does not work
/// yet if they work.
const OPEN_TO_FIRE: &str = "open_to_fire";
pub(super) const OPEN_TO_WRITE: &str = "open_to_write";

/// Calls of one kind that an instance needs. Their first failure is logged, and so is the first
/// success after it.
struct CallKind {
    /// The first one shows that they work again.
    calls: &'static [&'static str],
    /// The consequence of a failure, for the log.
    effect: &'static str,
    failing: AtomicBool,
}

impl CallKind {
    const fn new(calls: &'static [&'static str], effect: &'static str) -> Self {
        let failing = AtomicBool::new(false);
        CallKind {
            calls,
            effect,
            failing,
        }
    }

    fn note(&self, of: &Calls, failed: Option<&Error>) {
        let (namespace, effect) = (&of.namespace, self.effect);
        match failed {
            Some(error) if !self.failing.swap(true, Ordering::AcqRel) => {
                tracing::warn!(%namespace, call = self.calls[0], error = %format_args!("{error:#}"), "{effect}: calls of the store fail");
            }
            None if self.failing.load(Ordering::Acquire)
                && self.failing.swap(false, Ordering::AcqRel) =>
            {
                tracing::info!(%namespace, call = self.calls[0], "calls of the store work again");
            }
            _ => {}
        }
    }
}

/// A response of the store, and when the call was sent and the response received.
pub(crate) struct Timed<T> {
    pub(crate) answer: T,
    pub(crate) sent: Instant,
    pub(crate) received: Instant,
}

impl Calls {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        namespace: Namespace,
        charter: Charter,
        limit: Duration,
        metrics: Arc<Metrics>,
    ) -> Self {
        Calls {
            store,
            namespace,
            charter,
            edition: AtomicI64::new(0),
            differs: AtomicBool::new(false),
            made: AtomicI64::new(0),
            limit,
            metrics,
            lost_answer: AtomicBool::new(false),
            kinds: [
                CallKind::new(
                    &["load", "unload", "unmark", "open"],
                    "timers are not loaded",
                ),
                CallKind::new(&["fire", OPEN_TO_FIRE], "timers are not fired"),
                CallKind::new(
                    &["write", OPEN_TO_WRITE],
                    "timers are not set, moved or removed",
                ),
                CallKind::new(&["settle"], "claims are not settled"),
            ],
        }
    }

    /// Whether the instance has found that it does not agree with the charter or the schema of the
    /// store.
    pub(crate) fn differs(&self) -> bool {
        self.differs.load(Ordering::Acquire)
    }

    /// Which of the calls load, fire, write and settle fail now.
    pub(crate) fn failing(&self) -> Failing {
        let [load, fire, write, settle] = self
            .kinds
            .each_ref()
            .map(|kind| kind.failing.load(Ordering::Acquire));
        Failing {
            load,
            fire,
            write,
            settle,
        }
    }

    /// The claims have ended, so nothing is loaded or fired any more. The next write finds out
    /// whether the instance still differs.
    pub(super) fn end_claims(&self) {
        let [load, fire, ..] = &self.kinds;
        for ended in [&load.failing, &fire.failing, &self.differs] {
            ended.store(false, Ordering::Release);
        }
    }

    /// Whether a call has failed since this was last called. It may have taken effect all the same.
    pub(crate) fn take_lost_answer(&self) -> bool {
        self.lost_answer.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Opens the namespace for a call: compares its charter, and reads the store's time.
    pub(crate) async fn open_for(&self, call: &'static str) -> Result<Timed<Opened>, Error> {
        self.open_until(call, Instant::now() + self.limit).await
    }

    /// Opens the namespace for a call that gives up then.
    pub(super) async fn open_until(
        &self,
        call: &'static str,
        until: Instant,
    ) -> Result<Timed<Opened>, Error> {
        let opening = self.store.open(&self.namespace, &self.charter);
        let opened = self.call_until(call, 1, opening, until).await?;
        let Opened {
            made: Edition(made),
            edition: Edition(edition),
            ..
        } = opened.answer;
        let before = self.made.swap(made, Ordering::AcqRel);
        if before != 0 && before != made {
            self.note_emptied();
        }
        self.edition.store(edition, Ordering::Release);
        self.differs.store(false, Ordering::Release);
        Ok(opened)
    }

    /// The edition with which the namespace was made when it was last opened. Another one says that
    /// the store has lost its data.
    pub(super) fn made(&self) -> Edition {
        Edition(self.made.load(Ordering::Acquire))
    }

    /// The store has lost its data.
    fn note_emptied(&self) {
        self.metrics.update(|m| m.store_emptied += 1);
        tracing::error!(namespace = %self.namespace, "the store has lost its data: timers that were set are gone, and the namespace is opened again");
    }

    /// The store has returned to an earlier state.
    pub(super) fn note_returned(&self) {
        self.metrics.update(|m| m.store_returned += 1);
        tracing::error!(namespace = %self.namespace, "the store has returned to an earlier state: timers that were set since may be missing, and others may be delivered again");
    }

    pub(crate) async fn amend(&self, charter: &Charter) -> Result<(), Error> {
        self.ask("amend", |store, space| store.amend(space, charter))
            .await
    }

    /// The edition of the charter that this instance agrees with. Reads the charter if it may have
    /// been amended.
    async fn agreed(&self, call: &'static str) -> Result<Option<Edition>, Error> {
        let known = self.edition.load(Ordering::Acquire);
        if known != 0 {
            return Ok(Some(Edition(known)));
        }
        Ok(Some(self.open_for(call).await?.answer.edition))
    }

    pub(crate) async fn write(
        &self,
        writes: Vec<Write>,
        near: Terms,
    ) -> Result<Vec<WriteOutcome>, Error> {
        let items = writes.len();
        self.metrics.update(|m| m.write_batches.add(items));
        let near = near.under(self.agreed(OPEN_TO_WRITE).await?);
        let call = self.store.write(&self.namespace, writes, near);
        Ok(self.call("write", items, call).await?.answer)
    }

    pub(crate) async fn load(&self, mut request: Load) -> Result<Timed<Loaded>, Error> {
        request.edition = self.agreed("open").await?;
        let limit = request.limit;
        let call = self.store.load(&self.namespace, request);
        let loaded = self.call("load", limit, call).await?;
        if let Some(age) = loaded.answer.oldest_snapshot {
            self.metrics.update(|m| m.oldest_snapshot = age);
        }
        Ok(loaded)
    }

    pub(crate) async fn fire(&self, mut request: Fire) -> Result<Timed<FireReport>, Error> {
        request.near.edition = self.agreed(OPEN_TO_FIRE).await?;
        let items = request.versions.len() + request.unloaded;
        self.metrics.update(|m| m.fire_batches.add(items));
        self.call("fire", items, self.store.fire(&self.namespace, request))
            .await
    }

    pub(crate) async fn settle(
        &self,
        settles: Vec<Settle>,
        near: Terms,
    ) -> Result<Vec<Settled>, Error> {
        let items = settles.len();
        self.metrics.update(|m| m.settle_batches.add(items));
        let call = self.store.settle(&self.namespace, settles, near);
        Ok(self.call("settle", items, call).await?.answer)
    }

    /// A call that needs nothing else.
    pub(crate) async fn ask<'a, T>(
        &'a self,
        call: &'static str,
        ask: impl FnOnce(&'a dyn Store, &'a Namespace) -> Answer<'a, T>,
    ) -> Result<T, Error> {
        let answer = ask(&*self.store, &self.namespace);
        Ok(self.call(call, 1, answer).await?.answer)
    }

    /// Makes a step of a change of many rows.
    pub(crate) async fn change(&self, changes: &mut PrefixChange) -> Result<ChangedRows, Error> {
        let step = changes.step(&*self.store, &self.namespace);
        Ok(self.call("change", 1, Box::pin(step)).await?.answer)
    }

    /// Gives back what the store holds open, within the time of a call.
    pub(crate) async fn close_store(&self) {
        let until = Instant::now() + self.limit;
        let _ = timeout_at(until, self.store.close()).await;
    }

    pub(crate) async fn hinted(&self) -> Option<InstanceId> {
        self.store.hinted(&self.namespace).await
    }

    /// After an amendment, and when the namespace is gone, the next call opens it again. So does
    /// each call while the instance differs. Returns whether the store says that it does.
    ///
    /// A schema is changed by another version of the crate, which nobody may have expected here.
    fn note_difference(&self, error: &StoreError) -> bool {
        use StoreError::{Amended, Charter, NotOpened, Schema};
        let differs = matches!(error, Charter { .. } | Schema { .. });
        if differs || matches!(error, Amended { .. } | NotOpened { .. }) {
            self.edition.store(0, Ordering::Release);
        }
        if differs && !self.differs.swap(true, Ordering::AcqRel) && matches!(error, Schema { .. }) {
            tracing::error!(
                namespace = %self.namespace, %error,
                "the schema of the store is not for this version of tickwheel-durable: this instance settles what its \
                 handlers have, and does nothing else until it is; others go on"
            );
        }
        differs
    }

    /// The error of a call whose time is over.
    pub(super) fn timeout_of(&self, call: &'static str) -> Error {
        let after = self.limit;
        Error::Timeout { call, after }
    }

    async fn call<T>(
        &self,
        call: &'static str,
        items: usize,
        answer: Answer<'_, T>,
    ) -> Result<Timed<T>, Error> {
        let until = Instant::now() + self.limit;
        self.call_until(call, items, answer, until).await
    }

    async fn call_until<T>(
        &self,
        call: &'static str,
        items: usize,
        answer: Answer<'_, T>,
        until: Instant,
    ) -> Result<Timed<T>, Error> {
        let sent = Instant::now();
        let span = tracing::debug_span!("store", namespace = %self.namespace, call, items);
        let outcome = timeout_at(until, answer.instrument(span)).await;
        let received = Instant::now();
        self.metrics.update(|m| {
            m.store_latency.record(received - sent);
            m.store_errors += u64::from(!matches!(outcome, Ok(Ok(_))));
        });
        let kind = self.kinds.iter().find(|kind| kind.calls.contains(&call));
        let (differs, error) = match outcome {
            Ok(Ok(answer)) => {
                if let Some(kind) = kind.filter(|kind| kind.calls[0] == call) {
                    kind.note(self, None);
                }
                return Ok(Timed {
                    answer,
                    sent,
                    received,
                });
            }
            Ok(Err(error)) => (self.note_difference(&error), Error::Store(error)),
            Err(_) => (false, self.timeout_of(call)),
        };
        if let Some(kind) = kind {
            // It may have taken effect all the same, or a part of it, unless the store has refused
            // it because the instance differs. An amendment counts, so that the next load gives
            // what is loaded to others.
            if !differs {
                self.lost_answer.store(true, Ordering::Release);
            }
            kind.note(self, Some(&error));
        }
        tracing::debug!(namespace = %self.namespace, call, error = %format_args!("{error:#}"), "a call of the store failed");
        Err(error)
    }
}
