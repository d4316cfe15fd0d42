//! Watches many things at once, and delivers those that have been idle for too long.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::idle_timer::Busy;
use crate::clock;
use crate::keyed::Expirations;
use crate::shared::activity::{Activity, LATEST_NANOS, Reap};
use crate::tick::{Ticks, Timestamp, after};
use crate::timer_set::{Handles, Payload, Set, SetTimerError};
use crate::timer_wheel::TimerWheel;

/// The part of a maximum age by which a watch ends before it at most.
const SPREAD: f64 = 0.1;

/// Watches connections, sessions or leases that are to end once nothing has happened on them for a while. Made by
/// [`TimerWheel::reaper`](crate::TimerWheel::reaper).
///
/// Each thing that is watched has a [`Watch`], which its owner touches when it is active. A watch that nothing touched
/// for the idle duration expires: it comes out of the one stream of [`Expirations`]. The actor delivers it no earlier
/// than the idle duration after its last touch and at most two ticks later, plus what the runtime adds. No touch sends a
/// command.
///
/// *Touched or expired, never both.* The actor decides with one atomic operation when it delivers the expiration. A
/// touch before that keeps the watch; every later one returns `false`. A consumer that lags may therefore receive a watch
/// whose owner has been active again since, and whose touches have returned `false`.
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
#[doc(alias = "session")]
#[doc(alias = "idle_timeout")]
#[doc(alias = "time_to_idle")]
pub struct Reaper<K, V> {
    set: Arc<Set<K, Watched<V>>>,
    watches: Arc<Watches>,
    handles: Arc<Handles>,
}

/// Keeps something watched. Dropping it ends the watching: it is not delivered afterwards.
///
/// It keeps the wheel's actor running. Dropping it locks the reaper's set, and sends one command at most.
#[doc(alias = "lease")]
#[must_use = "dropping it ends the watching"]
pub struct Watch {
    activity: Arc<Activity>,
    watches: Arc<Watches>,
}

/// The state that all watches of one reaper share, so that a watch needs a single pointer for it. It keeps the actor
/// running, because a watch that is due and not delivered can still be touched.
struct Watches {
    ticks: Ticks,
    set: Arc<dyn Unwatch>,
    _wheel: TimerWheel,
}

/// The options of one watch, beside its reaper's idle duration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WatchOptions {
    max_age: Option<Duration>,
    exact: bool,
}

/// A value and its activity.
pub(crate) struct Watched<V> {
    value: V,
    activity: Arc<Activity>,
}

/// The rules that all watches of a reaper share.
pub(crate) struct WatchRules {
    ticks: Ticks,
    idle_nanos: u64,
}

/// Ends watches with any type of key and value.
trait Unwatch: Send + Sync {
    /// Its watch was dropped.
    fn unwatch(&self, activity: &Arc<Activity>);
}

/// A new reaper on the wheel. The caller has checked that `idle` is not zero.
pub(crate) fn reaper<K, V>(wheel: &TimerWheel, idle: Duration) -> (Reaper<K, V>, Expirations<K, V>)
where
    K: Send + 'static,
    V: Send + 'static,
{
    let rules = WatchRules {
        ticks: wheel.shared().ticks,
        idle_nanos: u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX),
    };
    let set = Set::new(wheel.shared(), rules);
    let watches = Watches {
        ticks: wheel.shared().ticks,
        set: Arc::clone(&set) as Arc<dyn Unwatch>,
        _wheel: wheel.clone(),
    };
    let reaper = Reaper {
        watches: Arc::new(watches),
        handles: Arc::new(Handles::of(&set)),
        set: Arc::clone(&set),
    };
    (reaper, Expirations::new(set))
}

impl WatchOptions {
    /// Nothing but the reaper's idle duration.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the watch at this age at the latest, counted from its start, however active or busy it is.
    ///
    /// Each watch gets an age of its own, chosen at random between nine tenths of this one and all of it. So watches that
    /// began together do not end together. [`exact`](Self::exact) gives each of them this age. As any timer, the watch is
    /// delivered [at most two ticks](Reaper) after that.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::WatchOptions;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (reaper, mut idle) = wheel.reaper::<u32, ()>(Duration::from_secs(60));
    /// let hour = WatchOptions::new().max_age(Duration::from_secs(3600));
    /// let session = reaper.watch_with(1, (), hour).unwrap();
    ///
    /// let _request = session.busy(); // never idle
    /// assert_eq!(idle.recv().await.unwrap().key, 1); // after 54 to 60 minutes
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if `age` is zero.
    #[doc(alias = "ttl")]
    #[doc(alias = "time_to_live")]
    #[must_use]
    #[track_caller]
    pub fn max_age(mut self, age: Duration) -> Self {
        assert!(!age.is_zero(), "a maximum age must be longer than zero");
        self.max_age = Some(age);
        self
    }

    /// Ends the watch at its [maximum age](Self::max_age) exactly, as where a lease or a token runs out with it. Watches
    /// that began together end together.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::WatchOptions;
    /// use tokio::time::Instant;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (reaper, mut idle) = wheel.reaper::<u32, ()>(Duration::from_secs(60));
    /// let start = Instant::now();
    /// let token = WatchOptions::new().max_age(Duration::from_secs(3600)).exact();
    /// let session = reaper.watch_with(1, (), token).unwrap();
    ///
    /// let _request = session.busy(); // never idle
    /// assert_eq!(idle.recv().await.unwrap().deadline, start + Duration::from_secs(3600));
    /// # }
    /// ```
    #[must_use]
    pub fn exact(mut self) -> Self {
        self.exact = true;
        self
    }

