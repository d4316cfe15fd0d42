//! The handle of a set of keyed timers.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::error::{ClosedError, SetTimerError};
use super::expirations::Expirations;
use super::payload::Plain;
use super::set::{Handles, Repeat, Set};
use super::table::hash_of;
use super::update::TimerMut;
use crate::shared::{Alive, SleepContext};
use crate::tick::Timestamp;

/// Sets, moves and removes the timers of one set. Made by
/// [`TimerWheel::keyed`](crate::TimerWheel::keyed).
///
/// Cheap to clone, and usable from any thread and task, synchronous code included. A call takes
/// effect before it returns, and its result says what it did. No call waits for a turn of the
/// actor, or for the consumer.
///
/// Keys are looked up as in a [`HashMap`](std::collections::HashMap): where they are `String`s, by
/// `remove_timer("upload")`, without making one. The compiler asks for type annotations (E0283)
/// where the argument may be of any type that a `String` borrows as:
///
/// ```compile_fail,E0283
/// # fn remove(timers: tickwheel::KeyedTimers<String, u32>) {
/// let _ = timers.remove_timer(&"upload".into()); // write `remove_timer("upload")`
/// # }
/// ```
///
/// # How a timer ends
///
/// A timer ends in exactly one way: it expires, it is removed, its key is set again, or it is
/// drained. It expires as its stream's consumer receives it. Until then every call works on it,
/// also if its deadline has passed: it can be removed, set again and moved, and it counts.
///
/// Where "too late" matters, compare its [`deadline`](Self::deadline) with the clock:
///
/// ```
/// use std::time::Duration;
/// use tokio::time::Instant;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let wheel = tickwheel::TimerWheel::new();
/// let (timers, _expirations) = wheel.keyed::<&str, ()>();
/// timers.set_timer("offer", (), Duration::from_secs(60))?;
/// tokio::time::sleep(Duration::from_secs(61)).await;
///
/// let is_overdue = timers.deadline("offer").is_some_and(|at| at <= Instant::now());
/// assert!(is_overdue, "nobody has received it");
/// assert!(timers.remove_timer("offer")?.is_some(), "and it never expires");
/// # Ok(())
/// # }
/// ```
///
/// # Panics
///
/// A `Hash` or `Eq` that panics unwinds into the caller, and changes nothing. Neither may call back
/// into the same set.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let wheel = tickwheel::TimerWheel::new();
/// let (timers, mut expirations) = wheel.keyed::<String, u32>();
///
/// timers.set_timer("upload".to_owned(), 1, Duration::from_secs(10))?;
/// timers.set_timer("session".to_owned(), 2, Duration::from_secs(20))?;
/// timers.move_timer("upload", Duration::from_secs(30))?;
///
/// assert_eq!(expirations.recv().await.unwrap().key, "session");
/// assert_eq!(timers.remove_timer("upload")?, Some(1));
/// assert!(timers.is_empty());
/// # Ok(())
/// # }
/// ```
#[doc(alias = "DelayQueue")]
pub struct KeyedTimers<K, V, S = RandomState> {
    pub(super) handles: Arc<Handles<K, Plain<V>, S>>,
}

/// A new set on the wheel.
pub(crate) fn pair<K, V, S>(
    hasher: S,
    wheel: &Arc<Alive>,
    context: &Arc<SleepContext>,
) -> (KeyedTimers<K, V, S>, Expirations<K, V>)
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    let set = Set::new(&wheel.shared, 0);
    let handles = Arc::new(Handles::new(&set, hasher, wheel));
    (KeyedTimers { handles }, Expirations::new(set, context))
}

