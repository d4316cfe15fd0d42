//! Moving the paused clock.

use std::time::Duration;

use tokio::runtime::Handle;

use super::registry;

/// Moves the paused clock forward by `duration`. What is due then has been woken when this returns.
///
/// It is [`tokio::time::advance`], and then [`TimerWheel::settle`](crate::TimerWheel::settle) on the wheel of the current
/// runtime, if it has one. Tokio's alone wakes its own timers before it returns, and the actor of a wheel only then.
///
/// # Panics
///
/// Panics if the clock is not paused, and outside of a `current_thread` runtime, as Tokio's does.
///
/// # Examples
///
/// ```
/// use tickwheel::time::{self, Duration};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let reminder = tokio::spawn(time::sleep(Duration::from_secs(60)));
/// tokio::task::yield_now().await; // it begins to wait
/// time::advance(Duration::from_secs(60)).await;
/// tokio::task::yield_now().await; // it has been woken, and runs
/// assert!(reminder.is_finished());
/// # }
/// ```
pub async fn advance(duration: Duration) {
    tokio::time::advance(duration).await;
    let runtime = Handle::try_current().ok();
    if let Some(ambient) = runtime.and_then(|runtime| registry::get(runtime.id())) {
        ambient.wheel.settle().await;
    }
}
