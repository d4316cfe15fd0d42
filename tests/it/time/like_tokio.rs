//! Random programs, run with `tokio::time` and with `tickwheel::time` under a virtual clock: every
//! task sees the same things at the same instants, and the tasks run in the same order.
//!
//! On the wheel itself, where this crate's own tests keep sleeps, lengths are whole milliseconds,
//! and each task has its own log: what lies within a millisecond and the order of tasks at one
//! instant differ there, as do deadlines that are never.

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{builder, us};
use proptest::prelude::*;
use tokio::time::MissedTickBehavior;

/// One step of a task. Times are in units.
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
    /// A limit around a limit around a limit.
    Thrice(u64, u64, u64, u64),
    TimeoutAt(u64, u64),
    /// Waits for a thread, if there is no other task: the clock must not move meanwhile.
    Outside,
    /// An interval with waits between its ticks.
    Interval {
        first: Option<u64>,
        period: u64,
        waits: Vec<u64>,
        missed: MissedTickBehavior,
        reset: u8,
    },
    /// Moves the clock, if there is no other task: which instant that sees would depend on who runs
    /// first.
    Advance(u64),
    Yield,
}

/// The observations of a task: which, when, and what.
type Event = (usize, Duration, &'static str);

/// The log of a task, which is part of one for all.
#[derive(Clone)]
struct Log {
    task: usize,
    all: Arc<Mutex<Vec<Event>>>,
}

impl Log {
    fn push(&mut self, (when, what): (Duration, &'static str)) {
        self.all.lock().unwrap().push((self.task, when, what));
    }
}

std::thread_local! {
    /// The unit of all lengths.
    static UNIT: Cell<Duration> = const { Cell::new(Duration::from_millis(1)) };
}

fn units(n: u64) -> Duration {
    Duration::from_nanos(u64::try_from(UNIT.get().as_nanos()).unwrap() * n)
}

/// Sorted by task.
fn by_task(mut events: Vec<Event>) -> Vec<Event> {
    events.sort_by_key(|&(task, ..)| task);
    events
}

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
        2 => (length(), length(), length(), length()).prop_map(|(a, b, c, takes)| Step::Thrice(a, b, c, takes)),
        2 => (length(), length()).prop_map(|(at, takes)| Step::TimeoutAt(at, takes)),
        1 => Just(Step::Outside),
        4 => interval.prop_map(|(first, period, waits, missed, reset)| Step::Interval { first, period, waits, missed, reset }),
        1 => (0..50_u64).prop_map(Step::Advance),
        1 => Just(Step::Yield),
    ]
}

/// The program, with the `time` of one side.
macro_rules! side {
    ($side:ident, $time:path, $start:path, $advance:path) => {
        mod $side {
            use std::pin::Pin;
            use std::sync::{Arc, Mutex};
            use std::thread;

            use super::{Event, Log, Step, units};
            use futures::poll;
            use tokio::sync::oneshot;
            use tokio::task::JoinHandle;
            use tokio::time::Instant;
            use $advance as advance;
            use $start as start_wheel;
            use $time as time;

            pub(super) fn run(program: &[Vec<Step>]) -> Vec<Event> {
                super::super::paused().block_on(async {
                    start_wheel();
                    let all = Arc::default();
                    for task in spawn(program, Instant::now(), &all) {
                        task.await.unwrap();
                    }
                    let mut all = all.lock().unwrap();
                    std::mem::take(&mut *all)
                })
            }

            /// Begins to run the program.
            pub(super) fn spawn(
                program: &[Vec<Step>],
                start: Instant,
                all: &Arc<Mutex<Vec<Event>>>,
            ) -> Vec<JoinHandle<()>> {
                let is_alone = program.len() == 1;
                let tasks = program.iter().cloned().enumerate();
                let tasks = tasks.map(|(task, steps)| {
                    let all = Arc::clone(all);
                    tokio::spawn(run_task(is_alone, start, steps, Log { task, all }))
                });
                tasks.collect()
            }

            async fn run_task(is_alone: bool, start: Instant, steps: Vec<Step>, mut log: Log) {
                for mut step in steps {
                    if !is_alone && matches!(step, Step::Advance(_) | Step::Outside) {
                        step = Step::Yield;
                    }
                    let what = perform(start, step, &mut log).await;
                    log.push((start.elapsed(), what));
                }
            }

            /// `tokio::time::Sleep` has to be pinned.
            fn sleep(length: u64) -> Pin<Box<time::Sleep>> {
                Box::pin(time::sleep(units(length)))
            }

            fn outcome<T, E>(result: &Result<T, E>) -> &'static str {
                if result.is_ok() {
                    "completed"
                } else {
                    "elapsed"
                }
            }

            async fn limit(start: Instant, step: Step) -> &'static str {
                match step {
                    Step::Timeout(limit, takes) => {
                        outcome(&time::timeout(units(limit), time::sleep(units(takes))).await)
                    }
                    Step::Nested(outer, inner, takes) => {
                        let limited = time::timeout(units(inner), time::sleep(units(takes)));
                        match time::timeout(units(outer), limited).await {
                            Ok(inner) => outcome(&inner),
                            Err(_) => "elapsed outside",
                        }
                    }
                    Step::Thrice(a, b, c, takes) => {
                        let limited = time::timeout(units(c), time::sleep(units(takes)));
                        let limited = time::timeout(units(b), limited);
                        match time::timeout(units(a), limited).await {
                            Ok(Ok(inner)) => outcome(&inner),
                            Ok(Err(_)) => "elapsed between",
                            Err(_) => "elapsed outside",
                        }
                    }
                    Step::TimeoutAt(at, takes) => {
                        outcome(&time::timeout_at(start + units(at), sleep(takes)).await)
                    }
                    _ => unreachable!("it has no limit"),
                }
            }

            async fn perform(start: Instant, step: Step, log: &mut Log) -> &'static str {
                match step {
                    Step::Sleep(length) => time::sleep(units(length)).await,
                    Step::SleepUntil(at) => time::sleep_until(start + units(at)).await,
                    Step::Reset {
                        first,
                        left_for,
                        then,
                        is_earlier,
                    } => {
                        let mut slept = sleep(first);
                        let polled = poll!(&mut slept).is_ready();
                        time::sleep(units(left_for)).await;
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
                            now.checked_sub(units(then)).unwrap_or(now)
                        } else {
                            now + units(then)
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
                        slept.as_mut().reset(Instant::now() + units(then));
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
                    Step::Timeout(..)
                    | Step::Nested(..)
                    | Step::Thrice(..)
                    | Step::TimeoutAt(..) => {
                        return limit(start, step).await;
                    }
                    Step::Outside => {
                        let (send, receive) = oneshot::channel();
                        let thread = thread::spawn(|| send.send(()).unwrap());
                        receive.await.unwrap();
                        thread.join().unwrap();
                    }
                    Step::Interval {
                        first,
                        period,
                        waits,
                        missed,
                        reset,
                    } => {
                        let mut ticks = match first {
                            Some(first) => time::interval_at(start + units(first), units(period)),
                            None => time::interval(units(period)),
                        };
                        ticks.set_missed_tick_behavior(missed);
                        for wait in waits {
                            let due = ticks.tick().await;
                            log.push((due.saturating_duration_since(start), "due"));
                            log.push((start.elapsed(), "ticked"));
                            time::sleep(units(wait)).await;
                            match reset {
                                0 => ticks.reset(),
                                1 => ticks.reset_immediately(),
                                2 => ticks.reset_after(units(wait)),
                                3 => ticks.reset_at(due + units(wait)),
                                _ => {}
                            }
                        }
                    }
                    Step::Advance(by) => advance(units(by)).await,
                    Step::Yield => tokio::task::yield_now().await,
                }
                "done"
            }
        }
    };
}

