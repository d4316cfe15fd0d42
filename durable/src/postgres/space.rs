//! Namespaces, once they are opened.

use tokio_postgres::Row;

use crate::store::{Edition, InstanceId, Terms, micros};

/// A namespace by its number, and the channel for its hints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Space {
    pub(super) id: i32,
    pub(super) channel: String,
}

/// [`Terms`] for the server.
pub(super) struct NearParameters {
    pub(super) window: i64,
    pub(super) loader: Option<i64>,
    pub(super) edition: Option<i64>,
    pub(super) until: i64,
}

impl From<Terms> for NearParameters {
    fn from(near: Terms) -> Self {
        NearParameters {
            window: micros(near.window),
            loader: near.loader.map(|InstanceId(id)| id),
            edition: edition(near.edition),
            until: near.until.as_micros(),
        }
    }
}

/// The number of an edition, for the server.
pub(super) fn edition(charter: Option<Edition>) -> Option<i64> {
    charter.map(|Edition(edition)| edition)
}

impl From<&Row> for Space {
    fn from(found: &Row) -> Self {
        Space {
            id: found.get(0),
            channel: found.get(2),
        }
    }
}
