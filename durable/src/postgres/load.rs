//! Loading, unloading and purging.

use std::time::Duration;

use super::Postgres;
use super::charter::NO_NAMESPACE;
use super::lanes::Lane;
use super::numbers::{limit, time, unsigned};
use super::place::{Seen, Start};
use super::read::unknown;
use super::session::Parameters;
use super::space::{Space, edition};
use super::statements as sql;
use crate::store::{
    ChangedRows, Continuity, InstanceId, Load, Loaded, Namespace, Receipt, Scheduled, StoreError,
    Version, micros,
};

/// One step of a purge deletes so many rows in each state. It takes some ten milliseconds, in which
/// sets of these keys wait.
const PURGED_AT_ONCE: i64 = 2_000;

/// How many marks of ended ids a call takes away.
const UNLOADED_AT_ONCE: i64 = 1_024;

pub(super) async fn load(
    postgres: &Postgres,
    namespace: Namespace,
    request: Load,
) -> Result<Loaded, StoreError> {
    let space = postgres.space(&namespace).await?;
    let InstanceId(instance) = request.instance;
    let start = postgres.start(space.id);
    let Start {
        backend,
        seen,
        waiting,
        lapsed,
        since,
        is_thorough,
        is_whole,
    } = &start;
    let queries: &[(_, &Parameters<'_>)] = &[
        (
            sql::ALIVE,
            &[
                &space.id,
                &instance,
                &micros(request.alive),
                &space.channel,
                &edition(request.edition),
                &request.name,
                is_thorough,
                is_whole,
                &UNLOADED_AT_ONCE,
            ],
        ),
        (
            sql::LOAD,
            &[
                &space.id,
                &instance,
                &micros(request.window),
                &limit(request.limit),
                &limit(request.wanted),
                &unknown(&request.schedules),
                backend,
                seen,
                waiting,
                lapsed,
                since,
            ],
        ),
        (
            sql::PLACE,
            &[&space.id, backend, seen, waiting, lapsed, since],
        ),
    ];
    let loading = postgres.lanes().transaction_on(Lane::Load, queries);
    let (answers, on) = loading.await?;
    let (alive, rows) = (&answers[0][0], &answers[1]);
    let now = time(rows[0].get(0));
    let stored = alive.get::<_, Option<i64>>("stored").map(time);
    let receipt = Receipt {
        alive_until: time(alive.get("alive_until")),
        connection: on.number(),
    };
    let continuity = Receipt::compare(request.last, stored, now, receipt.connection);
    if continuity == Continuity::Kept {
        postgres.place(space.id, Seen::new(alive, rows[0].get(0), &answers[2][0]));
    } else {
        postgres.forget_place(space.id);
    }
    let oldest = alive.get::<_, Option<i64>>("snapshot").map(unsigned);
    let is_step = alive.get("is_step");
    let inner = &postgres.inner;
    inner.hints.queue_is(alive.get("is_deaf"), &inner.target);
    let loaded = rows.iter().filter_map(|row| {
        let version: Option<i64> = row.get(3);
        version.map(|version| (Version(version), time(row.get(4))))
    });
    let scheduled = rows.iter().filter_map(|row| {
        Some(Scheduled {
            schedule: row.get::<_, Option<_>>("schedule")?,
            version: Version(row.get(3)),
            deadline: time(row.get("deadline")),
        })
    });
    Ok(Loaded {
        now,
        receipt,
        continuity,
        more: rows[0].get::<_, bool>(1) || is_step,
        others_lack: usize::try_from(rows[0].get::<_, i64>(2)).unwrap_or(0),
        rows: loaded.collect(),
        scheduled: scheduled.collect(),
        again: is_step || alive.get("again"),
        oldest_snapshot: oldest.map(Duration::from_micros),
    })
}

pub(super) async fn unload(
    postgres: &Postgres,
    namespace: Namespace,
    InstanceId(instance): InstanceId,
) -> Result<InstanceId, StoreError> {
    // What the server has lost has no rows. The id ends all the same: the next load opens it again.
    let found = postgres.find(&namespace).await?;
    let (id, channel) = found.map_or((NO_NAMESPACE, String::new()), |space| {
        (space.id, space.channel.clone())
    });
    let parameters: &Parameters<'_> = &[&id, &instance, &channel, &UNLOADED_AT_ONCE];
    let unloading = postgres.lanes().query(Lane::Load, sql::UNLOAD, parameters);
    Ok(InstanceId(unloading.await?[0].get(0)))
}

/// Leaves rows to others.
pub(super) async fn unmark(
    postgres: &Postgres,
    namespace: Namespace,
    InstanceId(instance): InstanceId,
    versions: Vec<Version>,
) -> Result<Vec<Version>, StoreError> {
    let space = postgres.space(&namespace).await?;
    let versions: Vec<i64> = versions.iter().map(|version| version.0).collect();
    let queries: &[(_, &Parameters<'_>)] = &[
        (
            sql::UNMARK,
            &[&space.id, &instance, &space.channel, &versions],
        ),
        (sql::STILL_MARKED, &[&space.id, &instance, &versions]),
    ];
    let answers = postgres.lanes().transaction(Lane::Load, queries).await?;
    let left = answers[1].iter().map(|row| Version(row.get(0)));
    Ok(left.collect())
}

pub(super) async fn purge(
    postgres: &Postgres,
    namespace: Namespace,
) -> Result<ChangedRows, StoreError> {
    let Space { id, .. } = &*postgres.space(&namespace).await?;
    let purged = postgres.look(sql::PURGE, &[id, &PURGED_AT_ONCE]).await?;
    let rows = unsigned(purged[0].get(0));
    if rows > 0 {
        return Ok(ChangedRows::new(rows, true));
    }
    let left = postgres.look(sql::PURGE_LOCKED, &[id]).await?;
    let rows = left.first().map_or(0, |row| unsigned(row.get(0)));
    Ok(ChangedRows::new(rows, !left.is_empty()))
}
