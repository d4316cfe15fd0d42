//! Changes of waiting timers by an operator.

use std::borrow::Borrow;

use serde::Serialize;
use tokio::sync::Mutex;

use super::Admin;
use crate::error::Error;
use crate::instance::in_steps;
use crate::store::{Change, ChangedRows, PrefixChange, StoreError, Write, WriteOutcome};
use crate::token::Token;

/// The result of [`Admin::change_key`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Changed {
    /// It is changed.
    Done,
    /// The key has no timer that waits.
    Absent,
    /// It has fired and is not settled. Nothing was changed.
    InFlight(Token),
}

impl<K, V> Admin<K, V> {
    /// Removes, moves or runs the waiting timer with this key.
    ///
    /// # Errors
    ///
    /// See [above](Self). [`StoreError::Unavailable`] if an
    /// open transaction has changed the key.
    pub async fn change_key<Q>(&self, key: &Q, change: Change) -> Result<Changed, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let key = self.coder.encode_key(&key)?;
        let part = self.cores.part_of(&key);
        let core = self.cores.of_part(part);
        let write = Write::new(key, change.action());
        match core.write_for_operator(write).await?[..] {
            [WriteOutcome::Armed { .. } | WriteOutcome::Removed { .. }] => Ok(Changed::Done),
            [WriteOutcome::InFlight(version)] => Ok(Changed::InFlight(Token { version, part })),
            [WriteOutcome::Locked(_)] => Err(Error::Store(StoreError::locked("the key"))),
            _ => Ok(Changed::Absent),
        }
    }

    /// Removes, moves or runs all waiting timers whose encoded keys begin with some bytes, each
    /// once, in batches with pauses for other calls.
    ///
    /// A key of JSON begins with a quote: `"order 1` finds `order 1` and `order 17`. A timer that
    /// is set meanwhile is changed or not. After an error, or when the future is dropped, some may
    /// be changed.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn change_prefix(
        &self,
        prefix: impl Into<Vec<u8>>,
        change: Change,
    ) -> Result<ChangedRows, Error> {
        let changes = PrefixChange::new(prefix, change);
        let mut sum = ChangedRows::default();
        for core in self.cores.iter() {
            // One step is made at a time.
            let changes = Mutex::new(changes.clone().within(core.settings.call_timeout));
            let step = || async { core.calls.change(&mut *changes.lock().await).await };
            sum = sum.and(in_steps(step).await?);
        }
        Ok(sum)
    }
}
