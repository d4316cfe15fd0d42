//! The calls of an operator on one namespace, whatever the types of its keys and values.

use std::sync::Arc;
use std::time::Duration;

use tickwheel_durable::Purged;
use tickwheel_durable::store::{
    Answer, Counts, DeadRows, Inspect, List, LoadWindow, Namespace, PrefixRows, Retried, RowPage,
    Settle, Settled, Settlement, State, Store, StoreTime, Stored, StoredInstance, StoredNamespace,
    Version,
};
use tokio::time::{Instant, sleep, timeout};

use crate::failure::Failure;

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
            codec: found.codec,
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

    /// The rows of a key as a person writes it: its bytes, or the text of a string of the codec.
    pub(crate) async fn find(&self, key: &str) -> Result<Vec<Stored>, Failure> {
        let rows = self.rows_of(key.into()).await?;
        if rows.is_empty() && self.is_json() {
            return self.rows_of(json_string(key).into_bytes()).await;
        }
        Ok(rows)
    }

    /// The first bytes of the keys whose text begins with this.
    pub(crate) fn prefix(&self, prefix: &str) -> Vec<u8> {
        if !self.is_json() {
            return prefix.into();
        }
        let mut quoted = json_string(prefix);
        quoted.pop();
        quoted.into_bytes()
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

    /// The tokens of all claims of a key.
    pub(crate) async fn claims_of(&self, key: &str) -> Result<Vec<Version>, Failure> {
        let rows = self.find(key).await?.into_iter();
        let claims = rows.filter(|row| row.state == State::InFlight);
        Ok(claims.map(|row| row.version).collect())
    }

    pub(crate) async fn retry(&self, which: DeadRows) -> Result<Step, Failure> {
        let call = self.store().retry_dead(&self.namespace, which);
        Ok(self.asked.call(call).await?.into())
    }

    pub(crate) async fn discard(&self, which: DeadRows) -> Result<Step, Failure> {
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

/// Makes steps until there are no more, and reports the rows of each. Half of the time is for other calls.
pub(crate) async fn all_steps<F, Fut>(mut step: F, progress: impl Fn(u64)) -> Result<u64, Failure>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Step, Failure>>,
{
    let mut sum = 0;
    loop {
        let began = Instant::now();
        let Step { rows, more } = step().await?;
        sum += rows;
        progress(rows);
        if !more {
            return Ok(sum);
        }
        sleep(began.elapsed().max(PAUSE)).await;
    }
}

fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// When rows in the list of a state come: the time by which it is ordered.
pub(crate) fn position(row: &Stored) -> (StoreTime, Version) {
    (row.due, row.version)
}
