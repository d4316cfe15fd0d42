//! Random programs, run with `tokio::time` and with `tickwheel::time` under a paused clock: every task sees the same
//! things at the same instants.
//!
//! All lengths are whole milliseconds. What lies within one differs on purpose, as do deadlines that are never. In which
//! order tasks run at one instant is not specified by either, so each task has a log of its own.

use std::time::Duration;

use crate::support::ms;
use proptest::prelude::*;
use tokio::time::MissedTickBehavior;

/// What a task does. Times are in milliseconds.
#[derive(Debug, Clone)]
enum Step {
    Sleep(u64),
    /// Until so long from the start of the program, which may have passed.
    SleepUntil(u64),
    /// A sleep that is polled, left for a while, reset to so long from then, and awaited.
    Reset {
        first: u64,
        left_for: u64,
        then: u64,
        is_earlier: bool,
    },
    /// Awaited, reset and awaited again.
    ResetFired(u64, u64),
    /// Two sleeps raced; the loser is dropped, or awaited after.
    Race(u64, u64, bool),
    /// A limit around a sleep.
    Timeout(u64, u64),
    /// A limit around a limit.
    Nested(u64, u64, u64),
    TimeoutAt(u64, u64),
    /// An interval with waits between its ticks.
    Interval {
        first: Option<u64>,
        period: u64,
        waits: Vec<u64>,
        missed: MissedTickBehavior,
        reset: u8,
    },
    /// Moves the clock, if there is no other task: which instant that sees would depend on who runs first.
    Advance(u64),
    Yield,
}

/// What a task has seen: when, and what.
type Log = Vec<(Duration, &'static str)>;

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..20_u64, 2 => 0..200_u64, 1 => 60..70_u64, 1 => 4090..4100_u64, 1 => 0..10_000_000_u64]
}

