//! Loading, unloading and purging.

use tokio_postgres::Error;

use super::lanes::Call;
use super::read::{limit, micros, time, unknown, unsigned};
use super::session::Session;
use super::space::{Space, edition};
use super::statements as sql;
use crate::store::{InstanceId, Load, Loaded, Purged, Scheduled, Version};

/// One step of a purge deletes so many rows in each state. It takes some ten milliseconds, in which
/// sets of these keys wait.
const PURGED_AT_ONCE: i64 = 2_000;

pub(super) struct LoadCall<'a>(pub(super) &'a Space, pub(super) Load);

impl Call for LoadCall<'_> {
    type Answer = Loaded;

    async fn run(&self, session: &Session) -> Result<Loaded, Error> {
        let LoadCall(space, request) = self;
        let InstanceId(instance) = request.instance;
        let answers = session
            .transaction(&[
                (
                    sql::ALIVE,
                    &[
                        &space.id,
                        &instance,
                        &micros(request.alive),
                        &space.channel,
                        &edition(request.charter),
                        &request.name,
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
                    ],
                ),
            ])
            .await?;
        let rows = &answers[1];
        let loaded = rows.iter().filter_map(|row| {
            let version: Option<i64> = row.get(3);
            version.map(|version| (Version(version), time(row.get(4))))
        });
        let scheduled = rows.iter().filter_map(|row| {
            let schedule: Option<String> = row.get("schedule");
            let schedule = schedule?;
            let (version, deadline) = (Version(row.get(3)), time(row.get("deadline")));
            Some(Scheduled::new(version, deadline, schedule))
        });
        Ok(Loaded {
            now: time(rows[0].get(0)),
            more: rows[0].get(1),
            others_lack: usize::try_from(rows[0].get::<_, i64>(2)).unwrap_or(0),
            rows: loaded.collect(),
            scheduled: scheduled.collect(),
        })
    }
}

pub(super) struct UnloadCall<'a>(pub(super) &'a Space, pub(super) InstanceId);

impl Call for UnloadCall<'_> {
    type Answer = InstanceId;

    async fn run(&self, session: &Session) -> Result<InstanceId, Error> {
        let UnloadCall(space, InstanceId(instance)) = self;
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&space.id, instance, &space.channel];
        let answer = session.query(sql::UNLOAD, &parameters).await?;
        Ok(InstanceId(answer[0].get(0)))
    }
}

/// Leaves rows to others.
pub(super) struct UnmarkCall<'a>(
    pub(super) &'a Space,
    pub(super) InstanceId,
    pub(super) Vec<Version>,
);

impl Call for UnmarkCall<'_> {
    type Answer = Vec<Version>;

    async fn run(&self, session: &Session) -> Result<Vec<Version>, Error> {
        let UnmarkCall(space, InstanceId(instance), versions) = self;
        let versions: Vec<i64> = versions.iter().map(|version| version.0).collect();
        let answers = session
            .transaction(&[
                (
                    sql::UNMARK,
                    &[&space.id, instance, &space.channel, &versions],
                ),
                (sql::STILL_MARKED, &[&space.id, instance, &versions]),
            ])
            .await?;
        let left = answers[1].iter().map(|row| Version(row.get(0)));
        Ok(left.collect())
    }
}

pub(super) struct PurgeCall<'a>(pub(super) &'a Space);

impl Call for PurgeCall<'_> {
    type Answer = Purged;

    async fn run(&self, session: &Session) -> Result<Purged, Error> {
        let id = &self.0.id;
        let purged = session.query(sql::PURGE, &[id, &PURGED_AT_ONCE]).await?;
        let rows = unsigned(purged[0].get(0));
        if rows > 0 {
            return Ok(Purged { rows, more: true });
        }
        let left = session.query(sql::PURGE_LOCKED, &[id]).await?;
        Ok(Purged {
            rows: left.first().map_or(0, |row| unsigned(row.get(0))),
            more: !left.is_empty(),
        })
    }
}
