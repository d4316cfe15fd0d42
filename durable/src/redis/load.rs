//! Loads rows that are due soon.

use super::arguments::{limit_argument, unknown_argument};
use super::{Redis, scripts};
use crate::store::{Load, Loaded, Namespace, Receipt, StoreError, StoreTime, Terms, micros};

/// A load returns at most this many rows. A script blocks the server, so several short ones let
/// other calls run in between, such as those that fire due timers.
const LOADED_AT_ONCE: usize = 1024;

pub(super) async fn load(
    redis: &Redis,
    namespace: Namespace,
    request: Load,
) -> Result<Loaded, StoreError> {
    let limit = request.limit.min(LOADED_AT_ONCE);
    let terms = Terms::NONE.under(request.edition);
    let loading = redis.call_on(&scripts::LOAD, &namespace, terms, |command| {
        command.arg(request.instance.0).arg(micros(request.window));
        command
            .arg(limit_argument(limit))
            .arg(micros(request.alive));
        command.arg(limit_argument(request.wanted.min(limit)));
        command.arg(unknown_argument(&request.schedules));
        command.arg(request.name.as_deref().unwrap_or_default());
    });
    let (mut reply, connection) = loading.await?;
    let now = reply.time()?;
    let stored = Some(reply.time()?).filter(|until| *until > StoreTime::default());
    let receipt = Receipt {
        alive_until: reply.time()?,
        connection,
    };
    Ok(Loaded {
        now,
        receipt,
        continuity: Receipt::compare(request.last, stored, now, connection),
        more: reply.flag()?,
        others_lack: usize::try_from(reply.count()?).unwrap_or(usize::MAX),
        rows: reply
            .numbers()?
            .all(|numbers| Ok((numbers.version()?, numbers.time()?)))?,
        scheduled: reply.scheduled()?,
        again: false,
        oldest_snapshot: None,
    })
}
