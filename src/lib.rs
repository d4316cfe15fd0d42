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
//! | P1 | never early, under the real and the paused clock | `p1_no_sleep_is_early_by_the_machines_own_clock`, `p1_it_is_never_early_and_p2_late_by_less_than_a_tick`, `p1_p4_p5_p6_p16_keyed_timers_behave_as_a_sorted_map` |
//! | P2 | at most one tick late, plus Tokio's own rounding and scheduling | `p2_every_length_fires_when_the_first_tick_at_or_after_its_deadline_begins`, `p2_a_delay_of_zero_between_two_ticks_fires_by_the_next_one` |
//! | P3 | fires exactly once; the last poller's waker, and only it, is woken | `p3_of_several_pollers_the_last_one_is_woken_and_nobody_else`, `p3_resets_that_race_with_the_firing_lose_no_wake_up`, `p3_of_timers_that_come_due_in_a_backlog_none_is_lost` |
//! | P4 | sleeps are woken tick by tick; keyed expirations come out by tick and, within one, in the order in which they were armed | `p4_sleeps_are_woken_tick_by_tick_however_they_were_armed_and_however_late`, `p4_p11_a_storm_on_one_tick_keeps_its_order_and_lets_others_run`, `p4_what_is_moved_to_the_past_while_it_waits_for_the_rest_of_its_tick_comes_first`, `p4_fires_by_tick_what_is_armed_behind_a_backlog` |
//! | P5 | last write wins: once a move has been applied, the old deadline never fires | `p5_a_moved_timer_fires_at_its_new_deadline_only`, `p5_a_reset_wins_over_every_deadline_before_it` |
//! | P6 | removed or fired: exactly one of them happens, and `take_timer` says which | `p6_take_timer_says_whether_it_fired`, `p6_p16_every_timer_ends_once_whatever_the_threads_do` |
//! | P7 | dropping a future cancels it: no wake afterwards, and its memory does not wait for the deadline | `p7_a_sleep_dropped_from_inside_anothers_waker_on_the_same_tick_wakes_nobody`, `p7_a_million_sleeps_armed_together_and_dropped_are_freed_before_their_deadline` |
//! | P8 | no `Duration` or `Instant` panics or fires early; too far means never | `p8_far_deadlines_neither_panic_nor_fire_nor_hide_a_nearer_timer`, `p8_the_last_instant_there_is_panics_nowhere`, `p8_far_away_is_never_and_does_not_hide_what_is_near` |
//! | P9 | a clock that stands still or steps back does no harm | `p9_a_clock_that_stands_still_fires_nothing_and_keeps_nobody_busy`, `p9_time_does_not_go_backwards` |
//! | P10 | the actor never waits for a consumer | `p10_with_a_consumer_that_never_reads_nothing_blocks`, `p10_what_nobody_receives_and_nobody_polls_holds_nothing_up` |
//! | P11 | timers fire under any load of commands; commands progress under any storm of expirations; other tasks progress under both | `p11_a_flood_of_commands_does_not_delay_a_heartbeat`, `p11_commands_get_on_during_a_storm_of_expirations`, `p11_a_storm_of_expirations_lets_other_tasks_run_between_bounded_turns`, `p11_fires_what_is_due_before_all_of_a_backlog` |
//! | P12 | a panicking waker or user type harms only itself | `p12_a_waker_that_panics_harms_its_own_sleep_only`, `p12_a_key_whose_hash_panics_is_not_found_and_the_others_are`, `p12_values_whose_drop_panics_are_dropped_once_each` |
//! | P13 | idle costs nothing: an empty wheel arms no timer and is not polled; one far timer costs at most one wake-up per level | `p13_an_empty_wheel_is_not_polled_and_arms_no_timer`, `p13_one_far_timer_costs_at_most_one_wake_up_per_level` |
//! | P14 | exact and deterministic under `start_paused = true` | `p14_the_clock_advances_by_itself_to_exactly_the_next_deadline`, `p14_the_same_program_runs_the_same_way_each_time` |
//! | P15 | nothing is lost at shutdown: keyed leftovers are returned, a pending `Sleep` keeps its promise on Tokio's own timer | `p15_pending_sleeps_go_on_at_their_deadlines_when_the_wheel_is_shut_down`, `p15_what_had_not_fired_comes_back_once_earliest_first`, `p15_a_runtime_dropped_with_a_hundred_thousand_sleeps_leaves_them_usable_elsewhere` |
//! | P16 | the books balance: set = pending + fired + removed + replaced + drained | `p16_the_books_balance_after_any_mixture_of_operations`, `p16_each_way_a_sleep_can_end_is_counted_once` |
//! | P17 | while any worker thread is free timers fire, whatever blocks the others - the one that armed last included | `p17_a_task_that_arms_the_next_timer_and_blocks_delays_nothing`, `p17_a_sleeper_that_blocks_when_it_is_woken_delays_no_other` |
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
mod timer_wheel;

#[cfg(not(tickwheel_loom))]
pub use crate::{
    builder::Builder,
    error::{BuildError, Elapsed},
    idle::{Busy, IdleHandle, IdleLimits, IdleStream, IdleTimer, Reaper, Watch, WatchOptions},
    keyed::{Closed, Expirations, Expired, KeyedTimers, SetTimerError},
    metrics::{LatenessHistogram, WheelMetrics},
    sleep::{Interval, Sleep, Timeout},
    timer_wheel::TimerWheel,
};

/// The code in the README runs as a test of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
