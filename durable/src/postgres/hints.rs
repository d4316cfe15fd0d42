//! Hints: `NOTIFY` on a channel for each namespace, and one connection that listens.
//!
//! A hint is for all instances that wait for it, and may name one of them. Hints are lost while the
//! connection is down. So every namespace gets one once the connection listens again.
//!
//! No call depends on hints. The server keeps them in a queue that all its databases share, until
//! every listener has read them. One that is stuck in a transaction fills it in the end, and then
//! each commit with a hint fails, by SQLSTATE 54000. So the function `tickwheel_hint` gives none
//! while the queue is nearly full, and a call that fails all the same is made again without hints.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use tokio::sync::{Notify, watch};

use super::target::Target;
use crate::lock::lock;
use crate::store::InstanceId;

/// The latest hint on a channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Hint {
    /// How many there were.
    count: u64,
    /// The instance that it names.
    named: Option<InstanceId>,
}

/// The channels on which an instance waits for hints.
#[derive(Debug, Default)]
pub(super) struct Hints {
    channels: Mutex<HashMap<String, watch::Sender<Hint>>>,
    /// Whether the server's queue of hints was full when it was last seen.
    is_full: AtomicBool,
    /// Notified of each channel that is new.
    pub(super) added: Notify,
    /// Notified when a connection of the calls is given up: the same server may be silent to the
    /// one that listens, and says nothing of it.
    pub(super) given_up: Notify,
}

impl Hints {
    fn channels(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<Hint>>> {
        lock(&self.channels)
    }

    /// The channels on which an instance waits.
    pub(super) fn names(&self) -> Vec<String> {
        self.channels().keys().cloned().collect()
    }

    /// Waits for a hint on this channel. Returns the instance that it names, unless there were
    /// several.
    pub(super) async fn wait(&self, channel: &str) -> Option<InstanceId> {
        let mut hints = {
            let mut channels = self.channels();
            if !channels.contains_key(channel) {
                channels.insert(channel.to_owned(), watch::Sender::default());
                self.added.notify_one();
            }
            channels[channel].subscribe()
        };
        let seen = hints.borrow_and_update().count;
        // The sender goes with the store.
        let _ = hints.changed().await;
        let Hint { count, named } = *hints.borrow();
        named.filter(|_| count == seen + 1)
    }

    /// Wakes the instances that wait for this channel.
    pub(super) fn notify(&self, channel: &str, named: Option<InstanceId>) {
        if let Some(hint) = self.channels().get(channel) {
            hint.send_modify(|hint| (hint.count, hint.named) = (hint.count + 1, named));
        }
    }

    /// The queue of the server is full, or not. Says so when that changes.
    pub(super) fn queue_is(&self, full: bool, target: &Target) {
        let was_full = self.is_full.swap(full, Ordering::AcqRel);
        if full && !was_full {
            tracing::warn!(
                store = %target,
                "no hints: the server's NOTIFY queue is full, since a listener in some database does not read it; near \
                 deadlines that others set are found by the poll"
            );
        } else if was_full && !full {
            tracing::info!(store = %target, "the server's NOTIFY queue has room again, and hints go out");
        }
    }
}
