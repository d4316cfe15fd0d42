//! Namespaces, once they are opened.

use tokio_postgres::{Error, Row};

use super::lanes::Call;
use super::read::{micros, time};
use super::session::Session;
use super::statements as sql;
use crate::store::{InstanceId, LoadWindow, Namespace, Opened, StoreError};

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
}

impl From<LoadWindow> for NearParameters {
    fn from(near: LoadWindow) -> Self {
        NearParameters {
            window: micros(near.window),
            loader: near.loader.map(|InstanceId(id)| id),
        }
    }
}

/// Opens a namespace.
pub(super) struct OpenCall<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) codec: &'a str,
}

impl Call for OpenCall<'_> {
    type Answer = Result<(Space, Opened), StoreError>;

    async fn run(&self, session: &Session) -> Result<Self::Answer, Error> {
        let name = self.namespace.as_str();
        let answers = session
            .transaction(&[
                (sql::NAME, &[&name, &self.codec]),
                (sql::FIND, &[&name]),
                (sql::OPEN, &[]),
            ])
            .await?;
        let (found, opened) = (&answers[1][0], &answers[2][0]);
        let stored: String = found.get(1);
        if stored != self.codec {
            return Ok(Err(StoreError::codec(self.namespace, stored, self.codec)));
        }
        let opened = Opened {
            now: time(opened.get(0)),
            instance: InstanceId(opened.get(1)),
        };
        Ok(Ok((Space::from(found), opened)))
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
