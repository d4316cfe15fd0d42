//! A store in PostgreSQL.
//!
//! ```text
//! calls of instances --> lanes: a connection each for writes, settles, fires, loads and reads --> one statement a batch
//! hinted             <-- one connection that listens                                          <-- NOTIFY by the statements
//! ```
//!
//! `statements` has the SQL of each call, and says why it holds among others that run at the same time; `lanes` says why calls
//! keep their order.

mod fire;
mod hints;
mod lanes;
mod load;
mod read;
mod schema;
mod session;
mod settle;
mod space;
mod statements;
mod target;
mod tls;
mod write;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

use crate::store::{
    Counts, Fire, FireReport, InstanceId, List, Load, Loaded, Namespace, Near, Opened, Settle,
    Settled, Store, StoreError, Stored, Write, Written,
};
use fire::FireCall;
use hints::Hints;
use lanes::{Lane, Lanes};
use load::{LoadCall, PurgeCall, UnloadCall};
use read::{CountCall, GetCall, ListCall};
use settle::SettleCall;
use space::{FindCall, OpenCall, Space};
use target::Target;
use write::WriteCall;

/// A store in a PostgreSQL database. With the feature `postgres`.
#[derive(Clone)]
pub struct Postgres {
    inner: Arc<Inner>,
}

struct Inner {
    lanes: Lanes,
    hints: Arc<Hints>,
    spaces: Mutex<HashMap<Namespace, Arc<Space>>>,
    listener: AbortHandle,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl Postgres {
    /// Connects to a database, and makes or migrates the tables if they are not there or old.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let target = Target::parse(url)?;
        let lanes = Lanes::connect(target.clone()).await?;
        let hints = Arc::<Hints>::default();
        let listener = tokio::spawn(hints::listen(target, Arc::clone(&hints)));
        Ok(Postgres {
            inner: Arc::new(Inner {
                lanes,
                hints,
                spaces: Mutex::default(),
                listener: listener.abort_handle(),
            }),
        })
    }

    fn spaces(&self) -> MutexGuard<'_, HashMap<Namespace, Arc<Space>>> {
        let spaces = self.inner.spaces.lock();
        spaces.unwrap_or_else(PoisonError::into_inner)
    }

    /// A namespace that was opened, here or by another store.
    async fn space(&self, namespace: &Namespace) -> Result<Arc<Space>, StoreError> {
        let known = self.spaces().get(namespace).cloned();
        if let Some(space) = known {
            return Ok(space);
        }
        let found = self.inner.lanes.read(&FindCall(namespace)).await?;
        let Some(space) = found.map(Arc::new) else {
            let error = format!("namespace {namespace} was not opened");
            return Err(StoreError::refused(error));
        };
        self.spaces().insert(namespace.clone(), Arc::clone(&space));
        Ok(space)
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("target", self.inner.lanes.target())
            .finish_non_exhaustive()
    }
}

impl Store for Postgres {
    async fn open(&self, namespace: &Namespace, codec: &str) -> Result<Opened, StoreError> {
        let call = OpenCall { namespace, codec };
        let (space, opened) = self.inner.lanes.change(Lane::Load, &call).await??;
        self.spaces().insert(namespace.clone(), Arc::new(space));
        Ok(opened)
    }

    async fn write(
        &self,
        namespace: &Namespace,
        writes: Vec<Write>,
        near: Near,
    ) -> Result<Vec<Written>, StoreError> {
        let space = self.space(namespace).await?;
        let call = WriteCall {
            space: &space,
            writes,
            near,
        };
        self.inner.lanes.change(Lane::Write, &call).await
    }

    async fn load(&self, namespace: &Namespace, request: Load) -> Result<Loaded, StoreError> {
        let space = self.space(namespace).await?;
        let call = LoadCall(&space, request);
        self.inner.lanes.change(Lane::Load, &call).await
    }

    async fn fire(&self, namespace: &Namespace, request: Fire) -> Result<FireReport, StoreError> {
        let space = self.space(namespace).await?;
        let call = FireCall(&space, request);
        self.inner.lanes.change(Lane::Fire, &call).await
    }

    async fn settle(
        &self,
        namespace: &Namespace,
        settles: Vec<Settle>,
        near: Near,
    ) -> Result<Vec<Settled>, StoreError> {
        let space = self.space(namespace).await?;
        let call = SettleCall {
            space: &space,
            settles,
            near,
        };
        self.inner.lanes.change(Lane::Settle, &call).await
    }

    async fn unload(&self, namespace: &Namespace, instance: InstanceId) -> Result<(), StoreError> {
        let space = self.space(namespace).await?;
        let call = UnloadCall(&space, instance);
        self.inner.lanes.change(Lane::Load, &call).await
    }

    async fn get(&self, namespace: &Namespace, key: Vec<u8>) -> Result<Option<Stored>, StoreError> {
        let space = self.space(namespace).await?;
        let call = GetCall(&space, key);
        self.inner.lanes.read(&call).await
    }

    async fn list(&self, namespace: &Namespace, request: List) -> Result<Vec<Stored>, StoreError> {
        let space = self.space(namespace).await?;
        let call = ListCall(&space, request);
        self.inner.lanes.read(&call).await
    }

    async fn count(&self, namespace: &Namespace) -> Result<Counts, StoreError> {
        let space = self.space(namespace).await?;
        let call = CountCall(&space);
        self.inner.lanes.read(&call).await
    }

    async fn purge(&self, namespace: &Namespace) -> Result<u64, StoreError> {
        let space = self.space(namespace).await?;
        let call = PurgeCall(&space);
        self.inner.lanes.change(Lane::Write, &call).await
    }

    async fn hinted(&self, namespace: &Namespace) {
        // An instance has opened its namespace, so this fails only for others.
        let Ok(space) = self.space(namespace).await else {
            return std::future::pending().await;
        };
        self.inner.hints.channel(&space.channel).notified().await;
    }
}
