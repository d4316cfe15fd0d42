//! Reapers: watch many connections or sessions, and deliver those that have been idle for too long.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::idle_timer::BusyGuard;
use super::watched::Watched;
use crate::clock;
use crate::keyed::{Cause, ClosedError, Expirations, Expired, Handles, Set, SetTimerError};
use crate::shared::Alive;
use crate::shared::activity::Activity;
use crate::tick::{Ticks, Timestamp, after, nanos};

/// The largest part of a maximum age by which a watch ends before it.
const SPREAD: f64 = 0.1;

/// Watches connections, sessions or leases, and ends those that have been idle. Made by
/// [`TimerWheel::reaper`](crate::TimerWheel::reaper). Cheap to clone, and usable from any thread.
///
/// Each watch has a [`WatchGuard`], which its owner touches when it is active. A watch without a
/// touch for the idle duration expires: the stream of [`Expirations`] delivers it no earlier than
/// the idle duration after its last touch and at most two ticks later, plus what the runtime adds.
///
/// *Touched or expired, never both.* It is decided with one atomic operation when the stream
/// returns the expiration. A touch before that keeps the watch, however late it comes; every later
/// one returns `false`.
///
/// # After a stall
///
/// Time in which the runtime stood still is not silence. When all of its threads were blocked, or
/// the process was stopped, the bytes of active peers lie unread in their sockets. So a watch that
/// was not yet idle before the stall has as long again as the stall took, but no longer than the
/// idle duration, until it is. A stall is a pause of over 20 ms that the actor notices. A [maximum
/// age](WatchOptions::max_age) is not put off.
///
/// Before it decides, the stream's [`recv`](Expirations::recv) also lets the other tasks of its
/// runtime have their turn, by the real clock: those come first whose sockets have bytes.
/// [`try_recv`](Expirations::try_recv) decides at once.
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
    watches: Arc<Watches<K, V>>,
    handles: Arc<Handles<K, Watched<V>>>,
}

/// A reaper that does not keep the stream of expirations open. Made by [`Reaper::downgrade`].
///
/// The stream ends once no [`Reaper`] and no watch is left. A consumer that watches more with this
/// reaper holds a weak handle, and [upgrades](Self::upgrade) it to do so.
pub struct WeakReaper<K, V> {
    watches: Weak<Watches<K, V>>,
    handles: Weak<Handles<K, Watched<V>>>,
}

/// Keeps a connection or session watched, and the wheel's actor running. Dropping the guard ends
/// the watch without an expiration. After a shutdown it changes nothing: the watch has ended, and
/// [`Expirations::unexpired`] returns it.
#[doc(alias = "lease")]
#[doc(alias = "Watch")]
#[must_use = "dropping it ends the watching"]
pub struct WatchGuard<K, V> {
    activity: Arc<Activity>,
    watches: Arc<Watches<K, V>>,
}

/// The state that a reaper and its watches share, so that a watch needs a single pointer for it. It
/// keeps the actor running, because a watch that is due and not delivered can still be touched.
struct Watches<K, V> {
    ticks: Ticks,
    set: Arc<Set<K, Watched<V>>>,
    _wheel: Arc<Alive>,
}

/// The options of one watch, beside its reaper's idle duration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WatchOptions {
    max_age: Option<Duration>,
    exact: bool,
}

/// A new reaper on the wheel. The caller has checked that `idle` is not zero.
pub(crate) fn reaper<K, V>(wheel: &Arc<Alive>, idle: Duration) -> (Reaper<K, V>, Expirations<K, V>)
where
    K: Send + 'static,
    V: Send + 'static,
{
    let set = Set::new(&wheel.shared, nanos(idle));
    let watches = Watches {
        ticks: wheel.shared.ticks,
        set: Arc::clone(&set),
        _wheel: Arc::clone(wheel),
    };
    let reaper = Reaper {
        watches: Arc::new(watches),
        handles: Handles::new(&set, wheel),
    };
    (reaper, Expirations::new(set))
}

impl WatchOptions {
    /// No options: only the reaper's idle duration ends the watch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the watch at this age at the latest, counted from its start, however active or busy it
    /// is.
    ///
    /// Each watch gets an age of its own, at random between nine tenths of this one and all of it,
    /// so that watches that began together do not end together. [`exact`](Self::exact) turns this
    /// off. The watch is delivered [at most two ticks](Reaper) after that age.
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

    /// Ends the watch at its [maximum age](Self::max_age) exactly, for instance when a token runs
    /// out.
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

    /// The age at which one watch ends: chosen at random at each call, unless it is exact.
    fn age(&self) -> Option<Duration> {
        let age = self.max_age?;
        Some(if self.exact { age } else { spread(age) })
    }
}

