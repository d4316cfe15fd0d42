use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

#[derive(Default)]
pub struct Store {
    items: Mutex<Items>,
    /// The earliest deadline has changed.
    changed: Notify,
}

#[derive(Default)]
struct Items {
    by_key: HashMap<String, (u32, Option<Instant>)>,
    by_deadline: BTreeSet<(Instant, String)>,
}

impl Store {
    pub fn set(&self, key: &str, value: u32, ttl: Option<Duration>) {
        let mut items = self.items.lock().unwrap();
        let deadline = ttl.map(|ttl| Instant::now() + ttl);
        let replaced = items.by_key.insert(key.to_owned(), (value, deadline));
        if let Some((_, Some(old))) = replaced {
            items.by_deadline.remove(&(old, key.to_owned()));
        }
        if let Some(deadline) = deadline {
            items.by_deadline.insert((deadline, key.to_owned()));
            self.changed.notify_one();
        }
    }

    pub fn get(&self, key: &str) -> Option<u32> {
        let items = self.items.lock().unwrap();
        items.by_key.get(key).map(|(value, _)| *value)
    }
}

/// Removes what is due, and returns the next deadline.
fn purge(items: &mut Items) -> Option<Instant> {
    while let Some((deadline, key)) = items.by_deadline.first().cloned() {
        if deadline > Instant::now() {
            return Some(deadline);
        }
        items.by_key.remove(&key);
        items.by_deadline.pop_first();
    }
    None
}

pub async fn remove_expired(store: Arc<Store>) {
    loop {
        let next = purge(&mut store.items.lock().unwrap());
        let changed = store.changed.notified();
        match next {
            Some(next) => drop(tokio::time::timeout_at(next, changed).await),
            None => changed.await,
        }
    }
}
