//! Listens for hints on separate connections.

use std::collections::HashMap;
use std::mem::replace;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::redis::RedisError;
use futures_util::StreamExt;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::connection::{CONNECT, Connection};
use super::keys::key_of;
use super::servers::Servers;
use crate::jitter::jittered;
use crate::lock::lock;
use crate::race::race;
use crate::store::Namespace;

/// The delay before the first attempt to connect again. It doubles with each attempt, up to the
/// last.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// A listening task for each namespace in which an instance waits for hints.
#[derive(Default)]
pub(super) struct Hints {
    listeners: Mutex<HashMap<Namespace, Listener>>,
}

struct Listener {
    hinted: Arc<Notify>,
    task: AbortHandle,
}

impl Hints {
    /// Is notified of the hints of a namespace.
    pub(super) fn of(&self, namespace: &Namespace, connection: &Connection) -> Arc<Notify> {
        let mut listeners = lock(&self.listeners);
        let listener = listeners.entry(namespace.clone()).or_insert_with(|| {
            let hinted = Arc::<Notify>::default();
            let listening = listen(
                Arc::clone(connection.servers()),
                namespace.clone(),
                Arc::clone(&hinted),
                connection.given_up(namespace),
            );
            Listener {
                hinted,
                task: tokio::spawn(listening).abort_handle(),
            }
        });
        Arc::clone(&listener.hinted)
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        for listener in lock(&self.listeners).values() {
            listener.task.abort();
        }
    }
}

/// Listens until it is aborted.
async fn listen(
    servers: Arc<Servers>,
    namespace: Namespace,
    hinted: Arc<Notify>,
    given_up: Arc<Notify>,
) {
    let mut retry = FIRST_RETRY;
    let mut failing = false;
    loop {
        let heard = || {
            if replace(&mut failing, false) {
                tracing::info!(%namespace, "hints are heard again");
            }
        };
        match subscribe_and_listen(&servers, &namespace, &hinted, &given_up, heard).await {
            Ok(()) => retry = FIRST_RETRY,
            Err(error) if !replace(&mut failing, true) => {
                tracing::warn!(%namespace, %error, "no hints: near deadlines that others set are found by the poll");
            }
            Err(_) => {}
        }
        // Not all instances at once, after a failover.
        sleep(jittered(retry)).await;
        retry = (retry * 2).min(LAST_RETRY);
    }
}

/// Listens on one connection until it ends, or that of the calls is given up: the same server is
/// silent here too, and says nothing of it. Calls `heard` once it is subscribed.
async fn subscribe_and_listen(
    servers: &Servers,
    namespace: &Namespace,
    hinted: &Notify,
    given_up: &Notify,
    heard: impl FnOnce(),
) -> Result<(), RedisError> {
    // From now on, not only once it has subscribed.
    let given_up = given_up.notified();
    let subscribe = async {
        // A node of a cluster hears the hints of all.
        let client = servers.client(namespace).await?;
        let mut connection = client.get_async_pubsub().await?;
        connection
            .subscribe(format!("{}:hints", key_of(namespace)))
            .await?;
        Ok::<_, RedisError>(connection)
    };
    let connecting = timeout(CONNECT, subscribe).await;
    let mut connection = connecting.map_err(std::io::Error::from)??;
    heard();
    // Hints that were sent meanwhile are lost.
    hinted.notify_waiters();
    let mut hints = connection.on_message();
    let hearing = async {
        while hints.next().await.is_some() {
            hinted.notify_waiters();
        }
    };
    race(hearing, given_up).await;
    Ok(())
}
