//! The calls of an operator on one namespace, whatever the types of its keys and values.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tickwheel_durable::store::{
    Answer, Change, Counts, DeadRows, Inspect, List, LoadWindow, Namespace, PrefixChange,
    PrefixRows, RowPage, Settle, Settled, Settlement, Store, StoreTime, Stored, StoredInstance,
    StoredNamespace, Version, Write, WriteOutcome,
};
use tokio::time::{Instant, timeout};

use crate::failure::Failure;
use crate::shown::from_hex;

/// Released timers that are due are hinted to the instances; how far ahead does not matter.
const NEAR: LoadWindow = LoadWindow::new(Duration::from_secs(1), None);

/// A store, asked with a time limit, and where changes are logged.
#[derive(Clone)]
pub(crate) struct Desk {
    store: Arc<dyn Store>,
    pub(crate) limit: Duration,
    pub(crate) log: Arc<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl Desk {
    /// Logs on standard error.
    pub(crate) fn new(store: Box<dyn Store>, limit: Duration) -> Self {
        Desk {
            store: store.into(),
            limit,
            log: Arc::new(|line| eprintln!("{line}")),
        }
    }

    async fn call<T>(&self, answer: Answer<'_, T>) -> Result<T, Failure> {
        let answered = timeout(self.limit, answer).await;
        Ok(answered.map_err(|_| Failure::timeout(self.limit))??)
    }

    fn inspect(&self) -> &dyn Inspect {
        self.store.inspect()
    }

    /// All namespaces, or the one with that name, if it is there.
    pub(crate) async fn namespaces(
        &self,
        only: Option<&Namespace>,
    ) -> Result<Vec<StoredNamespace>, Failure> {
        let mut all = self.call(self.inspect().namespaces()).await?;
        all.retain(|found| only.is_none_or(|only| *only == found.name));
        Ok(all)
    }

    pub(crate) fn operator(&self, found: &StoredNamespace) -> Operator {
        Operator {
            desk: self.clone(),
            namespace: found.name.clone(),
            codec: found.charter.codec.clone(),
        }
    }
}

/// How a person writes keys and prefixes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum KeyForm {
    /// As they are shown. Strings may be without their quotes.
    #[default]
    Shown,
    /// As they are stored.
    #[cfg_attr(
        not(feature = "program"),
        expect(dead_code, reason = "the page has no field for it")
    )]
    Raw,
    #[cfg_attr(
        not(feature = "program"),
        expect(dead_code, reason = "the page has no field for it")
    )]
    Hex,
}

/// A change of many rows, step by step.
pub(crate) enum Bulk {
    /// Deletes all.
    Purge,
    Waiting(PrefixChange),
    Dead(DeadRows),
    /// Those that were dead at that time: some die again meanwhile.
    DeadSince(Instant),
}

/// What a step has done.
#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) rows: u64,
    pub(crate) in_flight: u64,
    pub(crate) locked: u64,
    pub(crate) more: bool,
}

/// What became of a change of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyChange {
    Done,
    Absent,
    InFlight(Version),
    Locked,
}

/// A namespace of a store.
#[derive(Debug, Clone)]
pub(crate) struct Operator {
    pub(crate) desk: Desk,
    pub(crate) namespace: Namespace,
    pub(crate) codec: String,
}

impl Operator {
    fn store(&self) -> &dyn Store {
        &*self.desk.store
    }

    pub(crate) async fn counts(&self) -> Result<Counts, Failure> {
        self.desk.call(self.store().count(&self.namespace)).await
    }

    pub(crate) async fn instances(&self) -> Result<Vec<StoredInstance>, Failure> {
        let call = self.desk.inspect().instances(&self.namespace);
        self.desk.call(call).await
    }

    pub(crate) async fn count_due(&self, times: Vec<StoreTime>) -> Result<Vec<u64>, Failure> {
        let call = self.desk.inspect().count_due(&self.namespace, times);
        self.desk.call(call).await
    }

    /// A page of timers, which may be shorter.
    pub(crate) async fn list(&self, request: List) -> Result<Vec<Stored>, Failure> {
        let call = self.store().list(&self.namespace, request);
        self.desk.call(call).await
    }

