//! Timeouts as methods of futures.
//!
//! They are not in [`time`](super) itself, so that `use tickwheel::time::*` brings in no methods
//! that are ambiguous beside those of another trait.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::sleep::Timeout;

/// Timeouts at the end of a chain, like those of `tokio_util::future::FutureExt`, whose methods
/// return Tokio's types.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tickwheel::time::ext::FutureExt;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let stuck = std::future::pending::<()>();
/// assert!(stuck.timeout(Duration::from_secs(5)).await.is_err());
/// # }
/// ```
pub trait FutureExt: Future {
    /// Limits how long this future may take. See [`timeout`](super::timeout()).
    ///
    /// # Panics
    ///
    /// Panics as [`timeout`](super::timeout()) does.
    #[track_caller]
    fn timeout(self, duration: Duration) -> Timeout<Self>
    where
        Self: Sized,
    {
        super::timeout(duration, self)
    }

    /// Limits how long this future may take, to an instant. See [`timeout_at`](super::timeout_at).
    ///
    /// # Panics
    ///
    /// Panics as [`timeout_at`](super::timeout_at) does.
    #[track_caller]
    fn timeout_at(self, deadline: Instant) -> Timeout<Self>
    where
        Self: Sized,
    {
        super::timeout_at(deadline, self)
    }
}

impl<F: Future + ?Sized> FutureExt for F {}
