//! Namespaces, once they are opened.

use tokio_postgres::{Error, Row};

use super::lanes::Call;
use super::read::{micros, time};
use super::session::Session;
use super::statements as sql;
use crate::store::{Charter, Edition, InstanceId, LoadWindow, Namespace, Opened, StoreError};

/// A namespace by its number, and the channel for its hints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Space {
    pub(super) id: i32,
    pub(super) channel: String,
}

/// [`LoadWindow`] for the server.
pub(super) struct NearParameters {
    pub(super) window: i64,
    pub(super) loader: Option<i64>,
    pub(super) edition: Option<i64>,
    pub(super) until: i64,
}

impl From<LoadWindow> for NearParameters {
    fn from(near: LoadWindow) -> Self {
        NearParameters {
            window: micros(near.window),
            loader: near.loader.map(|InstanceId(id)| id),
            edition: edition(near.charter),
            until: near.until.as_micros(),
        }
    }
}

/// The number of an edition, for the server.
pub(super) fn edition(charter: Option<Edition>) -> Option<i64> {
    charter.map(|Edition(edition)| edition)
}

/// A charter, from a column on.
pub(super) fn charter(row: &Row, first: usize) -> Charter {
    let mut charter = Charter::new(row.get::<_, String>(first));
    charter.no_overlap = row.get(first + 1);
    charter.at_most_once = row.get(first + 2);
    charter.parts = u32::try_from(row.get::<_, i32>(first + 3)).unwrap_or(0);
    charter
}

/// Opens a namespace.
pub(super) struct OpenCall<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) charter: &'a Charter,
}

impl Call for OpenCall<'_> {
    type Answer = Result<(Space, Opened), StoreError>;

    async fn run(&self, session: &Session) -> Result<Self::Answer, Error> {
        let name = self.namespace.as_str();
        let Charter {
            codec,
            no_overlap,
            at_most_once,
            parts,
        } = self.charter;
        let parts = i32::try_from(*parts).unwrap_or(i32::MAX);
        let (none, never) = (None::<i64>, None::<i64>);
        let answers = session
            .transaction(&[
                (sql::TERMS, &[&0_i32, &none, &never]),
                (sql::NAME, &[&name, codec, no_overlap, at_most_once, &parts]),
                (sql::CHARTER, &[&name]),
                (sql::FIND, &[&name]),
                (sql::OPEN, &[]),
            ])
            .await?;
        let (stored, found, opened) = (&answers[2][0], &answers[3][0], &answers[4][0]);
        if let Err(error) = charter(stored, 0).check(self.namespace, self.charter) {
            return Ok(Err(error));
        }
        let (now, instance) = (time(opened.get(0)), InstanceId(opened.get(1)));
        let opened = Opened::new(now, instance, Edition(stored.get(4)));
        Ok(Ok((Space::from(found), opened)))
    }
}

/// Amends the charter of a namespace.
pub(super) struct AmendCall<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) space: &'a Space,
    pub(super) charter: &'a Charter,
}

impl Call for AmendCall<'_> {
    type Answer = Result<(), StoreError>;

    async fn run(&self, session: &Session) -> Result<Self::Answer, Error> {
        let Charter {
            codec,
            no_overlap,
            at_most_once,
            parts,
        } = self.charter;
        let parts = i32::try_from(*parts).unwrap_or(i32::MAX);
        let id = &self.space.id;
        let (none, never) = (None::<i64>, None::<i64>);
        let answers = session
            .transaction(&[
                (sql::TERMS, &[id, &none, &never]),
                (sql::AMEND, &[id, codec, no_overlap, at_most_once, &parts]),
            ])
            .await?;
        let Some(row) = answers[1].first() else {
            let gone = format!("namespace {} is not there any more", self.namespace);
            return Ok(Err(StoreError::refused(gone)));
        };
        Ok(charter(row, 0).check_amendment(self.namespace, self.charter, row.get(4)))
    }
}

/// Finds a namespace that another connection has opened.
pub(super) struct FindCall<'a>(pub(super) &'a Namespace);

impl Call for FindCall<'_> {
    type Answer = Option<Space>;

    async fn run(&self, session: &Session) -> Result<Option<Space>, Error> {
        let rows = session.query(sql::FIND, &[&self.0.as_str()]).await?;
        Ok(rows.first().map(Space::from))
    }
}

impl From<&Row> for Space {
    fn from(found: &Row) -> Self {
        Space {
            id: found.get(0),
            channel: found.get(2),
        }
    }
}
