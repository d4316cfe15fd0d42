//! The order of near timers among floods of far ones, against a sorted map, call by call.
//!
//! The commands of a flood take the actor many turns. Timers that are removed and set again use
//! slots that the actor knows.

mod script;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use script::{Op, Reader, run};

fn op() -> impl Strategy<Value = Op> {
    let millis = || prop_oneof![4 => 0..40_u16, 2 => 0..600_u16];
    let flood = prop_oneof![4 => 0..40_u16, 4 => 200..700_u16, 1 => 4_000..6_000_u16];
    prop_oneof![
        10 => (any::<u8>(), millis()).prop_map(|(key, millis)| Op::Set(key, millis)),
        4 => (any::<u8>(), millis()).prop_map(|(key, millis)| Op::Move(key, millis)),
        8 => any::<u8>().prop_map(Op::Remove),
        3 => flood.prop_map(Op::Flood),
        1 => Just(Op::Ebb),
        4 => millis().prop_map(Op::Advance),
        2 => Just(Op::Yield),
        2 => Just(Op::Settle),
        1 => (0..600_u16).prop_map(Op::Stall),
        2 => (0..4_u8).prop_map(Op::Receive),
    ]
}

/// The number of cases, scaled by `PROPTEST_CASES` in relation to its default of 256.
fn config() -> ProptestConfig {
    let asked = ProptestConfig::default();
    ProptestConfig {
        cases: asked.cases.saturating_mul(3) / 4,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "proptest-regressions/keyed_floods.txt",
        ))),
        max_shrink_iters: 1_000,
        ..asked
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn p4_near_timers_expire_in_order_among_floods(
        script in prop::collection::vec(op(), 1..60),
    ) {
        run(&script, Reader::Prompt);
    }

    #[test]
    fn p4_p6_near_timers_of_a_slow_reader_expire_in_order_among_floods(
        script in prop::collection::vec(op(), 1..60),
    ) {
        run(&script, Reader::Slow);
    }
}

// A timer in the slot of a removed one came after timers of later ticks.
#[test]
fn p4_timer_in_a_slot_used_again_expires_in_order() {
    let script = [
        Op::Set(0, 200),
        Op::Settle,
        Op::Flood(10_000),
        Op::Remove(0),
        Op::Set(1, 10),
        Op::Set(2, 20),
        Op::Advance(30),
    ];
    run(&script, Reader::Prompt);
}
