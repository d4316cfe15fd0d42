//! The futures that sleep.

mod basics;
mod ending_threads;
mod interval;
mod model;
mod pool;
mod regressions;
mod timeout;
mod timeout_regressions;
