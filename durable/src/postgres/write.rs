//! Batches of writes.
//!
//! A statement touches a key once. So a batch is cut where a key comes again, and each round has a
//! statement for each kind of write in it. They share a transaction that first takes the locks of
//! all keys: writes of keys that a transaction of a user has locked are left out. Sets alone, the
//! most frequent batch, are one statement that does both and commits by itself.

use std::collections::HashSet;
use std::hash::Hash;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::Postgres;
use super::lanes::Lane;
use super::numbers::time;
use super::session::Parameters;
use super::space::{NearParameters, Space};
use super::statements as sql;
use crate::store::{
    Action, Armed, Due, Namespace, StoreError, Terms, Version, Write, WriteOutcome, micros,
};

/// Cuts where an item has the name of an earlier one of its round.
pub(super) fn rounds<T, K: Hash + Eq>(
    items: &[T],
    name: impl Fn(&T) -> K,
) -> impl Iterator<Item = &[T]> {
    let mut seen: HashSet<K> = items.first().map(&name).into_iter().collect();
    items.chunk_by(move |_, item| {
        let is_new = seen.insert(name(item));
        if !is_new {
            seen.clear();
            seen.insert(name(item));
        }
        is_new
    })
}

/// A time as parameters: the number, and whether it is relative.
fn due(due: Due) -> (i64, bool) {
    match due {
        Due::In(delay) => (micros(delay), true),
        Due::At(time) => (time.as_micros(), false),
    }
}

/// Keys, values, times, whether these are relative, periods, and schedules.
type Sets<'a> = (
    Vec<&'a [u8]>,
    Vec<&'a [u8]>,
    Vec<i64>,
    Vec<bool>,
    Vec<Option<i64>>,
    Vec<Option<&'a str>>,
);

