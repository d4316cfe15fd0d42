//! Precise wheels in a process that a panic ends at once: no panic can be caught here, and none may
//! be needed. `.ci/run` builds it so, and runs it:
//!
//! ```sh
//! CARGO_PROFILE_DEV_PANIC=abort cargo run -p tickwheel-plain --example abort
//! ```

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tickwheel::TimerWheel;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;
use tracing::{Event, Level, Metadata, Subscriber, span};

/// Counts warnings and errors.
#[derive(Default)]
struct Warnings(AtomicUsize);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Starts a precise wheel on this runtime, and sleeps on it.
fn sleep(runtime: &Runtime) {
    runtime.block_on(async {
        let wheel = TimerWheel::builder().precise(true).start().unwrap();
        let deadline = Instant::now() + Duration::from_millis(5);
        wheel.sleep_until(deadline).await;
        assert!(Instant::now() >= deadline);
    });
}

fn main() {
    let warnings = Arc::new(Warnings::default());
    let _here = tracing::subscriber::set_default(Arc::clone(&warnings));
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();

    // There is no I/O driver.
    sleep(&runtime);
    assert_eq!(warnings.0.load(Ordering::Relaxed), 0);

    // There is no file descriptor left either.
    let files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    sleep(&runtime);
    assert_eq!(
        warnings.0.load(Ordering::Relaxed),
        1,
        "{} files",
        files.len()
    );
    let by = if cfg!(panic = "abort") {
        "abort"
    } else {
        "unwind"
    };
    println!("no panic, which would {by}");
}