fn missed() -> impl Strategy<Value = MissedTickBehavior> {
    prop_oneof![
        Just(MissedTickBehavior::Burst),
        Just(MissedTickBehavior::Delay),
        Just(MissedTickBehavior::Skip),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let reset = (length(), length(), length(), any::<bool>());
    let interval = (
        prop::option::of(length()),
        1..50_u64,
        prop::collection::vec(0..80_u64, 1..8),
        missed(),
        0..5_u8,
    );
    prop_oneof![
        4 => length().prop_map(Step::Sleep),
        2 => length().prop_map(Step::SleepUntil),
        4 => reset.prop_map(|(first, left_for, then, is_earlier)| Step::Reset { first, left_for, then, is_earlier }),
        2 => (length(), length()).prop_map(|(first, then)| Step::ResetFired(first, then)),
        3 => (length(), length(), any::<bool>()).prop_map(|(a, b, keep)| Step::Race(a, b, keep)),
        4 => (length(), length()).prop_map(|(limit, takes)| Step::Timeout(limit, takes)),
        2 => (length(), length(), length()).prop_map(|(a, b, takes)| Step::Nested(a, b, takes)),
        2 => (length(), length()).prop_map(|(at, takes)| Step::TimeoutAt(at, takes)),
        4 => interval.prop_map(|(first, period, waits, missed, reset)| Step::Interval { first, period, waits, missed, reset }),
        1 => (0..50_u64).prop_map(Step::Advance),
        1 => Just(Step::Yield),
    ]
}

/// The program, with the `time` of one side.
macro_rules! side {
    ($side:ident, $time:path, $advance:path) => {
        mod $side {
            use std::pin::Pin;

            use super::{Log, Step, ms};
            use futures::poll;
            use tokio::time::Instant;
            use $advance as advance;
            use $time as time;

            pub(super) fn run(program: &[Vec<Step>]) -> Vec<Log> {
                super::super::paused().block_on(async {
                    let start = Instant::now();
                    let is_alone = program.len() == 1;
                    let tasks = program.iter().cloned();
                    let tasks = tasks.map(|steps| tokio::spawn(task(is_alone, start, steps)));
                    let mut logs = Vec::new();
                    for task in tasks.collect::<Vec<_>>() {
                        logs.push(task.await.unwrap());
                    }
                    logs
                })
            }

            async fn task(is_alone: bool, start: Instant, steps: Vec<Step>) -> Log {
                let mut log = Log::new();
                for mut step in steps {
                    if !is_alone && matches!(step, Step::Advance(_)) {
                        step = Step::Yield;
                    }
                    let what = perform(start, step, &mut log).await;
                    log.push((start.elapsed(), what));
                }
                log
            }

            /// `tokio::time::Sleep` has to be pinned.
            fn sleep(length: u64) -> Pin<Box<time::Sleep>> {
                Box::pin(time::sleep(ms(length)))
            }

            fn outcome<T, E>(result: &Result<T, E>) -> &'static str {
                if result.is_ok() {
                    "completed"
                } else {
                    "elapsed"
                }
            }

            async fn perform(start: Instant, step: Step, log: &mut Log) -> &'static str {
                match step {
                    Step::Sleep(length) => time::sleep(ms(length)).await,
                    Step::SleepUntil(at) => time::sleep_until(start + ms(at)).await,
                    Step::Reset {
                        first,
                        left_for,
                        then,
                        is_earlier,
                    } => {
                        let mut slept = sleep(first);
                        let polled = poll!(&mut slept).is_ready();
                        time::sleep(ms(left_for)).await;
                        log.push((
                            start.elapsed(),
                            if slept.is_elapsed() {
                                "is due"
                            } else {
                                "waits"
                            },
                        ));
                        let now = Instant::now();
                        let deadline = if is_earlier {
                            now.checked_sub(ms(then)).unwrap_or(now)
                        } else {
                            now + ms(then)
                        };
                        slept.as_mut().reset(deadline);
                        assert_eq!(slept.deadline(), deadline);
                        slept.await;
                        return if polled { "was ready" } else { "was pending" };
                    }
                    Step::ResetFired(first, then) => {
                        let mut slept = sleep(first);
                        slept.as_mut().await;
                        assert!(slept.is_elapsed());
                        log.push((start.elapsed(), "fired"));
                        slept.as_mut().reset(Instant::now() + ms(then));
                        slept.await;
                    }
                    Step::Race(a, b, keep) => {
                        let (mut a, mut b) = (sleep(a), sleep(b));
                        let first = tokio::select! {
                            biased;
                            () = &mut a => "a",
                            () = &mut b => "b",
                        };
                        log.push((start.elapsed(), first));
                        if keep {
                            (if first == "a" { b } else { a }).await;
                        }
                    }
                    Step::Timeout(limit, takes) => {
                        return outcome(&time::timeout(ms(limit), time::sleep(ms(takes))).await);
                    }
                    Step::Nested(outer, inner, takes) => {
                        let limited = time::timeout(ms(inner), time::sleep(ms(takes)));
                        return match time::timeout(ms(outer), limited).await {
                            Ok(inner) => outcome(&inner),
                            Err(_) => "elapsed outside",
                        };
                    }
                    Step::TimeoutAt(at, takes) => {
                        return outcome(&time::timeout_at(start + ms(at), sleep(takes)).await);
                    }
                    Step::Interval {
                        first,
                        period,
                        waits,
                        missed,
                        reset,
                    } => {
                        let mut ticks = match first {
                            Some(first) => time::interval_at(start + ms(first), ms(period)),
                            None => time::interval(ms(period)),
                        };
                        ticks.set_missed_tick_behavior(missed);
                        for wait in waits {
                            let due = ticks.tick().await;
                            log.push((due.saturating_duration_since(start), "due"));
                            log.push((start.elapsed(), "ticked"));
                            time::sleep(ms(wait)).await;
                            match reset {
                                0 => ticks.reset(),
                                1 => ticks.reset_immediately(),
                                2 => ticks.reset_after(ms(wait)),
                                3 => ticks.reset_at(due + ms(wait)),
                                _ => {}
                            }
                        }
                    }
                    Step::Advance(by) => advance(ms(by)).await,
                    Step::Yield => tokio::task::yield_now().await,
                }
                "done"
            }
        }
    };
}

side!(tokios, tokio::time, tokio::time::advance);
side!(ours, tickwheel::time, super::advance);

/// What `tickwheel::time::advance` is, which only the feature `test-util` shows.
async fn advance(by: Duration) {
    tokio::time::advance(by).await;
    tickwheel::time::wheel().settle().await;
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(proptest::test_runner::FileFailurePersistence::Direct(
            "proptest-regressions/like_tokio.txt",
        ))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn sees_what_tokio_shows_at_the_same_instants(
        program in prop::collection::vec(prop::collection::vec(step(), 1..12), 1..6),
    ) {
        prop_assert_eq!(ours::run(&program), tokios::run(&program));
    }
}
