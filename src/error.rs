//! Errors that are not about keyed timers: a timeout that elapsed, a wheel that could not be started.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

/// A [`Timeout`](crate::Timeout) reached its deadline before its future completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Elapsed(());

impl Elapsed {
    pub(crate) fn new() -> Self {
        Elapsed(())
    }
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadline has elapsed")
    }
}

impl std::error::Error for Elapsed {}

impl From<Elapsed> for io::Error {
    /// An error of kind [`TimedOut`](io::ErrorKind::TimedOut).
    fn from(elapsed: Elapsed) -> Self {
        io::Error::new(io::ErrorKind::TimedOut, elapsed)
    }
}

/// Why a wheel could not be started. Each variant names the field, its value and its bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// [`Builder::tick`](crate::Builder::tick) is out of bounds.
    Tick {
        /// What was asked for.
        value: Duration,
        /// What there can be.
        bounds: RangeInclusive<Duration>,
    },
    /// [`Builder::slots`](crate::Builder::slots) is out of bounds, or not a power of two.
    Slots {
        /// What was asked for.
        value: usize,
        /// What there can be; only powers of two.
        bounds: RangeInclusive<usize>,
    },
    /// [`Builder::max_keyed`](crate::Builder::max_keyed) is zero: no timer could ever be set.
    MaxKeyed,
    /// There is no Tokio runtime here, and none was given to [`Builder::runtime`](crate::Builder::runtime).
    NoRuntime,
    /// The clock here is paused, which a [dedicated thread](crate::Builder::dedicated_thread) cannot follow.
    PausedClock,
    /// The operating system did not start the [dedicated thread](crate::Builder::dedicated_thread).
    Thread(io::ErrorKind),
    /// The Tokio runtime has no timer: its builder was not told `enable_time()` or `enable_all()`.
    NoTimer,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Tick { value, bounds } => write!(
                f,
                "tick is {value:?}, but must be from {:?} to {:?}",
                bounds.start(),
                bounds.end()
            ),
            BuildError::Slots { value, bounds } => write!(
                f,
                "slots is {value}, but must be a power of two from {} to {}",
                bounds.start(),
                bounds.end()
            ),
            BuildError::MaxKeyed => {
                f.write_str("max_keyed is 0, but must be at least 1 for a timer to be set")
            }
            BuildError::NoRuntime => f.write_str(
                "no Tokio runtime: start the wheel within one, or give its handle to \
                 `Builder::runtime`",
            ),
            BuildError::PausedClock => f.write_str(
                "Tokio's clock is paused here, and a dedicated thread could not follow it: start \
                 the wheel without `Builder::dedicated_thread`",
            ),
            BuildError::Thread(kind) => {
                write!(f, "the dedicated thread could not be started: {kind}")
            }
            BuildError::NoTimer => f.write_str(
                "the Tokio runtime has no timer: build it with `enable_time()` or `enable_all()`",
            ),
        }
    }
}

impl std::error::Error for BuildError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elapsed_becomes_an_io_error_of_kind_timed_out() {
        let error = io::Error::from(Elapsed::new());
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "deadline has elapsed");
    }
}
