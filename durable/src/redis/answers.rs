//! Reads what a script returns as answers of the store.

use super::reply::Reply;
use crate::store::{Armed, Fired, InstanceId, Settled, StoreError, Stored, Version, WriteOutcome};

/// Reads the outcome of a write from the numbers, and a removed value from the rest of the response.
pub(super) fn read_written(
    numbers: &mut Reply,
    values: &mut Reply,
) -> Result<WriteOutcome, StoreError> {
    Ok(match numbers.int()? {
        1 => WriteOutcome::Armed {
            row: numbers.armed()?,
            replaced: Some(numbers.version()?).filter(|version| version.0 != 0),
        },
        2 => WriteOutcome::Removed {
            version: numbers.version()?,
            value: values.bytes()?,
        },
        3 => WriteOutcome::Absent,
        4 => WriteOutcome::Present,
        _ => WriteOutcome::InFlight(numbers.version()?),
    })
}

/// Reads a fired timer from the numbers, and its former row from the rest of the response.
pub(super) fn read_fired(numbers: &mut Reply, rows: &mut Reply) -> Result<Fired, StoreError> {
    let (token, missed) = (numbers.version()?, numbers.count()?);
    let row = rows.row()?;
    Ok(Fired {
        token,
        key: row.key,
        value: row.value,
        deadline: row.deadline,
        attempt: row.attempt.saturating_add(1),
        missed,
        repeats: row.repeats,
    })
}

/// The results of one step of a batch. There is at least one, or the batch would never end.
pub(super) fn progress<T>(answers: Vec<T>) -> Result<Vec<T>, StoreError> {
    if answers.is_empty() {
        let error = "the server has answered nothing of a batch";
        return Err(StoreError::refused(error));
    }
    Ok(answers)
}

pub(super) fn read_settled(numbers: &mut Reply) -> Result<Settled, StoreError> {
    Ok(match numbers.version()? {
        Version(-1) => Settled::Lost,
        Version(0) => Settled::Done,
        version => Settled::Armed(Armed {
            version,
            due: numbers.time()?,
            loaded: numbers.flag()?,
        }),
    })
}

pub(super) fn read_row(reply: &mut Reply) -> Result<Stored, StoreError> {
    let (version, due, loader) = (reply.version()?, reply.time()?, reply.int()?);
    let row = reply.row()?;
    Ok(Stored {
        version,
        state: row.state,
        due,
        deadline: row.deadline,
        attempt: row.attempt,
        period: row.period,
        schedule: reply.schedule()?.map(|(_, schedule)| schedule),
        loaded_by: Some(loader).filter(|id| *id > 0).map(InstanceId),
        claimed_by: row.claimed_by,
        key: row.key,
        value: row.value,
        error: row.error,
    })
}
