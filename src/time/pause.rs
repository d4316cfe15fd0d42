//! Pausing the clock.

use tokio::runtime::Handle;

use super::registry;

/// Pauses the clock, as [`tokio::time::pause`] does.
///
/// After Tokio's own `pause`, a timer cancelled before it still moves the clock, until a timer of
/// this module is polled or reset. So does one of a wheel that is not this module's, until a timer
/// of that wheel is.
///
/// # Panics
///
/// Panics if the clock is paused, and outside of a `current_thread` runtime, as Tokio's does.
///
/// # Examples
///
/// ```
/// use tickwheel::time::{self, Duration};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let reminder = tokio::spawn(time::sleep(Duration::from_secs(60)));
/// tokio::task::yield_now().await;
/// time::pause();
/// time::advance(Duration::from_secs(61)).await;
/// tokio::task::yield_now().await;
/// assert!(reminder.is_finished());
/// # }
/// ```
#[track_caller]
pub fn pause() {
    tokio::time::pause();
    let runtime = Handle::try_current().ok();
    if let Some(ambient) = runtime.and_then(|runtime| registry::get(runtime.id())) {
        // Sends the sleeps that lie on the wheel to Tokio's timer.
        ambient.wheel.shared().detect_virtual_clock();
    }
}
