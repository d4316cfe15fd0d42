//! Reapers: watch many connections or sessions, and deliver those that have been idle for too long.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::idle_timer::{BusyGuard, assert_not_zero};
use super::watched::Watched;
use crate::clock;
use crate::keyed::hint::Hints;
use crate::keyed::{Cause, ClosedError, Expirations, Handles, Set, SetTimerError, Unexpired};
use crate::shared::activity::{Activity, Reap};
use crate::shared::{Alive, SleepContext};
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
/// one returns `false`. The consumer can [keep](Expirations::recv_if) a watch too, without a gap.
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
pub struct Reaper<K, V>(Arc<ReaperState<K, V>>);

/// What clones of a reaper share.
struct ReaperState<K, V> {
    watches: Arc<Watches>,
    handles: Handles<K, Watched<V>>,
}

/// A reaper that does not keep the stream of expirations open. Made by [`Reaper::downgrade`].
///
/// The stream ends once no [`Reaper`] and no watch is left. A consumer that watches more with this
/// reaper holds a weak handle, and [upgrades](Self::upgrade) it to do so.
pub struct WeakReaper<K, V>(Weak<ReaperState<K, V>>);

/// Keeps a connection or session watched, and the wheel's actor running. Dropping the guard ends
/// the watch without an expiration. After a shutdown it changes nothing: the watch has ended, and
/// [`Expirations::unexpired`] returns it.
#[doc(alias = "lease")]
#[doc(alias = "Watch")]
#[must_use = "dropping it ends the watching"]
pub struct WatchGuard {
    activity: Arc<Activity>,
    watches: Arc<Watches>,
    /// From when its maximum age waits for its guards; `NEVER` if it does not wait.
    waits_from: Timestamp,
}

/// The state that a reaper and its watches share, so that a watch needs a single pointer for it. It
/// keeps the actor running, because a watch that is due and not delivered can still be touched.
pub(super) struct Watches {
    ticks: Ticks,
    /// The idle duration of watches whose options name none, in nanoseconds.
    idle: u64,
    hints: Arc<Hints>,
    set: Arc<dyn WatchSet>,
    _wheel: Arc<Alive>,
}

/// A set of watches, whatever their keys and values are. Each watch has its own activity.
trait WatchSet: Send + Sync {
    /// Ends the watch. Returns `false` if it had ended.
    fn expire_now(&self, activity: &Arc<Activity>) -> bool;

    /// The guard of the watch is dropped.
    fn forget(&self, activity: &Arc<Activity>);

    /// A guard that the watch's maximum age waited for is gone.
    fn release(&self, activity: &Arc<Activity>);
}

impl<K, V> WatchSet for Set<K, Watched<V>>
where
    K: Send,
    V: Send,
{
    fn expire_now(&self, activity: &Arc<Activity>) -> bool {
        let decided = self.rearm_now(index(activity), |watched, _, _| {
            let decided = watched.is_of(activity) && activity.end().is_some();
            if decided {
                watched.ended = Some(Cause::Forced);
            }
            decided
        });
        // A drain has taken out what is not there: no touch counts after this call either.
        if !decided && !self.is_ended() {
            activity.end();
        }
        decided
    }

    fn forget(&self, activity: &Arc<Activity>) {
        // The set decides under its lock: the watch was received before this call, or never is.
        // One that has ended stays, to be received or returned as unexpired. After the wheel's end
        // all stay.
        let is_meant = |watched: &Watched<V>| {
            watched.is_of(activity) && watched.ended.is_none() && !self.is_ended()
        };
        Set::forget(self, index(activity), is_meant);
    }

    fn release(&self, activity: &Arc<Activity>) {
        self.rearm_now(index(activity), |watched, oldest, now| {
            watched.is_of(activity) && watched.ended.is_none() && watched.is_old(oldest, now)
        });
    }
}

/// The index of a watch in its set.
fn index(activity: &Activity) -> u32 {
    activity.index.load(Ordering::Relaxed)
}

/// The options of one watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchOptions {
    idle: Option<Duration>,
    max_age: Option<Duration>,
    exact: bool,
    waits_for_guards: bool,
}

/// A new reaper on the wheel. The caller has checked that `idle` is not zero.
pub(crate) fn reaper<K, V>(
    wheel: &Arc<Alive>,
    context: &Arc<SleepContext>,
    idle: Duration,
) -> (Reaper<K, V>, Expirations<K, V>)
where
    K: Send + 'static,
    V: Send + 'static,
{
    let set = Set::new(&wheel.shared, nanos(idle));
    let watches = Watches {
        ticks: wheel.shared.ticks,
        idle: nanos(idle),
        hints: Arc::clone(&set.hints),
        set: Arc::clone(&set) as Arc<dyn WatchSet>,
        _wheel: Arc::clone(wheel),
    };
    let state = ReaperState {
        watches: Arc::new(watches),
        handles: Handles::new(&set, (), wheel),
    };
    (Reaper(Arc::new(state)), Expirations::new(set, context))
}

