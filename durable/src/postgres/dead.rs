//! Dead rows, which lie in another table: what is not dead costs no more.
//!
//! A retry and a discard hold the locks of the keys, so that they and a write of the same key come
//! one after the other. They leave out keys that a transaction of a user has locked.

use tokio_postgres::Error;
use tokio_postgres::types::ToSql;

use super::lanes::Call;
use super::read::{micros, unsigned};
use super::session::{Parameters, Session};
use super::space::Space;
use super::statements as sql;
use crate::store::{DeadRows, Purged, Retried, StoreError, Version};

/// One step retries or discards so many rows, in some ten milliseconds.
const AT_ONCE: i64 = 1_000;

/// The first of the chosen rows, and whether there are more.
async fn choose(
    session: &Session,
    space: &Space,
    which: &DeadRows,
) -> Result<(Vec<i64>, bool), Error> {
    let (age, limit) = (which_age(which), AT_ONCE + 1);
    let (select, parameter): (_, &(dyn ToSql + Sync)) = match which {
        DeadRows::Token(Version(token)) => return Ok((vec![*token], false)),
        DeadRows::Key(key) => (sql::DEAD_OF_KEY, key),
        DeadRows::OlderThan(_) => (sql::DEAD_BEFORE, &age),
    };
    let rows = session
        .query(select, &[&space.id, parameter, &limit])
        .await?;
    let mut versions: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    let more = versions.len() > usize::try_from(AT_ONCE).unwrap_or(usize::MAX);
    if more {
        versions.pop();
    }
    Ok((versions, more))
}

fn which_age(which: &DeadRows) -> i64 {
    match which {
        DeadRows::OlderThan(age) => micros(*age),
        _ => 0,
    }
}

/// One step of retrying or discarding.
pub(super) struct Changed {
    rows: u64,
    more: bool,
    /// Whether rows were left out because a transaction of a user has locked their keys.
    locked: bool,
}

impl Changed {
    /// The rows and whether there are more.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] when the keys of all rows that are left are locked.
    fn unlocked(self) -> Result<(u64, bool), StoreError> {
        if self.locked && self.rows == 0 {
            let message = "a transaction has changed the keys of dead timers and has not ended";
            return Err(StoreError::unavailable(message));
        }
        Ok((self.rows, self.more || self.locked))
    }

    pub(super) fn retried(self) -> Result<Retried, StoreError> {
        let (rows, more) = self.unlocked()?;
        Ok(Retried { rows, more })
    }

    pub(super) fn discarded(self) -> Result<Purged, StoreError> {
        let (rows, more) = self.unlocked()?;
        Ok(Purged { rows, more })
    }
}

/// Locks the keys of the first of the chosen rows, and changes those whose keys no transaction of a
/// user has locked, by a statement with parameters of its own from `$3` on.
async fn change(
    session: &Session,
    space: &Space,
    which: &DeadRows,
    (change, rest): (&'static str, &Parameters<'_>),
) -> Result<Changed, Error> {
    let (versions, more) = choose(session, space, which).await?;
    let hold: &Parameters<'_> = &[&space.id, &versions];
    let mut parameters: Vec<&(dyn ToSql + Sync)> = hold.to_vec();
    parameters.extend(rest);
    let answers = session
        .transaction(&[(sql::HOLD_DEAD, hold), (change, &parameters)])
        .await?;
    Ok(Changed {
        rows: unsigned(answers[1][0].get(0)),
        more,
        locked: !answers[0].is_empty(),
    })
}

pub(super) struct RetryCall<'a>(pub(super) &'a Space, pub(super) DeadRows);

impl Call for RetryCall<'_> {
    type Answer = Changed;

    async fn run(&self, session: &Session) -> Result<Changed, Error> {
        let RetryCall(space, which) = self;
        change(session, space, which, (sql::RETRY, &[&space.channel])).await
    }
}

pub(super) struct DiscardCall<'a>(pub(super) &'a Space, pub(super) DeadRows);

impl Call for DiscardCall<'_> {
    type Answer = Changed;

    async fn run(&self, session: &Session) -> Result<Changed, Error> {
        let DiscardCall(space, which) = self;
        change(session, space, which, (sql::DISCARD, &[])).await
    }
}
