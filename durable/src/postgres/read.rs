//! From the server's rows.

use std::time::Duration;

use tokio_postgres::{Error, Row};

use super::lanes::{Call, Lane};
use super::numbers::{attempt, limit, time, unsigned};
use super::session::{Parameters, Session};
use super::space::Space;
use super::statements as sql;
use crate::store::{ANSWER_BYTES, Counts, InstanceId, List, Schedules, State, Stored, Version};

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
        attempt: attempt(row.get(6)),
        period: row
            .get::<_, Option<_>>(7)
            .map(|micros| Duration::from_micros(unsigned(micros))),
        schedule: row.get(11),
        loaded_by: row.get::<_, Option<_>>(8).map(InstanceId),
        claimed_by: row.get::<_, Option<_>>(12).map(InstanceId),
        error: row.get(9),
    }
}

/// The rows under a key, at most so many in each state.
pub(super) struct RowsOf(pub(super) Vec<u8>, pub(super) usize);

impl Call for RowsOf {
    type Answer = Vec<Stored>;

    const LANE: Option<Lane> = None;

    async fn run(&self, session: &Session, space: &Space) -> Result<Vec<Stored>, Error> {
        let RowsOf(key, rows) = self;
        let (rows, bytes) = (limit(*rows), limit(ANSWER_BYTES));
        let rows = session
            .query(sql::ROWS_OF, &[&space.id, key, &rows, &bytes])
            .await?;
        Ok(rows.iter().map(stored).collect())
    }
}

/// Rows in a state.
impl Call for List {
    type Answer = Vec<Stored>;

    const LANE: Option<Lane> = Some(Lane::Admin);

    async fn run(&self, session: &Session, space: &Space) -> Result<Vec<Stored>, Error> {
        let (id, bytes, rows) = (&space.id, limit(ANSWER_BYTES), limit(self.limit));
        let after = self
            .after
            .map(|(due, version)| (due.as_micros(), version.0));
        let (due, version) = after.unwrap_or((-1, 0));
        let in_flight = self.state == State::InFlight;
        let (statement, parameters): (_, &Parameters<'_>) = match self.state {
            State::Dead => (sql::LIST_DEAD, &[id, &due, &version, &rows, &bytes]),
            _ => (sql::LIST, &[id, &due, &version, &rows, &bytes, &in_flight]),
        };
        let rows = session.query(statement, parameters).await?;
        Ok(rows.iter().map(stored).collect())
    }
}

/// So many rows in each state are counted one by one, which takes some ten milliseconds at worst.
const COUNTED: i64 = 10_000;

/// Where there are more, they are counted on about so many pages of the table, of 8 kB each: some
/// 30,000 rows.
const SAMPLED_PAGES: i64 = 500;

/// How many rows there are.
pub(super) struct Count;

impl Call for Count {
    type Answer = Counts;

    const LANE: Option<Lane> = Some(Lane::Admin);

    async fn run(&self, session: &Session, space: &Space) -> Result<Counts, Error> {
        let id = &space.id;
        let rows = session.query(sql::COUNT, &[id, &COUNTED]).await?;
        let row = &rows[0];
        let counted: [i64; 2] = [row.get(1), row.get(2)];
        let mut is_estimate = counted.iter().any(|&rows| rows > COUNTED);
        let [waiting, in_flight] = if is_estimate {
            let sample = session.query(sql::SAMPLE, &[id, &SAMPLED_PAGES]).await?;
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
            let parameters: &Parameters<'_> = &[id, &SAMPLED_PAGES];
            let sample = session.query(sql::SAMPLE_DEAD, parameters).await?;
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
}
