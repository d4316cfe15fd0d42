//! The calls of an operator on one namespace, whatever the types of its keys and values.

use std::sync::Arc;
use std::time::Duration;

use tickwheel_durable::Purged;
use tickwheel_durable::store::{
    Answer, Change, ChangedRows, Counts, DeadRows, Inspect, List, LoadWindow, Namespace,
    PrefixChange, PrefixRows, Retried, RowPage, Settle, Settled, Settlement, Store, StoreTime,
    Stored, StoredInstance, StoredNamespace, Version, Write, WriteOutcome,
};
use tokio::time::{Instant, sleep, timeout};

use crate::args::KeyForm;
use crate::failure::Failure;
use crate::shown::from_hex;

/// Released timers that are due are hinted to the instances; how far ahead does not matter.
const NEAR: LoadWindow = LoadWindow::new(Duration::from_secs(1), None);

/// The shortest pause between two steps, which is for other calls.
const PAUSE: Duration = Duration::from_millis(2);

/// A store, asked with a time limit.
#[derive(Clone)]
pub(crate) struct Asked {
    store: Arc<dyn Store>,
    limit: Duration,
}

impl Asked {
    pub(crate) fn new(store: Box<dyn Store>, limit: Duration) -> Self {
        let store = store.into();
        Asked { store, limit }
    }

    async fn call<T>(&self, answer: Answer<'_, T>) -> Result<T, Failure> {
        let answered = timeout(self.limit, answer).await;
        Ok(answered.map_err(|_| Failure::timeout(self.limit))??)
    }

    fn inspect(&self) -> &dyn Inspect {
        self.store.inspect()
    }

    pub(crate) async fn namespaces(&self) -> Result<Vec<StoredNamespace>, Failure> {
        self.call(self.inspect().namespaces()).await
    }

    /// A namespace that was opened.
    pub(crate) async fn namespace(&self, name: &Namespace) -> Result<Operator, Failure> {
        let mut all = self.namespaces().await?;
        let Some(at) = all.iter().position(|found| found.name == *name) else {
            let names = names(&all);
            return Err(Failure::NotFound(format!(
                "there is no namespace {name}, but {names}"
            )));
        };
        Ok(self.operator(all.swap_remove(at)))
    }

    /// The one that is named, or the only one.
    pub(crate) async fn choose(&self, name: Option<&Namespace>) -> Result<Operator, Failure> {
        if let Some(name) = name {
            return self.namespace(name).await;
        }
        let mut all = self.namespaces().await?;
        match (all.pop(), all.is_empty()) {
            (None, _) => Err(Failure::NotFound("the store has no namespace".to_owned())),
            (Some(only), true) => Ok(self.operator(only)),
            (Some(last), false) => {
                all.push(last);
                Err(Failure::Usage(format!(
                    "name one with --namespace: the store has {}",
                    names(&all)
                )))
            }
        }
    }

    pub(crate) fn operator(&self, found: StoredNamespace) -> Operator {
        Operator {
            asked: self.clone(),
            namespace: found.name,
            codec: found.charter.codec,
        }
    }
}

fn names(all: &[StoredNamespace]) -> String {
    if all.is_empty() {
        return "none".to_owned();
    }
    let names: Vec<_> = all.iter().map(|found| found.name.as_str()).collect();
    names.join(", ")
}

/// A namespace of a store.
#[derive(Clone)]
pub(crate) struct Operator {
    asked: Asked,
    pub(crate) namespace: Namespace,
    pub(crate) codec: String,
}

impl Operator {
    fn store(&self) -> &dyn Store {
        &*self.asked.store
    }

    pub(crate) async fn counts(&self) -> Result<Counts, Failure> {
        self.asked.call(self.store().count(&self.namespace)).await
    }

    pub(crate) async fn instances(&self) -> Result<Vec<StoredInstance>, Failure> {
        let call = self.asked.inspect().instances(&self.namespace);
        self.asked.call(call).await
    }

    pub(crate) async fn count_due(&self, times: Vec<StoreTime>) -> Result<Vec<u64>, Failure> {
        let call = self.asked.inspect().count_due(&self.namespace, times);
        self.asked.call(call).await
    }

    /// A page of timers, which may be shorter.
    pub(crate) async fn list(&self, request: List) -> Result<Vec<Stored>, Failure> {
        let call = self.store().list(&self.namespace, request);
        self.asked.call(call).await
    }

