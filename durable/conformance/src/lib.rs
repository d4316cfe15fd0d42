//! Holds a [`Store`](tickwheel_durable::store::Store) to the
//! [promises](tickwheel_durable::protocol#the-promises) of durable timers and to its
//! [contract](tickwheel_durable::store#the-contract).
//!
//! The suite takes a way to [connect](Stores) to one store and runs on any. It knows no more of a
//! store than its trait. Each check has its own namespaces, so that checks can run at once, on
//! a store that has other timers in it.
//!
//! # Examples
//!
//! In a test file of the crate that has the store, [`conformance_tests`] makes a test of each
//! check:
//!
//! ```
//! use tickwheel_durable::Memory;
//! use tickwheel_durable_conformance::{Pace, Stores};
//!
//! struct InMemory(Memory);
//!
//! impl Stores for InMemory {
//!     type Store = Memory;
//!
//!     async fn connect(&self) -> Memory {
//!         self.0.clone()
//!     }
//! }
//!
//! # mod tests {
//! # use super::*;
//! tickwheel_durable_conformance::conformance_tests! {
//!     #[tokio::test(start_paused = true)]
//!     (InMemory(Memory::new()), Pace::paused())
//! }
//! # }
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! #     use tickwheel_durable_conformance::{World, scripts};
//! #     scripts::answers_add_up_among_instances(&World::new(InMemory(Memory::new()), Pace::paused())).await;
//! # }
//! ```
//!
//! # The checks
//!
//! | module | what |
//! |---|---|
//! | [`contract`] | each call of the store alone, where traces do not hold it to the store in memory |
//! | [`promises`] | D1 to D12 and D16 through whole instances |
//! | [`administration`] | what an operator does to a running instance |
//! | [`demand`] | D5, D10 and D14 through whole instances with handlers that take time |
//! | [`dead`] | timers that fail for good, through whole instances |
//! | [`outages`] | D2 and D5: claims that end while the store is unreachable |
//! | [`looking`] | D13: looks beside calls and deliveries |
//! | [`scripts`] | random programs of whole instances |
//! | [`races`] | calls that meet on one key at the same moment |
//! | [`explorer`] | every sequence of calls, up to a bound, that a few instances can make on the store in memory; its shortest traces, and long random ones, on any store |
//! | [`crashes`] | an instance that dies, or has a call that fails, before and after every single call |
//!
//! A failed check panics and says what it expected. Random checks print their seed; the environment
//! variable `CONFORMANCE_SEED` repeats its choices.

#![forbid(unsafe_code)]
#![allow(
    clippy::missing_panics_doc,
    reason = "a check panics when it fails, which is what it is for"
)]

pub mod administration;
pub mod contract;
pub mod crashes;
pub mod dead;
pub mod demand;
pub mod explorer;
mod faulty;
mod handled;
pub mod looking;
pub mod outages;
pub mod promises;
pub mod races;
mod random;
pub mod scripts;
mod steps;
mod world;

pub use faulty::{FaultPoint, Faulty};
pub use world::{Pace, Stores, World};

/// The code in the README runs as a test of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Makes a test of each check of the suite: an attribute that makes an async function a test, and
/// how to reach the store, a pair of [`Stores`] and [`Pace`] that is evaluated for each.
#[macro_export]
macro_rules! conformance_tests {
    ($(#[$test:meta])* ($stores:expr, $pace:expr)) => {
        $crate::conformance_tests! { @modules [$(#[$test])*] ($stores, $pace)
            contract {
                loads_what_the_dead_left_piece_by_piece,
                says_that_others_have_left_more,
                fires_what_has_been_due_longest,
                leaves_rows_to_those_that_can_decode_them,
                d11_tells_a_load_that_the_store_does_not_know,
                tells_what_others_lack,
                fires_rows_of_an_ended_instance_in_order,
                hints_near_rows_that_no_instance_has_loaded,
                keeps_namespaces_apart,
                refuses_another_charter,
                codec_and_parts_never_change,
                amendment_gives_another_edition,
                lists_counts_and_purges,
                purges_many_rows,
                bounds_answers_in_bytes,
                keeps_any_bytes,
                takes_any_deadline,
                gives_each_row_to_one_of_many,
                discards_dead_rows,
                keeps_the_latest_dead_rows_of_a_key,
                batches_discard_many_dead_rows,
                retries_and_discards_many_dead_rows,
                leaves_unknown_schedules_to_others,
                names_the_namespaces_that_were_opened,
                lists_instances,
                lists_all_rows_of_a_key,
                lists_the_latest_of_many_rows_of_a_key,
                finds_rows_by_prefix,
                counts_what_is_due_when,
            }
            promises {
                d1_keeps_what_it_said_it_set,
                d2_delivers_again_after_the_lease,
                d2_at_most_once_is_a_mode,
                d3_is_never_early,
                d4_last_write_wins_across_instances,
                d4_removed_or_fired_never_both,
                d5_delivers_once_among_many,
                d6_counts_the_lease_from_firing,
                d7_fences_lost_claims,
                d8_delivers_what_was_missed_in_order,
                d8_repeats_by_each_rule,
                d9_keeps_the_cadence_unacknowledged,
                d10_leaves_to_others_when_full,
                d11_recovers_when_the_store_is_back,
                d12_is_quiet_when_idle,
                d16_stops_an_instance_that_differs,
                releases_dropped_claims_at_once,
                gives_back_what_it_loaded_at_shutdown,
                d9_leaves_to_others_what_does_not_decode,
                d9_occurrences_that_none_decodes_die_alone,
                set_outlives_what_does_not_decode,
                finds_near_deadlines_of_other_instances,
                takes_over_what_a_dead_instance_had_loaded,
            }
            administration {
                released_claim_is_delivered_again,
                operator_changes_waiting_timers,
                retry_of_all_ends_although_they_die_again,
            }
            demand {
                d5_handles_once_however_long_it_takes,
                d10_shares_what_waits,
                d10_bounds_the_writes_of_a_backlog,
                d14_says_which_calls_fail,
                repeating_timer_does_not_overlap,
            }
            dead {
                d15_poison_message_dies_and_comes_back,
                attempts_that_crash_count,
                claims_die_after_their_last_attempt,
                d9_repeats_when_an_occurrence_dies,
                dead_timers_cost_living_ones_nothing,
            }
            outages {
                d2_lost_answer_to_a_fire_costs_nothing,
                d5_handles_once_through_an_outage,
                d5_put_back_survives_an_outage,
                d5_failed_acknowledgement_is_not_released,
            }
            looking {
                d13_looks_delay_nothing,
            }
            scripts {
                answers_add_up_among_instances,
            }
            races {
                put_backs_never_hide_a_timer,
            }
            explorer {
                replays_each_transition,
                replays_the_other_transitions,
                long_traces_agree_with_memory,
                calls_that_meet_take_turns,
            }
            crashes {
                survives_a_crash_in_every_call,
                survives_an_error_in_every_call,
            }
        }
    };
    (@modules $attributes:tt $how:tt $($module:ident { $($check:ident,)* })*) => {$(
        mod $module {
            use super::*;
            $($crate::conformance_tests! { @check $attributes $how $module $check })*
        }
    )*};
    (@check [$(#[$test:meta])*] ($stores:expr, $pace:expr) $module:ident $check:ident) => {
        $(#[$test])*
        async fn $check() {
            let world = $crate::World::new($stores, $pace).paced().await;
            $crate::$module::$check(&world).await;
        }
    };
}
