//! Changes that take longer than a browser waits. Each has a page that shows its progress.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use tickwheel_durable::store::StoreTime;

/// So many are remembered.
const MOST: usize = 100;

/// What a page says of a change that has ended.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) title: &'static str,
    pub(super) lines: Vec<String>,
}

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
    pub(super) told: OnceLock<Told>,
}

/// The last ones, by a number that no earlier process has given.
#[derive(Debug, Default)]
pub(super) struct Jobs(Mutex<VecDeque<(i64, Arc<Job>)>>);

impl Jobs {
    /// Remembers one. Returns its number.
    pub(super) fn add(&self, job: Arc<Job>) -> i64 {
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = jobs.back().map_or(0, |(number, _)| *number);
        let number = StoreTime::from(SystemTime::now()).as_micros().max(last + 1);
        jobs.push_back((number, job));
        if jobs.len() > MOST {
            jobs.pop_front();
        }
        number
    }

    pub(super) fn get(&self, number: i64) -> Option<Arc<Job>> {
        let jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut jobs = jobs.iter();
        let found = jobs.find(|(of, _)| *of == number);
        found.map(|(_, job)| Arc::clone(job))
    }
}

impl Job {
    pub(super) fn changed(&self) -> u64 {
        self.changed.load(Ordering::Relaxed)
    }
}
