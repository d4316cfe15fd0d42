//! [`WeakTimerWheel`]: a handle that does not keep the wheel running.

use std::fmt;
use std::sync::{Arc, Weak};

use super::TimerWheel;
use crate::metrics::WheelMetrics;
use crate::shared::{Alive, SleepContext};

/// A handle that does not keep the wheel running. Made by [`TimerWheel::downgrade`].
///
/// A task that reports on a wheel, or that waits for its end, holds one.
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
/// let weak = wheel.downgrade();
/// let report = tokio::spawn(async move {
///     let mut reports = 0;
///     loop {
///         tokio::select! {
///             () = weak.closed() => return reports,
///             () = tokio::time::sleep(Duration::from_secs(60)) => {}
///         }
///         assert_eq!(weak.metrics().keyed_pending, 0);
///         reports += 1;
///     }
/// });
/// wheel.sleep(Duration::from_secs(150)).await;
/// drop(wheel);
/// assert_eq!(report.await.unwrap(), 2);
/// # }
/// ```
#[derive(Clone)]
pub struct WeakTimerWheel {
    pub(super) context: Arc<SleepContext>,
    pub(super) alive: Weak<Alive>,
}

impl WeakTimerWheel {
    /// A strong handle; `None` once the last one is dropped.
    ///
    /// Keyed timers, reapers and watches count as [handles](TimerWheel). A wheel that was shut down
    /// has strong handles until they are dropped.
    pub fn upgrade(&self) -> Option<TimerWheel> {
        Some(TimerWheel {
            alive: self.alive.upgrade()?,
            context: Arc::clone(&self.context),
        })
    }

    /// Returns a snapshot of the wheel's counters, also once it has ended: see
    /// [`TimerWheel::metrics`].
    pub fn metrics(&self) -> WheelMetrics {
        self.context.shared.metrics.0.read()
    }

    /// Waits until the wheel has ended, as [`TimerWheel::closed`] does. It also ends once no handle
    /// and no armed timer is left.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn closed(&self) {
        self.context.shared.end.wait().await;
    }
}

impl fmt::Debug for WeakTimerWheel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakTimerWheel")
            .field("name", &self.context.shared.name)
            .field("has_handles", &(self.alive.strong_count() > 0))
            .finish_non_exhaustive()
    }
}
