//! Gives a connection up that does not respond.

use crate::lock::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// Whether a connection is given up, and when it had the last response.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    heard: Mutex<Option<Instant>>,
    is_given_up: AtomicBool,
    given_up: Arc<Notify>,
}

impl Silence {
    /// Notifies others when the connection is given up.
    #[cfg(feature = "redis")]
    pub(crate) fn notifying(given_up: Arc<Notify>) -> Self {
        Silence {
            given_up,
            ..Silence::default()
        }
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
    }

    pub(crate) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
        self.given_up.notify_waiters();
    }

    /// A call is sent, and waits for its response.
    pub(crate) fn call(&self, limit: Duration) -> Waiting<'_> {
        Waiting {
            silence: self,
            since: Instant::now(),
            limit,
            is_answered: false,
        }
    }
}

/// A call that waits for its response. Dropped without one, it gives the connection up, if it has
/// waited for the limit, and no other call had a response meanwhile.
pub(crate) struct Waiting<'a> {
    silence: &'a Silence,
    since: Instant,
    limit: Duration,
    is_answered: bool,
}

impl Waiting<'_> {
    pub(crate) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut heard = lock(&self.silence.heard);
        if self.is_answered {
            *heard = Some(Instant::now());
        } else if heard
            .max(Some(self.since))
            .is_some_and(|heard| heard.elapsed() > self.limit)
        {
            self.silence.give_up();
        }
    }
}
