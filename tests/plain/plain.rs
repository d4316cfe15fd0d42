//! The drop-in for `tokio::time`, and precise timers, in a build without Tokio's `test-util`, as
//! services are built.

#[path = "../it/time/nested.rs"]
mod nested;
#[cfg(target_os = "linux")]
#[path = "../it/actor/precise.rs"]
mod precise;
#[path = "../it/time/runtimes.rs"]
mod runtimes;

use std::any::TypeId;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

const HOUR: Duration = Duration::from_secs(3600);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

fn multi_thread(workers: usize) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let builder = builder.worker_threads(workers).enable_time();
    builder.build().unwrap()
}

/// How many sleeps have been made on the wheel of the current runtime.
fn made() -> u64 {
    tickwheel::time::wheel().metrics().sleeps_made
}

#[test]
fn build_has_no_clock_that_can_be_paused() {
    struct Missing;
    #[allow(dead_code)]
    fn pause() -> Missing {
        Missing
    }
    fn is_missing<T: 'static>(_: fn() -> T) -> bool {
        TypeId::of::<T>() == TypeId::of::<Missing>()
    }
    // A glob import in a block hides names outside of it: `pause` is Tokio's if there is one.
    let is_missing = {
        #[allow(unused_imports, clippy::wildcard_imports)]
        use tokio::time::*;
        is_missing(pause)
    };
    assert!(is_missing, "run it alone: cargo test -p tickwheel-plain");
}
