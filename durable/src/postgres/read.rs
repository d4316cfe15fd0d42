//! From the server's rows.

use std::time::Duration;

use tokio_postgres::Row;

use super::Postgres;
use super::numbers::{limit, time, unsigned};
use super::session::Parameters;
use super::space::Space;
use super::statements as sql;
use crate::store::{
    ANSWER_BYTES, Counts, InstanceId, List, Namespace, Schedules, State, StoreError, Stored,
    Version,
};

/// The schedules that an instance does not know, as the statements take them: null for all.
pub(super) fn unknown(schedules: &Schedules) -> Option<&[String]> {
    match schedules {
        Schedules::None => None,
        Schedules::AllBut(unknown) => Some(unknown),
    }
}

pub(super) fn stored(row: &Row) -> Stored {
    Stored {
        version: Version(row.get(0)),
        state: match (row.get(1), row.get(10)) {
            (_, true) => State::Dead,
            (true, false) => State::InFlight,
            (false, false) => State::Waiting,
        },
        key: row.get(2),
        value: row.get(3),
        due: time(row.get(4)),
        deadline: time(row.get(5)),
        attempt: row.get::<_, i32>(6).unsigned_abs(),
        period: row
            .get::<_, Option<_>>(7)
            .map(|micros| Duration::from_micros(unsigned(micros))),
        schedule: row.get(11),
        loaded_by: row.get::<_, Option<_>>(8).map(InstanceId),
        claimed_by: row.get::<_, Option<_>>(12).map(InstanceId),
        error: row.get(9),
    }
}

/// So many rows in each state are counted one by one, which takes some ten milliseconds at worst.
const COUNTED: i64 = 10_000;

/// Where there are more, they are counted on about so many pages of the table, of 8 kB each: some
/// 30,000 rows.
const SAMPLED_PAGES: i64 = 500;

pub(super) async fn rows_of(
    postgres: &Postgres,
    namespace: Namespace,
    key: Vec<u8>,
    rows: usize,
) -> Result<Vec<Stored>, StoreError> {
    let Space { id, .. } = &*postgres.space(&namespace).await?;
    let parameters: &Parameters<'_> = &[id, &key, &limit(rows), &limit(ANSWER_BYTES)];
    let rows = postgres.lanes().read(sql::ROWS_OF, parameters).await?;
    Ok(rows.iter().map(stored).collect())
}

/// Rows in a state.
pub(super) async fn list(
    postgres: &Postgres,
    namespace: Namespace,
    request: List,
) -> Result<Vec<Stored>, StoreError> {
    let Space { id, .. } = &*postgres.space(&namespace).await?;
    let (bytes, rows) = (limit(ANSWER_BYTES), limit(request.limit));
    let after = request
        .after
        .map(|(due, version)| (due.as_micros(), version.0));
    let (due, version) = after.unwrap_or((-1, 0));
    let in_flight = request.state == State::InFlight;
    let (statement, parameters): (_, &Parameters<'_>) = match request.state {
        State::Dead => (sql::LIST_DEAD, &[id, &due, &version, &rows, &bytes]),
        _ => (sql::LIST, &[id, &due, &version, &rows, &bytes, &in_flight]),
    };
    let rows = postgres.look(statement, parameters).await?;
    Ok(rows.iter().map(stored).collect())
}

/// How many rows there are.
pub(super) async fn count(postgres: &Postgres, namespace: Namespace) -> Result<Counts, StoreError> {
    let Space { id, .. } = &*postgres.space(&namespace).await?;
    let rows = postgres.look(sql::COUNT, &[id, &COUNTED]).await?;
    let row = &rows[0];
    let counted: [i64; 2] = [row.get(1), row.get(2)];
    let mut is_estimate = counted.iter().any(|&rows| rows > COUNTED);
    let sampled: &Parameters<'_> = &[id, &SAMPLED_PAGES];
    let [waiting, in_flight] = if is_estimate {
        let sample = postgres.look(sql::SAMPLE, sampled).await?;
        let estimates: [i64; 2] = [sample[0].get(0), sample[0].get(1)];
        [0, 1].map(|state| match counted[state] {
            // There were more when they were counted.
            rows if rows > COUNTED => estimates[state].max(rows),
            rows => rows,
        })
    } else {
        counted
    };
    let mut dead: i64 = row.get(4);
    if dead > COUNTED {
        let sample = postgres.look(sql::SAMPLE_DEAD, sampled).await?;
        dead = dead.max(sample[0].get(0));
        is_estimate = true;
    }
    Ok(Counts {
        now: time(row.get(0)),
        waiting: unsigned(waiting),
        in_flight: unsigned(in_flight),
        dead: unsigned(dead),
        earliest: row.get::<_, Option<_>>(3).map(time),
        is_estimate,
    })
}
