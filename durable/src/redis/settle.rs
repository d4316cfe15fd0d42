//! Settles claims.

use std::time::Duration;

use ::redis::Cmd;

use super::arguments::{digits, near_arguments};
use super::reply::{Reply, progress};
use super::{Redis, scripts};
use crate::store::{
    Armed, Namespace, Settle, Settled, Settlement, StoreError, Terms, Version, micros,
};

/// Settles claims, in batches that the script bounds.
pub(super) async fn settle(
    redis: &Redis,
    namespace: Namespace,
    settles: Vec<Settle>,
    near: Terms,
) -> Result<Vec<Settled>, StoreError> {
    let mut settled = Vec::with_capacity(settles.len());
    while settled.len() < settles.len() {
        let rest = &settles[settled.len()..];
        let settling = redis.call(&scripts::SETTLE, &namespace, |command| {
            near_arguments(command, near);
            settle_arguments(command, rest);
        });
        settled.extend(progress(settling.await?.numbers()?.all(read_settled)?)?);
    }
    Ok(settled)
}

/// The claims, which of them are not acknowledged but settled otherwise, and how, as `settle.lua`
/// takes it.
fn settle_arguments(command: &mut Cmd, settles: &[Settle]) {
    let mut errors = 0;
    let otherwise = settles.iter().enumerate().filter_map(|(at, settle)| {
        let (settlement, delay) = match settle.settlement {
            Settlement::Ack => return None,
            Settlement::Extend(lease) => ("extend", lease),
            Settlement::RetryAfter(delay) => ("retry_after", delay),
            Settlement::Release => ("release", Duration::ZERO),
            Settlement::Unfire => ("unfire", Duration::ZERO),
            Settlement::Leave(left) => ("leave", left.pause),
            Settlement::Dead => ("die", Duration::ZERO),
        };
        errors += usize::from(settle.error.is_some());
        let error = settle.error.as_ref().map_or(0, |_| errors);
        let left = match settle.settlement {
            Settlement::Leave(left) => format!(":{}:{}", left.by.left().0, micros(left.alive)),
            _ => String::new(),
        };
        Some(format!("{at} {settlement} {} {error}{left}", micros(delay)))
    });
    command.arg(otherwise.collect::<Vec<_>>().join(" "));
    command.arg(settles.len());
    for settle in settles {
        command.arg(digits(settle.token));
    }
    let others = settles
        .iter()
        .filter(|settle| settle.settlement != Settlement::Ack);
    for error in others.filter_map(|settle| settle.error.as_ref()) {
        command.arg(error);
    }
}

fn read_settled(numbers: &mut Reply) -> Result<Settled, StoreError> {
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
