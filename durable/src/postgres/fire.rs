//! Batches of rows that are to fire.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio_postgres::{Error, Row};

use super::lanes::Call;
use super::read::{attempt, limit, micros, time, unsigned};
use super::session::Session;
use super::space::{NearParameters, Space};
use super::statements as sql;
use crate::store::{ANSWER_BYTES, Armed, Fire, FireReport, Fired, Missed, StoreTime, Version};

/// A fire tries again after this delay when another transaction has locked a row.
const LOCKED: Duration = Duration::from_millis(10);

pub(super) struct FireCall<'a>(pub(super) &'a Space, pub(super) Fire);

impl Call for FireCall<'_> {
    type Answer = FireReport;

    async fn run(&self, session: &Session) -> Result<FireReport, Error> {
        let FireCall(space, request) = self;
        let near = NearParameters::from(request.near);
        let mut missing = HashSet::new();
        let versions = request.versions.iter().map(|version| version.0);
        let versions: Vec<_> = versions
            .filter(|&version| missing.insert(version))
            .collect();
        let named = missing.clone();
        let lease = request.lease.map(micros);
        let rule = match request.missed {
            Missed::FireAll => 0,
            Missed::FireOnce => 1,
            Missed::Skip => 2,
        };
        let rows = session
            .query(
                sql::FIRE,
                &[
                    &space.id,
                    &near.window,
                    &near.loader,
                    &space.channel,
                    &versions,
                    &lease,
                    &rule,
                    &limit(ANSWER_BYTES),
                    &limit(request.unloaded),
                    &request.no_overlap,
                ],
            )
            .await?;
        let mut report = FireReport::at(time(rows[0].get(0)));
        report.more = request.unloaded > 0 && rows[0].get("more");
        let (mut later, mut unloaded_later) = (HashMap::new(), Vec::new());
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
                report.left = left.len();
                break;
            }
            missing.remove(&version);
            let unfired = add(&mut report, Version(version), row);
            if named.contains(&version) {
                later.extend(unfired);
            } else {
                unloaded_later.extend(unfired.map(|(_, armed)| armed));
            }
        }
        if !missing.is_empty() {
            let missing: Vec<_> = versions
                .into_iter()
                .filter(|v| missing.contains(v))
                .collect();
            let left = session.query(sql::LEFT, &[&space.id, &missing]).await?;
            let soon = report.now.after(LOCKED);
            later.extend(left.iter().map(|row| {
                let version = Version(row.get(0));
                let armed = Armed {
                    version,
                    due: time(row.get(1)).max(soon),
                    loaded: row.get(2),
                };
                (version, armed)
            }));
        }
        for version in &request.versions[..request.versions.len() - report.left] {
            if let Some(armed) = later.get(version).copied() {
                report.later.push(armed);
                // The next attempt does not find a row that has another version by now.
                if armed.version != *version {
                    later.remove(version);
                }
            }
        }
        report.later.extend(unloaded_later);
        Ok(report)
    }
}

/// Adds one row of the server's response. Returns a row that does not fire, with the version that
/// was sent.
fn add(report: &mut FireReport, version: Version, row: &Row) -> Option<(Version, Armed)> {
    let fires: bool = row.get("fires");
    let next: Option<i64> = row.get("next_version");
    let armed = next.map(|next| Armed {
        version: Version(next),
        due: time(row.get("next_due")),
        loaded: row.get("next_loaded"),
    });
    if !fires {
        let unchanged = || Armed {
            version,
            due: time(row.get("due")),
            loaded: row.get("loaded"),
        };
        return Some((version, armed.unwrap_or_else(unchanged)));
    }
    report.fired.push(Fired {
        token: Version(row.get("token")),
        key: row.get("key"),
        value: row.get("value"),
        deadline: StoreTime::from_micros(row.get("deadline")),
        attempt: attempt(row.get("attempt")) + 1,
        missed: unsigned(row.get("missed")),
        repeats: armed.is_some(),
    });
    report.next.extend(armed);
    None
}
