//! Timers with keys for Tokio services, idle reaping, and a drop-in for [`tokio::time`]. One actor
//! task owns them all, on one hierarchical timing wheel.
//!
//! * [`keyed`](TimerWheel::keyed) timers are set, moved and removed by key, from any task and
//!   thread. A stream delivers those that expire, in order.
//! * [`reaper`](TimerWheel::reaper), [`idle_stream`](TimerWheel::idle_stream) and
//!   [`idle_timer`](TimerWheel::idle_timer) detect idle connections and sessions.
//! * [`tickwheel-durable`](https://docs.rs/tickwheel-durable) keeps keyed timers in a file or a
//!   database, so that they survive the process.
//! * [`time`] replaces [`tokio::time`]: one `use` line switches a program over.
//! * [`sleep`](TimerWheel::sleep), [`timeout`](TimerWheel::timeout) and
//!   [`interval`](TimerWheel::interval) do the same on a wheel of your own. A new timeout takes
//!   over the entry of a cancelled one, so most timeouts allocate nothing, contend for no lock, and
//!   send no command to the actor.
//! * [`wheel`] is the data structure alone, for an event loop of your own.
//!
//! [`tickwheel-adapters`](https://docs.rs/tickwheel-adapters) puts servers and clients on axum,
//! hyper, tower and quinn on the wheel, and publishes its counters through `metrics`.
//!
//! # Quick start
//!
//! ```
//! use std::time::Duration;
//!
//! use tickwheel::TimerWheel;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let wheel = TimerWheel::new();
//!
//!     // Timers with keys.
//!     let (timers, mut expirations) = wheel.keyed::<&str, u32>();
//!     timers.set_timer("alice", 17, Duration::from_secs(60))?;
//!     timers.set_timer("bob", 18, Duration::from_secs(60))?;
//!     assert!(timers.move_timer("alice", Duration::from_millis(20))?);
//!     assert_eq!(timers.remove_timer("bob")?, Some(18));
//!
//!     let expired = expirations.recv().await.ok_or("closed")?;
//!     println!("{} has expired, with {}", expired.key, expired.value);
//!     assert_eq!((expired.key, expired.value), ("alice", 17));
//!     assert!(timers.is_empty());
//!
//!     // As in `tokio::time`.
//!     let stuck = std::future::pending::<()>();
//!     let outcome = wheel.timeout(Duration::from_millis(20), stuck).await;
//!     println!("{outcome:?}");
//!     assert!(outcome.is_err());
//!     Ok(())
//! }
//! ```
//!
//! # Where to read on
//!
//! * The [guide](mod@guide): which timer to use, accuracy, testing, shutdown, and what each
//!   operation [costs](guide::costs).
//! * The [design chapter](guide::design): how the crate is built, and its promises with their
//!   tests.
//! * [`TimerWheel`] and [`Builder`]: all calls and settings.
//!
//! # Guarantees
//!
//! A timer is never early. By default it is less than 1.1 ms late, plus the time that the operating
//! system and other tasks take. A timer fires or is cancelled, never both, and the calls say which.
//! A dropped future wakes no task.
//!
//! No `Instant` causes a panic. A zero `Duration` does, as a period, an idle duration or a maximum
//! age.
//!
//! # Features
//!
//! No feature is on by default. `precise` lets [`Builder::precise`] make the timers of a wheel
//! punctual below a millisecond on Linux: see [accuracy](mod@guide#accuracy-and-ticks). `test-util`
//! adds `pause`, `advance` and `resume` to [`time`], and switches on Tokio's feature of that name:
//! it belongs in your dev-dependencies. `console` shows timers in
//! [tokio-console](mod@guide#observability).
//!
//! The crate needs Tokio's `rt`, `sync` and `time`, from version 1.49 on. The oldest supported Rust
//! is 1.85.

#![forbid(unsafe_code)]
// An example is pasted as it is, and brings no warning.
#![doc(test(attr(deny(unused_imports, unused_must_use))))]
#![cfg_attr(docsrs, feature(doc_cfg))]
// The documentation names features only.
#![cfg_attr(docsrs, doc(auto_cfg(hide(tickwheel_loom, tickwheel_shuttle))))]
// The models cover some parts only, and leave functions unused that other parts call.
#![cfg_attr(
    any(tickwheel_loom, tickwheel_shuttle),
    allow(dead_code, unused_imports)
)]

mod clock;
mod collections;
#[cfg(not(tickwheel_loom))]
pub mod guide;
mod shared;
mod sync;
mod tick;
pub mod wheel;

mod actor;
#[cfg(all(test, tickwheel_shuttle))]
#[path = "model/explore/mod.rs"]
mod explore;
#[cfg(all(test, tickwheel_loom))]
mod model;

#[cfg(not(tickwheel_loom))]
mod console;
#[cfg(not(tickwheel_loom))]
mod error;
#[cfg(not(tickwheel_loom))]
mod idle;
#[cfg(not(tickwheel_loom))]
mod keyed;
// The models have what both sides name, and the slots.
#[cfg(all(test, tickwheel_loom))]
#[path = "keyed/model.rs"]
mod keyed;
#[cfg(not(tickwheel_loom))]
mod metrics;
mod panic;
#[cfg(not(tickwheel_loom))]
mod sleep;
#[cfg(not(tickwheel_loom))]
pub mod time;
#[cfg(not(tickwheel_loom))]
mod timer_wheel;

#[cfg(not(tickwheel_loom))]
pub use crate::{
    error::{BuildError, Elapsed},
    idle::{
        BusyGuard, IdleHandle, IdleLimits, IdleStream, IdleTimer, Reaper, WatchGuard, WatchOptions,
        WeakReaper,
    },
    keyed::{
        Cause, ClosedError, Expirations, Expired, KeyedTimers, Outcome, SetTimerError, TimerMut,
        TryRecvError, Unexpired, WeakKeyedTimers,
    },
    metrics::{DurationBucket, DurationHistogram, WheelMetrics},
    sleep::{Interval, Sleep, Timeout},
    timer_wheel::{Builder, TimerWheel, WeakTimerWheel},
};

/// The code in the README runs as a test of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
