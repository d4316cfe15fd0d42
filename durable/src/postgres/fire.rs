//! Batches of rows that are to fire.

use std::collections::HashSet;
use std::time::Duration;

use tokio_postgres::Row;

use super::Postgres;
use super::lanes::Lane;
use super::numbers::{limit, time, unsigned};
use super::read::unknown;
use super::session::Parameters;
use super::space::NearParameters;
use super::statements as sql;
use crate::store::{
    ANSWER_BYTES, Armed, Damaged, Fire, FireReport, Fired, MAX_ATTEMPT, Namespace, Scheduled,
    StoreError, StoreTime, Version, micros,
};

/// The shortest and the longest delay before a row is asked for again that another transaction has
/// locked.
const LOCK_RETRY: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

/// When to ask again for a row that is locked. It waits about as long as the row is late, up to a
/// second. The times are multiples of the delay, so that one statement asks for all rows of a
/// transaction.
fn unlocked_at(due: StoreTime, now: StoreTime) -> StoreTime {
    let late = now.as_micros().saturating_sub(due.as_micros());
    let [shortest, longest] = LOCK_RETRY.map(micros);
    let mut delay = shortest;
    while delay * 2 <= late && delay < longest {
        delay *= 2;
    }
    let delay = delay.min(longest);
    StoreTime::from_micros((now.as_micros() / delay + 1) * delay).max(due)
}

pub(super) async fn fire(
    postgres: &Postgres,
    namespace: Namespace,
    request: Fire,
) -> Result<FireReport, StoreError> {
    let space = postgres.space(&namespace).await?;
    let near = NearParameters::from(request.near);
    let mut missing = HashSet::new();
    let versions = request.versions.iter().map(|version| version.0);
    let versions: Vec<_> = versions
        .filter(|&version| missing.insert(version))
        .collect();
    let (from, until, due, missed) = &plans(&request, &versions);
    let lease = request.lease.map(micros);
    let start = postgres.start(space.id);
    let parameters: &Parameters<'_> = &[
        &space.id,
        &near.window,
        &near.loader,
        &space.channel,
        &versions,
        &lease,
        &(request.missed as i32),
        &limit(ANSWER_BYTES),
        &limit(request.unloaded),
        &request.no_overlap,
        from,
        until,
        due,
        missed,
        &unknown(&request.schedules),
        &request.by.map(|instance| instance.0),
        &near.edition,
        &near.until,
        &start.seen,
        &start.waiting,
        &start.lapsed,
        &start.since,
    ];
    let rows = postgres
        .lanes()
        .query(Lane::Fire, sql::FIRE, parameters)
        .await?;
    let mut report = FireReport::at(time(rows[0].get(0)));
    report.more = request.unloaded > 0 && rows[0].get("more");
    let rows_there = rows
        .iter()
        .filter_map(|row| Some((row.get::<_, Option<_>>(1)?, row)));
    for (version, row) in rows_there {
        if !row.get::<_, bool>("room") {
            // It and all after it are left as they are.
            report.more = request.unloaded > 0;
            let first = request.versions.iter().position(|left| left.0 == version);
            let left = &request.versions[first.unwrap_or(request.versions.len())..];
            for version in left {
                missing.remove(&version.0);
            }
            report.rest = left.len();
            break;
        }
        missing.remove(&version);
        if let Some(reason) = row.get::<_, Option<String>>("damage") {
            let (version, key) = (Version(version), row.get("key"));
            report.damaged.push(Damaged {
                version,
                key,
                reason,
            });
            continue;
        }
        add(&mut report, Version(version), row);
    }
    if !missing.is_empty() {
        let missing: Vec<_> = versions
            .into_iter()
            .filter(|v| missing.contains(v))
            .collect();
        add_locked(postgres, space.id, &missing, &mut report).await?;
    }
    Ok(report)
}

