//! Timers for Tokio services that arm many and fire few: sleeps, timeouts, intervals and keyed timers on one
//! hierarchical timing wheel, owned by one actor task.
//!
//! * [`sleep`](TimerWheel::sleep), [`timeout`](TimerWheel::timeout) and [`interval`](TimerWheel::interval) are what
//!   [`tokio::time`] has, at the same call sites. Moving a deadline later and cancelling it are writes to the future's
//!   own entry, and a new timeout takes over the entry of a cancelled one: most allocate nothing and send nothing.
//! * [`keyed`](TimerWheel::keyed) timers are set, moved and removed by key, from any task and thread; those that fire
//!   come out of a stream, in order.
//! * [`idle_timer`](TimerWheel::idle_timer), [`idle_stream`](TimerWheel::idle_stream) and
//!   [`reaper`](TimerWheel::reaper) find out that nothing has happened for a while: a touch is at most a store.
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
//! | P1 | never early, under the real and the paused clock | `p1_fires_no_sleep_early_by_the_real_clock`, `p1_p2_fires_never_early_and_late_by_less_than_a_tick`, `p1_p4_p5_p6_p16_matches_a_sorted_map` |
//! | P2 | at most one tick late, plus Tokio's own rounding and scheduling | `p2_fires_at_the_first_tick_at_or_after_the_deadline`, `p2_fires_a_delay_of_zero_by_the_next_tick` |
//! | P3 | fires exactly once; the last poller's waker, and only it, is woken | `p3_wakes_only_the_last_of_several_pollers`, `p3_loses_no_wake_up_by_resets_that_race_with_firing`, `p3_loses_no_timer_that_comes_due_in_a_backlog` |
//! | P4 | sleeps are woken tick by tick; keyed expirations come out by tick and, within one, in the order in which they were armed | `p4_wakes_sleeps_tick_by_tick_however_armed`, `p4_p11_keeps_order_and_lets_others_run_in_a_storm`, `p4_delivers_first_a_due_timer_moved_into_the_past` |
//! | P5 | last write wins: once a move has been applied, the old deadline never fires | `p5_fires_a_moved_timer_at_its_new_deadline_only`, `p5_obeys_the_last_reset_only` |
//! | P6 | removed or fired: exactly one of them happens, and `take_timer` says which | `p6_says_by_take_timer_whether_it_fired`, `p6_p16_ends_every_timer_once_whatever_threads_do` |
//! | P7 | dropping a future cancels it: no wake afterwards, and its memory does not wait for the deadline | `p7_wakes_nobody_for_a_sleep_dropped_by_another_waker`, `p7_frees_a_million_dropped_sleeps_before_their_deadline` |
//! | P8 | no `Duration` or `Instant` panics or fires early; too far means never | `p8_hides_no_nearer_timer_behind_far_deadlines`, `p8_accepts_the_last_instant_everywhere`, `p8_hides_no_near_sleep_behind_a_far_one` |
//! | P9 | a clock that stands still or steps back does no harm | `p9_fires_nothing_while_the_clock_stands_still`, `p9_time_does_not_go_backwards` |
//! | P10 | the actor never waits for a consumer | `p10_blocks_nobody_when_the_consumer_never_reads`, `p10_holds_nothing_up_by_what_nobody_receives` |
//! | P11 | timers fire under any load of commands; commands progress under any storm of expirations; other tasks progress under both | `p11_keeps_a_heartbeat_punctual_in_a_flood_of_commands`, `p11_applies_commands_in_a_storm_of_expirations`, `p11_bounds_turns_in_a_storm_of_expirations` |
//! | P12 | a panicking waker or user type harms only itself | `p12_confines_a_panicking_waker_to_its_own_sleep`, `p12_finds_the_others_beside_a_key_whose_hash_panics`, `p12_drops_values_whose_drop_panics_once_each` |
//! | P13 | idle costs nothing: an empty wheel arms no timer and is not polled; one far timer costs at most one wake-up per level | `p13_arms_no_timer_and_is_not_polled_when_empty`, `p13_wakes_at_most_once_per_level_for_one_far_timer` |
//! | P14 | exact and deterministic under `start_paused = true` | `p14_advances_the_clock_to_exactly_the_next_deadline`, `p14_runs_the_same_program_the_same_way_each_time` |
//! | P15 | nothing is lost at shutdown: keyed leftovers are returned, a pending `Sleep` keeps its promise on Tokio's own timer | `p15_fires_pending_sleeps_on_time_after_shutdown`, `p15_returns_what_had_not_fired_once_earliest_first`, `p15_leaves_sleeps_usable_after_their_runtime_is_dropped` |
//! | P16 | the books balance: set = pending + fired + removed + replaced + drained | `p16_balances_the_books_after_any_mix_of_operations`, `p16_counts_each_end_of_a_sleep_once` |
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
//! | `advance` | how a wheel is moved on: a bounded amount of work at a time |
//! | `sleeps` | the wheel of the sleeping futures: the actor's half of `entry` |
//! | `submit` | how commands reach the actor: sharded queues, and the wake rule with its argument |
//! | `metrics` | what is counted, and where, so that counting costs no shared cache line |
//! | `turn` | what the actor lends to a set of timers for one call |
//! | `command` | everything that can reach the actor, on one screen |
//! | `cache` | for each thread, the cancelled entries it may use again |
//! | `notifier` | what wakes the actor: a notification, or the unparking of its thread |
//! | `keyed` | sets of keyed timers: `book` finds a timer by key or slot; `set` is the truth about each, with what the handles do in `writes`, the actor in `visits`, the stream in `receive`; `timers` and `expirations` are its two public ends |
//! | `idle` | `activity` is the word that touches write; on it the future (`timer`), the stream wrapper (`stream`) and the `reaper` |
//! | `shared` | what the handles of one wheel and its actor have in common |
//! | `sleep`, `timeout`, `interval` | the futures |
//! | `timer_wheel` | the handle |
//! | `actor` | the one task, or thread, that owns the wheels: apply, advance, fire, park; the one of the keyed timers is in `sets` |
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

#[cfg(not(tickwheel_loom))]
pub mod guide;
mod shared;
mod sync;
mod tick;
pub mod wheel;

mod actor;
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
