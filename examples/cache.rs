//! A cache with items that expire: each item has a timer under its key.
//!
//! * Setting an item again replaces its value and deadline at once.
//! * Items that were set together do not expire together: each expiry is changed by up to 5 %.
//! * Beyond its limit, the cache evicts the least recently used item.
//! * The task that removes expired items ends with the cache.
//!
//! The program checks each of these, and exits with 1 if one does not hold.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tickwheel::{Expirations, KeyedTimers, TimerWheel};
use tokio::task::JoinHandle;
use tokio::time::Instant;

#[path = "support/say.rs"]
#[macro_use]
mod say;

/// The most by which an item's expiry is shorter or longer, as a part of it.
const SPREAD: f64 = 0.05;

/// An event that has not happened by then never will.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A cheap handle; clones share the items.
#[derive(Clone)]
struct Cache<V> {
    items: Arc<Mutex<Items<V>>>,
    timers: Arc<Timers>,
    expiry: Duration,
}

/// The value is the version of the item that is to expire.
struct Timers(KeyedTimers<String, u64>);

impl Drop for Timers {
    fn drop(&mut self) {
        // Or the task would stay until the last item expires, and all items with it.
        let _ = self.0.drain();
    }
}

struct Items<V> {
    by_key: HashMap<String, Item<V>>,
    /// The keys, by their last use; the numbers come from `clock`.
    by_use: BTreeMap<u64, String>,
    clock: u64,
    limit: usize,
    statistics: Statistics,
}

struct Item<V> {
    value: V,
    version: u64,
    used: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Statistics {
    hits: u64,
    misses: u64,
    expired: u64,
    evicted: u64,
}

impl<V: Clone + Send + 'static> Cache<V> {
    /// A cache, and the task that removes its expired items.
    fn new(wheel: &TimerWheel, expiry: Duration, limit: usize) -> (Self, JoinHandle<()>) {
        let (timers, expirations) = wheel.keyed();
        let items = Arc::new(Mutex::new(Items {
            by_key: HashMap::new(),
            by_use: BTreeMap::new(),
            clock: 0,
            limit,
            statistics: Statistics::default(),
        }));
        let removing = tokio::spawn(remove_expired(expirations, Arc::clone(&items)));
        let timers = Arc::new(Timers(timers));
        let cache = Cache {
            items,
            timers,
            expiry,
        };
        (cache, removing)
    }

    fn set(&self, key: &str, value: V) {
        let mut items = self.lock();
        let evicted = items.insert(key, value);
        let version = items.clock;
        // With the items locked, so that item and timer get the same version. An error means that
        // the wheel is shut down: then nothing expires.
        let _ = (self.timers.0).set_timer(key.to_owned(), version, spread(self.expiry));
        if let Some(evicted) = evicted {
            let _ = self.timers.0.remove_timer(&evicted);
        }
    }

    fn get(&self, key: &str) -> Option<V> {
        self.lock().get(key)
    }

    fn remove(&self, key: &str) -> Option<V> {
        let mut items = self.lock();
        let _ = self.timers.0.remove_timer(key);
        items.remove(key)
    }

    fn len(&self) -> usize {
        self.lock().by_key.len()
    }

    fn statistics(&self) -> Statistics {
        self.lock().statistics
    }

    fn lock(&self) -> MutexGuard<'_, Items<V>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn remove_expired<V>(mut expirations: Expirations<String, u64>, items: Arc<Mutex<Items<V>>>) {
    while let Some(expired) = expirations.recv().await {
        let mut items = items.lock().unwrap_or_else(PoisonError::into_inner);
        let item = items.by_key.get(&expired.key);
        // The item may have been set again after its timer fired; the new one has a timer of its
        // own.
        if item.is_some_and(|item| item.version == expired.value) {
            items.remove(&expired.key);
            items.statistics.expired += 1;
        }
    }
}

impl<V> Items<V> {
    /// Inserts an item, as the one used last. Returns the key of the item that was evicted for it.
    fn insert(&mut self, key: &str, value: V) -> Option<String> {
        self.remove(key);
        self.clock += 1;
        let item = Item {
            value,
            version: self.clock,
            used: self.clock,
        };
        self.by_key.insert(key.to_owned(), item);
        self.by_use.insert(self.clock, key.to_owned());
        if self.by_key.len() <= self.limit {
            return None;
        }
        let (_, oldest) = self.by_use.pop_first()?;
        self.by_key.remove(&oldest);
        self.statistics.evicted += 1;
        Some(oldest)
    }

    fn get(&mut self, key: &str) -> Option<V>
    where
        V: Clone,
    {
        let Some(item) = self.by_key.get_mut(key) else {
            self.statistics.misses += 1;
            return None;
        };
        self.statistics.hits += 1;
        self.clock += 1;
        let used = std::mem::replace(&mut item.used, self.clock);
        if let Some(key) = self.by_use.remove(&used) {
            self.by_use.insert(self.clock, key);
        }
        Some(item.value.clone())
    }

