//! A replacement of [`tokio::time`], on a wheel for each runtime: replace `use tokio::time` by
//! `use tickwheel::time`, and nothing else.
//!
//! ```
//! use tickwheel::time::{self, Duration, Instant};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let start = Instant::now();
//! time::sleep(Duration::from_millis(100)).await;
//! assert_eq!(start.elapsed(), Duration::from_millis(100));
//!
//! let stuck = std::future::pending::<()>();
//! assert!(time::timeout(Duration::from_secs(5), stuck).await.is_err());
//!
//! let mut heartbeat = time::interval(Duration::from_secs(10));
//! let start = heartbeat.tick().await;
//! assert_eq!(start, Instant::now());
//! assert_eq!(heartbeat.tick().await - start, Duration::from_secs(10));
//! # }
//! ```
//!
//! The first timer in a runtime starts its wheel, with default settings unless one was
//! [installed](install()) before. [`wheel`] returns its handle, for keyed timers, idle timers and
//! metrics. The wheel ends with the runtime; if it is shut down before, the next use starts
//! another.
//!
//! # What differs from `tokio::time`
//!
//! The types:
//!
//! * [`Sleep`], [`Timeout`], [`Interval`] and [`error::Elapsed`] are not Tokio's. Tokio's `Elapsed`
//!   converts into this one, but not back; both convert into [`io::Error`](std::io::Error).
//!   `Instant`, `MissedTickBehavior` and `error::Error` are Tokio's.
//! * [`Sleep`] is `Unpin`. Code that pins it compiles unchanged.
//! * [`ext::FutureExt`] has the timeouts of that of `tokio-util`, and not its cancellation tokens.
//!   [`IntervalStream`] replaces that of `tokio-stream`. The crates they replace have Tokio's types
//!   in their signatures.
//!
//! When timers fire:
//!
//! * An unrepresentable deadline never fires. Tokio makes about thirty years of it.
//! * Ticks begin when the wheel starts, and are 0.1 ms; Tokio's milliseconds begin when the runtime
//!   does. So instants, and the order in which tasks are woken, differ within a millisecond: see
//!   [accuracy](mod@crate::guide#accuracy-and-ticks).
//! * A poll of a sleep reads the clock: it is ready once its deadline is reached. Tokio's is ready
//!   once its driver has run. [`is_elapsed`](Sleep::is_elapsed) reads the clock only for a sleep
//!   that was reset and not polled since; one that waits has elapsed once the actor has run.
//! * So a sleep of zero or of nanoseconds is ready at its first poll. Tokio's waits for the next
//!   millisecond, and paces [loops that
//!   poll](mod@crate::guide::switching#loops-that-sleep-for-zero).
//! * The first poll of a timeout for longer than zero does not read the clock. If its
//!   deadline has passed by then and its future is pending, the future can complete until the
//!   actor's next turn. Tokio's timeout elapses once its driver has run.
//! * A poll of a timeout that waits reads the clock only if its future has used up the budget.
//!   Otherwise the timeout elapses once the actor has run, as Tokio's does once its driver has run.
//! * A timeout that has waited elapses without cooperative budget. Tokio's does so only if its own
//!   future has used up the budget in the same poll.
//! * A waiting sleep that is reset into the past wakes its task on the actor's next turn; Tokio's
//!   wakes it before `reset` returns. An elapsed sleep that is reset has to be polled before it
//!   wakes its task at the new deadline; Tokio's does not.
//!
//! The runtime:
//!
//! * A sleep that outlives its runtime keeps its deadline in the runtime in which it is polled.
//!   Tokio's panics.
//! * A wheel adds two tasks to
//!   [`num_alive_tasks`](tokio::runtime::RuntimeMetrics::num_alive_tasks): its actor, and the task
//!   that ends the wheel with the runtime.
//! * `tokio-console` shows these timers only with the [feature
//!   `console`](mod@crate::guide#observability).
//!
//! # Under a virtual clock
//!
//! Once the clock has been paused, a sleep, timeout or interval *is* one of Tokio's, even after
//! `resume`. A test then sees the same instants, tasks are woken in the same order, a cancelled
//! timer does not move the clock, and a timer starts no wheel and no task. Unrepresentable
//! deadlines still never fire. A sleep panics as Tokio's does once its runtime has ended.
//! [`metrics`](TimerWheel::metrics) of an existing wheel counts such sleeps as handed over.
//!
//! A sleep that waits when the clock is paused goes over to Tokio's timer, which wakes its task
//! once, spuriously. After Tokio's own `pause`, as opposed to the one of this module, it goes over
//! when the next timer is polled or reset.
//!
//! Keyed timers, idle timers and reapers stay on the wheel. After `advance`,
//! [`settle`](TimerWheel::settle) lets them fire.
//!
//! # Which runtime
//!
//! A timer belongs to the current runtime, as Tokio's does: that of the task, of the `block_on`
//! around the call, or of the last [`Handle::enter`](tokio::runtime::Handle::enter). It follows the
//! clock of that runtime.
//!
//! # Panics
//!
//! Making a timer panics with Tokio's message outside a runtime, and in one without a time driver.
//!
//! # Testing
//!
//! The feature `test-util` adds Tokio's `pause`, `advance` and `resume`. It enables Tokio's
//! `test-util`, so it belongs in the dev-dependencies:
//!
//! ```toml
//! [dev-dependencies]
//! tickwheel = { version = "0.1", features = ["test-util"] }
//! ```

