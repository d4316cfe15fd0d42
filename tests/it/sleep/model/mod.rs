//! Random scripts over sleeps, checked step by step against an oracle.
//!
//! Each sleep is polled from several tasks in turn. The clock is paused and the runtime has one
//! thread, so the actor runs only where the script awaits. Which of the due sleeps it has fired
//! then is read from the tasks that were woken; after
//! [`TimerWheel::settle`](tickwheel::TimerWheel::settle) it has to be all of them. Everything else
//! is predicted, the wheel's counters included.

mod ops;
mod oracle;
mod script;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// The number of cases, scaled by `PROPTEST_CASES` in relation to its default of 256.
fn config(cases: u32) -> ProptestConfig {
    let asked = ProptestConfig::default();
    ProptestConfig {
        cases: (cases.saturating_mul(asked.cases) / 256).max(1),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "proptest-regressions/sleep_model.txt",
        ))),
        max_shrink_iters: 20_000,
        ..asked
    }
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn p1_p3_p5_p7_wakes_the_last_poller_once_at_the_deadline(
        setup in ops::setup(),
        script in prop::collection::vec(ops::op(), 1..80),
    ) {
        script::run(&setup, &script);
    }
}

proptest! {
    #![proptest_config(config(40))]

    #[test]
    fn p1_p3_p5_p7_reuses_entries_in_long_scripts_of_sleeps(
        setup in ops::setup(),
        script in prop::collection::vec(ops::op(), 400..800),
    ) {
        script::run(&setup, &script);
    }
}