impl<K, V> Reaper<K, V> {
    /// Watches a connection or session from now on. The stream delivers key and value when it has
    /// been idle for too long. Keys need not differ, because the [`WatchGuard`] identifies the
    /// watch.
    ///
    /// # Errors
    ///
    /// [`Full`](SetTimerError::Full) when `max_keyed` timers are pending on the wheel,
    /// [`Closed`](SetTimerError::Closed) when the wheel is shut down or the stream dropped. Both
    /// return key and value.
    pub fn watch(&self, key: K, value: V) -> Result<WatchGuard<K, V>, SetTimerError<K, V>> {
        self.watch_with(key, value, WatchOptions::new())
    }

    /// Watches with [options](WatchOptions). Otherwise like [`watch`](Self::watch).
    ///
    /// # Errors
    ///
    /// [`Full`](SetTimerError::Full) when `max_keyed` timers are pending on the wheel,
    /// [`Closed`](SetTimerError::Closed) when the wheel is shut down or the stream dropped. Both
    /// return key and value.
    pub fn watch_with(
        &self,
        key: K,
        value: V,
        options: WatchOptions,
    ) -> Result<WatchGuard<K, V>, SetTimerError<K, V>> {
        let ticks = self.watches.ticks;
        let now = ticks.nanos(clock::now());
        let oldest = options.age().and_then(after);
        let oldest = oldest.map_or(Timestamp::NEVER, |at| ticks.timestamp(at));
        let activity = Arc::new(Activity::new(now, ticks.tick_nanos()));
        let watched = Watched {
            value,
            activity: Arc::clone(&activity),
            ended: None,
        };
        let index = (self.watches.set).add(key, watched, oldest, Timestamp::at(now))?;
        activity.index.store(index, Ordering::Relaxed);
        let watches = Arc::clone(&self.watches);
        Ok(WatchGuard { activity, watches })
    }

    /// How many watches there are, exactly.
    pub fn len(&self) -> usize {
        self.watches.set.len()
    }

    /// Whether there are no watches.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether nothing can be watched any more: the wheel is shut down, or the stream dropped.
    pub fn is_closed(&self) -> bool {
        self.watches.set.is_closed()
    }

    /// Ends every watch and returns them, in the order in which they would have ended. Their
    /// touches return `false` from then on. Watches that begin during the call stay.
    ///
    /// # Errors
    ///
    /// [`ClosedError`] when the wheel is shut down or the stream dropped.
    /// [`Expirations::unexpired`] returns what was watched.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (reaper, _idle) = wheel.reaper::<u32, &str>(Duration::from_secs(60));
    /// let session = reaper.watch(1, "alice")?;
    ///
    /// // The server stops: tell every session.
    /// for ended in reaper.drain()? {
    ///     assert_eq!(ended.value, "alice");
    /// }
    /// assert!(!session.touch());
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "clear")]
    pub fn drain(&self) -> Result<Vec<Expired<K, V>>, ClosedError> {
        self.watches.set.drain()
    }

    /// A handle that does not keep the stream of expirations open.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (reaper, mut idle) = wheel.reaper::<u32, ()>(Duration::from_secs(60));
    /// let weak = reaper.downgrade();
    /// assert!(weak.upgrade().is_some());
    ///
    /// drop(reaper);
    /// assert!(idle.recv().await.is_none());
    /// assert!(weak.upgrade().is_none());
    /// # }
    /// ```
    pub fn downgrade(&self) -> WeakReaper<K, V> {
        WeakReaper {
            watches: Arc::downgrade(&self.watches),
            handles: Arc::downgrade(&self.handles),
        }
    }
}

impl<K, V> WeakReaper<K, V> {
    /// A strong handle; `None` once the last [`Reaper`] is dropped.
    pub fn upgrade(&self) -> Option<Reaper<K, V>> {
        let handles = self.handles.upgrade()?;
        let watches = self.watches.upgrade()?;
        Some(Reaper { watches, handles })
    }
}

impl<K, V> WatchGuard<K, V> {
    /// Records activity now. Returns `false`, and records nothing, if the watch has ended.
    #[doc(alias = "heartbeat")]
    #[doc(alias = "refresh")]
    #[doc(alias = "reset")]
    #[inline]
    pub fn touch(&self) -> bool {
        self.touch_at(clock::now())
    }

    /// Records activity at an instant, for callers that have just read the clock. Otherwise like
    /// [`touch`](Self::touch).
    ///
    /// An instant before the last activity changes nothing. An instant in the future counts, but no
    /// further than one idle duration ahead of the time at which the actor reads it.
    #[inline]
    pub fn touch_at(&self, at: Instant) -> bool {
        let ticks = &self.watches.ticks;
        !self.is_ended() && self.activity.touch(ticks.nanos(at), ticks.tick_nanos())
    }