impl<K: Hash + Eq, V, S: BuildHasher> KeyedTimers<K, V, S> {
    /// Sets a timer that expires after `delay`, counted from this call. Returns the value it
    /// replaces, as [`HashMap::insert`](std::collections::HashMap::insert) does. A delay of zero
    /// expires with the next tick. A delay too long to be represented never expires.
    ///
    /// It also replaces a timer that is [overdue and not received](Self#how-a-timer-ends).
    ///
    /// # Errors
    ///
    /// [`Full`](SetTimerError::Full) when the key is new and
    /// [`Builder::max_keyed`](crate::Builder::max_keyed) timers are pending;
    /// [`Closed`](SetTimerError::Closed) when the wheel is shut down or the stream dropped. Both
    /// return key and value.
    #[doc(alias = "insert")]
    #[doc(alias = "debounce")]
    #[doc(alias = "ttl")]
    pub fn set_timer(
        &self,
        key: K,
        value: V,
        delay: Duration,
    ) -> Result<Option<V>, SetTimerError<K, V>> {
        self.handles.set.set(
            self.hash(&key),
            key,
            value,
            self.timestamp_after(delay),
            None,
        )
    }

    /// Sets a timer that expires at `deadline`. A deadline in the past expires on the actor's next
    /// turn. Otherwise like [`set_timer`](Self::set_timer).
    ///
    /// # Errors
    ///
    /// [`Full`](SetTimerError::Full) when the key is new and
    /// [`Builder::max_keyed`](crate::Builder::max_keyed) timers are pending;
    /// [`Closed`](SetTimerError::Closed) when the wheel is shut down or the stream dropped.
    #[doc(alias = "insert_at")]
    pub fn set_timer_at(
        &self,
        key: K,
        value: V,
        deadline: Instant,
    ) -> Result<Option<V>, SetTimerError<K, V>> {
        self.handles
            .set
            .set(self.hash(&key), key, value, self.timestamp(deadline), None)
    }

    /// Sets a timer that expires every `period`, the first time one period from now, until it is
    /// removed or set again.
    ///
    /// The schedule does not drift: each deadline is a whole number of periods after this call.
    /// Missed periods are coalesced into one expiration: its [`missed`](crate::Expired::missed)
    /// counts them. As with Tokio's intervals, nothing is missed within five milliseconds of the
    /// tick at which the timer could fire. A period shorter than a tick counts as a tick. Moving
    /// the timer shifts its schedule.
    ///
    /// Each expiration has a clone of key and value. The consumer's task runs `Clone` while the set
    /// is locked; it must not call back into the set. A panic of it is logged, and removes the
    /// timer.
    ///
    /// # Errors
    ///
    /// [`Full`](SetTimerError::Full) when the key is new and
    /// [`Builder::max_keyed`](crate::Builder::max_keyed) timers are pending;
    /// [`Closed`](SetTimerError::Closed) when the wheel is shut down or the stream dropped.
    ///
    /// # Panics
    ///
    /// Panics if `period` is zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (timers, mut checks) = wheel.keyed::<&str, u16>();
    /// timers.set_interval("db", 5432, Duration::from_secs(10))?;
    ///
    /// for _ in 0..3 {
    ///     let check = checks.recv().await.unwrap();
    ///     assert_eq!((check.key, check.value, check.missed), ("db", 5432, 0));
    /// }
    /// timers.remove_timer("db")?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "periodic")]
    #[doc(alias = "repeat")]
    #[doc(alias = "ticker")]
    #[track_caller]
    pub fn set_interval(
        &self,
        key: K,
        value: V,
        period: Duration,
    ) -> Result<Option<V>, SetTimerError<K, V>>
    where
        K: Clone,
        V: Clone,
    {
        let period = self.period(period);
        self.repeat(key, value, self.timestamp_after(period), period)
    }

