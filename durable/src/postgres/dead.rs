//! Dead rows, which lie in another table: what is not dead costs no more.
//!
//! A retry and a discard hold the locks of the keys, so that they and a write of the same key come
//! one after the other. They leave out keys that a transaction of a user has locked.

use tokio_postgres::types::ToSql;

use super::Postgres;
use super::lanes::Lane;
use super::numbers::unsigned;
use super::session::Parameters;
use super::statements as sql;
use crate::store::{ChangedRows, DeadChange, DeadRows, Namespace, StoreError, Version};

/// One step retries or discards so many rows, in some ten milliseconds.
const AT_ONCE: i64 = 1_000;

/// The first of the chosen rows, and whether there are more.
async fn choose(
    postgres: &Postgres,
    id: i32,
    which: &DeadRows,
) -> Result<(Vec<i64>, bool), StoreError> {
    let until;
    let (select, parameter): (_, &(dyn ToSql + Sync)) = match which {
        DeadRows::Token(Version(token)) => return Ok((vec![*token], false)),
        DeadRows::Key(key) => (sql::DEAD_OF_KEY, key),
        DeadRows::Until(time) => {
            until = time.as_micros();
            (sql::DEAD_UNTIL, &until)
        }
    };
    let parameters: &Parameters<'_> = &[&id, parameter, &(AT_ONCE + 1)];
    let rows = postgres.look(select, parameters).await?;
    let mut versions: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    let more = versions.len() > usize::try_from(AT_ONCE).unwrap_or(usize::MAX);
    if more {
        versions.pop();
    }
    Ok((versions, more))
}

/// Retries or discards some of the dead rows.
pub(super) async fn change_dead(
    postgres: &Postgres,
    namespace: &Namespace,
    which: DeadRows,
    change: DeadChange,
) -> Result<ChangedRows, StoreError> {
    let space = postgres.space(namespace).await?;
    let (versions, more) = choose(postgres, space.id, &which).await?;
    let hold: &Parameters<'_> = &[&space.id, &versions];
    let retry: &Parameters<'_> = &[&space.id, &versions, &space.channel];
    let change = match change {
        DeadChange::Retry => (sql::RETRY, retry),
        DeadChange::Discard => (sql::DISCARD, hold),
    };
    let queries = [(sql::HOLD_DEAD, hold), change];
    let answers = postgres.lanes().transaction(Lane::Admin, &queries).await?;
    let (locked, rows) = (answers[0].len(), unsigned(answers[1][0].get(0)));
    let mut changed = ChangedRows::new(rows, more || locked > 0);
    if locked > 0 && rows == 0 {
        changed.locked = locked as u64;
        changed.more = false;
    }
    Ok(changed)
}
