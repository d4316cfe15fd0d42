//! Hints: `NOTIFY` on a channel for each namespace, and one connection that listens.
//!
//! A hint that comes while no instance waits is kept, and ten of them are one. Hints are lost while
//! the connection is down. So every namespace gets one once the connection listens again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::dial::connect;
use super::target::Target;
use crate::jitter::jittered;
use crate::lock::lock;
use crate::race::race;

/// The delay before the first attempt to connect again. It doubles with each attempt, up to the
/// last.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// The channels on which an instance waits for hints.
#[derive(Debug, Default)]
pub(super) struct Hints {
    channels: Mutex<HashMap<String, Arc<Notify>>>,
    added: Notify,
}

impl Hints {
    fn channels(&self) -> MutexGuard<'_, HashMap<String, Arc<Notify>>> {
        lock(&self.channels)
    }

    /// Is notified of hints on this channel.
    pub(super) fn channel(&self, channel: &str) -> Arc<Notify> {
        let mut channels = self.channels();
        if let Some(hint) = channels.get(channel) {
            return Arc::clone(hint);
        }
        let hint = Arc::default();
        channels.insert(channel.to_owned(), Arc::clone(&hint));
        self.added.notify_one();
        hint
    }

    /// Wakes an instance that waits for this channel, or the next one to wait.
    pub(super) fn notify(&self, channel: &str) {
        if let Some(hint) = self.channels().get(channel) {
            hint.notify_one();
        }
    }
}

/// Listens from the first channel on until it is dropped, and connects again when it has to.
pub(super) async fn listen(target: Target, hints: Arc<Hints>) {
    let mut retry = FIRST_RETRY;
    hints.added.notified().await;
    loop {
        let Ok((client, mut closed)) = connect(&target, Some(Arc::clone(&hints))).await else {
            sleep(jittered(retry)).await;
            retry = (retry * 2).min(LAST_RETRY);
            continue;
        };
        let mut listening = Vec::new();
        loop {
            let known: Vec<_> = hints.channels().keys().cloned().collect();
            let new = known.into_iter().filter(|name| !listening.contains(name));
            let new: Vec<_> = new.collect();
            let listen: Vec<_> = new.iter().map(|name| format!("LISTEN {name}")).collect();
            if client.batch_execute(&listen.join(";")).await.is_err() {
                break;
            }
            retry = FIRST_RETRY;
            for name in &new {
                hints.notify(name);
            }
            listening.extend(new);
            // Nothing is ever sent: it returns an error when the connection has ended.
            let ended = async { closed.changed().await.is_err() };
            let added = async {
                hints.added.notified().await;
                false
            };
            if race(ended, added).await {
                break;
            }
        }
        sleep(jittered(retry)).await;
    }
}
