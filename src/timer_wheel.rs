//! The handle of a wheel.

use std::fmt;
use std::future::IntoFuture;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::builder::Builder;
use crate::idle::{IdleLimits, IdleStream, IdleTimer, Reaper, assert_not_zero, reaper};
use crate::keyed::{Expirations, KeyedTimers, pair};
use crate::metrics::{KeyedCounts, WheelMetrics};
use crate::shared::command::Command;
use crate::shared::{Origin, Shared};
use crate::sleep::Interval;
use crate::sleep::Sleep;
use crate::sleep::Timeout;

/// A timer wheel and the way to its actor. Cheap to clone, and usable from any thread and task.
///
/// One wheel serves a whole process. The actor lives while a handle or an armed timer lives; a
/// [`KeyedTimers`] counts as a handle.
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
#[derive(Clone)]
pub struct TimerWheel {
    origin: Arc<Origin>,
    /// Dropped with the last handle.
    _alive: Arc<Alive>,
}

/// Exists while a handle does.
struct Alive(Arc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.orphan();
    }
}

impl TimerWheel {
    /// Starts a wheel with ticks of a millisecond on the current Tokio runtime.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime, and within one that has no timer. [`Builder::start`] gives an error instead.
    #[allow(clippy::new_without_default)] // a default that panics outside a runtime would surprise
    #[track_caller]
    pub fn new() -> Self {
        match Self::builder().start() {
            Ok(wheel) => wheel,
            Err(error) => panic!("`TimerWheel::new()` could not start a wheel: {error}"),
        }
    }

    /// Starts a wheel with other than the usual ticks, slots, limits, name or runtime. Never panics.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn new_handle(shared: Arc<Shared>) -> Self {
        let alive = Arc::new(Alive(Arc::clone(&shared)));
        let origin = Origin {
            shared,
            clock: None,
        };
        TimerWheel {
            origin: Arc::new(origin),
            _alive: alive,
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.origin.shared
    }

    /// A future that completes once `duration` has passed from now.
    ///
    /// It is never early, and at most a tick late, plus what the runtime adds. It is ready at its first poll if it is due
    /// by then. A duration too long to be represented never completes.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels it; see [`Sleep`].
    pub fn sleep(&self, duration: Duration) -> Sleep {
        Sleep::after(&self.origin, duration)
    }

    /// A future that completes at `deadline`. With one in the past it is ready at the first poll.
    ///
    /// Otherwise as [`sleep`](Self::sleep).
    pub fn sleep_until(&self, deadline: Instant) -> Sleep {
        Sleep::at(&self.origin, deadline)
    }

    /// Gives `future` at most `duration` from now to complete.
    ///
    /// The future is polled first: if it is ready when the deadline has passed too, its output counts. A duration too
    /// long to be represented is no limit.
    ///
    /// # Cancel safety
    ///
    /// Dropping the timeout drops the future and cancels the timer.
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
    pub fn timeout<F: IntoFuture>(&self, duration: Duration, future: F) -> Timeout<F::IntoFuture> {
        Timeout::new(future.into_future(), self.sleep(duration))
    }

    /// Gives `future` until `deadline` to complete. Otherwise as [`timeout`](Self::timeout).
    pub fn timeout_at<F: IntoFuture>(
        &self,
        deadline: Instant,
        future: F,
    ) -> Timeout<F::IntoFuture> {
        Timeout::new(future.into_future(), self.sleep_until(deadline))
    }

    /// Ticks at once, and then every `period`.
    ///
    /// # Panics
    ///
    /// If `period` is zero.
    #[track_caller]
    pub fn interval(&self, period: Duration) -> Interval {
        self.interval_at(Instant::now(), period)
    }

    /// Ticks at `start`, and then every `period`.
    ///
    /// # Panics
    ///
    /// If `period` is zero.
    #[track_caller]
    pub fn interval_at(&self, start: Instant, period: Duration) -> Interval {
        assert!(!period.is_zero(), "`period` must be non-zero");
        Interval::new(self.sleep_until(start), period)
    }

