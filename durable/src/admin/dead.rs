//! Retries and discards of dead timers by an operator.

use std::borrow::Borrow;

use serde::Serialize;

use super::Admin;
use crate::error::Error;
use crate::store::{DeadChange, DeadRows};
use crate::token::Token;

impl<K, V> Admin<K, V> {
    /// Retries the dead timer with this token. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn retry_dead(&self, token: Token) -> Result<bool, Error> {
        self.change_token(token, DeadChange::Retry).await
    }

    /// Retries the dead timers with this key. Returns how many there were: of a repeating timer
    /// each occurrence dies for itself. It goes in steps of some hundreds, so where there are more,
    /// one that dies again meanwhile is retried again.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn retry_dead_key<Q>(&self, key: &Q) -> Result<u64, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        self.change_dead_key(key, DeadChange::Retry).await
    }

    /// Retries all timers that are dead now, those that died first before others. Returns how many
    /// there were.
    ///
    /// After an error, or when the future is dropped, some may have been retried.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn retry_all_dead(&self) -> Result<u64, Error> {
        // One that dies again meanwhile is not retried again.
        self.change_all(DeadChange::Retry).await
    }

    /// Discards the dead timer with this token. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn discard_dead(&self, token: Token) -> Result<bool, Error> {
        self.change_token(token, DeadChange::Discard).await
    }

    /// Discards the dead timers with this key. Returns how many there were.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn discard_dead_key<Q>(&self, key: &Q) -> Result<u64, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        self.change_dead_key(key, DeadChange::Discard).await
    }

    /// Discards all timers that are dead now. Returns how many there were.
    ///
    /// After an error, or when the future is dropped, some may have been discarded.
    ///
    /// # Errors
    ///
    /// See [above](Self).
    pub async fn discard_all_dead(&self) -> Result<u64, Error> {
        self.change_all(DeadChange::Discard).await
    }

    async fn change_token(&self, token: Token, change: DeadChange) -> Result<bool, Error> {
        let Some(core) = self.cores.of_token(token) else {
            return Ok(false);
        };
        let which = DeadRows::Token(token.version);
        Ok(core.change_dead(change, which).await? > 0)
    }

    async fn change_dead_key<Q>(&self, key: &Q, change: DeadChange) -> Result<u64, Error>
    where
        Q: Serialize + ?Sized,
    {
        let key = self.coder.encode_key(&key)?;
        let core = self.cores.of_key(&key);
        core.change_dead(change, DeadRows::Key(key)).await
    }

    async fn change_all(&self, change: DeadChange) -> Result<u64, Error> {
        let mut changed = 0;
        for core in self.cores.iter() {
            let counting = core.calls.ask("count", |store, space| store.count(space));
            let which = DeadRows::Until(counting.await?.now);
            changed += core.change_dead(change, which).await?;
        }
        Ok(changed)
    }
}
