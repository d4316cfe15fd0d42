//! The clock of the explorer: it moves when the explorer moves it.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

std::thread_local! {
    static BEGAN: Instant = Instant::now();
    static ELAPSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

pub(crate) fn now() -> Instant {
    BEGAN.with(|&began| began) + elapsed()
}

/// All parties of a schedule go by the same clock.
pub(crate) fn is_virtual() -> bool {
    false
}

/// How much virtual time has passed.
pub(crate) fn elapsed() -> Duration {
    ELAPSED.get()
}

/// Moves the clock.
pub(crate) fn set(elapsed: Duration) {
    ELAPSED.set(elapsed);
}