    /// Sets a timer that expires at `first`, and then every `period`, until it is removed or set
    /// again. A `first` in the past expires on the actor's next turn, and periods that have passed
    /// since then count as missed. Otherwise like [`set_interval`](Self::set_interval).
    ///
    /// # Errors
    ///
    /// [`Full`](SetTimerError::Full) when the key is new and
    /// [`Builder::max_keyed`](crate::Builder::max_keyed) timers are pending;
    /// [`Closed`](SetTimerError::Closed) when the wheel is shut down or the stream dropped.
    ///
    /// # Panics
    ///
    /// Panics if `period` is zero.
    ///
    /// # Examples
    ///
    /// Checks that are spread over their period:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (timers, mut checks) = wheel.keyed::<&str, ()>();
    /// let (start, period) = (Instant::now(), Duration::from_secs(10));
    /// timers.set_interval_at("db", (), start, period)?;
    /// timers.set_interval_at("cache", (), start + period / 2, period)?;
    ///
    /// for (key, secs) in [("db", 0), ("cache", 5), ("db", 10), ("cache", 15)] {
    ///     let check = checks.recv().await.unwrap();
    ///     assert_eq!((check.key, check.deadline), (key, start + Duration::from_secs(secs)));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "periodic")]
    #[track_caller]
    pub fn set_interval_at(
        &self,
        key: K,
        value: V,
        first: Instant,
        period: Duration,
    ) -> Result<Option<V>, SetTimerError<K, V>>
    where
        K: Clone,
        V: Clone,
    {
        self.repeat(key, value, self.timestamp(first), self.period(period))
    }

    fn set_or<R>(
        &self,
        key: K,
        value: V,
        deadline: Timestamp,
        other: impl FnOnce(TimerMut<'_, K, V>, K, V) -> R,
    ) -> Result<Option<R>, SetTimerError<K, V>> {
        let (set, hash) = (&self.handles.set, self.hash(&key));
        set.set_or(hash, key, value, deadline, None, |timer, key, value, _| {
            other(timer, key, value)
        })
    }

    #[inline]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u32 {
        hash_of(&self.handles.hasher, key)
    }

    fn repeat(
        &self,
        key: K,
        value: V,
        first: Timestamp,
        period: Duration,
    ) -> Result<Option<V>, SetTimerError<K, V>>
    where
        K: Clone,
        V: Clone,
    {
        let repeat = Repeat {
            period: i64::try_from(period.as_nanos()).unwrap_or(i64::MAX),
            clone: |key: &K, Plain(value): &Plain<V>, copied| {
                copied.0 = Some(key.clone());
                copied.1 = Some(value.clone());
            },
        };
        self.handles
            .set
            .set(self.hash(&key), key, value, first, Some(repeat))
    }

    /// The period, or a tick if that is longer.
    #[track_caller]
    fn period(&self, period: Duration) -> Duration {
        assert!(!period.is_zero(), "`period` must be non-zero");
        period.max(self.handles.set.shared().ticks.tick_duration())
    }

