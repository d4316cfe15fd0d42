//! Timers for Tokio services that arm many and fire few: sleeps, timeouts, intervals, keyed timers and idle timers on one
//! hierarchical timing wheel, owned by one actor task.
//!
//! * [`sleep`](TimerWheel::sleep), [`timeout`](TimerWheel::timeout) and [`interval`](TimerWheel::interval) are what
//!   [`tokio::time`] has, at the same call sites. A new timeout takes over the entry of a cancelled one, so most timeouts
//!   allocate nothing, take no lock that another thread wants, and send no command to the actor.
//! * [`time`] is [`tokio::time`] on a wheel that it finds itself: one `use` line switches a program over.
//! * [`keyed`](TimerWheel::keyed) timers are set, moved and removed by key, from any task and thread. Those that expire come
//!   out of a stream, in order.
//! * [`idle_timer`](TimerWheel::idle_timer), [`idle_stream`](TimerWheel::idle_stream) and [`reaper`](TimerWheel::reaper) find
//!   out that nothing has happened for a while: on a connection, in a session, on thousands of them.
//! * [`wheel`] is the data structure alone, without clock or runtime, for an event loop of your own.
//!
//! All of it is safe Rust.
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
//!     // As in `tokio::time`: a future has until a deadline to complete.
//!     let stuck = std::future::pending::<()>();
//!     let outcome = wheel.timeout(Duration::from_millis(20), stuck).await;
//!     println!("{outcome:?}");
//!
//!     // Timers with keys: set, move and remove them from any task or thread.
//!     let (timers, mut expirations) = wheel.keyed::<&str, u32>();
//!     timers.set_timer("alice", 17, Duration::from_secs(60))?;
//!     timers.set_timer("bob", 18, Duration::from_secs(60))?;
//!     // Alice is moved, later or earlier; her value stays.
//!     assert!(timers.move_timer("alice", Duration::from_millis(20))?);
//!     // Bob is removed. `Some` means that his timer will never expire.
//!     assert_eq!(timers.remove_timer("bob")?, Some(18));
//!
//!     if let Some(expired) = expirations.recv().await {
//!         println!("{} has expired, with {}", expired.key, expired.value);
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # Where to go on
//!
//! * The [guide](mod@guide): which timer to use, [switching](mod@guide#switch-from-tokiotime) from `tokio::time`, how to hold
//!   the wheel, accuracy, testing with paused time, shutting down, and
//!   what each operation costs.
//! * The [design chapter](guide::design): how it is built, and the table of promises with the tests that hold them.
//! * [`TimerWheel`] and [`Builder`] for all there is to call and to set.
//!
//! # Guarantees
//!
//! A timer is never early. It is late by less than a tick, which is 0.1 ms by default, plus up to a millisecond of Tokio's
//! own timer, plus the time that the operating system and other tasks take. Under Tokio's paused clock it is exact.
//!
//! Sleeps are woken tick by tick. Keyed timers expire in the order of their ticks, and within a tick in the order in which
//! they were armed. A timer fires or is cancelled, never both, and the calls say which. A future that is dropped wakes no
//! task afterwards, and its memory does not wait for the deadline.
//!
//! Deadlines in the past fire at once, and deadlines too far to be represented never do. No `Instant` panics. A `Duration`
//! panics only if it is a period, an idle duration or a maximum age of zero.
//!
//! The actor never waits for a consumer, and its turns are bounded: neither a flood of commands nor a storm of expirations
//! starves the other, or the rest of the runtime. While any worker thread is free timers fire, whatever blocks the others. An
//! empty wheel arms no timer and is not polled.
//!
//! A waker, key or value that panics harms its own timer only. When the wheel is shut down nothing is lost: sleeps go on with
//! Tokio's own timer, and keyed timers that have not expired are returned.
//!
//! # Features
//!
//! No feature is on by default. `hyper`, `tower`, `quinn` and `metrics` put the wheel behind the interfaces of these crates,
//! see [`adapters`]. `test-util` adds `pause`, `advance` and `resume` to [`time`], and switches on Tokio's feature of that
//! name: it belongs in your dev-dependencies.
//!
//! The crate needs Tokio's `rt`, `sync` and `time`, from version 1.49 on. The oldest supported Rust is 1.85.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Readers are told of features only.
#![cfg_attr(docsrs, doc(auto_cfg(hide(tickwheel_loom, tickwheel_shuttle))))]
// The models are of some parts only, and leave functions unused that other parts call.
#![cfg_attr(
    any(tickwheel_loom, tickwheel_shuttle),
    allow(dead_code, unused_imports)
)]

mod clock;
#[cfg(not(tickwheel_loom))]
pub mod guide;
mod shared;
mod sync;
mod tick;
pub mod wheel;

mod actor;
#[cfg(not(tickwheel_loom))]
pub mod adapters;
#[cfg(all(test, tickwheel_shuttle))]
#[path = "model/explore/mod.rs"]
mod explore;
#[cfg(all(test, tickwheel_loom))]
mod model;

#[cfg(not(tickwheel_loom))]
mod builder;
#[cfg(not(tickwheel_loom))]
mod error;
#[cfg(not(tickwheel_loom))]
mod idle;
#[cfg(not(tickwheel_loom))]
mod keyed;
#[cfg(not(tickwheel_loom))]
mod metrics;
#[cfg(not(tickwheel_loom))]
mod panic;
#[cfg(not(tickwheel_loom))]
mod sleep;
#[cfg(not(tickwheel_loom))]
pub mod time;
#[cfg(not(tickwheel_loom))]
mod timer_set;
#[cfg(tickwheel_loom)]
mod timer_set {
    mod lock;
}
#[cfg(not(tickwheel_loom))]
mod timer_wheel;

#[cfg(not(tickwheel_loom))]
pub use crate::{
    builder::Builder,
    error::{BuildError, Elapsed},
    idle::{Busy, IdleHandle, IdleLimits, IdleStream, IdleTimer, Reaper, Watch, WatchOptions},
    keyed::{Expirations, KeyedTimers, WeakKeyedTimers},
    metrics::{LatenessBucket, LatenessHistogram, WheelMetrics},
    sleep::{Interval, Sleep, Timeout},
    timer_set::{Closed, Expired, SetTimerError, TryRecvError},
    timer_wheel::TimerWheel,
};

/// The code in the README runs as a test of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
