//! What handlers were called for.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tickwheel_durable::Claim;
use tokio::time::sleep;

/// How often each key was handled, and by which instance first.
#[derive(Default)]
pub(crate) struct Handled(Mutex<BTreeMap<String, (usize, u32)>>);

impl Handled {
    fn keys(&self) -> MutexGuard<'_, BTreeMap<String, (usize, u32)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, by: usize, claim: &Claim<String, u64>) {
        let mut keys = self.keys();
        let (_, times) = keys.entry(claim.key.clone()).or_insert((by, 0));
        *times += 1;
    }

    /// The keys that were handled more than once.
    pub(crate) fn twice(&self) -> Vec<String> {
        let keys = self.keys();
        let twice = keys.iter().filter(|(_, (_, times))| *times > 1);
        twice.map(|(key, _)| key.clone()).collect()
    }

    /// Waits until so many keys were handled.
    pub(crate) async fn reach(&self, enough: usize, unit: Duration) {
        while self.len() < enough {
            sleep(unit / 4).await;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.keys().len()
    }

    /// How many keys that instance has handled first.
    pub(crate) fn by(&self, instance: usize) -> usize {
        let keys = self.keys();
        keys.values().filter(|(by, _)| *by == instance).count()
    }
}