/// Adds those of the versions that still exist: another transaction has locked their rows.
async fn add_locked(
    postgres: &Postgres,
    space: i32,
    versions: &[i64],
    report: &mut FireReport,
) -> Result<(), StoreError> {
    let parameters: &Parameters<'_> = &[&space, &versions];
    let locked = postgres
        .lanes()
        .query(Lane::Fire, sql::STILL_THERE, parameters)
        .await?;
    for row in &locked {
        let armed = Armed {
            version: Version(row.get(0)),
            due: unlocked_at(time(row.get(1)), report.now),
            loaded: row.get(2),
        };
        report.later.push(armed);
        add_scheduled(report, armed, row.get(3), row.get(4));
    }
    Ok(())
}

/// From and until when a plan holds, the next time, and how many are missed, or -1 where the row
/// does not fire.
type Plans = (
    Vec<Option<i64>>,
    Vec<Option<i64>>,
    Vec<Option<i64>>,
    Vec<Option<i64>>,
);

/// The plans for a batch of versions, in columns, which are empty if there are none at all.
fn plans(request: &Fire, versions: &[i64]) -> Plans {
    let versions = versions.iter().filter(|_| !request.plans.is_empty());
    let plans = versions.map(|&version| {
        let Some(plan) = request.plan(Version(version)) else {
            return (None, None, None, None);
        };
        let times = [plan.from, plan.until, plan.next.due];
        let [from, until, due] = times.map(|time| Some(time.as_micros()));
        let missed = i64::try_from(plan.next.missed).unwrap_or(i64::MAX);
        let missed = if plan.next.fires { missed } else { -1 };
        (from, until, due, Some(missed))
    });
    plans.collect()
}

/// Adds what the instance has to know of a row that waits, if it has a schedule and is loaded.
fn add_scheduled(report: &mut FireReport, row: Armed, schedule: Option<String>, deadline: i64) {
    if let Some(schedule) = schedule.filter(|_| row.loaded) {
        report.scheduled.push(Scheduled {
            version: row.version,
            deadline: time(deadline),
            schedule,
        });
    }
}

/// Adds one row of the server's response.
fn add(report: &mut FireReport, version: Version, row: &Row) {
    let fires: bool = row.get("fires");
    let next: Option<i64> = row.get("next_version");
    let armed = next.map(|next| Armed {
        version: Version(next),
        due: time(row.get("next_due")),
        loaded: row.get("next_loaded"),
    });
    let unchanged = || Armed {
        version,
        due: time(row.get("due")),
        loaded: row.get("loaded"),
    };
    let waits = armed.or_else(|| (!fires).then(unchanged));
    if let Some(waits) = waits {
        let deadline: Option<i64> = row.get("next_deadline");
        let deadline = deadline.unwrap_or_else(|| row.get("deadline"));
        add_scheduled(report, waits, row.get("schedule"), deadline);
    }
    if !fires {
        report.later.extend(waits);
        return;
    }
    report.fired.push(Fired {
        token: Version(row.get("token")),
        key: row.get("key"),
        value: row.get("value"),
        deadline: StoreTime::from_micros(row.get("deadline")),
        attempt: (row.get::<_, i32>("attempt").unsigned_abs() + 1).min(MAX_ATTEMPT),
        missed: unsigned(row.get("missed")),
        repeats: armed.is_some(),
    });
    report.next.extend(armed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It is asked for the more seldom the later it is, and once a second at least: within that
    /// time it fires when its transaction has ended.
    #[test]
    fn locked_row_is_asked_for_once_a_second_at_least() {
        let now = StoreTime::from_micros(1_795_000_000_123_456);
        let wait = |late: u64| {
            let due = now.before(Duration::from_millis(late));
            unlocked_at(due, now).since(now)
        };
        let [shortest, longest] = LOCK_RETRY;
        for late in [0, 5, 100, 1_000, 60_000, 3_600_000] {
            let wait = wait(late);
            assert!(!wait.is_zero() && wait <= longest, "{wait:?} after {late}");
        }
        assert!(wait(5) <= shortest);
        let early = now.after(longest * 5);
        assert_eq!(unlocked_at(early, now), early, "not before it is due");
    }
}
