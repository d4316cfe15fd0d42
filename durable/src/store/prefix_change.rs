//! Changes of all waiting rows with keys that begin with some bytes.
//!
//! A step lists a page of rows and writes a batch about their keys. Others write meanwhile, and the
//! rows that a step has changed may be listed again. So that each timer is changed once and the
//! steps end:
//!
//! 1. A move goes to one instant, which the first step chooses. A row that is due then already is
//!    left as it is.
//! 2. A store that lists by key lists rows that a step has changed again only if they have the last
//!    key of its page. The next step leaves that key out. This holds for a timer that repeats and
//!    has fired in between, too.

use std::time::Duration;

use tokio::time::Instant;

use super::answers::ChangedRows;
use super::inspect::PrefixRows;
use super::{
    Action, Due, Namespace, State, Store, StoreError, StoreTime, Stored, Terms, Write, WriteOutcome,
};

/// One step changes at most so many rows, which takes a store some milliseconds.
const CHANGED_AT_ONCE: usize = 128;

/// Rows that become due within this long are hinted to the instances. How far ahead does not
/// matter.
const NEAR: Terms = Terms::new(Duration::from_secs(1), None);

/// How long a step may take, unless it is said.
const LIMIT: Duration = Duration::from_secs(5);

/// What an operator does to waiting timers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// Removes them, and with them dead timers of their keys.
    Remove,
    /// Moves them: they are due that long after the call, by the store's clock; in a namespace of
    /// several parts, that long after the call for each part.
    MoveIn(Duration),
    /// Makes them due at once. Of many, those that are due already stay as they are.
    Run,
}

impl Change {
    /// The change of one key, whenever the store makes it.
    pub fn action(self) -> Action {
        match self {
            Change::Remove => Action::Remove,
            Change::MoveIn(delay) => Action::move_to(Due::In(delay)),
            Change::Run => Action::move_to(Due::In(Duration::ZERO)),
        }
    }
}

/// Changes all waiting timers with encoded keys that begin with some bytes, [step](Self::step) by
/// step.
#[derive(Debug, Clone)]
pub struct PrefixChange {
    change: Change,
    request: PrefixRows,
    limit: Duration,
    /// The store's time, and when its answer was there: it may be as late as that.
    clock: Option<(StoreTime, Instant)>,
    /// When moved rows are due.
    to: Option<StoreTime>,
    last_key: Option<Vec<u8>>,
}

impl PrefixChange {
    /// Changes timers with encoded keys that begin with these bytes.
    pub fn new(prefix: impl Into<Vec<u8>>, change: Change) -> Self {
        PrefixChange {
            change,
            request: PrefixRows::new(State::Waiting, prefix.into(), CHANGED_AT_ONCE),
            limit: LIMIT,
            clock: None,
            to: None,
            last_key: None,
        }
    }

    /// How long the caller waits for a step: 5 s unless it is said. What a step has not changed
    /// until then, it never changes.
    #[must_use]
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Makes one step, which takes the store some milliseconds. The caller goes on until there are
    /// no [`more`](ChangedRows::more).
    ///
    /// # Errors
    ///
    /// Those of the store. [`StoreError::Late`] if the step took longer than
    /// [`within`](Self::within) says, or the store's clock has stepped: it can be made again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, or the step fails, it may have changed timers or not. The next
    /// step makes it again.
    pub async fn step(
        &mut self,
        store: &dyn Store,
        namespace: &Namespace,
    ) -> Result<ChangedRows, StoreError> {
        let inspect = store.inspect();
        let began = Instant::now();
        let (now, read_at) = match self.clock {
            Some(clock) => clock,
            None => (store.count(namespace).await?.now, Instant::now()),
        };
        self.clock = Some((now, read_at));
        let left = self.limit.saturating_sub(read_at - began);
        let until = now.after(began - read_at).after(left);
        let action = match self.change {
            Change::Remove => Action::Remove,
            Change::MoveIn(delay) => self.move_to(now.after(delay)),
            Change::Run => self.move_to(now),
        };
        let page = inspect.rows_with_prefix(namespace, self.request.clone());
        let page = page.await?;
        let last_key = page.rows.last().map(|row| row.key.clone());
        let chosen = page.rows.into_iter().filter(|row| self.is_chosen(row));
        let writes: Vec<_> = chosen
            .map(|row| Write::new(row.key, action.clone()))
            .collect();
        let mut changed = ChangedRows {
            more: page.next.is_some(),
            ..ChangedRows::default()
        };
        if !writes.is_empty() {
            let written = store.write(namespace, writes, NEAR.until(until)).await;
            if let Err(StoreError::Late { .. }) = written {
                self.clock = None;
            }
            for outcome in written? {
                match outcome {
                    WriteOutcome::Armed { .. } | WriteOutcome::Removed { .. } => changed.rows += 1,
                    WriteOutcome::InFlight(_) => changed.in_flight += 1,
                    WriteOutcome::Locked(_) => changed.locked += 1,
                    WriteOutcome::Absent | WriteOutcome::Present => {}
                }
            }
        }
        self.request.after = page.next;
        self.last_key = last_key.or_else(|| self.last_key.take());
        Ok(changed)
    }

    /// A move to the instant that the first step has chosen.
    fn move_to(&mut self, first: StoreTime) -> Action {
        let to = *self.to.get_or_insert(first);
        Action::move_to(Due::At(to))
    }

    fn is_chosen(&self, row: &Stored) -> bool {
        let is_there = match (&self.change, self.to) {
            (Change::MoveIn(_), Some(to)) => row.due == to,
            (Change::Run, Some(to)) => row.due <= to,
            _ => false,
        };
        !is_there && self.last_key.as_ref() != Some(&row.key)
    }
}
