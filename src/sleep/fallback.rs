//! The timer with which a sleep goes on when its wheel has ended.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::OnceLock;
use std::thread;

use tokio::runtime::{self, Handle};
use tokio::time::{self, Instant};

/// A timer of the current Tokio runtime. Outside a runtime, it belongs to a thread of the process
/// that starts at first use and stays.
///
/// # Panics
///
/// Panics within a runtime that has no time driver, and if the thread cannot be started.
pub(super) fn sleep_until(deadline: Instant) -> Pin<Box<time::Sleep>> {
    let is_outside = Handle::try_current().is_err();
    let _within = is_outside.then(|| process_runtime().enter());
    Box::pin(time::sleep_until(deadline))
}

/// The runtime, one for the process, that drives the timers of tasks outside any runtime.
fn process_runtime() -> &'static Handle {
    static RUNTIME: OnceLock<Handle> = OnceLock::new();
    RUNTIME.get_or_init(|| match start() {
        Ok(handle) => handle,
        Err(error) => panic!(
            "a sleep was polled outside a Tokio runtime after its `TimerWheel` had ended, and the thread with whose \
             timer it would go on could not be started: {error}. Keep the wheel running, or poll within a runtime."
        ),
    })
}

fn start() -> io::Result<Handle> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name(String::from("tickwheel-fallback"))
        .spawn(move || runtime.block_on(pending::<()>()))?;
    Ok(handle)
}