    /// The age at which one watch ends: chosen anew at each call, unless it is exact.
    fn age(&self) -> Option<Duration> {
        let age = self.max_age?;
        Some(if self.exact { age } else { spread(age) })
    }
}

impl<K, V> Reaper<K, V> {
    /// Watches something from now on. Key and value come out of the stream when it has been idle for too long.
    ///
    /// Keys need not be different, because the [`Watch`] identifies what is watched. The call allocates 32 bytes for the
    /// activity, besides memory of the set that serves many watches.
    ///
    /// # Errors
    ///
    /// [`Full`](SetTimerError::Full) when `max_keyed` timers are pending on the wheel,
    /// [`Closed`](SetTimerError::Closed) when the wheel is shut down or the stream dropped. Both return key and value.
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
        let ticks = self.set.shared().ticks;
        let now = ticks.nanos(clock::now());
        let oldest = options.age().and_then(after);
        let oldest = oldest.map_or(Timestamp::NEVER, |at| ticks.timestamp(at));
        let activity = self
            .set
            .add(key, value, oldest, Timestamp::at(now), |value, slot| {
                let activity = Arc::new(Activity::new(now, ticks.tick_nanos(), slot));
                let watched = Watched {
                    value,
                    activity: Arc::clone(&activity),
                };
                (watched, activity)
            })?;
        let watches = Arc::clone(&self.watches);
        Ok(Watch { activity, watches })
    }

    /// How many things are watched. Exact.
    pub fn len(&self) -> usize {
        self.set.len()
    }

    /// Whether nothing is watched.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Watch {
    /// Records activity now. Returns `false`, and records nothing, if it was reaped.
    #[doc(alias = "heartbeat")]
    #[doc(alias = "refresh")]
    #[doc(alias = "reset")]
    #[inline]
    pub fn touch(&self) -> bool {
        self.touch_at(clock::now())
    }

    /// Records activity at an instant, for callers that have just read the clock. Otherwise like [`touch`](Self::touch).
    ///
    /// An instant before the last activity changes nothing. An instant in the future counts, but no further than one idle
    /// duration ahead of the time at which the actor reads it.
    #[inline]
    pub fn touch_at(&self, at: Instant) -> bool {
        let ticks = &self.watches.ticks;
        self.activity.touch(ticks.touch(at), ticks.tick_nanos())
    }

    /// Keeps it from being idle while the guard is held, for instance while a request is in flight. Has no
    /// [effect](Busy::is_effective) if it was reaped.
    pub fn busy(&self) -> Busy {
        Busy::of_watch(&self.activity, self.watches.ticks)
    }

    /// Whether it is still watched: it was not reaped, the stream was not dropped, and the wheel is not shut down.
    pub fn is_watched(&self) -> bool {
        self.activity.last().is_some()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The set decides under its lock: the watch was delivered before this, or never is.
        self.watches.set.unwatch(&self.activity);
    }
}

impl<K, V> Unwatch for Set<K, Watched<V>>
where
    K: Send,
    V: Send,
{
    fn unwatch(&self, activity: &Arc<Activity>) {
        // Another watch may have the index by now.
        let is_it = |watched: &Watched<V>| Arc::ptr_eq(&watched.activity, activity);
        self.forget(activity.slot, is_it);
    }
}

impl WatchRules {
    /// When a watch that was last active at `last` is idle.
    fn idle_after(&self, last: u64) -> Timestamp {
        Timestamp::at(last.saturating_add(self.idle_nanos))
    }

    /// The latest activity that counts: a touch in the future does, up to one idle duration ahead.
    fn latest(&self, now: u64) -> u64 {
        now.saturating_add(self.idle_nanos).min(LATEST_NANOS)
    }
}

impl<V> Payload for Watched<V> {
    type Value = V;
    type Rules = WatchRules;
    const KEYED: bool = false;

    /// `oldest` is the instant of the maximum age.
    fn due(&self, oldest: Timestamp, now: Timestamp, rules: &WatchRules) -> Timestamp {
        let now = now.after_origin();
        let last = if self.activity.is_busy() {
            // The actor reads it again after an idle duration.
            Some(now)
        } else {
            let again = || rules.latest(rules.ticks.nanos(clock::now()));
            self.activity.clamp(rules.latest(now), again)
        };
        // The activity is gone only once the set is closed, when the actor has ended.
        last.map_or(Timestamp::NEVER, |last| rules.idle_after(last).min(oldest))
    }

    fn expire(&self, oldest: Timestamp, now: Timestamp, rules: &WatchRules) -> Option<Timestamp> {
        if oldest <= now {
            let was_busy = self.activity.is_busy();
            let idle_at = rules.idle_after(self.activity.end()?);
            return Some(if was_busy {
                oldest
            } else {
                idle_at.min(oldest)
            });
        }
        let idle_since = now.after_origin().checked_sub(rules.idle_nanos)?;
        match self.activity.reap(idle_since) {
            Reap::Reaped(last) => Some(rules.idle_after(last)),
            Reap::Active(_) | Reap::Busy | Reap::Gone => None,
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

/// The age, less a part of it that is chosen at random.
fn spread(age: Duration) -> Duration {
    // A keyed hash of nothing is as random as its key.
    let random = RandomState::new().hash_one(());
    #[allow(clippy::cast_precision_loss)] // the last bits of a random number do not matter
    let unit = random as f64 / u64::MAX as f64;
    age.saturating_sub(age.mul_f64(SPREAD * unit))
}

impl<K, V> Clone for Reaper<K, V> {
    fn clone(&self) -> Self {
        Reaper {
            set: Arc::clone(&self.set),
            watches: Arc::clone(&self.watches),
            handles: Arc::clone(&self.handles),
        }
    }
}

impl<K, V> fmt::Debug for Reaper<K, V> {
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
