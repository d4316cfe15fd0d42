//! Recipes: debounce, throttle, batches, retries, a map with items that expire, and a wheel on its
//! own thread. Documentation only; its examples are tests.
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
//! # Batch
//!
//! Items of a key are collected, and handled together a while after the first one, or once there
//! are enough. [`set_or_update`](KeyedTimers::set_or_update) adds to the batch or begins one, in
//! one step, so no item is lost between producers and consumer; it has an example.
//!
//! # The earliest deadline counts
//!
//! Several callers ask for the same key to be handled, each with its own deadline.
//! [`set_or_update_at`](KeyedTimers::set_or_update_at) keeps the earlier one, or the later one; it
//! has an example. Where a call must not work once the deadline has passed, as with a bid in an
//! auction, [`update`](KeyedTimers::update) compares and changes under one lock.
//!
//! # Retry
//!
//! A handler of [`dispatch`](crate::Expirations::dispatch) that fails returns
//! [`Outcome::Again`](crate::Outcome::Again) with the value and a delay. Removing the key cancels
//! the retry, also while the handler runs. `examples/retry_backoff.rs` doubles the delay each time.
//!
//! # A map whose items expire
//!
//! The set is the map: the value of each timer is an item. [`set_timer`](KeyedTimers::set_timer)
//! inserts or refreshes it, [`get`](KeyedTimers::get) reads it, and a task receives what expires.
//! An item that is refreshed before it is received stays, however late that is. Until then it can
//! also be read; where it must not be, compare its [`deadline`](KeyedTimers::deadline) with the
//! clock.
//!
//! ```
//! use std::time::Duration;
//!
//! use tickwheel::{Expirations, KeyedTimers, SetTimerError, TimerWheel};
//!
//! struct Cache {
//!     items: KeyedTimers<String, u32>,
//! }
//!
//! impl Cache {
//!     fn insert(&self, key: &str, value: u32) -> Result<(), SetTimerError<String, u32>> {
//!         self.items.set_timer(key.to_owned(), value, Duration::from_secs(60))?;
//!         Ok(())
//!     }
//!
//!     fn get(&self, key: &str) -> Option<u32> {
//!         self.items.get(key)
//!     }
//! }
//!
//! impl Drop for Cache {
//!     fn drop(&mut self) {
//!         // Or the items would stay until they expire, and the task below with them.
//!         let _ = self.items.drain();
//!     }
//! }
//!
//! async fn remove_expired(mut expirations: Expirations<String, u32>) {
//!     while let Some(expired) = expirations.recv().await {
//!         println!("{} has expired", expired.key);
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let wheel = TimerWheel::new();
//! let (items, expirations) = wheel.keyed();
//! let cache = Cache { items };
//!
//! cache.insert("answer", 41)?;
//! tokio::time::sleep(Duration::from_secs(61)).await;
//! // It is overdue, and refreshed before it is received.
//! cache.insert("answer", 42)?;
//!
//! let task = tokio::spawn(remove_expired(expirations));
//! tokio::time::sleep(Duration::from_secs(30)).await;
//! assert_eq!(cache.get("answer"), Some(42), "the fresh item is there");
//! tokio::time::sleep(Duration::from_secs(31)).await;
//! assert_eq!(cache.get("answer"), None);
//!
//! cache.insert("question", 6)?;
//! let dropped = tokio::time::Instant::now();
//! drop(cache);
//! task.await?; // it ends at once
//! assert!(dropped.elapsed().is_zero());
//! # Ok(())
//! # }
//! ```
//!
//! The set does not know which timer is due first: the order lies on the wheel, which the actor
//! owns. [`next_deadline`](KeyedTimers::next_deadline) visits all timers, so it is no way to evict
//! from a map that is full. If all items live equally long, keep a queue of their keys beside the
//! map: the oldest one expires first.
//!
//! Items that lie in a map of your own are no part of the set: between the receipt and the removal
//! from the map, a caller may refresh one. So change an item and its timer under the map's lock,
//! and remove the item only if its key has no [timer again](KeyedTimers::contains) then.
//!
//! # A wheel on its own thread
//!
//! Timers fire even while every worker of your runtime is blocked, and can be set without any
//! runtime, if the wheel has a runtime and a thread to itself. A woken task still waits for a
//! worker. The wheel goes by the real clock: do not use it in tests with a paused one.
//!
//! ```
//! use std::io;
//! use std::thread::{self, JoinHandle};
//! use std::time::Duration;
//!
//! use tickwheel::{Builder, TimerWheel};
//!
//! /// Starts a wheel on a thread, which ends with the wheel.
//! fn start_on_thread(builder: Builder) -> io::Result<(TimerWheel, JoinHandle<()>)> {
//!     let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
//!     let builder = builder.runtime(runtime.handle().clone());
//!     let wheel = builder.start().map_err(io::Error::other)?;
//!     let weak = wheel.downgrade();
//!     let thread = thread::Builder::new().name("timers".to_owned());
//!     let thread = thread.spawn(move || runtime.block_on(weak.closed()))?;
//!     Ok((wheel, thread))
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (wheel, thread) = start_on_thread(TimerWheel::builder())?;
//! let (timers, mut expirations) = wheel.keyed();
//! timers.set_timer("lease", (), Duration::from_millis(5))?;
//! // There is no runtime here, and the thread blocks.
//! while expirations.try_recv().is_err() {
//!     thread::yield_now();
//! }
//! assert_eq!(wheel.metrics().keyed_fired, 1);
//!
//! drop((wheel, timers));
//! assert!(thread.join().is_ok(), "it ends with the last handle");
//! # Ok(())
//! # }
//! ```

// For the links above.
#[allow(unused_imports)]
use crate::KeyedTimers;
