//! What the actor waits for, and submitters ring: a task is notified, a thread unparked.

use std::sync::OnceLock;
use std::thread::Thread;

use tokio::sync::Notify;

use crate::submit::Signal;

/// Keeps one ring: if it rings while the actor does not wait, its next wait ends at once.
#[derive(Debug)]
pub(crate) enum Bell {
    Task(Notify),
    /// The actor's own thread, from before it first says that it waits.
    Thread(OnceLock<Thread>),
}

impl Signal for Bell {
    fn signal(&self) {
        match self {
            Bell::Task(notify) => notify.notify_one(),
            Bell::Thread(thread) => {
                if let Some(thread) = thread.get() {
                    thread.unpark();
                }
            }
        }
    }
}
