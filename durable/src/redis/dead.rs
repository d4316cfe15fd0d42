//! Retries and discards dead rows.

use super::arguments::{digits, limit_argument, near_arguments};
use super::{Redis, scripts};
use crate::store::{ChangedRows, DeadChange, DeadRows, Namespace, StoreError, Terms};

/// One step retries or discards at most this many dead rows, which takes the server some
/// milliseconds.
const CHANGED_AT_ONCE: usize = 256;

pub(super) async fn change(
    redis: &Redis,
    namespace: Namespace,
    which: DeadRows,
    change: DeadChange,
) -> Result<ChangedRows, StoreError> {
    let changing = redis.call(&scripts::CHANGE_DEAD, &namespace, |command| {
        near_arguments(command, Terms::NONE);
        command.arg(match change {
            DeadChange::Retry => "retry",
            DeadChange::Discard => "discard",
        });
        command.arg(limit_argument(CHANGED_AT_ONCE));
        match &which {
            DeadRows::Token(token) => command.arg("token").arg(digits(*token)),
            DeadRows::Key(key) => command.arg("key").arg(key),
            DeadRows::Until(time) => command.arg("until").arg(time.as_micros()),
        };
    });
    let mut reply = changing.await?;
    Ok(ChangedRows::new(reply.count()?, reply.flag()?))
}