    pub(crate) async fn with_prefix(&self, request: PrefixRows) -> Result<RowPage, Failure> {
        let call = self
            .asked
            .inspect()
            .rows_with_prefix(&self.namespace, request);
        self.asked.call(call).await
    }

    pub(crate) async fn rows_of(&self, key: Vec<u8>) -> Result<Vec<Stored>, Failure> {
        let call = self.asked.inspect().rows_of(&self.namespace, key);
        self.asked.call(call).await
    }

    /// The stored form of a key as a person writes it: its bytes if it has timers, else the text of
    /// a string of the codec.
    pub(crate) async fn key(&self, key: &str, form: KeyForm) -> Result<Vec<u8>, Failure> {
        if form.hex {
            return hex_bytes(key);
        }
        if form.raw || !self.is_json() || !self.rows_of(key.into()).await?.is_empty() {
            return Ok(key.into());
        }
        Ok(json_string(key).into_bytes())
    }

    /// The first bytes of keys with a text that begins with this.
    pub(crate) fn prefix(&self, prefix: &str, form: KeyForm) -> Result<Vec<u8>, Failure> {
        if form.hex {
            return hex_bytes(prefix);
        }
        if form.raw || !self.is_json() {
            return Ok(prefix.into());
        }
        let mut quoted = json_string(prefix);
        quoted.pop();
        Ok(quoted.into_bytes())
    }

    fn is_json(&self) -> bool {
        self.codec == "json"
    }

    /// Settles a claim. Returns whether there was one.
    pub(crate) async fn settle(&self, token: Version, how: Settlement) -> Result<bool, Failure> {
        let settles = vec![Settle::new(token, how)];
        let call = self.store().settle(&self.namespace, settles, NEAR);
        match self.asked.call(call).await?[..] {
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
        let writes = vec![Write::new(key, change.action())];
        let call = self.store().write(&self.namespace, writes, NEAR);
        Ok(match self.asked.call(call).await?[..] {
            [WriteOutcome::Armed { .. } | WriteOutcome::Removed { .. }] => KeyChange::Done,
            [WriteOutcome::InFlight(token)] => KeyChange::InFlight(token),
            [WriteOutcome::Locked(_)] => KeyChange::Locked,
            _ => KeyChange::Absent,
        })
    }

    /// Makes a step of a change of many waiting timers.
    pub(crate) async fn change_prefix(
        &self,
        changes: &mut PrefixChange,
    ) -> Result<ChangedRows, Failure> {
        let step = changes.step(self.store(), &self.namespace);
        self.asked.call(Box::pin(step)).await
    }

    /// Makes a step of retrying or discarding dead timers.
    pub(crate) async fn change_dead(
        &self,
        retries: bool,
        which: DeadRows,
    ) -> Result<Step, Failure> {
        if retries {
            let call = self.store().retry_dead(&self.namespace, which);
            return Ok(self.asked.call(call).await?.into());
        }
        let call = self.store().discard_dead(&self.namespace, which);
        Ok(self.asked.call(call).await?.into())
    }

    pub(crate) async fn purge(&self) -> Result<Step, Failure> {
        Ok(self
            .asked
            .call(self.store().purge(&self.namespace))
            .await?
            .into())
    }
}

/// What became of a change of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyChange {
    Done,
    Absent,
    InFlight(Version),
    Locked,
}

/// A step of a call that changes many rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) rows: u64,
    pub(crate) more: bool,
}

impl From<Retried> for Step {
    fn from(Retried { rows, more, .. }: Retried) -> Self {
        Step { rows, more }
    }
}

impl From<Purged> for Step {
    fn from(Purged { rows, more, .. }: Purged) -> Self {
        Step { rows, more }
    }
}

/// Makes steps until there are no more, and reports the rows of each.
pub(crate) async fn all_steps<F, Fut>(
    mut step: F,
    mut progress: impl FnMut(u64),
) -> Result<(), Failure>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Step, Failure>>,
{
    loop {
        let began = Instant::now();
        let Step { rows, more } = step().await?;
        progress(rows);
        if !more {
            return Ok(());
        }
        pause_since(began).await;
    }
}

/// Pauses for as long as a step took: half of the time is for other calls.
pub(crate) async fn pause_since(began: Instant) {
    sleep(began.elapsed().max(PAUSE)).await;
}

fn hex_bytes(digits: &str) -> Result<Vec<u8>, Failure> {
    from_hex(digits)
        .ok_or_else(|| Failure::Usage(format!("{digits:?} is not pairs of hexadecimal digits")))
}

fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