impl WatchOptions {
    /// No options: only the reaper's idle duration ends the watch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the watch its own idle duration, instead of its reaper's.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::WatchOptions;
    /// use tokio::time::Instant;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (reaper, mut idle) = wheel.reaper::<&str, ()>(Duration::from_secs(60));
    /// let start = Instant::now();
    /// let _paid = reaper.watch("paid", ())?;
    /// let brief = WatchOptions::new().idle(Duration::from_secs(10));
    /// let _free = reaper.watch_with("free", (), &brief)?;
    ///
    /// for (key, secs) in [("free", 10), ("paid", 60)] {
    ///     let ended = idle.recv().await.ok_or("closed")?;
    ///     assert_eq!((ended.key, ended.deadline), (key, start + Duration::from_secs(secs)));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if `idle` is zero.
    #[doc(alias = "time_to_idle")]
    #[must_use]
    #[track_caller]
    pub fn idle(mut self, idle: Duration) -> Self {
        assert_not_zero(idle);
        self.idle = Some(idle);
        self
    }

    /// Ends the watch at this age at the latest, counted from its start, however active it is. A
    /// [busy](WatchGuard::busy) one ends too, unless it [waits for
    /// guards](Self::wait_for_guards).
    ///
    /// Each watch gets an age of its own, at random between nine tenths of this one and all of it,
    /// so that watches that began together do not end together. [`exact`](Self::exact) turns this
    /// off. The watch is delivered [at most two ticks](Reaper) after that age.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::{Cause, WatchOptions};
    /// use tokio::time::Instant;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (reaper, mut idle) = wheel.reaper::<u32, ()>(Duration::from_secs(60));
    /// let start = Instant::now();
    /// let hour = WatchOptions::new().max_age(Duration::from_secs(3600));
    /// let session = reaper.watch_with(1, (), &hour).unwrap();
    ///
    /// let _request = session.busy();
    /// let ended = idle.recv().await.unwrap();
    /// assert_eq!(ended.cause, Cause::MaxAge);
    /// let minutes = (ended.deadline - start).as_secs_f64() / 60.0;
    /// assert!((54.0..=60.0).contains(&minutes));
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
    /// let session = reaper.watch_with(1, (), &token).unwrap();
    ///
    /// let _request = session.busy();
    /// assert_eq!(idle.recv().await.unwrap().deadline, start + Duration::from_secs(3600));
    /// # }
    /// ```
    #[must_use]
    pub fn exact(mut self) -> Self {
        self.exact = true;
        self
    }

