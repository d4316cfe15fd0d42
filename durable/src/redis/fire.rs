//! Fires rows that are due.

use super::arguments::{digits, limit_argument, near_arguments, unknown_argument};
use super::reply::Reply;
use super::{Redis, scripts};
use crate::store::{
    Damaged, Fire, FireReport, Fired, MAX_ATTEMPT, Missed, Namespace, NextOccurrence, Plan,
    StoreError, StoreTime, micros,
};

pub(super) async fn fire(
    redis: &Redis,
    namespace: Namespace,
    request: Fire,
) -> Result<FireReport, StoreError> {
    let firing = redis.call_under(&scripts::FIRE, &namespace, request.near, |command| {
        near_arguments(command, request.near);
        let lease = request.lease.map(|lease| micros(lease).to_string());
        command.arg(lease.unwrap_or_default());
        command.arg(match request.missed {
            Missed::FireAll => "all",
            Missed::FireOnce => "once",
            Missed::Skip => "skip",
        });
        command.arg(limit_argument(request.unloaded));
        command.arg(u8::from(request.no_overlap));
        command.arg(unknown_argument(&request.schedules));
        command.arg(plans_argument(&request.plans));
        command.arg(request.by.map_or(0, |instance| instance.0));
        for &version in &request.versions {
            command.arg(digits(version));
        }
    });
    let mut reply = firing.await?;
    let now = reply.time()?;
    let rest = usize::try_from(reply.count()?).unwrap_or(usize::MAX);
    let more = reply.flag()?;
    let mut fired = reply.numbers()?;
    Ok(FireReport {
        now,
        rest,
        more,
        later: reply.numbers()?.all(Reply::armed)?,
        next: reply.numbers()?.all(Reply::armed)?,
        scheduled: reply.scheduled()?,
        damaged: reply.array()?.all(|damaged| {
            let version = Reply::numbers(damaged)?.version()?;
            let (key, reason) = (damaged.bytes()?, damaged.bytes()?);
            let reason = String::from_utf8_lossy(&reason).into_owned();
            Ok(Damaged {
                version,
                key,
                reason,
            })
        })?,
        fired: fired.all(|fired| read_fired(fired, &mut reply))?,
    })
}

/// How rows with a schedule repeat, as `fire.lua` takes it.
fn plans_argument(plans: &[Plan]) -> String {
    let plans = plans.iter().map(|plan| {
        let NextOccurrence { fires, missed, due } = plan.next;
        let missed = if fires {
            i64::try_from(missed).unwrap_or(StoreTime::NEVER.as_micros())
        } else {
            -1
        };
        let [from, until, due] = [plan.from, plan.until, due].map(StoreTime::as_micros);
        let version = digits(plan.version);
        format!("{version} {from} {until} {due} {missed}")
    });
    plans.collect::<Vec<_>>().join(" ")
}

/// Reads a fired timer from the numbers, and its former row from the rest of the response.
fn read_fired(numbers: &mut Reply, rows: &mut Reply) -> Result<Fired, StoreError> {
    let (token, missed) = (numbers.version()?, numbers.count()?);
    let row = rows.row()?;
    Ok(Fired {
        token,
        repeats: row.repeats(),
        key: row.key,
        value: row.value,
        deadline: row.deadline,
        attempt: row.attempt.saturating_add(1).min(MAX_ATTEMPT),
        missed,
    })
}
