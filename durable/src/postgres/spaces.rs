//! The namespaces that a store has opened, and where their loads begin.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard};

use super::Postgres;
use super::place::{Place, Seen, Start};
use super::space::Space;
use super::statements as sql;
use crate::lock::lock;
use crate::store::{Namespace, StoreError};

/// The namespaces that were opened, in tables that were made again so often.
#[derive(Default)]
pub(super) struct Spaces {
    made_again: u64,
    pub(super) opened: HashMap<Namespace, Arc<Space>>,
    /// Where loads begin, by the numbers of the namespaces.
    places: HashMap<i32, Place>,
}

impl Postgres {
    pub(super) fn spaces(&self) -> MutexGuard<'_, Spaces> {
        let mut spaces = lock(&self.inner.spaces);
        let made_again = self.lanes().made_again();
        if spaces.made_again != made_again {
            *spaces = Spaces {
                made_again,
                ..Spaces::default()
            };
        }
        spaces
    }

    /// A namespace that was opened, here or by another store.
    pub(super) async fn space(&self, namespace: &Namespace) -> Result<Arc<Space>, StoreError> {
        let found = self.find(namespace).await?;
        found.ok_or_else(|| StoreError::not_opened(namespace))
    }

    /// A namespace, if the server has it. Only what this store has opened is kept: the edition that
    /// [`open`](crate::store::Store::open) returns shows in the calls whether the server has lost
    /// it.
    pub(super) async fn find(
        &self,
        namespace: &Namespace,
    ) -> Result<Option<Arc<Space>>, StoreError> {
        let known = self.spaces().opened.get(namespace).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let name = namespace.as_str();
        let found = self.lanes().read(sql::FIND, &[&name]).await?;
        Ok(found.first().map(|row| Arc::new(Space::from(row))))
    }

    /// Where a look for rows of a namespace begins.
    pub(super) fn start(&self, space: i32) -> Start {
        let spaces = self.spaces();
        spaces
            .places
            .get(&space)
            .map_or_else(Start::default, Place::start)
    }

    /// A load has seen what there is.
    pub(super) fn place(&self, space: i32, seen: Seen) {
        let mut spaces = self.spaces();
        spaces.places.entry(space).or_default().note(seen);
    }

    /// The next load begins at the beginning.
    pub(super) fn forget_place(&self, space: i32) {
        self.spaces().places.remove(&space);
    }
}
