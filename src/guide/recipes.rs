//! Recipes for keyed timers: debounce, throttle, and a map with items that expire. Documentation
//! only; its example is a test.
//!
//! # Debounce
//!
//! A burst of events has one effect, once the events have stopped for a while. Each event moves the
//! key's timer, or sets it when there is none; [`move_timer`](KeyedTimers::move_timer) has an
//! example. Where the effect needs the value of the last event, each event calls
//! [`set_timer`](KeyedTimers::set_timer), which replaces value and deadline.
//!
//! A debounced draft that changes without a pause is never saved. To save it every ten seconds at
//! the latest, keep the time of the first change in the value, and stop moving the timer after
//! that.
//!
//! # Throttle
//!
//! The first event of a key passes, and the next one only after a while. The timer is the lock: of
//! many callers at once, [`set_if_absent`](KeyedTimers::set_if_absent) sets it for one, and its
//! expiration releases it. A task has to empty the stream even where no code needs the expirations.
//!
//! # A map whose items expire
//!
//! Each item of your map has a timer under its key. Refreshing an item sets its timer again, and an
//! expiration removes the item. But **no call takes an expiration back from the stream**: if an
//! item is refreshed between the expiration of its timer and the `recv`, removing it would lose a
//! fresh item. So callers change an item and its timer under the map's lock, and the consumer asks
//! under the same lock whether the key has a [timer again](KeyedTimers::contains):
//!
//! ```
//! use std::collections::HashMap;
//! use std::sync::{Arc, Mutex};
//! use std::time::Duration;
//!
//! use tickwheel::{Expirations, KeyedTimers, SetTimerError, TimerWheel, WeakKeyedTimers};
//!
//! type Items = Mutex<HashMap<String, u32>>;
//!
//! struct Cache {
//!     items: Arc<Items>,
//!     timers: KeyedTimers<String, ()>,
//! }
//!
//! impl Cache {
//!     fn insert(&self, key: &str, value: u32) -> Result<(), SetTimerError<String, ()>> {
//!         let mut items = self.items.lock().unwrap();
//!         self.timers.set_timer(key.to_owned(), (), Duration::from_secs(60))?;
//!         items.insert(key.to_owned(), value);
//!         Ok(())
//!     }
//!
//!     fn get(&self, key: &str) -> Option<u32> {
//!         self.items.lock().unwrap().get(key).copied()
//!     }
//! }
//!
//! async fn remove_expired(
//!     mut expirations: Expirations<String, ()>,
//!     timers: WeakKeyedTimers<String, ()>,
//!     items: Arc<Items>,
//! ) {
//!     while let Some(expired) = expirations.recv().await {
//!         let mut items = items.lock().unwrap();
//!         // Refreshed since it expired: the item has another timer, and stays.
//!         let is_fresh = timers.upgrade().is_some_and(|timers| timers.contains(&expired.key));
//!         if !is_fresh {
//!             items.remove(&expired.key);
//!         }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let wheel = TimerWheel::new();
//! let (timers, expirations) = wheel.keyed();
//! let (weak, items) = (timers.downgrade(), Arc::<Items>::default());
//! let cache = Cache { items: items.clone(), timers };
//!
//! cache.insert("answer", 41)?;
//! tokio::time::sleep(Duration::from_secs(61)).await;
//! // The expiration lies in the stream. Before it is received, the item is refreshed.
//! cache.insert("answer", 42)?;
//!
//! tokio::spawn(remove_expired(expirations, weak, items)); // it ends when the cache is dropped
//! tokio::time::sleep(Duration::from_secs(30)).await;
//! assert_eq!(cache.get("answer"), Some(42), "the fresh item is there");
//! tokio::time::sleep(Duration::from_secs(31)).await;
//! assert_eq!(cache.get("answer"), None);
//! # Ok(())
//! # }
//! ```
//!
//! Every caller locks the map first and the set of timers second, so they cannot deadlock.

// For the links above.
#[allow(unused_imports)]
use crate::KeyedTimers;
