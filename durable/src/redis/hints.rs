//! Listens for hints on connections of their own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::redis::{Client, RedisError};
use futures_util::StreamExt;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::connection::key_of;
use crate::store::Namespace;

/// How long connecting and subscribing may take.
const CONNECT: Duration = Duration::from_secs(5);

/// Waits before connecting again: so long at first, and twice as long each time.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// A task for each namespace that somebody waits for hints in.
#[derive(Default)]
pub(super) struct Hints {
    listeners: Mutex<HashMap<Namespace, Listener>>,
}

struct Listener {
    heard: Arc<Notify>,
    task: AbortHandle,
}

impl Hints {
    /// What is notified of the hints of a namespace. One that comes while nobody waits is kept.
    pub(super) fn of(&self, namespace: &Namespace, client: &Client) -> Arc<Notify> {
        let mut listeners = self
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let listener = listeners.entry(namespace.clone()).or_insert_with(|| {
            let heard = Arc::<Notify>::default();
            let listening = listen(client.clone(), namespace.clone(), Arc::clone(&heard));
            Listener {
                heard,
                task: tokio::spawn(listening).abort_handle(),
            }
        });
        Arc::clone(&listener.heard)
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        let listeners = self
            .listeners
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for listener in listeners.values() {
            listener.task.abort();
        }
    }
}

/// Listens until it is aborted.
async fn listen(client: Client, namespace: Namespace, heard: Arc<Notify>) {
    let mut retry = FIRST_RETRY;
    let mut failing = false;
    loop {
        match subscribe_and_hear(&client, &namespace, &heard).await {
            Ok(()) => (retry, failing) = (FIRST_RETRY, false),
            Err(error) if !failing => {
                failing = true;
                tracing::warn!(%namespace, %error, "no hints: near deadlines that others set are found by the poll");
            }
            Err(_) => {}
        }
        sleep(retry).await;
        retry = (retry * 2).min(LAST_RETRY);
    }
}

/// Listens on one connection until it ends.
async fn subscribe_and_hear(
    client: &Client,
    namespace: &Namespace,
    heard: &Notify,
) -> Result<(), RedisError> {
    let subscribe = async {
        let mut connection = client.get_async_pubsub().await?;
        connection
            .subscribe(format!("{}:hints", key_of(namespace)))
            .await?;
        Ok::<_, RedisError>(connection)
    };
    let connecting = timeout(CONNECT, subscribe).await;
    let mut connection = connecting.map_err(std::io::Error::from)??;
    // What was hinted at meanwhile was lost.
    heard.notify_one();
    let mut hints = connection.on_message();
    while hints.next().await.is_some() {
        heard.notify_one();
    }
    Ok(())
}