    /// Sets a timer that expires after `delay`, unless its key has one already. Returns key and
    /// value if it has, and leaves that timer as it is.
    ///
    /// The call is atomic: of several callers at once, exactly one sets the timer. One that is
    /// [overdue and not received](Self#how-a-timer-ends) counts.
    ///
    /// # Errors
    ///
    /// [`Full`](SetTimerError::Full) when the key has no timer and
    /// [`Builder::max_keyed`](crate::Builder::max_keyed) timers are pending;
    /// [`Closed`](SetTimerError::Closed) when the wheel is shut down or the stream dropped.
    ///
    /// # Examples
    ///
    /// A throttle: the first event of a key passes, and later ones only after a second.
    ///
    /// ```
    /// use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (timers, mut over) = wheel.keyed::<&str, ()>();
    /// let second = Duration::from_secs(1);
    ///
    /// assert!(timers.set_if_absent("alice", (), second)?.is_none(), "passes");
    /// assert!(timers.set_if_absent("alice", (), second)?.is_some(), "too soon");
    /// over.recv().await;
    /// assert!(timers.set_if_absent("alice", (), second)?.is_none(), "passes");
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "try_insert")]
    #[doc(alias = "throttle")]
    pub fn set_if_absent(
        &self,
        key: K,
        value: V,
        delay: Duration,
    ) -> Result<Option<(K, V)>, SetTimerError<K, V>> {
        self.set_or(key, value, self.timestamp_after(delay), |_, key, value| {
            (key, value)
        })
    }

    /// Sets a timer that expires at `deadline`, unless its key has one already. Otherwise like
    /// [`set_if_absent`](Self::set_if_absent).
    ///
    /// # Errors
    ///
    /// [`Full`](SetTimerError::Full) when the key has no timer and
    /// [`Builder::max_keyed`](crate::Builder::max_keyed) timers are pending;
    /// [`Closed`](SetTimerError::Closed) when the wheel is shut down or the stream dropped.
    #[doc(alias = "try_insert_at")]
    pub fn set_if_absent_at(
        &self,
        key: K,
        value: V,
        deadline: Instant,
    ) -> Result<Option<(K, V)>, SetTimerError<K, V>> {
        self.set_or(key, value, self.timestamp(deadline), |_, key, value| {
            (key, value)
        })
    }

    /// Moves the timer with this key to expire `delay` from now, earlier or later than before. Its
    /// value stays. Returns whether there was such a timer.
    ///
    /// Moving counts as arming: within its tick the timer comes after those armed before this call.
    /// It also moves a timer that is [overdue and not received](Self#how-a-timer-ends).
    ///
    /// # Errors
    ///
    /// [`ClosedError`] when the wheel is shut down or the stream dropped.
    ///
    /// # Examples
    ///
    /// A debounce: each event postpones the timer, which expires after the last one.
    ///
    /// ```
    /// use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (timers, mut saves) = wheel.keyed::<&str, ()>();
    /// let quiet = Duration::from_millis(500);
    /// for _keystroke in 0..10 {
    ///     if !timers.move_timer("draft", quiet)? {
    ///         timers.set_timer("draft", (), quiet)?;
    ///     }
    ///     tokio::time::sleep(Duration::from_millis(100)).await;
    /// }
    /// assert_eq!(saves.recv().await.unwrap().key, "draft");
    /// assert_eq!(wheel.metrics().keyed_fired, 1);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "reset")]
    #[doc(alias = "touch")]
    #[doc(alias = "extend")]
    #[doc(alias = "debounce")]
    pub fn move_timer<Q>(&self, key: &Q, delay: Duration) -> Result<bool, ClosedError>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.handles
            .set
            .move_to(self.hash(key), key, self.timestamp_after(delay))
    }

    /// Moves the timer with this key to expire at `deadline`. Otherwise like
    /// [`move_timer`](Self::move_timer).
    ///
    /// # Errors
    ///
    /// [`ClosedError`] when the wheel is shut down or the stream dropped.
    #[doc(alias = "reset_at")]
    pub fn move_timer_at<Q>(&self, key: &Q, deadline: Instant) -> Result<bool, ClosedError>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.handles
            .set
            .move_to(self.hash(key), key, self.timestamp(deadline))
    }

    /// Removes the timer with this key and returns its value. `Some` means that it will never
    /// expire, `None` that it was received or there was none. A handler of
    /// [`dispatch`](Expirations::dispatch) that runs for the key does not set it again then.
    ///
    /// It also removes a timer that is [overdue and not received](Self#how-a-timer-ends).
    ///
    /// # Errors
    ///
    /// [`ClosedError`] when the wheel is shut down or the stream dropped.
    #[doc(alias = "cancel")]
    #[doc(alias = "delete")]
    #[doc(alias = "take")]
    pub fn remove_timer<Q>(&self, key: &Q) -> Result<Option<V>, ClosedError>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.handles.set.remove(self.hash(key), key)
    }

    /// Calls `update` with the timer with this key: it can read and change the value, move the
    /// timer and remove it, in one step that no other call can come between. Returns what `update`
    /// returns; `None` if there is no such timer.
    ///
    /// It also works on a timer that is [overdue and not received](Self#how-a-timer-ends).
    ///
    /// `update` runs while the set is locked, until the [`TimerMut`] is dropped. It must be quick,
    /// since callers and the consumer wait for it, and must not call back into the set, nor may
    /// what it drops.
    ///
    /// # Errors
    ///
    /// [`ClosedError`] when the wheel is shut down or the stream dropped.
    ///
    /// # Panics
    ///
    /// Panics if `update` does. What it has changed before stays changed.
    ///
    /// # Examples
    ///
    /// A bid prolongs an auction that is about to end, unless it comes too late:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (auctions, _ended) = wheel.keyed::<&str, u32>();
    /// auctions.set_timer("vase", 100, Duration::from_secs(10))?;
    ///
    /// let bid = |price: u32| {
    ///     auctions.update("vase", |mut auction| {
    ///         let now = Instant::now();
    ///         if auction.deadline() <= now || price <= *auction.value() {
    ///             return false;
    ///         }
    ///         *auction.value_mut() = price;
    ///         let prolonged = now + Duration::from_secs(5);
    ///         if auction.deadline() < prolonged {
    ///             auction.set_deadline(prolonged);
    ///         }
    ///         true
    ///     })
    /// };
    /// assert_eq!(bid(120)?, Some(true));
    /// assert_eq!(bid(110)?, Some(false), "too little");
    /// tokio::time::sleep(Duration::from_secs(11)).await;
    /// assert_eq!(bid(130)?, Some(false), "too late");
    /// assert_eq!(auctions.get("vase"), Some(120));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "entry")]
    #[doc(alias = "modify")]
    #[inline]
    pub fn update<Q, R>(
        &self,
        key: &Q,
        update: impl FnOnce(TimerMut<'_, K, V>) -> R,
    ) -> Result<Option<R>, ClosedError>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.handles.set.update(self.hash(key), key, update)
    }

    /// Sets a timer that expires after `delay`, or, if its key has one already, calls `update` with
    /// that timer and `value`. Returns what `update` returns; `None` if the timer was set.
    ///
    /// The call is atomic, as [`update`](Self::update) is, and the same holds for the closure.
    ///
    /// # Errors
    ///
    /// [`Full`](SetTimerError::Full) when the key has no timer and
    /// [`Builder::max_keyed`](crate::Builder::max_keyed) timers are pending;
    /// [`Closed`](SetTimerError::Closed) when the wheel is shut down or the stream dropped.
    ///
    /// # Panics
    ///
    /// Panics if `update` does. What it has changed before stays changed.
    ///
    /// # Examples
    ///
    /// A batch for each key, which is flushed 50 ms after its first item, or when it is full:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (batches, mut flushes) = wheel.keyed::<&str, Vec<u32>>();
    /// let add = |topic, item| {
    ///     let linger = Duration::from_millis(50);
    ///     batches.set_or_update(topic, vec![item], linger, |mut batch, items| {
    ///         batch.value_mut().extend(items);
    ///         if batch.value().len() == 3 {
    ///             batch.set_deadline(Instant::now());
    ///         }
    ///     })
    /// };
    /// for (topic, item) in [("orders", 1), ("users", 2), ("users", 3), ("users", 4)] {
    ///     add(topic, item)?;
    /// }
    /// let full = flushes.recv().await.unwrap();
    /// assert_eq!((full.key, full.value), ("users", vec![2, 3, 4]));
    /// let lingered = flushes.recv().await.unwrap();
    /// assert_eq!((lingered.key, lingered.value), ("orders", vec![1]));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "upsert")]
    #[doc(alias = "batch")]
    #[doc(alias = "entry")]
    pub fn set_or_update<R>(
        &self,
        key: K,
        value: V,
        delay: Duration,
        update: impl FnOnce(TimerMut<'_, K, V>, V) -> R,
    ) -> Result<Option<R>, SetTimerError<K, V>> {
        self.set_or(
            key,
            value,
            self.timestamp_after(delay),
            |timer, _, value| update(timer, value),
        )
    }

    /// Sets a timer that expires at `deadline`, or calls `update` with the one that its key has.
    /// Otherwise like [`set_or_update`](Self::set_or_update).
    ///
    /// # Errors
    ///
    /// [`Full`](SetTimerError::Full) when the key has no timer and
    /// [`Builder::max_keyed`](crate::Builder::max_keyed) timers are pending;
    /// [`Closed`](SetTimerError::Closed) when the wheel is shut down or the stream dropped.
    ///
    /// # Panics
    ///
    /// Panics if `update` does. What it has changed before stays changed.
    ///
    /// # Examples
    ///
    /// Several callers request a key, and the earliest deadline counts:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (timers, _expirations) = wheel.keyed::<&str, ()>();
    /// let now = Instant::now();
    /// for secs in [30, 10, 20] {
    ///     let deadline = now + Duration::from_secs(secs);
    ///     timers.set_or_update_at("reconcile", (), deadline, |mut timer, ()| {
    ///         timer.set_deadline(deadline.min(timer.deadline()));
    ///     })?;
    /// }
    /// assert_eq!(timers.deadline("reconcile"), Some(now + Duration::from_secs(10)));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "earliest")]
    pub fn set_or_update_at<R>(
        &self,
        key: K,
        value: V,
        deadline: Instant,
        update: impl FnOnce(TimerMut<'_, K, V>, V) -> R,
    ) -> Result<Option<R>, SetTimerError<K, V>> {
        self.set_or(key, value, self.timestamp(deadline), |timer, _, value| {
            update(timer, value)
        })
    }

    /// The deadline of the timer with this key; `None` if there is no such timer. It has passed if
    /// the timer is [overdue and not received](Self#how-a-timer-ends). For a timer that never
    /// expires, it is the instant 292 years after the start of the wheel.
    pub fn deadline<Q>(&self, key: &Q) -> Option<Instant>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.handles.set.deadline(self.hash(key), key)
    }

    /// A clone of the value of the timer with this key; `None` if there is no such timer.
    ///
    /// `Clone` runs while the set is locked. It must not call back into the set.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (timers, _expirations) = wheel.keyed::<String, u32>();
    /// timers.set_timer("upload".to_owned(), 3, Duration::from_secs(5))?;
    /// assert_eq!(timers.get("upload"), Some(3));
    /// assert_eq!(timers.get("download"), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
        V: Clone,
    {
        self.handles.set.get_with(self.hash(key), key, V::clone)
    }

    /// Calls `read` with the value of the timer with this key; `None` if there is no such timer.
    /// For values that are not `Clone`, or are expensive to clone.
    ///
    /// `read` runs while the set is locked. It must be quick, since callers and the consumer wait
    /// for it, and must not call back into the set.
    ///
    /// # Panics
    ///
    /// Panics if `read` does. That changes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (timers, _expirations) = wheel.keyed::<String, Vec<u8>>();
    /// timers.set_timer("upload".to_owned(), vec![0; 1 << 20], Duration::from_secs(5))?;
    /// assert_eq!(timers.get_with("upload", Vec::len), Some(1 << 20));
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_with<Q, R>(&self, key: &Q, read: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.handles.set.get_with(self.hash(key), key, read)
    }

    /// Whether there is a timer with this key, be it [overdue](Self#how-a-timer-ends).
    pub fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.handles.set.deadline(self.hash(key), key).is_some()
    }
}

impl<K, V, S> KeyedTimers<K, V, S> {
    fn timestamp(&self, deadline: Instant) -> Timestamp {
        (self.handles.set).shared().ticks.timestamp(deadline)
    }

    fn timestamp_after(&self, delay: Duration) -> Timestamp {
        self.handles.set.shared().ticks.timestamp_after(delay)
    }
}

impl<K, V, S> Clone for KeyedTimers<K, V, S> {
    fn clone(&self) -> Self {
        let handles = Arc::clone(&self.handles);
        KeyedTimers { handles }
    }
}

impl<K, V, S> fmt::Debug for KeyedTimers<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handles.set.fmt_as("KeyedTimers", f)
    }
}
