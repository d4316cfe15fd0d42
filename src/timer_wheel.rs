//! [`TimerWheel`]: the handle to a wheel and its actor.

mod builder;
mod weak;

use std::fmt;
use std::future::IntoFuture;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::clock;
use crate::console::{Resource, TimerType};
use crate::idle::{IdleLimits, IdleStream, IdleTimer, Reaper, assert_not_zero, reaper};
use crate::keyed::{Expirations, KeyedTimers, pair};
use crate::metrics::WheelMetrics;
use crate::shared::command::Request;
use crate::shared::{Alive, Shared, SleepContext};
use crate::sleep::{Interval, Reserved, Sleep, Timeout};

pub use builder::Builder;
pub use weak::WeakTimerWheel;

/// A handle to a timer wheel and its actor. Cheap to clone, and usable from any thread and task.
///
/// One wheel serves a whole process. The actor runs while a handle or an armed timer exists. A
/// [`KeyedTimers`], a [`Reaper`], a [`WatchGuard`](crate::WatchGuard) and a
/// [`BusyGuard`](crate::BusyGuard) that a maximum age [waits
/// for](crate::WatchOptions::wait_for_guards) count as handles; a timer that never fires does not
/// count.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tickwheel::TimerWheel;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let wheel = TimerWheel::new();
///
/// wheel.sleep(Duration::from_millis(50)).await;
///
/// let slow = std::future::pending::<()>();
/// assert!(wheel.timeout(Duration::from_millis(50), slow).await.is_err());
///
/// let (timers, mut expirations) = wheel.keyed::<&str, u32>();
/// timers.set_timer("session", 7, Duration::from_secs(30)).unwrap();
/// timers.move_timer("session", Duration::from_secs(60)).unwrap();
/// let expired = expirations.recv().await.unwrap();
/// assert_eq!((expired.key, expired.value), ("session", 7));
/// # }
/// ```
#[doc(alias = "TimingWheel")]
#[doc(alias = "HashedWheelTimer")]
#[derive(Clone)]
pub struct TimerWheel {
    context: Arc<SleepContext>,
    alive: Arc<Alive>,
}

impl TimerWheel {
    /// Starts a wheel with default settings on the current Tokio runtime.
    /// [`builder`](Self::builder) starts one with other settings.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime, and in one without a time driver. [`Builder::start`] returns
    /// an error instead.
    #[allow(clippy::new_without_default)] // a default that panics outside a runtime would surprise
    #[track_caller]
    pub fn new() -> Self {
        match Self::builder().start() {
            Ok(wheel) => wheel,
            Err(error) => panic!("`TimerWheel::new()` could not start a wheel: {error}"),
        }
    }

    /// Configures a wheel before it starts.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn new_handle(shared: Arc<Shared>) -> Self {
        let alive = Alive {
            shared: Arc::clone(&shared),
        };
        let context = SleepContext {
            shared,
            clock: None,
        };
        TimerWheel {
            context: Arc::new(context),
            alive: Arc::new(alive),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.context.shared
    }

    /// Whether both are handles of one wheel.
    pub(crate) fn is_same(&self, other: &TimerWheel) -> bool {
        Arc::ptr_eq(&self.context, &other.context)
    }

    /// A handle that does not keep the wheel running.
    pub fn downgrade(&self) -> WeakTimerWheel {
        WeakTimerWheel {
            context: Arc::clone(&self.context),
            alive: Arc::downgrade(&self.alive),
        }
    }

