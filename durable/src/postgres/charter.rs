//! The calls on a namespace and its charter.

use tokio_postgres::Row;

use super::Postgres;
use super::lanes::Lane;
use super::numbers::time;
use super::session::Parameters;
use super::space::Space;
use super::statements as sql;
use crate::store::{Charter, Edition, InstanceId, Namespace, Opened, StoreError};

/// A charter, from a column on.
pub(super) fn read_charter(row: &Row, first: usize) -> Charter {
    let mut charter = Charter::new(row.get::<_, String>(first));
    charter.no_overlap = row.get(first + 1);
    charter.at_most_once = row.get(first + 2);
    charter.parts = u32::try_from(row.get::<_, i32>(first + 3)).unwrap_or(0);
    charter
}

/// The parts of a charter, for the server.
fn parts_of(charter: &Charter) -> i32 {
    i32::try_from(charter.parts).unwrap_or(i32::MAX)
}

/// Any edition, and any time.
const ANY: Option<i64> = None;

/// The number of a namespace that is not there.
pub(super) const NO_NAMESPACE: i32 = 0;

/// Opens a namespace.
pub(super) async fn open(
    postgres: &Postgres,
    namespace: &Namespace,
    charter: &Charter,
) -> Result<(Space, Opened), StoreError> {
    let (name, parts) = (namespace.as_str(), parts_of(charter));
    let name_parameters: &Parameters<'_> = &[
        &name,
        &charter.codec,
        &charter.no_overlap,
        &charter.at_most_once,
        &parts,
    ];
    let queries: &[(_, &Parameters<'_>)] = &[
        (sql::TERMS, &[&NO_NAMESPACE, &ANY, &ANY]),
        (sql::NAME, name_parameters),
        (sql::CHARTER, &[&name]),
        (sql::FIND, &[&name]),
        (sql::OPEN, &[]),
    ];
    let answers = postgres.lanes().transaction(Lane::Load, queries).await?;
    let (stored, found, opened) = (&answers[2][0], &answers[3][0], &answers[4][0]);
    read_charter(stored, 0).check(namespace, charter)?;
    let opened = Opened {
        now: time(opened.get(0)),
        instance: InstanceId(opened.get(1)),
        edition: Edition(stored.get(4)),
        made: Edition(stored.get(5)),
    };
    Ok((Space::from(found), opened))
}

/// Amends the charter of a namespace.
pub(super) async fn amend(
    postgres: &Postgres,
    namespace: Namespace,
    charter: Charter,
) -> Result<(), StoreError> {
    let space = postgres.space(&namespace).await?;
    let (id, parts) = (&space.id, parts_of(&charter));
    let amended: &Parameters<'_> = &[
        id,
        &charter.codec,
        &charter.no_overlap,
        &charter.at_most_once,
        &parts,
    ];
    let queries: &[(_, &Parameters<'_>)] =
        &[(sql::TERMS, &[id, &ANY, &ANY]), (sql::AMEND, amended)];
    let answers = postgres.lanes().transaction(Lane::Admin, queries).await?;
    let Some(row) = answers[1].first() else {
        let gone = format!("namespace {namespace} is not there any more");
        return Err(StoreError::refused(gone));
    };
    read_charter(row, 0).check_amendment(&namespace, &charter)
}