    /// Keeps the watch from being idle while the guard is held, for instance while a request is in
    /// flight. Has no [effect](BusyGuard::is_effective) if the watch has ended.
    pub fn busy(&self) -> BusyGuard {
        BusyGuard::of_watch(&self.activity, self.watches.ticks, self.is_ended())
    }

    /// Whether the watch goes on: it has not ended, the stream was not dropped, and the wheel is
    /// not shut down.
    ///
    /// # Examples
    ///
    /// A map of guards. When an expiration is handled, its key may have the guard of a new watch,
    /// which stays:
    ///
    /// ```
    /// # use std::collections::HashMap;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (reaper, mut ended) = wheel.reaper::<&str, ()>(Duration::from_secs(60));
    /// let mut sessions = HashMap::from([("alice", reaper.watch("alice", ())?)]);
    /// let key = ended.recv().await.ok_or("closed")?.key;
    /// sessions.insert("alice", reaper.watch("alice", ())?); // she is back
    ///
    /// if sessions.get(key).is_some_and(|session| !session.is_watched()) {
    ///     sessions.remove(key);
    /// }
    /// assert!(sessions["alice"].is_watched());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_watched(&self) -> bool {
        !self.activity.is_gone() && !self.is_ended()
    }

    /// Whether the wheel is shut down: nothing is watched any more.
    #[inline]
    fn is_ended(&self) -> bool {
        self.watches.set.is_ended()
    }

    fn is_mine(&self, watched: &Watched<V>) -> bool {
        // Another watch may have the index by now.
        Arc::ptr_eq(&watched.activity, &self.activity)
    }

    fn index(&self) -> u32 {
        self.activity.index.load(Ordering::Relaxed)
    }

    /// A clone of the value, until the watch is delivered, drained or returned as unexpired.
    ///
    /// `Clone` runs while the set is locked. It must not call back into the reaper.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (reaper, mut idle) = wheel.reaper::<u32, &str>(Duration::from_secs(60));
    /// let session = reaper.watch(1, "alice")?;
    /// assert_eq!(session.value(), Some("alice"));
    /// idle.recv().await;
    /// assert_eq!(session.value(), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn value(&self) -> Option<V>
    where
        V: Clone,
    {
        let read = |watched: &Watched<V>| self.is_mine(watched).then(|| watched.value.clone());
        self.watches.set.read_value(self.index(), read)
    }

    /// Ends the watch now, however active or busy it is. Returns `false` if it has ended already.
    ///
    /// From then on touches return `false`. The stream delivers the watch with [`Cause::Now`], even
    /// if this guard is dropped before.
    ///
    /// # Examples
    ///
    /// The stream also delivers a session whose user logs out:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::Cause;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (reaper, mut ended) = wheel.reaper::<u32, &str>(Duration::from_secs(60));
    /// let session = reaper.watch(1, "alice")?;
    ///
    /// assert!(session.expire_now());
    /// assert!(!session.touch());
    /// drop(session);
    ///
    /// let expired = ended.recv().await.ok_or("closed")?;
    /// assert_eq!((expired.value, expired.cause), ("alice", Cause::Now));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "kick")]
    #[doc(alias = "close")]
    pub fn expire_now(&self) -> bool {
        let decide = |watched: &mut Watched<V>| {
            let decided = self.is_mine(watched) && self.activity.end().is_some();
            if decided {
                watched.ended = Some(Cause::Now);
            }
            decided
        };
        // A drain has taken out what is not there: no touch counts after this call either.
        let decided = self.watches.set.expire_now(self.index(), decide);
        if !decided && !self.is_ended() {
            self.activity.end();
        }
        decided
    }
}

impl<K, V> Drop for WatchGuard<K, V> {
    fn drop(&mut self) {
        // The set decides under its lock: the watch was received before this call, or never is.
        // One that has ended stays, to be received or returned as unexpired. After the wheel's end
        // all stay.
        let is_meant = |watched: &Watched<V>| {
            self.is_mine(watched) && watched.ended.is_none() && !self.is_ended()
        };
        self.watches.set.forget(self.index(), is_meant);
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
            watches: Arc::clone(&self.watches),
            handles: Arc::clone(&self.handles),
        }
    }
}

impl<K, V> Clone for WeakReaper<K, V> {
    fn clone(&self) -> Self {
        WeakReaper {
            watches: Weak::clone(&self.watches),
            handles: Weak::clone(&self.handles),
        }
    }
}

impl<K, V> fmt::Debug for WeakReaper<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakReaper")
            .field("is_open", &(self.handles.strong_count() > 0))
            .finish_non_exhaustive()
    }
}

impl<K, V> fmt::Debug for Reaper<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reaper")
            .field("len", &self.len())
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

impl<K, V> fmt::Debug for WatchGuard<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchGuard")
            .field("is_watched", &self.is_watched())
            .finish_non_exhaustive()
    }
}
