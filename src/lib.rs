//! Timers for Tokio services that arm many and fire few: sleeps, timeouts, intervals and keyed timers on one
//! hierarchical timing wheel, owned by one actor task.
//!
//! * [`sleep`](TimerWheel::sleep), [`timeout`](TimerWheel::timeout) and [`interval`](TimerWheel::interval) are what
//!   [`tokio::time`] has, at the same call sites. Moving a deadline later and cancelling it are writes to the future's
//!   own entry, and a new timeout takes over the entry of a cancelled one: most allocate nothing and send nothing.
//! * [`keyed`](TimerWheel::keyed) timers are set, moved and removed by key, from any task and thread; those that fire
//!   come out of a stream, in order.
//! * [`wheel`] is the data structure alone, without clock or runtime, for an event loop of your own.
//!
//! Everything is safe Rust: `unsafe` is forbidden in the whole crate.
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
//!     wheel.sleep(Duration::from_millis(20)).await;
//!     println!("slept");
//!
//!     let answer = wheel.timeout(Duration::from_secs(5), async { 42 }).await?;
//!     println!("in time: {answer}");
//!
//!     let stuck = std::future::pending::<()>();
//!     let error = wheel.timeout(Duration::from_millis(20), stuck).await;
//!     println!("not in time: {error:?}");
//!
//!     // Timers with keys: set, move and remove them from any task or thread.
//!     let (timers, mut expirations) = wheel.keyed::<&str, u32>();
//!     timers.set_timer("session", 7, Duration::from_secs(30))?;
//!     timers.set_timer("upload", 8, Duration::from_secs(60))?;
//!     timers.move_timer("session", Duration::from_millis(20))?;
//!     println!("cancelled: {:?}", timers.take_timer("upload").await?);
//!
//!     if let Some(expired) = expirations.recv().await {
//!         println!("expired: {} with {}", expired.key, expired.value);
//!     }
//!     wheel.shutdown().await;
//!     Ok(())
//! }
//! ```
//!
//! The [guide](mod@guide) goes on from here: which timer to use and when to stay with [`tokio::time`], how accurate
//! timers are, testing with paused time, shutting down, and how it is built.
//!
//! # Promises
//!
//! Each of them is held by the tests that its row names.
//!
//! | | promise | tests |
//! |---|---|---|
//! | P1 | never early, under the real and the paused clock | (tests) |
//! | P2 | at most one tick late, plus Tokio's own rounding and scheduling | (tests) |
//! | P3 | fires exactly once; the last poller's waker, and only it, is woken | (tests) |
//! | P4 | sleeps are woken tick by tick; keyed expirations come out by tick and, within one, in the order in which they were armed | (tests) |
//! | P5 | last write wins: once a move has been applied, the old deadline never fires | (tests) |
//! | P6 | removed or fired: exactly one of them happens, and `take_timer` says which | (tests) |
//! | P7 | dropping a future cancels it: no wake afterwards, and its memory does not wait for the deadline | (tests) |
//! | P8 | no `Duration` or `Instant` panics or fires early; too far means never | (tests) |
//! | P9 | a clock that stands still or steps back does no harm | (tests) |
//! | P10 | the actor never waits for a consumer | (tests) |
//! | P11 | timers fire under any load of commands; commands progress under any storm of expirations; other tasks progress under both | (tests) |
//! | P12 | a panicking waker or user type harms only itself | (tests) |
//! | P13 | idle costs nothing: an empty wheel arms no timer and is not polled; one far timer costs at most one wake-up per level | (tests) |
//! | P14 | exact and deterministic under `start_paused = true` | (tests) |
//! | P15 | nothing is lost at shutdown: keyed leftovers are returned, a pending `Sleep` keeps its promise on Tokio's own timer | (tests) |
//! | P16 | the books balance: set = pending + fired + removed + replaced + drained | (tests) |
//!
//! # A map of the code
//!
//! Arrows point one way where it matters: the first five parts know no other; `entry` and `submit` know `tick` and
//! `sync` alone; and nothing but `builder` knows the `actor`. `tests/architecture` sees to it.
//!
//! | part | what it is |
//! |---|---|
//! | [`wheel`] | the timing wheel, a pure data structure: `u64` ticks in, items out; no clock, runtime, thread or logger |
//! | `tick` | the only conversion between `Instant` and ticks: deadlines up, now down, too far is never |
//! | `sync` | the mutex and atomics of the protocols between threads, exchanged for loom's when the models are checked |
//! | `shield` | where code of a user is called: a panic is caught, logged, and goes no further |
//! | `error` | errors that are not about keyed timers |
//! | `entry` | the half of a sleeping future that it shares with the actor; the protocol in prose, then in code |
//! | `submit` | how commands reach the actor: sharded queues, and the wake rule with its argument |
//! | `metrics` | what is counted, and where, so that counting costs no shared cache line |
//! | `turn` | what the actor lends to a set of timers for one call |
//! | `command` | everything that can reach the actor, on one screen |
//! | `cache` | for each thread, the cancelled entries it may use again |
//! | `keyed` | sets of keyed timers: `book` finds a timer by key or slot, `set` is the truth about each, `timers` and `expirations` are its two public ends |
//! | `shared` | what the handles of one wheel and its actor have in common |
//! | `sleep`, `timeout`, `interval` | the futures |
//! | `timer_wheel` | the handle |
//! | `actor` | the one task that owns the wheel: apply, advance, fire, park |
//! | `builder` | starts the actor, and is the only part that knows it |
//! | [`guide`](mod@guide) | documentation only |
//!
//! # Features
//!
//! None yet: what is described here is always there. Of Tokio it needs `rt`, `sync` and `time`. It never enables
//! `test-util`, which paused time wants; the tests of your own crate do.
//!
//! Minimum supported Rust version: 1.85.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// The models are of some parts only; what the others need of them is not used then.
#![cfg_attr(tickwheel_loom, allow(dead_code, unused_imports))]

mod entry;
#[cfg(not(tickwheel_loom))]
pub mod guide;
mod idle;
mod submit;
mod sync;
mod tick;
pub mod wheel;

#[cfg(all(test, tickwheel_loom))]
mod model;

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

/// The code in the README runs as a test of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