mod ambient;
pub mod ext;
mod install;
mod interval_stream;
#[cfg(feature = "test-util")]
mod pause;
mod registry;

use std::future::IntoFuture;

pub use std::time::Duration;
pub use tokio::time::{Instant, MissedTickBehavior};
#[cfg(feature = "test-util")]
#[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
pub use tokio::time::{advance, resume};

pub use crate::sleep::{Interval, Sleep, Timeout};
pub use install::{InstallError, install};
pub use interval_stream::IntervalStream;
#[cfg(feature = "test-util")]
#[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
pub use pause::pause;

use crate::clock;
use crate::console::{Resource, TimerType};
use crate::tick::after;
use crate::timer_wheel::TimerWheel;

/// The errors of this module.
pub mod error {
    pub use tokio::time::error::Error;

    pub use crate::error::Elapsed;
}

/// Returns the wheel of the current runtime. Starts one if it has none.
///
/// # Panics
///
/// Panics outside a Tokio runtime, and in one without a time driver.
///
/// # Examples
///
/// ```
/// use tickwheel::time::{self, Duration};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let (timers, mut expirations) = time::wheel().keyed::<&str, u32>();
/// timers.set_timer("session", 7, Duration::from_secs(30)).unwrap();
/// assert_eq!(expirations.recv().await.unwrap().value, 7);
///
/// assert_eq!(time::wheel().metrics().keyed_fired, 1);
/// # }
/// ```
#[track_caller]
pub fn wheel() -> TimerWheel {
    ambient::wheel()
}

/// Makes a future that completes once `duration` has passed. See [`TimerWheel::sleep`].
///
/// # Cancel safety
///
/// Dropping the future cancels it.
///
/// # Panics
///
/// Panics outside a Tokio runtime, and in one without a time driver.
///
/// # Examples
///
/// ```
/// use tickwheel::time::{self, Duration, Instant};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let start = Instant::now();
/// time::sleep(Duration::from_secs(2)).await;
/// assert_eq!(start.elapsed(), Duration::from_secs(2));
/// # }
/// ```
#[doc(alias = "delay")]
#[inline]
#[track_caller]
pub fn sleep(duration: Duration) -> Sleep {
    sleep_as(Resource::new(TimerType::Sleep), duration)
}

#[inline]
#[track_caller]
fn sleep_as(resource: Resource, duration: Duration) -> Sleep {
    let deadline = after(duration);
    let Some(reserved) = ambient::reserve(deadline) else {
        return Sleep::on_tokio(resource, deadline);
    };
    Sleep::after(resource, deadline, duration, reserved)
}

