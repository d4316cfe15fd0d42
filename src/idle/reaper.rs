//! Watches many things at once, and hands out those that have been idle for too long.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::idle_timer::Busy;
use crate::keyed::{Claim, Expirations, Set, SetTimerError, Stored};
use crate::shared::activity::{Activity, LATEST_NANOS, Reap};
use crate::tick::{Ticks, Timestamp, after};
use crate::timer_wheel::TimerWheel;

/// A maximum age is spread by this part of it, both ways.
const JITTER: f64 = 0.1;

/// Watches connections, sessions, leases: whatever is to be ended once nothing has happened on it for a while. Made by
/// [`TimerWheel::reaper`](crate::TimerWheel::reaper).
///
/// Each thing that is watched has a [`Watch`], which it touches when it is active; those that are idle come out of the
/// one stream of [`Expirations`], not earlier than the idle duration after their last touch and at most two ticks
/// later. A touch is at most a store, and never a message.
///
/// *Reap XOR touch:* a watch that is touched before its expiration is handed out by the stream is not reaped. After
/// that, its touches return false.
///
/// Cheap to clone, and usable from any thread.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let wheel = tickwheel::TimerWheel::new();
/// let (reaper, mut idle) = wheel.reaper::<u32, &str>(Duration::from_secs(60));
///
/// let chatty = reaper.watch(1, "chatty").unwrap();
/// let silent = reaper.watch(2, "silent").unwrap();
///
/// tokio::time::sleep(Duration::from_secs(40)).await;
/// assert!(chatty.touch());
///
/// assert_eq!(idle.recv().await.unwrap().value, "silent");
/// assert!(!silent.touch(), "it has been reaped");
/// assert!(chatty.touch());
/// # }
/// ```
pub struct Reaper<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    core: Arc<Core<K, V>>,
    origin: Arc<WatchHome>,
    /// Dropped with the last handle.
    #[allow(dead_code, reason = "it is there to be dropped")]
    handle: Arc<Handle<K, V>>,
}

/// Keeps something watched. Dropping it ends the watching, without an expiration.
#[must_use = "dropping it ends the watching"]
pub struct Watch {
    activity: Arc<Activity>,
    origin: Arc<WatchHome>,
}

/// What the guards of one reaper share: one pointer in each of perhaps a million.
struct WatchHome {
    ticks: Ticks,
    core: Arc<dyn Unwatch>,
}

/// What one watch has beside its reaper's idle duration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WatchOptions {
    max_age: Option<Duration>,
}

/// A value and its activity.
pub(crate) struct Watched<V> {
    value: V,
    activity: Arc<Activity>,
}

/// What the watches of a reaper have in common.
pub(crate) struct WatchRules {
    ticks: Ticks,
    idle_nanos: u64,
}

/// What a watch needs of its reaper.
trait Unwatch: Send + Sync {
    /// Its watch was dropped; the activity has ended.
    fn unwatch(&self, activity: &Arc<Activity>);
}

/// What handles and watches share. Both keep the actor: what is watched may be on its way between wheel and stream, and
/// be touched there.
struct Core<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    set: Arc<Set<K, Watched<V>>>,
    _wheel: TimerWheel,
}

/// Exists while a handle does.
struct Handle<K, V>(Arc<Core<K, V>>)
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static;

impl<K, V> Drop for Handle<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    fn drop(&mut self) {
        self.0.set.handles_gone();
    }
}

/// A new reaper on the wheel. The caller has checked that `idle` is not zero.
pub(crate) fn reaper<K, V>(wheel: &TimerWheel, idle: Duration) -> (Reaper<K, V>, Expirations<K, V>)
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    let rules = WatchRules {
        ticks: wheel.shared().ticks,
        idle_nanos: u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX),
    };
    let set = Set::new(wheel.shared(), rules);
    let expirations = Expirations::new(Arc::clone(&set) as _);
    let core = Arc::new(Core {
        set,
        _wheel: wheel.clone(),
    });
    let origin = WatchHome {
        ticks: wheel.shared().ticks,
        core: Arc::clone(&core) as _,
    };
    let reaper = Reaper {
        origin: Arc::new(origin),
        handle: Arc::new(Handle(Arc::clone(&core))),
        core,
    };
    (reaper, expirations)
}

impl WatchOptions {
    /// Nothing but the reaper's idle duration. Never panics.
    pub fn new() -> Self {
        Self::default()
    }

    /// The watch expires at this age too, counted from its start, however active or busy it is.
    ///
    /// The age is spread at random by a tenth of it both ways, so that those that began together do not end together.
    ///
    /// # Panics
    ///
    /// If it is zero.
    #[must_use]
    #[track_caller]
    pub fn max_age(mut self, age: Duration) -> Self {
        assert!(!age.is_zero(), "a maximum age must be longer than zero");
        self.max_age = Some(age);
        self
    }
}

