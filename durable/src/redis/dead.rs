//! Retries and discards dead rows.

use ::redis::Cmd;

use super::arguments::{digits, limit_argument, near_arguments, span};
use super::{Redis, scripts};
use crate::store::{DeadRows, LoadWindow, Namespace, Purged, Retried, StoreError};

/// One step retries or discards at most this many dead rows, which takes the server some
/// milliseconds.
const BURIED_AT_ONCE: usize = 256;

pub(super) async fn retry(
    redis: &Redis,
    namespace: &Namespace,
    which: DeadRows,
) -> Result<Retried, StoreError> {
    let (rows, more) = bury(redis, namespace, "retry", &which).await?;
    Ok(Retried { rows, more })
}

pub(super) async fn discard(
    redis: &Redis,
    namespace: &Namespace,
    which: DeadRows,
) -> Result<Purged, StoreError> {
    let (rows, more) = bury(redis, namespace, "discard", &which).await?;
    Ok(Purged { rows, more })
}

/// Retries or discards dead rows. Returns how many, and whether there are more.
async fn bury(
    redis: &Redis,
    namespace: &Namespace,
    op: &str,
    which: &DeadRows,
) -> Result<(u64, bool), StoreError> {
    let burying = redis.run(&scripts::BURY, namespace, |command| {
        dead_arguments(command, op, BURIED_AT_ONCE, which);
    });
    let mut reply = burying.await?;
    Ok((reply.count()?, reply.flag()?))
}

/// Tells `bury.lua` which dead rows to change, and how.
fn dead_arguments(command: &mut Cmd, op: &str, limit: usize, which: &DeadRows) {
    near_arguments(command, LoadWindow::NONE);
    command.arg(op).arg(limit_argument(limit));
    match which {
        DeadRows::Token(token) => command.arg("token").arg(digits(*token)),
        DeadRows::Key(key) => command.arg("key").arg(key),
        DeadRows::OlderThan(age) => command.arg("older").arg(span(*age)),
    };
}