    pub(crate) async fn with_prefix(&self, request: PrefixRows) -> Result<RowPage, Failure> {
        let inspect = self.desk.inspect();
        let call = inspect.rows_with_prefix(&self.namespace, request);
        self.desk.call(call).await
    }

    pub(crate) async fn rows_of(&self, key: Vec<u8>) -> Result<Vec<Stored>, Failure> {
        let call = self.desk.inspect().rows_of(&self.namespace, key);
        self.desk.call(call).await
    }

    /// The stored form of a key as a person writes it: its bytes if it has timers, else the text of
    /// a string of the codec.
    pub(crate) async fn key(&self, key: &str, form: KeyForm) -> Result<Vec<u8>, Failure> {
        let is_stored = form == KeyForm::Shown && !self.rows_of(key.into()).await?.is_empty();
        let mut bytes = self.prefix(key, if is_stored { KeyForm::Raw } else { form })?;
        if form == KeyForm::Shown && !is_stored && self.is_json() {
            bytes.push(b'"');
        }
        Ok(bytes)
    }

    /// The first bytes of keys with a text that begins with this.
    pub(crate) fn prefix(&self, prefix: &str, form: KeyForm) -> Result<Vec<u8>, Failure> {
        match form {
            KeyForm::Hex => from_hex(prefix).ok_or_else(|| {
                Failure::Usage(format!("{prefix:?} is not pairs of hexadecimal digits"))
            }),
            KeyForm::Shown if self.is_json() => {
                let mut quoted = serde_json::Value::from(prefix).to_string();
                quoted.pop();
                Ok(quoted.into())
            }
            KeyForm::Shown | KeyForm::Raw => Ok(prefix.into()),
        }
    }

    fn is_json(&self) -> bool {
        self.codec == "json"
    }

    /// Settles a claim. Returns whether there was one.
    pub(crate) async fn settle(&self, token: Version, how: Settlement) -> Result<bool, Failure> {
        let settles = vec![Settle::new(token, how)];
        let call = self.store().settle(&self.namespace, settles, NEAR);
        match self.desk.call(call).await?[..] {
            [Settled::Lost] => Ok(false),
            [Settled::Locked] => Err(Failure::Failed(format!(
                "a transaction has changed the key of token {} and has not ended",
                token.0
            ))),
            _ => Ok(true),
        }
    }

    /// Changes the waiting timer with this key.
    pub(crate) async fn change_key(
        &self,
        key: Vec<u8>,
        change: Change,
    ) -> Result<KeyChange, Failure> {
        // Nothing changes after the caller has given up.
        let until = self.counts().await?.now.after(self.desk.limit);
        let writes = vec![Write::new(key, change.action())];
        let call = self
            .store()
            .write(&self.namespace, writes, NEAR.until(until));
        Ok(match self.desk.call(call).await?[..] {
            [WriteOutcome::Armed { .. } | WriteOutcome::Removed { .. }] => KeyChange::Done,
            [WriteOutcome::InFlight(token)] => KeyChange::InFlight(token),
            [WriteOutcome::Locked(_)] => KeyChange::Locked,
            _ => KeyChange::Absent,
        })
    }

    /// Makes a step of a change. Dead timers are retried or discarded.
    pub(crate) async fn step(&self, bulk: &mut Bulk, retries: bool) -> Result<Step, Failure> {
        let (store, space) = (self.store(), &self.namespace);
        let dead = match bulk {
            Bulk::Purge => {
                let purged = self.desk.call(store.purge(space)).await?;
                return Ok(rows(purged.rows, purged.more));
            }
            Bulk::Waiting(changes) => {
                let changed = self.desk.call(Box::pin(changes.step(store, space))).await?;
                return Ok(Step {
                    rows: changed.rows,
                    in_flight: changed.in_flight,
                    locked: changed.locked,
                    more: changed.more,
                });
            }
            Bulk::Dead(which) => which.clone(),
            Bulk::DeadSince(time) => DeadRows::OlderThan(time.elapsed()),
        };
        if retries {
            let retried = self.desk.call(store.retry_dead(space, dead)).await?;
            return Ok(rows(retried.rows, retried.more));
        }
        let discarded = self.desk.call(store.discard_dead(space, dead)).await?;
        Ok(rows(discarded.rows, discarded.more))
    }
}

fn rows(rows: u64, more: bool) -> Step {
    Step {
        rows,
        more,
        ..Step::default()
    }
}