    /// Lets the [maximum age](Self::max_age) wait until no [`BusyGuard`] of the watch is held, for
    /// instance until the response is written that is under way. A watch that is older then ends
    /// with the first look after its age that finds no guard: the drop of its last guard asks for
    /// one, which comes with the next tick. While guards follow each other more closely than that,
    /// it does not end. Without a maximum age this has no effect.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::{Cause, WatchOptions};
    /// use tokio::time::{self, Instant};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (reaper, mut idle) = wheel.reaper::<u32, ()>(Duration::from_secs(60));
    /// let start = Instant::now();
    /// let hour = WatchOptions::new().max_age(Duration::from_secs(3600)).wait_for_guards();
    /// let connection = reaper.watch_with(1, (), &hour)?;
    ///
    /// let request = connection.busy();
    /// tokio::spawn(async move {
    ///     time::sleep(Duration::from_secs(4000)).await;
    ///     drop(request);
    /// });
    /// let ended = idle.recv().await.ok_or("closed")?;
    /// assert_eq!(ended.cause, Cause::MaxAge);
    /// assert_eq!(ended.deadline, start + Duration::from_secs(4000));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "graceful")]
    #[must_use]
    pub fn wait_for_guards(mut self) -> Self {
        self.waits_for_guards = true;
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
    pub fn watch(&self, key: K, value: V) -> Result<WatchGuard, SetTimerError<K, V>> {
        self.watch_with(key, value, &WatchOptions::new())
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
        options: &WatchOptions,
    ) -> Result<WatchGuard, SetTimerError<K, V>> {
        let ticks = self.0.watches.ticks;
        let now = ticks.nanos(clock::now());
        let oldest = options.age().and_then(after);
        let oldest = oldest.map_or(Timestamp::NEVER, |at| ticks.timestamp(at));
        let idle = options.idle.map_or(self.0.watches.idle, nanos);
        let activity = Arc::new(Activity::new(now, ticks.tick_nanos()));
        let watched = Watched {
            value,
            activity: Arc::clone(&activity),
            idle,
            ended: None,
            waits_for_guards: options.waits_for_guards,
        };
        let set = &self.0.handles.set;
        set.shortest_idle.fetch_min(idle, Ordering::Relaxed);
        let index = set.add(key, watched, oldest, Timestamp::at(now))?;
        activity.index.store(index, Ordering::Relaxed);
        Ok(WatchGuard {
            activity,
            watches: Arc::clone(&self.0.watches),
            waits_from: if options.waits_for_guards {
                oldest
            } else {
                Timestamp::NEVER
            },
        })
    }

    /// A clone of the value of a watch, until the watch is delivered, drained or returned as
    /// unexpired. `None` for a watch of another reaper.
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
    /// assert_eq!(reaper.value(&session), Some("alice"));
    /// idle.recv().await;
    /// assert_eq!(reaper.value(&session), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn value(&self, watch: &WatchGuard) -> Option<V>
    where
        V: Clone,
    {
        let activity = &watch.activity;
        let read = |watched: &Watched<V>| watched.is_of(activity).then(|| watched.value.clone());
        self.0.handles.set.read_value(index(activity), read)
    }

    /// How many watches there are, exactly.
    pub fn len(&self) -> usize {
        self.0.handles.set.len()
    }

    /// Whether there are no watches.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether nothing can be watched any more: the wheel is shut down, or the stream dropped.
    pub fn is_closed(&self) -> bool {
        self.0.handles.set.is_closed()
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
    pub fn drain(&self) -> Result<Vec<Unexpired<K, V>>, ClosedError> {
        self.0.handles.set.drain()
    }

    /// Ends every watch that is not [busy](WatchGuard::busy) and returns them, in the order in
    /// which they would have ended. Busy ones stay watched, and so does what the stream has still
    /// to deliver after [`expire_now`](WatchGuard::expire_now). It may or may not take watches that
    /// begin during the call.
    ///
    /// It looks at 256 watches at a time under the lock.
    ///
    /// # Errors
    ///
    /// [`ClosedError`] when the wheel is shut down or the stream dropped. If that happens during
    /// the call, it returns what it has taken.
    ///
    /// # Examples
    ///
    /// A server stops: idle connections end at once, the others after their request.
    ///
    /// ```
    /// use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (reaper, _idle) = wheel.reaper::<&str, ()>(Duration::from_secs(60));
    /// let quiet = reaper.watch("quiet", ())?;
    /// let serving = reaper.watch("serving", ())?;
    /// let request = serving.busy();
    ///
    /// let ended: Vec<_> = reaper.drain_idle()?.into_iter().map(|ended| ended.key).collect();
    /// assert_eq!(ended, ["quiet"]);
    /// assert!(!quiet.touch());
    /// assert!(serving.touch());
    ///
    /// drop(request);
    /// assert_eq!(reaper.drain_idle()?.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn drain_idle(&self) -> Result<Vec<Unexpired<K, V>>, ClosedError> {
        let is_idle = |watched: &Watched<V>| {
            watched.ended.is_none() && matches!(watched.activity.reap_if(|_| true), Reap::Reaped(_))
        };
        self.0.handles.set.drain_if(is_idle)
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
        WeakReaper(Arc::downgrade(&self.0))
    }
}

impl<K, V> WeakReaper<K, V> {
    /// A strong handle; `None` once the last [`Reaper`] is dropped.
    pub fn upgrade(&self) -> Option<Reaper<K, V>> {
        self.0.upgrade().map(Reaper)
    }
}

impl WatchGuard {
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
        let waits = (self.waits_from != Timestamp::NEVER)
            .then(|| (self.waits_from, Arc::clone(&self.watches)));
        BusyGuard::of_watch(&self.activity, self.watches.ticks, self.is_ended(), waits)
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
        self.watches.hints.is_ended()
    }

    /// Ends the watch now, however active or busy it is. Returns `false` if it has ended already.
    ///
    /// From then on touches return `false`. The stream delivers the watch with [`Cause::Forced`],
    /// even if this guard is dropped before.
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
    /// assert_eq!((expired.value, expired.cause), ("alice", Cause::Forced));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "kick")]
    #[doc(alias = "close")]
    pub fn expire_now(&self) -> bool {
        self.watches.set.expire_now(&self.activity)
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.watches.set.forget(&self.activity);
    }
}

impl Watches {
    /// A guard of the watch is gone, for which its maximum age waits since `from`.
    pub(super) fn release(&self, activity: &Arc<Activity>, from: Timestamp) {
        // The clock is read once the guard is gone: a reader that still saw it came before.
        if self.ticks.timestamp(clock::now()) >= from {
            self.set.release(activity);
        }
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
        Reaper(Arc::clone(&self.0))
    }
}

impl<K, V> Clone for WeakReaper<K, V> {
    fn clone(&self) -> Self {
        WeakReaper(Weak::clone(&self.0))
    }
}

impl<K, V> fmt::Debug for WeakReaper<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakReaper")
            .field("is_open", &(self.0.strong_count() > 0))
            .finish_non_exhaustive()
    }
}

impl<K, V> fmt::Debug for Reaper<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.handles.set.fmt_as("Reaper", f)
    }
}

impl fmt::Debug for WatchGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchGuard")
            .field("is_watched", &self.is_watched())
            .finish_non_exhaustive()
    }
}