    /// A new set of keyed timers: the handle to set, move and remove them, and the stream of those that fire.
    ///
    /// Any number of sets, of different types, share the wheel. Never panics.
    pub fn keyed<K, V>(&self) -> (KeyedTimers<K, V>, Expirations<K, V>)
    where
        K: Hash + Eq + Send + 'static,
        V: Send + 'static,
    {
        pair(self)
    }

    /// A future that completes once nothing has touched it for `idle`. Counts from now.
    ///
    /// # Panics
    ///
    /// If `idle` is zero.
    #[track_caller]
    pub fn idle_timer(&self, idle: Duration) -> IdleTimer {
        assert_not_zero(idle);
        IdleTimer::new(&self.origin.shared, idle)
    }

    /// Wraps a stream so that its operations fail with [`TimedOut`](std::io::ErrorKind::TimedOut) once nothing has been
    /// read from it and nothing written to it for `idle`.
    ///
    /// # Panics
    ///
    /// If `idle` is zero.
    #[track_caller]
    pub fn idle_stream<S>(&self, io: S, idle: Duration) -> IdleStream<S> {
        self.idle_stream_with(io, IdleLimits::none().all(idle))
    }

    /// Wraps a stream with separate limits for reading, writing and both; with none of them it costs nothing. Never
    /// panics.
    pub fn idle_stream_with<S>(&self, io: S, limits: IdleLimits) -> IdleStream<S> {
        IdleStream::new(&self.origin.shared, io, limits)
    }

    /// Watches many things at once: the handle to begin a watch, and the stream of those on which nothing has happened
    /// for `idle`.
    ///
    /// # Panics
    ///
    /// If `idle` is zero.
    #[track_caller]
    pub fn reaper<K, V>(&self, idle: Duration) -> (Reaper<K, V>, Expirations<K, V>)
    where
        K: Send + 'static,
        V: Send + 'static,
    {
        assert_not_zero(idle);
        reaper(self, idle)
    }

    /// What the wheel has counted so far. Takes a lock for each set of timers; not for a hot path. Never panics.
    pub fn metrics(&self) -> WheelMetrics {
        let mut keyed = KeyedCounts::default();
        for set in self.origin.shared.sets() {
            keyed.add(&set.counts());
        }
        (self.origin.shared.metrics.0).read(keyed, self.origin.shared.pending_keyed())
    }

    /// Waits until all that was submitted before this call is applied, and all that was due by then has fired:
    /// sleeping tasks have been woken, and expirations lie in their streams. A barrier for tests.
    ///
    /// Returns at once when the wheel is shut down. Never panics.
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
    pub async fn settle(&self) {
        let (done, settled) = oneshot::channel();
        let command = Command::Settle {
            done,
            is_second_round: false,
        };
        if self.origin.shared.send_now(command).is_ok() {
            // An error means that the actor has ended.
            let _ = settled.await;
        }
    }

    /// Ends the actor, and returns when it has ended. Calling it again, or from several tasks, does the same.
    ///
    /// Nothing is lost: sleeps that are pending, and those made later, go on with Tokio's own timer. Keyed timers that
    /// have not fired can be had from [`Expirations::unexpired`]; those that have fired can still be received, and then
    /// the stream ends. Setting a timer gives key and value back as
    /// [`SetTimerError::Closed`](crate::SetTimerError::Closed). Never panics.
    ///
    /// # Cancel safety
    ///
    /// Once polled the shutdown takes place, also if the future is dropped.
    pub async fn shutdown(&self) {
        // An error means that it has ended, or is about to.
        let _ = self.origin.shared.send_now(Command::Shutdown);
        self.origin.shared.ended().await;
    }

    /// Whether the actor has ended: by [`shutdown`](Self::shutdown), or because its runtime is gone. Never panics.
    pub fn is_shutdown(&self) -> bool {
        self.origin.shared.is_ended()
    }

    /// The length of a tick. Never panics.
    pub fn tick(&self) -> Duration {
        self.origin.shared.ticks.tick()
    }

    /// The wheel's name. Never panics.
    pub fn name(&self) -> &str {
        &self.origin.shared.name
    }
}

impl fmt::Debug for TimerWheel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerWheel")
            .field("name", &self.origin.shared.name)
            .field("tick", &self.tick())
            .field("is_shutdown", &self.is_shutdown())
            .finish_non_exhaustive()
    }
}
