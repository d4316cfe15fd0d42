//! x
#![cfg_attr(tickwheel_loom, allow(dead_code, unused_imports))]

mod entry;
mod idle;
mod submit;
mod sync;
mod tick;
pub mod wheel;

#[cfg(not(tickwheel_loom))]
mod actor;
#[cfg(not(tickwheel_loom))]
mod builder;
#[cfg(not(tickwheel_loom))]
mod cache;
#[cfg(not(tickwheel_loom))]
mod command;
#[cfg(not(tickwheel_loom))]
mod error;
#[cfg(not(tickwheel_loom))]
mod interval;
#[cfg(not(tickwheel_loom))]
mod keyed;
#[cfg(not(tickwheel_loom))]
mod metrics;
#[cfg(not(tickwheel_loom))]
mod shared;
#[cfg(not(tickwheel_loom))]
mod shield;
#[cfg(not(tickwheel_loom))]
mod sleep;
#[cfg(not(tickwheel_loom))]
mod timeout;
#[cfg(not(tickwheel_loom))]
mod timer_wheel;
#[cfg(not(tickwheel_loom))]
mod turn;

#[cfg(not(tickwheel_loom))]
pub use crate::{
    builder::Builder,
    error::{BuildError, Elapsed},
    idle::{Busy, IdleHandle, IdleLimits, IdleStream, IdleTimer, Reaper, Watch, WatchOptions},
    interval::Interval,
    keyed::{Closed, Expirations, Expired, KeyedTimers, SetTimerError},
    metrics::{LatenessHistogram, WheelMetrics},
    sleep::Sleep,
    timeout::Timeout,
    timer_wheel::TimerWheel,
};