    /// Makes a future that completes once `duration` has passed.
    ///
    /// The duration counts from this call. The future is never early, and at most a tick late plus
    /// what the [runtime adds](mod@crate::guide#accuracy-and-ticks). A duration too long to be
    /// represented never completes.
    ///
    /// A future that is due at its first poll is ready then, and takes a unit of the task's
    /// cooperative budget. So a sleep of zero or of nanoseconds paces no [loop that
    /// polls](mod@crate::guide::switching#loops-that-sleep-for-zero), as Tokio's millisecond does.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels it; see [`Sleep`].
    #[doc(alias = "delay")]
    #[inline]
    #[cfg_attr(feature = "console", track_caller)]
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_as(Resource::new(TimerType::Sleep), duration)
    }

    #[inline]
    fn sleep_as(&self, resource: Resource, duration: Duration) -> Sleep {
        Sleep::on_wheel(resource, &self.context, duration)
    }

    /// Reserves on this wheel what a sleep until `deadline` needs.
    #[inline]
    pub(crate) fn reserve(&self, deadline: Option<Instant>) -> Reserved {
        Reserved::new(&self.context, deadline)
    }

    /// Makes a future that completes at `deadline`. A deadline in the past is ready at the first
    /// poll.
    ///
    /// Otherwise like [`sleep`](Self::sleep).
    #[cfg_attr(feature = "console", track_caller)]
    pub fn sleep_until(&self, deadline: Instant) -> Sleep {
        self.sleep_until_as(Resource::new(TimerType::Sleep), deadline)
    }

    fn sleep_until_as(&self, resource: Resource, deadline: Instant) -> Sleep {
        Sleep::at(resource, deadline, self.reserve(Some(deadline)))
    }

    /// Limits how long `future` may take.
    ///
    /// Returns the future's output, or [`Elapsed`](crate::Elapsed) once `duration` has passed. If
    /// both are ready at a poll, the output counts. A duration too long to be represented is no
    /// limit.
    ///
    /// # Cancel safety
    ///
    /// Dropping the timeout drops the future and cancels the timer, as for [`sleep`](Self::sleep).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let limit = Duration::from_secs(30);
    /// assert_eq!(wheel.timeout(limit, async { 5 }).await, Ok(5));
    /// # }
    /// ```
    #[doc(alias = "with_timeout")]
    #[inline]
    #[cfg_attr(feature = "console", track_caller)]
    pub fn timeout<F: IntoFuture>(&self, duration: Duration, future: F) -> Timeout<F::IntoFuture> {
        let resource = Resource::new(TimerType::Timeout);
        Timeout::new(future.into_future(), self.sleep_as(resource, duration))
    }

    /// Limits how long `future` may take, to an instant. Otherwise like [`timeout`](Self::timeout).
    #[cfg_attr(feature = "console", track_caller)]
    pub fn timeout_at<F: IntoFuture>(
        &self,
        deadline: Instant,
        future: F,
    ) -> Timeout<F::IntoFuture> {
        let resource = Resource::new(TimerType::Timeout);
        Timeout::new(
            future.into_future(),
            self.sleep_until_as(resource, deadline),
        )
    }

    /// Makes an interval that ticks at once, and then every `period`.
    ///
    /// # Panics
    ///
    /// Panics if `period` is zero.
    #[doc(alias = "ticker")]
    #[doc(alias = "periodic")]
    #[track_caller]
    pub fn interval(&self, period: Duration) -> Interval {
        self.interval_at(clock::now(), period)
    }

    /// Makes an interval that ticks at `start`, and then every `period`.
    ///
    /// # Panics
    ///
    /// Panics if `period` is zero.
    #[track_caller]
    pub fn interval_at(&self, start: Instant, period: Duration) -> Interval {
        assert!(!period.is_zero(), "`period` must be non-zero");
        let resource = Resource::new(TimerType::Interval);
        Interval::new(self.sleep_until_as(resource, start), period)
    }

    /// Makes a set of keyed timers: the handle to set, move and remove them, and the stream of
    /// those that expire.
    ///
    /// Any number of sets, with different types of keys and values, share the wheel.
    ///
    /// Dropping the stream closes the set. `let (timers, _) = wheel.keyed()` drops it at once; to
    /// keep it without using it, write `_expirations`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (timers, mut expirations) = wheel.keyed::<u64, &str>();
    /// timers.set_timer(7, "unpaid", Duration::from_secs(60))?;
    /// let expired = expirations.recv().await.ok_or("closed")?;
    /// assert_eq!((expired.key, expired.value), (7, "unpaid"));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "DelayQueue")]
    #[doc(alias = "insert")]
    #[doc(alias = "ttl")]
    #[doc(alias = "debounce")]
    #[doc(alias = "schedule")]
    #[must_use = "dropping the stream of expirations closes the set"]
    pub fn keyed<K, V>(&self) -> (KeyedTimers<K, V>, Expirations<K, V>)
    where
        K: Hash + Eq + Send + 'static,
        V: Send + 'static,
    {
        self.keyed_with_hasher(RandomState::new())
    }

    /// Makes a set of keyed timers whose keys `hasher` hashes. Otherwise like
    /// [`keyed`](Self::keyed).
    ///
    /// `keyed` hashes as [`HashMap`](std::collections::HashMap) does, with random seeds: a peer
    /// that chooses keys cannot make them collide. Where keys are your own, a faster hasher saves
    /// some CPU time for each call. The set keeps 32 bits of each hash.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// use std::hash::{BuildHasherDefault, DefaultHasher};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let hasher = BuildHasherDefault::<DefaultHasher>::default();
    /// let (timers, _expirations) = wheel.keyed_with_hasher::<u64, &str, _>(hasher);
    /// timers.set_timer(7, "unpaid", Duration::from_secs(60))?;
    /// assert!(timers.contains(&7));
    /// # Ok(())
    /// # }
    /// ```
    pub fn keyed_with_hasher<K, V, S>(&self, hasher: S) -> (KeyedTimers<K, V, S>, Expirations<K, V>)
    where
        K: Hash + Eq + Send + 'static,
        V: Send + 'static,
        S: BuildHasher,
    {
        pair(hasher, &self.alive, &self.context)
    }

    /// Makes a future that completes once nothing has touched it for `idle`, counted from this
    /// call.
    ///
    /// # Panics
    ///
    /// Panics if `idle` is zero.
    #[doc(alias = "watchdog")]
    #[doc(alias = "inactivity")]
    #[track_caller]
    pub fn idle_timer(&self, idle: Duration) -> IdleTimer {
        IdleTimer::new(&self.context.shared, &IdleLimits::none().either(idle))
    }

    /// Wraps a stream so that its operations fail with [`TimedOut`](std::io::ErrorKind::TimedOut)
    /// once nothing has been read or written for `idle`. [`IdleStream`] says what counts.
    ///
    /// # Panics
    ///
    /// Panics if `idle` is zero.
    #[doc(alias = "keepalive")]
    #[track_caller]
    pub fn idle_stream<S>(&self, io: S, idle: Duration) -> IdleStream<S> {
        self.idle_stream_with(io, &IdleLimits::none().either(idle))
    }

    /// Wraps a stream with separate limits for reading, for writing and for both. Without any limit
    /// it has no timer.
    #[cfg_attr(feature = "console", track_caller)]
    pub fn idle_stream_with<S>(&self, io: S, limits: &IdleLimits) -> IdleStream<S> {
        IdleStream::new(&self.context.shared, io, limits)
    }

    /// Watches many connections or sessions: returns the handle to watch them, and the stream of
    /// those that nothing has touched for `idle`.
    ///
    /// Dropping the stream closes the reaper, as with [`keyed`](Self::keyed).
    ///
    /// # Panics
    ///
    /// Panics if `idle` is zero.
    #[doc(alias = "session")]
    #[doc(alias = "expire")]
    #[doc(alias = "ttl")]
    #[doc(alias = "keepalive")]
    #[must_use = "dropping the stream of expirations closes the reaper"]
    #[track_caller]
    pub fn reaper<K, V>(&self, idle: Duration) -> (Reaper<K, V>, Expirations<K, V>)
    where
        K: Send + 'static,
        V: Send + 'static,
    {
        assert_not_zero(idle);
        reaper(&self.alive, &self.context, idle)
    }

    /// Returns a snapshot of the wheel's counters.
    ///
    /// It reads the counters of each thread and each set, and allocates some kilobytes: call it in
    /// an exporter, not on a hot path. It locks no set of timers.
    #[doc(alias = "stats")]
    pub fn metrics(&self) -> WheelMetrics {
        self.context.shared.metrics.0.read()
    }

    /// Waits until every call made before this one is applied and every timer due by then has
    /// fired.
    ///
    /// It is a barrier for tests: afterwards, due tasks have been woken and expirations lie in
    /// their streams. On a wheel that is shut down it returns at once.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the wheel.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (timers, mut expirations) = wheel.keyed::<u32, ()>();
    /// timers.set_timer(1, (), Duration::from_secs(5)).unwrap();
    ///
    /// tokio::time::advance(Duration::from_secs(5)).await;
    /// wheel.settle().await;
    /// assert_eq!(expirations.try_recv().unwrap().key, 1);
    /// # }
    /// ```
    #[doc(alias = "barrier")]
    #[doc(alias = "flush")]
    pub async fn settle(&self) {
        let (done, settled) = oneshot::channel();
        if self.context.shared.send_now(Request::Settle(done)).is_ok() {
            // An error means that the actor has ended.
            let _ = settled.await;
        }
    }

    /// Ends the actor and waits until it has ended. Idempotent, and safe to call from several
    /// tasks.
    ///
    /// The wheel loses nothing:
    ///
    /// * Pending sleeps, and those made later, go on with Tokio's own timer.
    /// * [`Expirations::unexpired`] returns the keyed timers that have not expired.
    /// * The stream returns what was delivered, then ends.
    /// * Setting a keyed timer returns key and value in
    ///   [`SetTimerError::Closed`](crate::SetTimerError::Closed).
    ///
    /// # Cancel safety
    ///
    /// Once polled, the shutdown takes place even if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (timers, mut expirations) = wheel.keyed::<u32, &str>();
    /// timers.set_timer(1, "not yet", Duration::from_secs(60)).unwrap();
    ///
    /// wheel.shutdown().await;
    /// assert!(expirations.recv().await.is_none());
    /// assert_eq!(expirations.unexpired()[0].value, "not yet");
    /// # }
    /// ```
    #[doc(alias = "close")]
    #[doc(alias = "stop")]
    pub async fn shutdown(&self) {
        // An error means that the actor has ended or is about to.
        let _ = self.context.shared.send_now(Request::Shutdown);
        self.context.shared.end.wait().await;
    }

    /// Waits until the actor has ended, by [`shutdown`](Self::shutdown) or because its runtime was
    /// dropped. It does not end the actor.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let other = wheel.clone();
    /// let task = tokio::spawn(async move { other.closed().await });
    /// wheel.shutdown().await;
    /// task.await.unwrap();
    /// # }
    /// ```
    pub async fn closed(&self) {
        self.context.shared.end.wait().await;
    }

    /// Whether the actor has ended, by [`shutdown`](Self::shutdown) or because its runtime was
    /// dropped.
    #[inline]
    pub fn is_shutdown(&self) -> bool {
        self.context.shared.is_ended()
    }

    /// The length of a tick.
    #[doc(alias = "resolution")]
    #[doc(alias = "granularity")]
    pub fn tick_duration(&self) -> Duration {
        self.context.shared.ticks.tick_duration()
    }

    /// The wheel's name, as given to [`Builder::name`].
    pub fn name(&self) -> &str {
        &self.context.shared.name
    }
}

impl fmt::Debug for TimerWheel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerWheel")
            .field("name", &self.context.shared.name)
            .field("tick_duration", &self.tick_duration())
            .field("is_shutdown", &self.is_shutdown())
            .finish_non_exhaustive()
    }
}
