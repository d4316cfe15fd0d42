//! Logins: each has its secret, and ends.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::shown::hex;

/// At most 1,000 logins are open at once. One more ends the oldest.
const MAX_SESSIONS: usize = 1_000;

#[derive(Debug)]
pub(super) struct Sessions {
    length: Duration,
    /// When each ends, by its secret.
    open: Mutex<HashMap<String, Instant>>,
}

impl Sessions {
    pub(super) fn new(length: Duration) -> Self {
        let open = Mutex::default();
        Sessions { length, open }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins one. Returns its secret.
    pub(super) fn begin(&self) -> String {
        let (secret, now) = (secret(), Instant::now());
        let mut open = self.open();
        open.retain(|_, end| *end > now);
        if open.len() >= MAX_SESSIONS {
            let oldest = open.iter().min_by_key(|(_, end)| **end);
            let oldest = oldest.map(|(secret, _)| secret.clone());
            oldest.and_then(|oldest| open.remove(&oldest));
        }
        open.insert(secret.clone(), now + self.length);
        secret
    }

    pub(super) fn is_open(&self, secret: &str) -> bool {
        let end = self.open().get(secret).copied();
        end.is_some_and(|end| end > Instant::now())
    }

    pub(super) fn end(&self, secret: &str) {
        self.open().remove(secret);
    }
}

fn secret() -> String {
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    hex(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn session_ends() {
        let sessions = Sessions::new(Duration::from_secs(60));
        let first = sessions.begin();
        tokio::time::advance(Duration::from_secs(59)).await;
        let second = sessions.begin();
        assert!(first != second && sessions.is_open(&first));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!sessions.is_open(&first) && sessions.is_open(&second));
        sessions.end(&second);
        assert!(!sessions.is_open(&second));
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_are_bounded() {
        let sessions = Sessions::new(Duration::from_secs(60));
        let first = sessions.begin();
        for _ in 0..MAX_SESSIONS {
            tokio::time::advance(Duration::from_millis(1)).await;
            sessions.begin();
        }
        assert!(!sessions.is_open(&first));
        assert_eq!(sessions.open().len(), MAX_SESSIONS);
    }
}