    fn remove(&mut self, key: &str) -> Option<V> {
        let item = self.by_key.remove(key)?;
        self.by_use.remove(&item.used);
        Some(item.value)
    }
}

/// The duration, give or take [`SPREAD`].
fn spread(duration: Duration) -> Duration {
    // Each `RandomState` is another one: good enough to spread deadlines.
    let random = RandomState::new().hash_one(());
    let share = f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX);
    duration.mul_f64(1.0 - SPREAD + 2.0 * SPREAD * share)
}

#[tokio::main]
#[allow(clippy::too_many_lines)] // one check after the other
async fn main() -> ExitCode {
    say::takes_no_arguments("A cache whose items expire");
    let wheel = TimerWheel::new();
    let expiry = Duration::from_millis(1_500);
    let (cache, removing) = Cache::new(&wheel, expiry, 1_000);
    let printing = tokio::spawn(print_statistics(wheel.clone(), cache.clone()));
    let mut failed = false;
    // On a machine that stops for so long that items expire meanwhile, what was set at `since`
    // shows nothing.
    let shortest_life = expiry.mul_f64(1.0 - SPREAD);
    let mut check = |what: &str, since: Instant, holds: bool| {
        let is_known = holds || since.elapsed() < shortest_life;
        say!(
            "{} {what}",
            if holds {
                "ok  "
            } else if is_known {
                "FAIL"
            } else {
                "late"
            }
        );
        failed |= !holds && is_known;
    };

    // More than there is room for; the first ones are used, so others have to go.
    let began = Instant::now();
    for user in 0..1_200 {
        cache.set(&format!("user {user}"), user);
        cache.get("user 0");
    }
    check("it holds as many as it may", began, cache.len() == 1_000);
    check("what is used stays", began, cache.get("user 0") == Some(0));
    check(
        "what is not used goes first",
        began,
        cache.get("user 1").is_none(),
    );
    check(
        "an evicted item has no timer any more",
        began,
        cache.timers.0.len() == cache.len(),
    );

    let set = Instant::now();
    cache.set("user 5000", 1);
    cache.set("user 5000", 2);
    check(
        "the last value counts",
        set,
        cache.get("user 5000") == Some(2),
    );
    let mut ends = 1_200 + u64::from(cache.remove("user 5000").is_none());
    check(
        "what is removed is gone",
        set,
        cache.get("user 5000").is_none(),
    );

    let mut lives = Vec::new();
    for user in 300..1_200 {
        let deadline = cache.timers.0.deadline(format!("user {user}").as_str());
        lives.extend(deadline.map(|at| at - began));
    }
    let shortest = lives.iter().min().copied().unwrap_or_default();
    let longest = lives.iter().max().copied().unwrap_or_default();
    say!(
        "     of {expiry:?} items live from {} to {} ms",
        shortest.as_millis(),
        longest.as_millis()
    );
    check(
        "no item lives too short, and they are spread",
        began,
        shortest >= shortest_life && longest > shortest + expiry.mul_f64(SPREAD),
    );

    wheel.sleep(expiry / 2).await;
    let set = Instant::now();
    ends += u64::from(cache.remove("user 700").is_none());
    cache.set("user 700", 7);
    wheel.sleep_until(began + expiry.mul_f64(1.15)).await;
    wheel.settle().await;
    check(
        "what was set again lives on",
        set,
        cache.get("user 700") == Some(7),
    );

    wheel.sleep(expiry).await;
    let all_expired = async {
        while cache.len() > 0 {
            wheel.sleep(expiry / 100).await;
        }
    };
    let all_expired = wheel.timeout(TIMEOUT, all_expired).await;
    let Statistics {
        expired, evicted, ..
    } = cache.statistics();
    let end = Instant::now();
    check("in the end all have expired", end, all_expired.is_ok());
    check(
        "every user was evicted or expired, once",
        end,
        expired + evicted == ends,
    );

    printing.abort();
    let _ = printing.await;
    let end = Instant::now();
    cache.set("user 1", 1);
    drop(cache);
    let ended = wheel.timeout(TIMEOUT, removing).await;
    let is_at_once = end.elapsed() < shortest_life;
    check("its task ends with it", end, ended.is_ok() && is_at_once);
    wheel.shutdown().await;
    ExitCode::from(u8::from(failed))
}

async fn print_statistics<V: Clone + Send + 'static>(wheel: TimerWheel, cache: Cache<V>) {
    let mut every = wheel.interval(Duration::from_millis(500));
    loop {
        every.tick().await;
        say!("     {} items, {:?}", cache.len(), cache.statistics());
    }
}
