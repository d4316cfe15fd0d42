//! The drop-in for `tokio::time`.

mod clocks;
mod differences;
mod ends;
mod glob;
mod install;
mod like_tokio;
mod nested;
mod panics;
mod resets;
mod runtimes;
mod surface;
mod virtual_clock;

use tokio::runtime::{Builder, Runtime};

use crate::support::{HOUR, ms};

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

fn paused() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap()
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
