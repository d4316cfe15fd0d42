use std::time::Duration;

use tickwheel::{ClosedError, Expirations, KeyedTimers, SetTimerError};
use tokio::sync::mpsc::UnboundedSender;

pub type Reminders = KeyedTimers<String, u32>;

/// Consumes the expirations of `wheel.keyed()`. Ends when no handle and no timer is left.
pub async fn run(
    mut expirations: Expirations<String, u32>,
    expired: UnboundedSender<(String, u32)>,
) {
    while let Some(order) = expirations.recv().await {
        let _ = expired.send((order.key, order.value));
    }
}

/// Returns what was set before.
pub fn remind(
    reminders: &Reminders,
    order: String,
    items: u32,
    delay: Duration,
) -> Result<Option<u32>, SetTimerError<String, u32>> {
    reminders.set_timer(order, items, delay)
}

/// Returns whether there was a reminder.
pub fn postpone(reminders: &Reminders, order: &str, delay: Duration) -> Result<bool, ClosedError> {
    reminders.move_timer(order, delay)
}

/// Returns the items if the reminder was there, which then never expires.
pub fn paid(reminders: &Reminders, order: &str) -> Result<Option<u32>, ClosedError> {
    reminders.remove_timer(order)
}
