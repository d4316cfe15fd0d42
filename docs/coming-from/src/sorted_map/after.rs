use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tickwheel::{Expirations, KeyedTimers, TimerWheel};

pub struct Store {
    items: Arc<Mutex<Items>>,
    /// The value of a timer is the version of the item that is to expire.
    timers: KeyedTimers<String, u64>,
}

#[derive(Default)]
struct Items {
    by_key: HashMap<String, (u32, u64)>,
    last_version: u64,
}

type Failure = Box<dyn Error + Send + Sync>;

impl Store {
    pub fn set(&self, key: &str, value: u32, ttl: Option<Duration>) -> Result<(), Failure> {
        let mut items = self.items.lock().unwrap();
        items.last_version += 1;
        let version = items.last_version;
        if let Some(ttl) = ttl {
            self.timers.set_timer(key.to_owned(), version, ttl)?;
        } else {
            self.timers.remove_timer(key)?;
        }
        items.by_key.insert(key.to_owned(), (value, version));
        Ok(())
    }
}

async fn remove_expired(mut expirations: Expirations<String, u64>, items: Arc<Mutex<Items>>) {
    while let Some(expired) = expirations.recv().await {
        let items = &mut items.lock().unwrap().by_key;
        // An item that was set again since it expired has another version, and stays.
        let is_same = |(_, version): &(u32, u64)| *version == expired.value;
        if items.get(&expired.key).is_some_and(is_same) {
            items.remove(&expired.key);
        }
    }
}

impl Store {
    pub fn new(wheel: &TimerWheel) -> Self {
        let (timers, expirations) = wheel.keyed();
        let items = Arc::default();
        tokio::spawn(remove_expired(expirations, Arc::clone(&items)));
        Store { items, timers }
    }

    pub fn get(&self, key: &str) -> Option<u32> {
        let items = self.items.lock().unwrap();
        items.by_key.get(key).map(|(value, _)| *value)
    }
}
