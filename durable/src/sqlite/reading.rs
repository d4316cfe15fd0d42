//! How rows are read, and what looks see.

use std::time::{Duration, SystemTime};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use crate::store::{
    AnswerSize, Counts, InstanceId, List, MAX_ATTEMPT, State, StoreTime, Stored, Version,
};

type Result<T> = rusqlite::Result<T>;

/// The columns of [`read`]. A state is its number in [`State`].
pub(super) const COLUMNS: &str = "version, state, key, value, due, deadline, attempt, period, loaded_by, error, schedule, claimed_by FROM tickwheel_timers";

/// Selects the rows of a key in a state, from the latest on.
pub(super) fn of_key(state: State) -> String {
    let state = state as i64;
    format!(
        "SELECT {COLUMNS} WHERE namespace = ?1 AND key = ?2 AND state = {state} ORDER BY version DESC LIMIT ?3"
    )
}

/// The rows of a key, at most so many in each state.
pub(super) fn rows_of(
    connection: &Connection,
    namespace: i64,
    key: &[u8],
    limit: usize,
) -> Result<Vec<Stored>> {
    let limit = number(limit);
    let mut rows = Vec::new();
    for state in [State::Waiting, State::InFlight, State::Dead] {
        let mut select = connection.prepare_cached(&of_key(state))?;
        let found = select.query_map((namespace, key, limit), read)?;
        rows.push(AnswerSize::page(found)?);
    }
    AnswerSize::page(rows.into_iter().flatten().map(Ok))
}

/// The loaders that rows of a namespace may name: none, and each instance that counts as living.
pub(super) fn loaders(connection: &Connection, namespace: i64) -> Result<Vec<Option<i64>>> {
    let sql = "SELECT NULL UNION ALL SELECT id FROM tickwheel_instances WHERE namespace = ?1";
    let mut select = connection.prepare_cached(sql)?;
    let loaders = select.query_map([namespace], |row| row.get(0))?;
    loaders.collect()
}

/// A page of rows. The index has the rows of each loader in order, so the page is among the first
/// of each.
pub(super) fn list(connection: &Connection, namespace: i64, request: List) -> Result<Vec<Stored>> {
    let (due, Version(version)) = request.after.unwrap_or((StoreTime::default(), Version(-1)));
    let (state, limit) = (request.state as i64, number(request.limit));
    let mut page: Vec<(i64, i64)> = Vec::new();
    // Those due at the same time have a query of their own: SQLite would read all of them
    // otherwise.
    for rest in [
        "due = ?4 AND version > ?5 ORDER BY version LIMIT ?6",
        "due > ?4 ORDER BY due, version LIMIT ?6",
    ] {
        let sql = format!(
            "SELECT due, version FROM tickwheel_timers
            WHERE namespace = ?1 AND state = ?2 AND loaded_by IS ?3 AND {rest}"
        );
        let mut select = connection.prepare_cached(&sql)?;
        for loader in loaders(connection, namespace)? {
            let rows = select.query_map(
                (namespace, state, loader, due.as_micros(), version, limit),
                |row| Ok((row.get(0)?, row.get(1)?)),
            )?;
            for row in rows {
                page.push(row?);
            }
        }
    }
    page.sort_unstable();
    page.truncate(request.limit);
    let mut select = connection.prepare_cached(&format!("SELECT {COLUMNS} WHERE version = ?1"))?;
    let versions = page.into_iter();
    AnswerSize::page(versions.map(|(_, version)| select.query_row([version], read)))
}

/// How many rows there are, as the calls have counted them.
pub(super) fn count(connection: &Connection, namespace: i64) -> Result<Counts> {
    let sql = "SELECT waiting, in_flight, dead FROM tickwheel_namespaces WHERE id = ?1";
    let mut select = connection.prepare_cached(sql)?;
    let counts = select.query_row([namespace], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    })?;
    let (waiting, in_flight, dead): (i64, i64, i64) = counts;
    let sql = "SELECT min(due) FROM tickwheel_timers
        WHERE namespace = ?1 AND state = ?2 AND loaded_by IS ?3";
    let mut select = connection.prepare_cached(sql)?;
    let mut earliest: Option<i64> = None;
    for loader in loaders(connection, namespace)? {
        let due: Option<i64> =
            select.query_row((namespace, State::Waiting as i64, loader), |row| row.get(0))?;
        earliest = earliest.into_iter().chain(due).min();
    }
    Ok(Counts {
        now: now(),
        waiting: waiting.unsigned_abs(),
        in_flight: in_flight.unsigned_abs(),
        dead: dead.unsigned_abs(),
        earliest: earliest.map(StoreTime::from_micros),
        is_estimate: false,
    })
}

/// The store's time.
pub(super) fn now() -> StoreTime {
    SystemTime::now().into()
}

pub(super) fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub(super) fn time(row: &Row<'_>, column: usize) -> Result<StoreTime> {
    Ok(StoreTime::from_micros(row.get(column)?))
}

/// The text of a column, as far as it is one.
pub(super) fn text(row: &Row<'_>, column: usize) -> Result<Option<String>> {
    let text = row.get_ref(column)?.as_bytes_or_null()?;
    Ok(text.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}

/// What a row can be read as, whatever it holds.
pub(super) fn read(row: &Row<'_>) -> Result<Stored> {
    let attempt: i64 = row.get(6)?;
    let period: Option<i64> = row.get(7)?;
    let loaded_by: Option<i64> = row.get(8)?;
    let claimed_by: Option<i64> = row.get(11)?;
    Ok(Stored {
        version: Version(row.get(0)?),
        state: match row.get(1)? {
            0 => State::Waiting,
            1 => State::InFlight,
            _ => State::Dead,
        },
        key: row.get(2)?,
        value: row.get(3)?,
        due: time(row, 4)?,
        deadline: time(row, 5)?,
        attempt: u32::try_from(attempt.clamp(0, MAX_ATTEMPT.into())).unwrap_or(0),
        period: period.map(|micros| Duration::from_micros(micros.unsigned_abs())),
        loaded_by: loaded_by.map(InstanceId),
        error: text(row, 9)?,
        schedule: text(row, 10)?,
        claimed_by: claimed_by.map(InstanceId),
    })
}

/// What a row holds that no store writes, if it does. The table has [checks](super::schema) of the
/// same.
pub(super) fn damage(row: &Row<'_>) -> Result<Option<String>> {
    let never = StoreTime::NEVER.as_micros();
    for (column, name, sound) in [
        (4, "due", 0..=never),
        (5, "deadline", 0..=never),
        (6, "attempt", 0..=MAX_ATTEMPT.into()),
        (7, "period", 1..=never),
    ] {
        let value: Option<i64> = row.get(column)?;
        if let Some(value) = value.filter(|value| !sound.contains(value)) {
            return Ok(Some(format!(
                "its {name} is {value}, which no store writes"
            )));
        }
    }
    let (period, schedule) = (row.get_ref(7)?, row.get_ref(10)?.as_bytes_or_null()?);
    if period != ValueRef::Null && schedule.is_some() {
        return Ok(Some("it has a period and a schedule".to_owned()));
    }
    let is_text = schedule.is_none_or(|text| std::str::from_utf8(text).is_ok());
    Ok((!is_text).then(|| "its schedule is no text".to_owned()))
}
