//! The errors of timeouts and of starting a wheel.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The error of a [`Timeout`](crate::Timeout): its deadline came before its future completed.
///
/// It converts into an [`io::Error`] of kind [`TimedOut`](io::ErrorKind::TimedOut).
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Elapsed(());

impl Elapsed {
    /// Makes the error, for a limit that your own code enforces, or to test code that handles it.
    #[must_use]
    pub fn new() -> Self {
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
    /// Converts into an error of kind [`TimedOut`](io::ErrorKind::TimedOut).
    fn from(elapsed: Elapsed) -> Self {
        io::Error::new(io::ErrorKind::TimedOut, elapsed)
    }
}

impl From<tokio::time::error::Elapsed> for Elapsed {
    /// Lets a function that returns this error use Tokio's timeouts too. There is no conversion
    /// back, since Tokio's `Elapsed` has no constructor.
    fn from(_: tokio::time::error::Elapsed) -> Self {
        Elapsed::new()
    }
}

/// Why [`Builder::start`](crate::Builder::start) failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// [`Builder::tick`](crate::Builder::tick) is out of bounds.
    #[non_exhaustive]
    Tick {
        /// The tick that was set.
        value: Duration,
        /// The shortest and the longest tick there can be.
        bounds: RangeInclusive<Duration>,
    },
    /// [`Builder::max_keyed`](crate::Builder::max_keyed) is zero.
    MaxKeyed,
    /// [`Builder::precise`](crate::Builder::precise) is set, and the crate is built without its
    /// feature `precise`.
    NoPreciseFeature,
    /// The caller is outside a Tokio runtime, and [`Builder::runtime`](crate::Builder::runtime) was
    /// not set.
    NoRuntime,
    /// The Tokio runtime has no time driver: it was built without `enable_time()` or
    /// `enable_all()`.
    NoTimer,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BuildError::Tick { value, bounds } => {
                let (start, end) = (bounds.start(), bounds.end());
                return write!(
                    f,
                    "tick is {value:?}, but must be from {start:?} to {end:?}"
                );
            }
            BuildError::MaxKeyed => "max_keyed is 0, but must be at least 1 for a timer to be set",
            BuildError::NoPreciseFeature => {
                "`Builder::precise` needs the feature `precise` of tickwheel: enable it in \
                `Cargo.toml`"
            }
            BuildError::NoRuntime => {
                "no Tokio runtime: start the wheel within one, or pass its handle to \
                `Builder::runtime`"
            }
            BuildError::NoTimer => {
                "the Tokio runtime has no timer: build it with `enable_time()` or `enable_all()`"
            }
        })
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
