//! Errors of keyed timers.

use std::error::Error;
use std::fmt;

/// The error of a timer that could not be set. It returns the key and the value.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tickwheel::{SetTimerError, TimerWheel};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), tickwheel::BuildError> {
/// let wheel = TimerWheel::builder().max_keyed(1).start()?;
/// let (timers, _expirations) = wheel.keyed::<u32, &str>();
/// let minute = Duration::from_secs(60);
/// assert_eq!(timers.set_timer(1, "one", minute), Ok(None));
///
/// let refused = timers.set_timer(2, "two", minute);
/// assert_eq!(refused, Err(SetTimerError::Full(2, "two")));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetTimerError<K, V> {
    /// As many timers are pending as [`Builder::max_keyed`](crate::Builder::max_keyed) allows, and
    /// the key is new.
    Full(K, V),
    /// No timer can be set any more, for this reason.
    Closed(K, V, ClosedError),
}

impl<K, V> SetTimerError<K, V> {
    /// Returns the key and the value.
    pub fn into_inner(self) -> (K, V) {
        match self {
            SetTimerError::Full(key, value) | SetTimerError::Closed(key, value, _) => (key, value),
        }
    }

    /// Whether the wheel is full: there may be room later.
    pub fn is_full(&self) -> bool {
        matches!(self, SetTimerError::Full(..))
    }

    /// Whether the set is closed: no timer can be set any more.
    pub fn is_closed(&self) -> bool {
        matches!(self, SetTimerError::Closed(..))
    }

    /// This error without the key and the value, which are dropped. It is `Send`, `Sync` and
    /// `'static`, so `?` turns it into a boxed error even where a key or value is not `Sync`.
    ///
    /// ```
    /// use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// # use tickwheel::SetTimerError;
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (timers, _expirations) = wheel.keyed::<u32, std::cell::Cell<u32>>();
    /// timers
    ///     .set_timer(1, std::cell::Cell::new(5), Duration::from_secs(1))
    ///     .map_err(SetTimerError::without_value)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn without_value(self) -> SetTimerError<(), ()> {
        match self {
            SetTimerError::Full(..) => SetTimerError::Full((), ()),
            SetTimerError::Closed(_, _, cause) => SetTimerError::Closed((), (), cause),
        }
    }
}

impl<K, V> fmt::Debug for SetTimerError<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetTimerError::Full(..) => f.write_str("Full(..)"),
            SetTimerError::Closed(_, _, cause) => write!(f, "Closed(.., {cause:?})"),
        }
    }
}

impl<K, V> fmt::Display for SetTimerError<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetTimerError::Full(..) => {
                f.write_str("as many timers are pending as max_keyed allows")
            }
            SetTimerError::Closed(_, _, cause) => cause.fmt(f),
        }
    }
}

impl<K, V> Error for SetTimerError<K, V> {}

/// The error of a call on timers that are closed, by its cause. They stay closed.
///
/// # Examples
///
/// ```
/// use tickwheel::{ClosedError, TimerWheel};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let wheel = TimerWheel::new();
/// let (timers, _) = wheel.keyed::<u32, ()>(); // `_` drops the stream
/// let error = timers.remove_timer(&1).unwrap_err();
/// assert_eq!(error, ClosedError::StreamDropped);
/// assert_eq!(error.to_string(), "the timers are closed: their stream was dropped");
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClosedError {
    /// The stream of expirations was dropped: see [`TimerWheel::keyed`](crate::TimerWheel::keyed).
    StreamDropped,
    /// A handle has [shut the wheel down](crate::TimerWheel::shutdown).
    Shutdown,
    /// The runtime of the wheel's actor was dropped.
    RuntimeEnded,
}

impl fmt::Display for ClosedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ClosedError::StreamDropped => "the timers are closed: their stream was dropped",
            ClosedError::Shutdown => "the timers are closed: the wheel was shut down",
            ClosedError::RuntimeEnded => "the timers are closed: the wheel's runtime has ended",
        })
    }
}

impl Error for ClosedError {}

/// The error of [`Expirations::try_recv`](crate::Expirations::try_recv) when there is nothing to
/// receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TryRecvError {
    /// Nothing is delivered now. There may be an expiration later.
    Empty,
    /// There will be no more expirations: the wheel was shut down, or no handle and no timer is
    /// left.
    Closed,
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TryRecvError::Empty => "no timer has expired",
            TryRecvError::Closed => "no timer will expire any more",
        })
    }
}

impl Error for TryRecvError {}
