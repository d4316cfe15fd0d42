//! Gives a connection up that does not respond.

use crate::lock::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Whether a connection is given up, and for how long calls have waited since the last response.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    waited: Mutex<Waited>,
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

/// For how long calls that were dropped have waited since the last response, and when the last one
/// ended. Time in which several waited counts once.
#[derive(Debug, Default)]
struct Waited {
    time: Duration,
    until: Option<Instant>,
}

/// A call that waits for its response. Dropped without one, it gives the connection up, if it has
/// waited for the limit, alone or with those that were dropped before, and no other call had a
/// response meanwhile.
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
        let now = Instant::now();
        let mut waited = lock(&self.silence.waited);
        let since = waited
            .until
            .map_or(self.since, |until| until.max(self.since));
        waited.until = Some(now);
        if self.is_answered {
            waited.time = Duration::ZERO;
            return;
        }
        waited.time += now - since;
        if waited.time > self.limit {
            self.silence.give_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(100);

    /// Two calls that are dropped after so many milliseconds.
    async fn drop_after(silence: &Silence, millis: u64) {
        let calls = [silence.call(LIMIT), silence.call(LIMIT)];
        advance(Duration::from_millis(millis)).await;
        drop(calls);
    }

    /// With a short call timeout a connection that hung was never given up.
    #[tokio::test(start_paused = true)]
    async fn calls_that_are_dropped_soon_give_a_silent_connection_up_together() {
        let silence = Silence::default();
        for is_given_up in [false, false, true] {
            drop_after(&silence, 50).await;
            assert_eq!(silence.is_given_up(), is_given_up);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn response_ends_the_silence_and_time_without_calls_does_not_count() {
        let silence = Silence::default();
        for _ in 0..5 {
            drop_after(&silence, 60).await;
            silence.call(LIMIT).answered();
        }
        drop_after(&silence, 30).await;
        advance(LIMIT).await;
        drop_after(&silence, 60).await;
        assert!(!silence.is_given_up());
    }
}
