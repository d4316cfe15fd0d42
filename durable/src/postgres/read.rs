//! From the server's rows and to its numbers.

use std::time::Duration;

use tokio_postgres::{Error, Row};

use super::lanes::Call;
use super::session::Session;
use super::space::Space;
use super::statements as sql;
use crate::store::{Counts, InstanceId, List, State, StoreTime, Stored, Version};

/// Microseconds, rounded up, and few enough for sums.
pub(super) fn micros(duration: Duration) -> i64 {
    crate::store::micros(duration).min(StoreTime::NEVER.as_micros())
}

pub(super) fn time(micros: i64) -> StoreTime {
    StoreTime::from_micros(micros)
}

/// A count for the server, small enough to add one.
pub(super) fn limit(limit: usize) -> i64 {
    i64::from(u32::try_from(limit).unwrap_or(u32::MAX))
}

/// A count from the server.
pub(super) fn unsigned(number: i64) -> u64 {
    number.unsigned_abs()
}

fn stored(row: &Row) -> Stored {
    Stored {
        version: Version(row.get(0)),
        state: if row.get(1) {
            State::InFlight
        } else {
            State::Waiting
        },
        key: row.get(2),
        value: row.get(3),
        due: time(row.get(4)),
        deadline: time(row.get(5)),
        attempt: attempt(row.get(6)),
        period: row
            .get::<_, Option<_>>(7)
            .map(|micros| Duration::from_micros(unsigned(micros))),
        loaded_by: row.get::<_, Option<_>>(8).map(InstanceId),
    }
}

pub(super) fn attempt(attempt: i32) -> u32 {
    attempt.unsigned_abs()
}

/// The row under a key.
pub(super) struct GetCall<'a>(pub(super) &'a Space, pub(super) Vec<u8>);

impl Call for GetCall<'_> {
    type Answer = Option<Stored>;

    async fn run(&self, session: &Session) -> Result<Option<Stored>, Error> {
        let rows = session.query(sql::GET, &[&self.0.id, &self.1]).await?;
        Ok(rows.first().map(stored))
    }
}

/// Rows in a state.
pub(super) struct ListCall<'a>(pub(super) &'a Space, pub(super) List);

impl Call for ListCall<'_> {
    type Answer = Vec<Stored>;

    async fn run(&self, session: &Session) -> Result<Vec<Stored>, Error> {
        let ListCall(space, request) = self;
        let in_flight = request.state == State::InFlight;
        let (due, version) = request
            .after
            .map_or((-1, 0), |(due, version)| (due.as_micros(), version.0));
        let rows = session
            .query(
                sql::LIST,
                &[&space.id, &in_flight, &due, &version, &limit(request.limit)],
            )
            .await?;
        Ok(rows.iter().map(stored).collect())
    }
}

/// How many rows there are.
pub(super) struct CountCall<'a>(pub(super) &'a Space);

impl Call for CountCall<'_> {
    type Answer = Counts;

    async fn run(&self, session: &Session) -> Result<Counts, Error> {
        let rows = session.query(sql::COUNT, &[&self.0.id]).await?;
        let row = &rows[0];
        Ok(Counts {
            now: time(row.get(0)),
            waiting: unsigned(row.get(1)),
            in_flight: unsigned(row.get(2)),
            earliest: row.get::<_, Option<_>>(3).map(time),
        })
    }
}
