//! Reads rows and counts them.

use super::arguments::{digits, limit_argument};
use super::reply::Reply;
use super::{Redis, scripts};
use crate::store::{Counts, InstanceId, List, Namespace, State, StoreError, StoreTime, Stored};

/// A list has at most this many rows, which take the server half a millisecond: looks are in no
/// hurry.
pub(super) const LISTED_AT_ONCE: usize = 128;

pub(super) async fn list(
    redis: &Redis,
    namespace: Namespace,
    request: List,
) -> Result<Vec<Stored>, StoreError> {
    let listing = redis.call(&scripts::LIST, &namespace, |command| {
        command
            .arg(state_argument(request.state))
            .arg(limit_argument(request.limit.min(LISTED_AT_ONCE)));
        if let Some((due, version)) = request.after {
            command.arg(due.as_micros()).arg(digits(version));
        }
    });
    listing.await?.all(read_row)
}

pub(super) async fn count(redis: &Redis, namespace: Namespace) -> Result<Counts, StoreError> {
    let counting = redis.call(&scripts::COUNT, &namespace, |_| {});
    let mut reply = counting.await?;
    Ok(Counts {
        now: reply.time()?,
        waiting: reply.count()?,
        in_flight: reply.count()?,
        earliest: Some(reply.int()?)
            .filter(|micros| *micros >= 0)
            .map(StoreTime::from_micros),
        dead: reply.count()?,
        is_estimate: false,
    })
}

pub(super) fn state_argument(state: State) -> &'static str {
    match state {
        State::Waiting => "w",
        State::InFlight => "f",
        State::Dead => "d",
    }
}

pub(super) fn read_row(reply: &mut Reply) -> Result<Stored, StoreError> {
    let (version, due, loader) = (reply.version()?, reply.time()?, reply.int()?);
    let mut row = reply.row()?;
    (row.version, row.due) = (version, due);
    row.schedule = reply.schedule()?.map(|(_, schedule)| schedule);
    row.loaded_by = Some(loader).filter(|id| *id != 0).map(InstanceId);
    Ok(row)
}