impl<K, V> Reaper<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    /// Watches something from now on. Key and value come out of the stream when it has been idle for too long.
    ///
    /// Keys need not be different: a watch is known by its guard. Never panics.
    ///
    /// # Errors
    ///
    /// [`Full`](SetTimerError::Full) when `max_keyed` timers are pending on the wheel,
    /// [`Closed`](SetTimerError::Closed) when the wheel is shut down or the stream dropped. Both give key and value back.
    pub fn watch(&self, key: K, value: V) -> Result<Watch, SetTimerError<K, V>> {
        self.watch_with(key, value, WatchOptions::new())
    }

    /// Watches something, with [options](WatchOptions) of its own. Otherwise as [`watch`](Self::watch).
    ///
    /// # Errors
    ///
    /// As [`watch`](Self::watch).
    pub fn watch_with(
        &self,
        key: K,
        value: V,
        options: WatchOptions,
    ) -> Result<Watch, SetTimerError<K, V>> {
        let set = &self.core.set;
        let ticks = set.shared().ticks;
        let now = ticks.nanos(Instant::now());
        let oldest = options.max_age.and_then(|age| after(jittered(age)));
        let oldest = oldest.map_or(Timestamp::NEVER, |at| ticks.timestamp(at));
        let activity = set.add(key, value, oldest, Timestamp::at(now), |value, slot| {
            let activity = Arc::new(Activity::new(now, ticks.tick_nanos(), slot));
            let watched = Watched {
                value,
                activity: Arc::clone(&activity),
            };
            (watched, activity)
        })?;
        let origin = Arc::clone(&self.origin);
        Ok(Watch { activity, origin })
    }

    /// How many things are watched. Exact. Never panics.
    pub fn len(&self) -> usize {
        self.core.set.len()
    }

    /// Whether nothing is watched. Never panics.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Watch {
    /// Records activity now. False when it has been reaped, and nothing is recorded. Never panics.
    #[inline]
    pub fn touch(&self) -> bool {
        self.touch_at(Instant::now())
    }

    /// Records activity at an instant, for who has just read the clock. Never panics.
    ///
    /// An instant before the last activity changes nothing. One in the future counts as activity then, but by no more
    /// than one idle duration ahead of the time at which the wheel looks.
    #[inline]
    pub fn touch_at(&self, at: Instant) -> bool {
        let ticks = &self.origin.ticks;
        self.activity.touch(ticks.touch(at), ticks.tick_nanos())
    }

    /// Keeps it from being idle while the guard is held: a request is in flight. Never panics.
    ///
    /// If it has been reaped already the guard keeps nothing, and [says so](Busy::is_effective).
    pub fn busy(&self) -> Busy {
        Busy::of_watch(&self.activity, self.origin.ticks)
    }

    /// Whether it is still watched: not reaped, and its reaper's stream and wheel alive. Never panics.
    pub fn is_watched(&self) -> bool {
        self.activity.last().is_some()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.activity.end();
        self.origin.core.unwatch(&self.activity);
    }
}

impl<K, V> Unwatch for Core<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    fn unwatch(&self, activity: &Arc<Activity>) {
        // If it had ended before, its slot may be somebody else's.
        let is_it = |watched: &Watched<V>| Arc::ptr_eq(&watched.activity, activity);
        self.set.forget(activity.slot, is_it);
    }
}

impl WatchRules {
    /// When a watch last active then is idle.
    fn idle_after(&self, last: u64) -> Timestamp {
        Timestamp::at(last.saturating_add(self.idle_nanos))
    }

    /// The latest activity that counts: a touch in the future does, but no more than one idle duration ahead.
    fn latest(&self, now: u64) -> u64 {
        now.saturating_add(self.idle_nanos).min(LATEST_NANOS)
    }
}

impl<V: Send + 'static> Stored for Watched<V> {
    type Value = V;
    type Rules = WatchRules;
    const CLAIMED: bool = true;

    /// The deadline is the greatest age.
    fn due(&self, oldest: Timestamp, now: Timestamp, rules: &WatchRules) -> Timestamp {
        let now = now.after_origin();
        let last = if self.activity.is_busy() {
            // Time to ask again.
            Some(now)
        } else {
            let again = || rules.latest(rules.ticks.nanos(Instant::now()));
            self.activity.clamp(rules.latest(now), again)
        };
        // When it has ended its watch is about to take it out.
        last.map_or(Timestamp::NEVER, |last| rules.idle_after(last).min(oldest))
    }

    fn claim(&self, oldest: Timestamp, now: Timestamp, rules: &WatchRules) -> Claim {
        if oldest <= now {
            let ended = self.activity.end();
            return ended.map_or(Claim::Later, |_| Claim::Expired(oldest));
        }
        let since = now.after_origin().checked_sub(rules.idle_nanos);
        match since.map(|since| self.activity.reap(since)) {
            Some(Reap::Reaped(last)) => Claim::Expired(rules.idle_after(last)),
            _ => Claim::Later,
        }
    }

    fn end(&self, oldest: Timestamp, now: Timestamp, rules: &WatchRules) -> Option<Timestamp> {
        let last = self.activity.end()?;
        let last = last.min(rules.latest(now.after_origin()));
        Some(rules.idle_after(last).min(oldest))
    }

    fn into_value(self) -> V {
        self.value
    }
}

/// The age, a tenth more or less at random.
fn jittered(age: Duration) -> Duration {
    // A keyed hash of nothing is as random as its key.
    let random = RandomState::new().hash_one(());
    #[allow(clippy::cast_precision_loss)] // the last bits of a random number do not matter
    let unit = random as f64 / u64::MAX as f64;
    let factor = 1.0 + JITTER * (2.0 * unit - 1.0);
    Duration::try_from_secs_f64(age.as_secs_f64() * factor).unwrap_or(age)
}

impl<K, V> Clone for Reaper<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    fn clone(&self) -> Self {
        Reaper {
            core: Arc::clone(&self.core),
            origin: Arc::clone(&self.origin),
            handle: Arc::clone(&self.handle),
        }
    }
}

impl<K, V> fmt::Debug for Reaper<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reaper")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("is_watched", &self.is_watched())
            .finish_non_exhaustive()
    }
}