/// A round of a batch, in columns, by the keys.
#[derive(Default)]
struct Round<'a> {
    writes: Vec<(&'a Write, usize)>,
    set: Sets<'a>,
    set_if_absent: Sets<'a>,
    /// Keys, times, and whether these are relative.
    moved: (Vec<&'a [u8]>, Vec<i64>, Vec<bool>),
    removed: Vec<&'a [u8]>,
    /// The keys of what may leave everything as it is, but for removals.
    conditional: Vec<&'a [u8]>,
}

impl<'a> Round<'a> {
    /// The writes, with the indices of their results.
    fn new(writes: &[(&'a Write, usize)]) -> Self {
        let mut sorted = writes.to_vec();
        sorted.sort_unstable_by_key(|(write, _)| write.key.as_slice());
        let mut round = Round::default();
        for &(write, _) in &sorted {
            let key = write.key.as_slice();
            match &write.action {
                Action::Set {
                    value,
                    due: time,
                    period,
                    schedule,
                    if_absent,
                } => {
                    let sets = if *if_absent {
                        round.conditional.push(key);
                        &mut round.set_if_absent
                    } else {
                        &mut round.set
                    };
                    let (at, relative) = due(*time);
                    let (period, schedule) = (period.map(micros), schedule.as_deref());
                    sets.extend([(key, value.as_slice(), at, relative, period, schedule)]);
                }
                Action::Move { due: time } => {
                    round.conditional.push(key);
                    let (at, relative) = due(*time);
                    round.moved.extend([(key, at, relative)]);
                }
                Action::Remove => round.removed.push(key),
            }
        }
        round.writes = sorted;
        round
    }

    /// The writes, cut into rounds.
    fn cut(writes: &'a [Write]) -> Vec<Self> {
        let writes: Vec<_> = writes.iter().zip(0..).collect();
        let rounds = rounds(&writes, |(write, _)| &write.key);
        rounds.map(Round::new).collect()
    }

    fn find(&self, key: &[u8]) -> (&'a Write, usize) {
        let found = self
            .writes
            .binary_search_by_key(&key, |(write, _)| &write.key);
        self.writes[found.expect("the answer is about a key of the batch")]
    }
}

/// What the rows of a statement mean.
#[derive(Clone, Copy)]
enum Answers {
    Armed,
    Removed,
    RemovedDead,
    Standing,
}

/// A statement, its parameters, and what its rows mean, if it is to have any.
type Query<'a> = (&'static str, Vec<&'a (dyn ToSql + Sync)>, Option<Answers>);

pub(super) async fn write(
    postgres: &Postgres,
    namespace: Namespace,
    writes: Vec<Write>,
    near: Terms,
) -> Result<Vec<WriteOutcome>, StoreError> {
    let mut written = vec![None; writes.len()];
    let space = postgres.space(&namespace).await?;
    send(postgres, &space, &writes, near, &mut written).await?;
    let written = writes.into_iter().zip(written).map(|(write, outcome)| {
        // A transaction of a user has locked its key.
        outcome.unwrap_or(WriteOutcome::Locked(write))
    });
    Ok(written.collect())
}

/// Writes the outcomes of writes, but for those of keys that a transaction of a user has locked.
async fn send(
    postgres: &Postgres,
    space: &Space,
    writes: &[Write],
    near: Terms,
    written: &mut [Option<WriteOutcome>],
) -> Result<(), StoreError> {
    let near = NearParameters::from(near);
    let head: [&(dyn ToSql + Sync); 4] = [&space.id, &near.window, &near.loader, &space.channel];
    let batch = Round::cut(writes);
    if let [round] = &batch[..] {
        if let [(sql::SET, parameters, Some(means))] = &round_queries(round, &head)[..] {
            let terms: [&(dyn ToSql + Sync); 2] = [&near.edition, &near.until];
            let parameters = [&parameters[..], &terms].concat();
            let lanes = postgres.lanes();
            let rows = lanes
                .query(Lane::Write, sql::SET_ALONE, &parameters)
                .await?;
            for row in &rows {
                answer(round, *means, row, written);
            }
            return Ok(());
        }
    }
    let mut keys: Vec<_> = writes.iter().map(|w| w.key.as_slice()).collect();
    keys.sort_unstable();
    keys.dedup();
    if keys.is_empty() {
        return Ok(());
    }
    let if_absent = batch.iter().flat_map(|round| &round.set_if_absent.0);
    let if_absent: Vec<_> = if_absent.copied().collect();
    let mut queries: Vec<(usize, Query<'_>)> = Vec::new();
    if !if_absent.is_empty() {
        let lock: Query<'_> = (sql::LOCK, vec![&space.id, &if_absent], None);
        queries.push((0, lock));
    }
    for (number, round) in batch.iter().enumerate() {
        let of_round = round_queries(round, &head);
        queries.extend(of_round.into_iter().map(|query| (number, query)));
    }
    // The last: the batch has then whatever it has waited for.
    let terms: Query<'_> = (
        sql::TERMS,
        vec![&space.id, &near.edition, &near.until],
        None,
    );
    queries.push((0, terms));
    let hold: &Parameters<'_> = &[&space.id, &keys];
    let mut requests = vec![(sql::HOLD, hold)];
    let of_rounds = queries
        .iter()
        .map(|(_, (sql, parameters, _))| (*sql, &parameters[..]));
    requests.extend(of_rounds);
    let answers = postgres.lanes().transaction(Lane::Write, &requests).await?;
    for ((round, (_, _, means)), rows) in queries.iter().zip(&answers[1..]) {
        if let Some(means) = means {
            for row in rows {
                answer(&batch[*round], *means, row, written);
            }
        }
    }
    // What was seen of these keys may be out of date at once.
    let locked: HashSet<&[u8]> = answers[0].iter().map(|row| row.get(0)).collect();
    for (write, outcome) in writes.iter().zip(written) {
        if locked.contains(&write.key[..]) {
            *outcome = None;
        }
    }
    Ok(())
}

/// The statements of a round. The one that reads what a key has comes before the one that arms it,
/// whose result counts.
fn round_queries<'a>(round: &'a Round<'a>, head: &[&'a (dyn ToSql + Sync); 4]) -> Vec<Query<'a>> {
    let space = head[0];
    let mut queries: Vec<Query<'a>> = Vec::new();
    for (sql, set) in [
        (sql::SET, &round.set),
        (sql::SET_IF_ABSENT, &round.set_if_absent),
    ] {
        let (keys, values, at, relative, periods, schedules) = set;
        if !keys.is_empty() {
            let mut parameters = head.to_vec();
            parameters.extend::<[&'a (dyn ToSql + Sync); 6]>([
                keys, values, at, relative, periods, schedules,
            ]);
            queries.push((sql, parameters, Some(Answers::Armed)));
        }
    }
    let (keys, at, relative) = &round.moved;
    if !keys.is_empty() {
        let mut parameters = head.to_vec();
        parameters.extend::<[&'a (dyn ToSql + Sync); 3]>([keys, at, relative]);
        queries.push((sql::MOVE, parameters, Some(Answers::Armed)));
    }
    if !round.removed.is_empty() {
        let parameters: Vec<&(dyn ToSql + Sync)> = vec![space, &round.removed];
        queries.push((sql::REMOVE, parameters.clone(), Some(Answers::Removed)));
        queries.push((sql::REMOVE_DEAD, parameters, Some(Answers::RemovedDead)));
    }
    if !round.conditional.is_empty() {
        let parameters: Vec<&(dyn ToSql + Sync)> = vec![space, &round.conditional];
        queries.push((sql::STANDING, parameters, Some(Answers::Standing)));
    }
    queries
}

