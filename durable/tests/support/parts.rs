//! The checks of the suite that are about whole instances, on a store that divides each namespace
//! into parts.

/// Makes a test of each. Left out are those that look into the namespace by hand, and those about
/// the order of claims, the capacity or the number of calls, which each part has for itself.
macro_rules! checks_in_parts {
    ($(#[$test:meta])* ($stores:expr, $pace:expr)) => {
        tickwheel_durable_conformance::conformance_tests! { @modules [$(#[$test])*] ($stores, $pace)
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
                d8_repeats_by_each_rule,
                d9_keeps_the_cadence_unacknowledged,
                d11_recovers_when_the_store_is_back,
                releases_dropped_claims_at_once,
                gives_back_what_it_loaded_at_shutdown,
                finds_near_deadlines_of_other_instances,
                takes_over_what_a_dead_instance_had_loaded,
            }
            administration {
                released_claim_is_delivered_again,
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
            }
            scripts {
                answers_add_up_among_instances,
            }
            crashes {
                survives_a_crash_in_every_call,
                survives_an_error_in_every_call,
            }
        }
    };
}