/// Makes a future that completes at `deadline`. See [`TimerWheel::sleep_until`].
///
/// # Cancel safety
///
/// Dropping the future cancels it.
///
/// # Panics
///
/// Panics outside a Tokio runtime, and in one without a time driver.
///
/// # Examples
///
/// ```
/// use tickwheel::time::{self, Duration, Instant};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let deadline = Instant::now() + Duration::from_secs(2);
/// let mut sleep = time::sleep_until(deadline);
/// tokio::select! {
///     () = &mut sleep => {}
///     () = time::sleep(Duration::from_secs(3)) => unreachable!("it is later"),
/// }
/// assert_eq!(Instant::now(), deadline);
/// # }
/// ```
#[inline]
#[track_caller]
pub fn sleep_until(deadline: Instant) -> Sleep {
    sleep_until_as(Resource::new(TimerType::Sleep), deadline)
}

#[inline]
#[track_caller]
fn sleep_until_as(resource: Resource, deadline: Instant) -> Sleep {
    match ambient::reserve(Some(deadline)) {
        Some(reserved) => Sleep::at(resource, deadline, reserved),
        None => Sleep::on_tokio(resource, Some(deadline)),
    }
}

/// Limits how long `future` may take. See [`TimerWheel::timeout`].
///
/// # Cancel safety
///
/// Dropping the timeout drops the future and cancels the timer.
///
/// # Panics
///
/// Panics outside a Tokio runtime, and in one without a time driver.
///
/// # Examples
///
/// ```
/// use tickwheel::time::{self, Duration};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> std::io::Result<()> {
/// let limit = Duration::from_secs(5);
/// assert_eq!(time::timeout(limit, async { 42 }).await?, 42);
/// # Ok(())
/// # }
/// ```
#[inline]
#[track_caller]
pub fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Timeout<F::IntoFuture> {
    let resource = Resource::new(TimerType::Timeout);
    Timeout::new(future.into_future(), sleep_as(resource, duration))
}

/// Limits how long `future` may take, to an instant. See [`TimerWheel::timeout_at`].
///
/// # Cancel safety
///
/// Dropping the timeout drops the future and cancels the timer.
///
/// # Panics
///
/// Panics outside a Tokio runtime, and in one without a time driver.
///
/// # Examples
///
/// ```
/// use tickwheel::time::{self, Duration, Instant};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let deadline = Instant::now() + Duration::from_secs(5);
/// let stuck = std::future::pending::<()>();
/// assert!(time::timeout_at(deadline, stuck).await.is_err());
/// # }
/// ```
#[inline]
#[track_caller]
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    let resource = Resource::new(TimerType::Timeout);
    Timeout::new(future.into_future(), sleep_until_as(resource, deadline))
}

/// Makes an interval that ticks at once, and then every `period`. See [`TimerWheel::interval`].
///
/// # Panics
///
/// Panics if `period` is zero, outside a Tokio runtime, and in one without a time driver.
///
/// # Examples
///
/// ```
/// use tickwheel::time::{self, Duration, Instant};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let start = Instant::now();
/// let mut heartbeat = time::interval(Duration::from_secs(10));
/// heartbeat.tick().await;
/// assert_eq!(start.elapsed(), Duration::ZERO);
/// heartbeat.tick().await;
/// assert_eq!(start.elapsed(), Duration::from_secs(10));
/// # }
/// ```
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    interval_at(clock::now(), period)
}

/// Makes an interval that ticks at `start`, and then every `period`. See
/// [`TimerWheel::interval_at`].
///
/// # Panics
///
/// Panics if `period` is zero, outside a Tokio runtime, and in one without a time driver.
///
/// # Examples
///
/// ```
/// use tickwheel::time::{self, Duration, Instant};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let first = Instant::now() + Duration::from_secs(3);
/// let mut heartbeat = time::interval_at(first, Duration::from_secs(10));
/// assert_eq!(heartbeat.tick().await, first);
/// # }
/// ```
#[track_caller]
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    assert!(!period.is_zero(), "`period` must be non-zero.");
    let resource = Resource::new(TimerType::Interval);
    Interval::new(sleep_until_as(resource, start), period)
}