/// Records a row of the server's response. A timer that was armed or removed counts more than what
/// the key has after it.
fn answer(round: &Round<'_>, means: Answers, row: &Row, written: &mut [Option<WriteOutcome>]) {
    let (write, number) = round.find(row.get(0));
    let written = &mut written[number];
    match means {
        Answers::Armed => {
            *written = Some(WriteOutcome::Armed {
                row: Armed {
                    version: Version(row.get(1)),
                    due: time(row.get(2)),
                    loaded: row.get(3),
                },
                replaced: row.get::<_, Option<_>>(4).map(Version),
            });
        }
        Answers::Removed => {
            *written = Some(WriteOutcome::Removed {
                version: Version(row.get(1)),
                value: row.get(2),
            });
        }
        Answers::RemovedDead | Answers::Standing if written.is_some() => {}
        Answers::RemovedDead => {
            let (version, token): (Option<i64>, Option<i64>) = (row.get(1), row.get(3));
            *written = Some(match (version, token) {
                (Some(version), _) => WriteOutcome::Removed {
                    version: Version(version),
                    value: row.get(2),
                },
                (None, Some(token)) => WriteOutcome::InFlight(Version(token)),
                (None, None) => WriteOutcome::Absent,
            });
        }
        Answers::Standing => {
            let (waits, token): (bool, Option<i64>) = (row.get(1), row.get(2));
            let sets = matches!(write.action, Action::Set { .. });
            *written = Some(match token {
                _ if sets && waits => WriteOutcome::Present,
                Some(token) => WriteOutcome::InFlight(Version(token)),
                // The row in flight has been acknowledged meanwhile.
                None if sets => WriteOutcome::Present,
                None => WriteOutcome::Absent,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::rounds;

    #[test]
    fn cuts_where_a_name_comes_again() {
        let cut = |items: &[u8]| -> Vec<Vec<u8>> {
            let rounds = rounds(items, |&item| item);
            rounds.map(<[u8]>::to_vec).collect()
        };
        assert_eq!(cut(&[1, 2, 3]), [vec![1, 2, 3]]);
        assert_eq!(cut(&[1, 2, 1, 2, 2]), [vec![1, 2], vec![1, 2], vec![2]]);
    }
}
