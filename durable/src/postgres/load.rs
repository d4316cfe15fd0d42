//! Loading, unloading and purging.

use tokio_postgres::Error;

use super::lanes::{Call, Lane};
use super::numbers::{limit, time, unsigned};
use super::read::unknown;
use super::session::{Parameters, Session};
use super::space::{Space, edition};
use super::statements as sql;
use crate::store::{ChangedRows, InstanceId, Load, Loaded, Scheduled, Version, micros};

/// One step of a purge deletes so many rows in each state. It takes some ten milliseconds, in which
/// sets of these keys wait.
const PURGED_AT_ONCE: i64 = 2_000;

impl Call for Load {
    type Answer = Loaded;

    const LANE: Option<Lane> = Some(Lane::Load);

    async fn run(&self, session: &Session, space: &Space) -> Result<Loaded, Error> {
        let InstanceId(instance) = self.instance;
        let answers = session
            .transaction(&[
                (
                    sql::ALIVE,
                    &[
                        &space.id,
                        &instance,
                        &micros(self.alive),
                        &space.channel,
                        &edition(self.charter),
                        &self.name,
                    ],
                ),
                (
                    sql::LOAD,
                    &[
                        &space.id,
                        &instance,
                        &micros(self.window),
                        &limit(self.limit),
                        &limit(self.wanted),
                        &unknown(&self.schedules),
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
            Some(Scheduled {
                schedule: row.get::<_, Option<_>>("schedule")?,
                version: Version(row.get(3)),
                deadline: time(row.get("deadline")),
            })
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

pub(super) struct Unload(pub(super) InstanceId);

impl Call for Unload {
    type Answer = InstanceId;

    const LANE: Option<Lane> = Some(Lane::Load);

    async fn run(&self, session: &Session, space: &Space) -> Result<InstanceId, Error> {
        let Unload(InstanceId(instance)) = self;
        let parameters: &Parameters<'_> = &[&space.id, instance, &space.channel];
        let answer = session.query(sql::UNLOAD, parameters).await?;
        Ok(InstanceId(answer[0].get(0)))
    }
}

/// Leaves rows to others.
pub(super) struct Unmark(pub(super) InstanceId, pub(super) Vec<Version>);

impl Call for Unmark {
    type Answer = Vec<Version>;

    const LANE: Option<Lane> = Some(Lane::Load);

    async fn run(&self, session: &Session, space: &Space) -> Result<Vec<Version>, Error> {
        let Unmark(InstanceId(instance), versions) = self;
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

pub(super) struct Purge;

impl Call for Purge {
    type Answer = ChangedRows;

    const LANE: Option<Lane> = Some(Lane::Admin);

    async fn run(&self, session: &Session, space: &Space) -> Result<ChangedRows, Error> {
        let id = &space.id;
        let purged = session.query(sql::PURGE, &[id, &PURGED_AT_ONCE]).await?;
        let rows = unsigned(purged[0].get(0));
        if rows > 0 {
            return Ok(ChangedRows::new(rows, true));
        }
        let left = session.query(sql::PURGE_LOCKED, &[id]).await?;
        let rows = left.first().map_or(0, |row| unsigned(row.get(0)));
        Ok(ChangedRows::new(rows, !left.is_empty()))
    }
}
