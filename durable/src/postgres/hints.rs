//! Hints: `NOTIFY` on a channel for each namespace, and one connection that listens.
//!
//! A hint is for all instances that wait for it. Hints are lost while the connection is down. So
//! every namespace gets one once the connection listens again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::lock::lock;

/// The channels on which an instance waits for hints.
#[derive(Debug, Default)]
pub(super) struct Hints {
    channels: Mutex<HashMap<String, Arc<Notify>>>,
    /// Notified of each channel that is new.
    pub(super) added: Notify,
    /// Notified when a connection of the calls is given up: the same server may be silent to the
    /// one that listens, and says nothing of it.
    pub(super) given_up: Notify,
}

impl Hints {
    pub(super) fn channels(&self) -> MutexGuard<'_, HashMap<String, Arc<Notify>>> {
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

    /// Wakes the instances that wait for this channel.
    pub(super) fn notify(&self, channel: &str) {
        if let Some(hint) = self.channels().get(channel) {
            hint.notify_waiters();
        }
    }
}
