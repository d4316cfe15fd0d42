//! Dead rows, which lie in another table: what is not dead costs no more.
//!
//! A retry and a discard hold the locks of the keys, so that they and a write of the same key come
//! one after the other. They leave out keys that a transaction of a user has locked.

use super::Postgres;
use super::lanes::Lane;
use super::numbers::{limit, unsigned};
use super::session::Parameters;
use super::statements as sql;
use crate::store::{ChangedRows, DeadChange, DeadRows, Namespace, StoreError, Version};

/// One step retries or discards so many rows, in some ten milliseconds.
const AT_ONCE: usize = 1_000;

/// A batch tries so many keys one by one: see [`statements`](super::statements).
const SINGLE_KEYS: usize = 64;

/// When a row died, and its version.
type Place = (i64, i64);

/// The first of the chosen rows after a place.
async fn choose(
    postgres: &Postgres,
    id: i32,
    which: &DeadRows,
    (died, version): Place,
    rows: usize,
) -> Result<Vec<Place>, StoreError> {
    let rows = limit(rows);
    let rows = match which {
        DeadRows::Token(Version(token)) => return Ok(vec![(died, *token)]),
        DeadRows::Key(key) => {
            let parameters: &Parameters<'_> = &[&id, key, &rows, &version];
            postgres.look(sql::DEAD_OF_KEY, parameters).await?
        }
        DeadRows::Until(time) => {
            let until = time.as_micros();
            let parameters: &Parameters<'_> = &[&id, &until, &rows, &version, &died];
            postgres.look(sql::DEAD_UNTIL, parameters).await?
        }
    };
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// Retries or discards some of the dead rows.
///
/// Goes on until it has changed some, or has found all of them locked. A batch takes keys for
/// locked that only share their locks with such keys, but for the first ones. So after a page of
/// these it goes on by smaller ones.
pub(super) async fn change_dead(
    postgres: &Postgres,
    namespace: Namespace,
    which: DeadRows,
    change: DeadChange,
) -> Result<ChangedRows, StoreError> {
    let space = postgres.space(&namespace).await?;
    let (mut at_once, mut after, mut locked) = (AT_ONCE, (-1, 0), 0);
    loop {
        let mut page = choose(postgres, space.id, &which, after, at_once + 1).await?;
        let more = page.len() > at_once;
        page.truncate(at_once);
        let versions: Vec<i64> = page.iter().map(|&(_, version)| version).collect();
        let hold: &Parameters<'_> = &[&space.id, &versions];
        let retry: &Parameters<'_> = &[&space.id, &versions, &space.channel];
        let change = match change {
            DeadChange::Retry => (sql::RETRY, retry),
            DeadChange::Discard => (sql::DISCARD, hold),
        };
        let queries = [(sql::HOLD_DEAD, hold), change];
        let answers = postgres.lanes().transaction(Lane::Admin, &queries).await?;
        let (held, rows) = (answers[0].len(), unsigned(answers[1][0].get(0)));
        if rows > 0 {
            return Ok(ChangedRows::new(rows, more || locked + held > 0));
        }
        if held > SINGLE_KEYS {
            at_once = SINGLE_KEYS;
            continue;
        }
        locked += held;
        match page.last() {
            Some(&last) if more => after = last,
            _ => {
                let mut changed = ChangedRows::new(0, false);
                changed.locked = locked as u64;
                return Ok(changed);
            }
        }
    }
}
