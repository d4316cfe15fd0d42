//! Random scripts over the whole keyed interface, checked call by call against a sorted map.
//!
//! The clock is paused and the runtime has one thread, so the actor runs only where the script
//! awaits. A timer is in its set until it is received, due or not. After
//! [`TimerWheel::settle`](tickwheel::TimerWheel::settle) the reader has to receive all that is due,
//! by tick and order of arming. Before that it may know of less: then what it receives is due, and
//! nothing comes before it that was armed by the same turn of the actor. Everything else is
//! predicted.

pub(super) mod bytes;
mod flood;
mod ops;
mod oracle;
pub(super) mod script;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// The number of cases, scaled by `PROPTEST_CASES` in relation to its default of 256.
fn config(cases: u32) -> ProptestConfig {
    let asked = ProptestConfig::default();
    ProptestConfig {
        cases: (cases.saturating_mul(asked.cases) / 256).max(1),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "proptest-regressions/keyed_model.txt",
        ))),
        max_shrink_iters: 2_000,
        ..asked
    }
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn p1_p4_p5_p6_p16_matches_a_sorted_map(
        setup in ops::setup(),
        script in prop::collection::vec(ops::op(), 1..80),
    ) {
        script::run(&setup, &script);
    }
}

/// The reader is away for most of the time, the runtime stands still now and then, and another set
/// is flooded.
fn slow_op() -> impl Strategy<Value = ops::Op> {
    prop_oneof![
        12 => ops::change(),
        1 => ops::read(),
        1 => ops::turmoil(),
    ]
}

proptest! {
    #![proptest_config(config(100))]

    #[test]
    fn p4_p6_p10_p16_matches_a_sorted_map_with_slow_readers(
        setup in ops::setup(),
        script in prop::collection::vec(slow_op(), 1..120),
    ) {
        script::run(&setup, &script);
    }
}

proptest! {
    #![proptest_config(config(10))]

    #[test]
    fn p1_p4_p5_p6_p16_matches_a_sorted_map_in_long_scripts(
        setup in ops::setup(),
        script in prop::collection::vec(ops::lasting_op(), 400..800),
    ) {
        script::run(&setup, &script);
    }
}
