//! Namespaces, once they are opened.

use tokio_postgres::Error;

use super::lanes::Call;
use super::read::{micros, time};
use super::session::Session;
use super::statements as sql;
use crate::store::{InstanceId, Namespace, Near, Opened, StoreError};

/// A namespace by its number, and the channel for its hints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Space {
    pub(super) id: i32,
    pub(super) channel: String,
}

/// [`Near`] for the server.
pub(super) struct NearParameters {
    pub(super) window: i64,
    pub(super) loader: Option<i64>,
}

impl Space {
    // Not a function of its own only so that calls read alike.
    #[allow(clippy::unused_self, reason = "a namespace is what rows are near in")]
    pub(super) fn near(&self, near: Near) -> NearParameters {
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
            .transaction(&[(sql::NAME, &[&name, &self.codec]), (sql::OPEN, &[&name])])
            .await?;
        let row = &answers[1][0];
        let stored: String = row.get(3);
        if stored != self.codec {
            return Ok(Err(StoreError::Codec {
                namespace: name.to_owned(),
                stored,
                asked: self.codec.to_owned(),
            }));
        }
        let space = Space {
            id: row.get(2),
            channel: row.get(4),
        };
        let opened = Opened {
            now: time(row.get(0)),
            instance: InstanceId(row.get(1)),
        };
        Ok(Ok((space, opened)))
    }
}
