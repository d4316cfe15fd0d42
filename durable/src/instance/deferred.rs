//! Items that are sent again: their keys are locked by a transaction that is not the store's own,
//! or the call failed and they are [kept](super::group_commit::Outcome::Failed).
//!
//! A store does not wait for such a transaction, since it may last for minutes. So the items wait
//! here, and are sent again [every few milliseconds](RETRY), while other keys go on. While calls
//! fail, the pause grows up to [a second](MAX_PAUSE). The first call that works and settles one
//! of its items ends it.
//!
//! Order: while a key has items here, every later item of the key joins them at the end. A retry
//! takes all items of a key at once, in their order.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

use crate::jitter::jittered;

/// The delay before locked items are sent again.
pub(super) const RETRY: Duration = Duration::from_millis(10);

/// The longest pause while calls fail.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Items that wait.
pub(super) struct Deferred<K, T> {
    /// The keys, the one that was tried longest ago first.
    keys: VecDeque<K>,
    items: HashMap<K, Vec<T>>,
    /// When the next retry is. `None` if nothing waits.
    retry_at: Option<Instant>,
    /// The pause before it.
    pause: Duration,
}

impl<K: Clone + Eq + Hash, T> Deferred<K, T> {
    pub(super) fn new() -> Self {
        Deferred {
            keys: VecDeque::new(),
            items: HashMap::new(),
            retry_at: None,
            pause: RETRY,
        }
    }

    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Adds an item behind those of its key.
    pub(super) fn add(&mut self, key: K, item: T) {
        self.retry_at
            .get_or_insert_with(|| Instant::now() + self.pause);
        let items = self.items.entry(key).or_insert_with_key(|key| {
            self.keys.push_back(key.clone());
            Vec::new()
        });
        items.push(item);
    }

    /// Moves the items here that have another of their key here.
    pub(super) fn add_followers(&mut self, batch: &mut Vec<T>, key: impl Fn(&T) -> K) {
        if self.keys.is_empty() {
            return;
        }
        for item in std::mem::take(batch) {
            let key = key(&item);
            if self.items.contains_key(&key) {
                self.add(key, item);
            } else {
                batch.push(item);
            }
        }
    }

    /// Takes all items of some keys out, in their order, if it is time for a retry: at least
    /// `count` items, unless there are fewer.
    pub(super) fn take(&mut self, count: usize) -> Vec<T> {
        let now = Instant::now();
        let mut taken = Vec::new();
        if self.retry_at.is_none_or(|at| at > now) {
            return taken;
        }
        while taken.len() < count {
            let Some(key) = self.keys.pop_front() else {
                break;
            };
            taken.extend(self.items.remove(&key).unwrap_or_default());
        }
        self.retry_at = (!self.keys.is_empty()).then(|| now + self.pause);
        taken
    }

    /// A call has failed, or has worked.
    pub(super) fn note(&mut self, failed: bool) {
        let now = Instant::now();
        if failed {
            self.pause = (self.pause * 2).min(MAX_PAUSE);
            let retry_at = now + jittered(self.pause);
            self.retry_at = self.retry_at.map(|at| at.max(retry_at));
        } else {
            self.pause = RETRY;
            self.retry_at = self.retry_at.map(|at| at.min(now + RETRY));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pause_grows_with_failures_and_ends_with_a_success() {
        let mut deferred = Deferred::new();
        deferred.add("a", 1);
        for _ in 0..10 {
            deferred.note(true);
        }
        let wait = |deferred: &Deferred<_, _>| {
            let retry_at = deferred.retry_at().expect("an item waits");
            retry_at.saturating_duration_since(Instant::now())
        };
        let long = wait(&deferred);
        assert!((MAX_PAUSE / 2..=2 * MAX_PAUSE).contains(&long), "{long:?}");
        assert_eq!(deferred.take(10), [0; 0], "it is not time");
        deferred.note(false);
        assert!(wait(&deferred) <= RETRY);
        tokio::time::advance(RETRY).await;
        assert_eq!(deferred.take(10), [1]);
        deferred.add("b", 2);
        assert!(wait(&deferred) <= RETRY);
    }

    #[tokio::test(start_paused = true)]
    async fn what_there_was_no_room_for_comes_after_a_pause() {
        let mut deferred = Deferred::new();
        for key in 0..3 {
            deferred.add(key, key);
        }
        tokio::time::advance(RETRY).await;
        assert_eq!(deferred.take(2), [0, 1]);
        assert_eq!(deferred.take(2), [0; 0], "it is not time");
        assert_eq!(deferred.retry_at(), Some(Instant::now() + RETRY));
        tokio::time::advance(RETRY).await;
        assert_eq!(deferred.take(2), [2]);
        assert_eq!(deferred.retry_at(), None);
    }
}
