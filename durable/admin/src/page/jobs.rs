//! Changes that take longer than a browser waits. Each has a page that shows its progress.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use tickwheel_durable::store::StoreTime;

/// At most 100 jobs are remembered.
const MAX_JOBS: usize = 100;

#[derive(Debug)]
pub(super) struct Job {
    /// What it does, such as `Remove 12,000 waiting timers`.
    pub(super) title: String,
    /// Where its page leads back to.
    pub(super) back: String,
    /// How many timers there were at its start.
    pub(super) total: u64,
    /// How many it has changed.
    pub(super) changed: AtomicU64,
    /// Once it has ended: a title, and lines.
    pub(super) result: OnceLock<(&'static str, Vec<String>)>,
}

/// The last ones, by number. The first number is the time by the wall clock: unless that steps
/// back, no earlier process has given it.
#[derive(Debug, Default)]
pub(super) struct Jobs(Mutex<BTreeMap<i64, Arc<Job>>>);

impl Jobs {
    /// Remembers one. Returns its number.
    pub(super) fn add(&self, job: Arc<Job>) -> i64 {
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = jobs.last_key_value().map_or(0, |(number, _)| *number);
        let number = StoreTime::from(SystemTime::now()).as_micros().max(last + 1);
        jobs.insert(number, job);
        if jobs.len() > MAX_JOBS {
            jobs.pop_first();
        }
        number
    }

    pub(super) fn get(&self, number: i64) -> Option<Arc<Job>> {
        let jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.get(&number).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_change_is_forgotten_first() {
        let jobs = Jobs::default();
        let job = Arc::new(Job {
            title: String::new(),
            back: String::new(),
            total: 0,
            changed: AtomicU64::new(0),
            result: OnceLock::new(),
        });
        let numbers = [(); MAX_JOBS + 1].map(|()| jobs.add(Arc::clone(&job)));
        let is_known = numbers.map(|number| jobs.get(number).is_some());
        let mut expected = [true; MAX_JOBS + 1];
        expected[0] = false;
        assert_eq!(is_known, expected);
    }
}
