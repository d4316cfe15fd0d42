//! What the actor waits for, and submitters ring: a task is notified, a thread unparked.

use std::sync::OnceLock;
use std::thread::Thread;

use tokio::sync::Notify;

use crate::shared::mailbox::Notifier;

/// Keeps one ring: if it rings while the actor does not wait, its next wait ends at once.
#[derive(Debug)]
pub(crate) enum ActorNotifier {
    Task(Notify),
    /// The actor's own thread, from before it first says that it waits.
    Thread(OnceLock<Thread>),
}

impl Notifier for ActorNotifier {
    fn notify(&self) {
        match self {
            ActorNotifier::Task(notify) => notify.notify_one(),
            ActorNotifier::Thread(thread) => {
                if let Some(thread) = thread.get() {
                    thread.unpark();
                }
            }
        }
    }
}
