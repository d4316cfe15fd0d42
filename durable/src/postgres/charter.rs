//! The calls on a namespace and its charter.

use tokio_postgres::{Error, Row};

use super::lanes::{Call, Lane};
use super::numbers::time;
use super::session::{Parameters, Session};
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

/// Opens a namespace. It has no number before.
pub(super) struct Open<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) charter: &'a Charter,
}

impl Call for Open<'_> {
    type Answer = Result<(Space, Opened), StoreError>;

    const LANE: Option<Lane> = Some(Lane::Load);

    async fn run(&self, session: &Session, none: &Space) -> Result<Self::Answer, Error> {
        let name = self.namespace.as_str();
        let (charter, parts) = (self.charter, parts_of(self.charter));
        let name_parameters: &Parameters<'_> = &[
            &name,
            &charter.codec,
            &charter.no_overlap,
            &charter.at_most_once,
            &parts,
        ];
        let answers = session
            .transaction(&[
                (sql::TERMS, &[&none.id, &ANY, &ANY]),
                (sql::NAME, name_parameters),
                (sql::CHARTER, &[&name]),
                (sql::FIND, &[&name]),
                (sql::OPEN, &[]),
            ])
            .await?;
        let (stored, found, opened) = (&answers[2][0], &answers[3][0], &answers[4][0]);
        if let Err(error) = read_charter(stored, 0).check(self.namespace, self.charter) {
            return Ok(Err(error));
        }
        let opened = Opened {
            now: time(opened.get(0)),
            instance: InstanceId(opened.get(1)),
            edition: Edition(stored.get(4)),
        };
        Ok(Ok((Space::from(found), opened)))
    }
}

/// Amends the charter of a namespace.
pub(super) struct Amend<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) charter: &'a Charter,
}

impl Call for Amend<'_> {
    type Answer = Result<(), StoreError>;

    const LANE: Option<Lane> = Some(Lane::Admin);

    async fn run(&self, session: &Session, space: &Space) -> Result<Self::Answer, Error> {
        let (id, charter, parts) = (&space.id, self.charter, parts_of(self.charter));
        let amended: &Parameters<'_> = &[
            id,
            &charter.codec,
            &charter.no_overlap,
            &charter.at_most_once,
            &parts,
        ];
        let answers = session
            .transaction(&[
                (sql::TERMS, &[id, &ANY, &ANY]),
                (sql::HOLD_ALL, &[id, &charter.codec]),
                (sql::AMEND, amended),
            ])
            .await?;
        let Some(row) = answers[2].first() else {
            let gone = format!("namespace {} is not there any more", self.namespace);
            return Ok(Err(StoreError::refused(gone)));
        };
        let allowed = read_charter(row, 0).check_amendment(self.namespace, charter, row.get(4));
        if allowed.is_ok() && row.get(5) {
            return Ok(Err(StoreError::locked("keys of the namespace")));
        }
        Ok(allowed)
    }
}

/// Finds a namespace that another connection has opened.
pub(super) struct Find<'a>(pub(super) &'a Namespace);

impl Call for Find<'_> {
    type Answer = Option<Space>;

    const LANE: Option<Lane> = None;

    async fn run(&self, session: &Session, _: &Space) -> Result<Option<Space>, Error> {
        let rows = session.query(sql::FIND, &[&self.0.as_str()]).await?;
        Ok(rows.first().map(Space::from))
    }
}