side!(tokios, tokio::time, super::nothing, tokio::time::advance);
side!(ours, tickwheel::time, super::nothing, tokio::time::advance);
side!(on_wheel, tickwheel::time, super::install, super::advance);

fn nothing() {}

/// Installs a wheel that keeps its sleeps.
fn install() {
    drop(tickwheel::time::install(builder()).unwrap());
}

/// Lets the wheel fire as well.
async fn advance(by: Duration) {
    tokio::time::advance(by).await;
    tickwheel::time::wheel().settle().await;
}

/// Runs the program with both in one runtime. Its clock is paused some time after its start.
fn paused_midway(program: &[Vec<Step>], after: Duration) -> [Vec<Event>; 2] {
    super::current_thread().block_on(async {
        // The runtime's milliseconds began some time ago.
        let start = std::time::Instant::now();
        while start.elapsed() < after {}
        tokio::time::pause();
        let start = tokio::time::Instant::now();
        let logs: [Arc<Mutex<Vec<Event>>>; 2] = Default::default();
        let mut tasks = ours::spawn(program, start, &logs[0]);
        tasks.extend(tokios::spawn(program, start, &logs[1]));
        for task in tasks {
            task.await.unwrap();
        }
        logs.map(|log| std::mem::take(&mut *log.lock().unwrap()))
    })
}

fn program(tasks: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Vec<Step>>> {
    prop::collection::vec(prop::collection::vec(step(), 1..12), tasks)
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
        program in program(1..6),
        unit in prop_oneof![Just(1000), Just(100), 1..3000_u64],
    ) {
        UNIT.set(us(unit));
        prop_assert_eq!(ours::run(&program), tokios::run(&program));
    }

    // A clock that was paused midway was at no whole millisecond of the runtime, and timers were up
    // to one off.
    #[test]
    fn sees_what_tokio_shows_when_paused_midway(
        program in program(2..5),
        unit in prop_oneof![Just(1000), Just(100), 1..3000_u64],
        after in 0..2000_u64,
    ) {
        UNIT.set(us(unit));
        let [ours, tokios] = paused_midway(&program, us(after));
        prop_assert_eq!(ours, tokios);
    }

    #[test]
    fn wheel_shows_what_tokio_does_at_the_same_instants(program in program(1..6)) {
        UNIT.set(us(1000));
        let mut program = program;
        for step in program.iter_mut().flatten() {
            // A cancelled sleep is kept for reuse, and the clock moves to it.
            if matches!(step, Step::Outside) {
                *step = Step::Yield;
            }
        }
        prop_assert_eq!(by_task(on_wheel::run(&program)), by_task(tokios::run(&program)));
    }
}
