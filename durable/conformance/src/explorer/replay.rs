//! Plays traces on any store, and compares with the store in memory.

use std::collections::{BTreeSet, HashSet};
use std::future::Future;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::stream::{self, StreamExt};
use tickwheel_durable::store::{Armed, Missed, Scheduled, Settled, Store, Version, WriteOutcome};
use tokio::time::{Instant, sleep};

use super::instance::Outcome;
use super::run::{MOMENT, Meeting, Run, SetClock, UNIT};
use super::state::{View, state};
use super::step::{Call, Fault, Settling, Step, Trace};
use super::{Bounds, explored, walk};
use crate::random::{seed, stream};
use crate::world::{Stores, World};

/// A unit has room for a trace that is played beside others.
const PACE_UNITS: u32 = 10;

/// At most 32 traces are played at once.
const AT_ONCE: usize = 32;

/// The most steps of a trace.
const DEPTH: usize = 4;

/// A trace is played again, with units twice as long, if the machine was too slow for it.
const TRIES: u32 = 6;

/// What a trace leaves: the canonical state after each step, and the answer to it.
type Record = Vec<(String, String)>;

/// Plays one shortest trace for each kind of transition, each in another namespace. Answers
/// and rows have to be those of the store in memory.
///
/// Traces in which the clock steps back are left out: see [`replay_on_clock`].
pub async fn replays_each_transition<T: Stores>(world: &World<T>) {
    replay(world, Bounds::REPLAYED[..4].iter()).await;
}

/// The same within the other bounds. Half of them each, since they take minutes.
pub async fn replays_the_other_transitions<T: Stores>(world: &World<T>) {
    replay(world, Bounds::REPLAYED[4..].iter()).await;
}

async fn replay<T: Stores>(world: &World<T>, bounds: impl Iterator<Item = &&'static str>) {
    let store: Arc<dyn Store> = Arc::new(world.store().await);
    for name in bounds {
        let bounds = Bounds::named(name, DEPTH);
        let (_, mut traces) = explored(&bounds).await;
        traces.retain(|trace| !trace.0.contains(&Step::TurnBack));
        if bounds.last_is_blind {
            traces.push(LEFT.parse().expect("it is a trace"));
        }
        let count = traces.len();
        assert!(count >= 100, "{name} has {count} kinds of transitions only");
        let played = traces.iter().enumerate().map(async |(number, trace)| {
            let expected = record(Run::in_memory(&bounds).await, trace, false).await;
            let ticks = trace.0.iter().filter(|step| **step == Step::Tick).count();
            for time in 0..TRIES {
                let space = world.part(&format!("{name}-{number}-{time}")).namespace();
                // Without ticks it does not matter how long a call takes.
                let unit = match ticks {
                    0 => UNIT,
                    _ => world.units(PACE_UNITS << time),
                };
                let run = Run::new(Arc::clone(&store), space, unit, &bounds).await;
                let began = Instant::now();
                let record = record(run, trace, false).await;
                let slept = unit * u32::try_from(ticks).unwrap_or(u32::MAX);
                // Deadlines lie half a unit from the ticks.
                if began.elapsed().saturating_sub(slept) < unit / 4 {
                    return agree(trace, record, expected);
                }
            }
            panic!("no try was fast enough for '{trace}'");
        });
        let played = stream::iter(played).buffer_unordered(AT_ONCE);
        played.collect::<()>().await;
    }
}

/// Plays the same traces, and those in which the clock steps back, one after the other on a store
/// whose clock `set_clock` sets. Returns how many there were.
pub async fn replay_on_clock<T, F>(
    world: &World<T>,
    set_clock: impl Fn(SystemTime) -> F + Clone + Send + Sync + 'static,
) -> usize
where
    T: Stores,
    F: Future<Output = ()> + Send + 'static,
{
    let store: Arc<dyn Store> = Arc::new(world.store().await);
    let clock: SetClock = Arc::new(move |time| Box::pin(set_clock(time)));
    let mut count = 0;
    for name in Bounds::REPLAYED {
        let bounds = Bounds::named(name, DEPTH);
        for (number, trace) in explored(&bounds).await.1.iter().enumerate() {
            let expected = record(Run::in_memory(&bounds).await, trace, false).await;
            let space = world.part(&format!("{name}-{number}")).namespace();
            let (store, clock) = (Arc::clone(&store), Arc::clone(&clock));
            let run = Run::on_clock(store, space, clock, &bounds).await;
            agree(trace, record(run, trace, false).await, expected);
            count += 1;
        }
    }
    count
}

/// Twelve random traces are played, of 150 steps each.
const WALKS: u64 = 12;
const STEPS: usize = 150;

/// What no short trace shows, by hand.
const LONG_TRACES: &[&str] = &[
    // Dead timers of one key, and claims of one key that are put back together.
    "0 Set(0, Zero); 0 FireUnloaded; 0 Set(0, Zero); 0 FireUnloaded; 0 Settle(Dead); \
        0 Settle(Dead); RetryDead(0); 1 FireUnloaded; 1 FireUnloaded",
    "0 Set(0, Zero); 0 FireUnloaded; 0 Set(0, Zero); 0 FireUnloaded; 0 Settle(Release); \
        0 Settle(Release); 0 FireBoth; 0 Settle(Retry); 0 Settle(Retry)",
    // The answer to an unload is lost: what still names the id that has ended marks nothing.
    "0 Load; 0 Set(1, Far) Lost; 0 Load Lost; 0 Set(0, Near); 0 SetInterval(1, Zero); \
        0 FireUnloaded; 0 Settle(Retry); 0 Move(0, Zero); 0 Load; 0 Load",
    // What cannot be decoded, beside a newer timer of its key.
    "2 Load; 0 Set(0, Zero); 2 FireUnloaded; 0 Set(0, Far); 2 Settle(Leave); 2 Load; \
        2 FireBoth; 0 Load; 0 FireBoth; 0 Move(0, Zero); 2 Load; 0 Fire",
    // A claim whose lease has ended, and that another instance has loaded, begins again.
    "0 Set(0, Zero); 0 FireUnloaded; 0 Settle(Lapse); 1 Load; 0 Settle(Extend); 1 Fire; \
        1 FireUnloaded",
    // A claim whose lease has ended is given back by the instance that has loaded it.
    "0 Set(0, Zero); 0 FireUnloaded; 0 Settle(Lapse); 1 Load; 1 Unmark; 0 Load; 0 Fire",
];

/// The same where occurrences do not overlap: beside a claim of another timer, and beside the
/// occurrence before.
const HELD_BACK: &[&str] = &[
    "0 Set(0, Zero); 0 FireUnloaded; 0 SetInterval(0, Past); 0 FireUnloaded; 0 Settle(Ack)",
    "0 SetInterval(0, Past); 0 FireUnloaded; 0 FireUnloaded; 0 FireUnloaded",
];

/// What an instance cannot decode is its own again after a time.
const LEFT: &str =
    "0 Set(0, Zero); 1 FireUnloaded; 1 Settle(Leave); 1 Load; Tick; 1 Load; Tick; 1 Load";

/// Plays long random traces, and some by hand. One call of the store stands for several writes or
/// settles of an instance in a row, where in memory each is a call. Answers and rows have to be the
/// same.
pub async fn long_traces_agree_with_memory<T: Stores>(world: &World<T>) {
    let seed = seed("long_traces_agree_with_memory");
    let store: Arc<dyn Store> = Arc::new(world.store().await);
    let mut bounds = [(); 6].map(|()| Bounds::named("everything", 0));
    bounds[1].missed = Missed::FireAll;
    bounds[2].charter.at_most_once = true;
    let rules = [Missed::FireOnce, Missed::Skip, Missed::FireAll];
    for (bounds, missed) in bounds[3..].iter_mut().zip(rules) {
        (bounds.missed, bounds.charter.no_overlap) = (missed, true);
    }
    let mut traces = Vec::new();
    for (bounds, texts) in [(&bounds[..1], LONG_TRACES), (&bounds[3..], HELD_BACK)] {
        for bounds in bounds {
            let texts = texts.iter();
            traces.extend(texts.map(|text| (bounds, text.parse().expect("it is a trace"))));
        }
    }
    // Where each occurrence waits for the one before, a fair end is too short for a backlog.
    for (bounds, number) in bounds[..5].iter().cycle().zip(0..WALKS) {
        let mut random = stream(seed, number);
        traces.push((bounds, walk(bounds, &mut random, STEPS).await));
    }
    let played = traces
        .iter()
        .enumerate()
        .map(async |(number, (bounds, trace))| {
            let expected = record(Run::in_memory(bounds).await, trace, true).await;
            let space = world.part(&format!("long-{number}")).namespace();
            let run = Run::new(Arc::clone(&store), space, UNIT, bounds).await;
            agree(trace, record(run, trace, true).await, expected);
        });
    let played = stream::iter(played).buffer_unordered(AT_ONCE);
    played.collect::<()>().await;
}

/// Makes two calls at once, after each trace of at most three calls of one instance. The answers
/// and the rows have to be as if one call had come after the other.
pub async fn calls_that_meet_take_turns<T: Stores>(world: &World<T>) {
    let mut bounds = Bounds::named("dead", 3);
    bounds.faults = 0;
    let (store, other): (Arc<dyn Store>, Arc<dyn Store>) =
        (Arc::new(world.store().await), Arc::new(world.store().await));
    let pairs = pairs(&bounds).await;
    let count = pairs.len();
    assert!(count >= 200, "only {count} pairs of calls meet");
    let bounds = &bounds;
    let met = pairs.iter().enumerate().map(async |(number, pair)| {
        let (before, steps, expected) = pair;
        let space = world.part(&format!("meet-{number}")).namespace();
        let mut run = Run::new(Arc::clone(&store), space, UNIT, bounds).await;
        for &step in &before.0 {
            run.step(step).await;
        }
        let met = meet(&mut run, *steps, Meeting::Through(Arc::clone(&other))).await;
        let (met, [first, second]) = (met.expect("it made sense in memory"), steps);
        assert!(
            expected.contains(&met),
            "{first} and {second} after '{before}': {met}, and not one of {expected:#?}"
        );
    });
    stream::iter(met)
        .buffer_unordered(AT_ONCE)
        .collect::<()>()
        .await;
}

/// The pairs of a call of the first instance and one of the second, or of an operator, whose order
/// matters: with what is done before them, and what may come of them.
async fn pairs(bounds: &Bounds) -> Vec<(Trace, [Step; 2], [String; 2])> {
    let steps = bounds.all_steps();
    let of = |by: u8| {
        let steps = steps.iter().copied();
        steps.filter(move |step| match *step {
            // Where writers lock rows, a fire and a put-back pass by what is locked, and come
            // again.
            Step::Call {
                by: own,
                call,
                fault,
            } => {
                use Call::{Fire, FireUnloaded, Load, Settle};
                let passes_by =
                    matches!(call, Load | Fire | FireUnloaded | Settle(Settling::Retry));
                own == by && fault == Fault::None && !passes_by
            }
            Step::RetryDead(_) | Step::DiscardDead(_) => by == 1,
            _ => false,
        })
    };
    let is_of_first = |step: &Step| {
        matches!(
            step,
            Step::Call {
                by: 0,
                fault: Fault::None,
                ..
            }
        )
    };
    let (_, mut traces) = explored(bounds).await;
    traces.retain(|trace| trace.0.iter().all(is_of_first));
    let (mut pairs, mut seen) = (Vec::new(), HashSet::new());
    for before in traces {
        let mut run = Run::in_memory(bounds).await;
        for &step in &before.0 {
            run.step(step).await;
        }
        let at_first = state(&run, &View::of(&run).await, 1);
        for first in of(0) {
            for second in of(1) {
                let steps = [first, second];
                let in_order = meet(&mut run.fork(), steps, Meeting::InOrder).await;
                let reversed = meet(&mut run.fork(), steps, Meeting::Reversed).await;
                let (Some(in_order), Some(reversed)) = (in_order, reversed) else {
                    continue;
                };
                if in_order != reversed && seen.insert((at_first.clone(), steps)) {
                    pairs.push((before.clone(), steps, [in_order, reversed]));
                }
            }
        }
    }
    pairs
}

/// What two calls answer and leave.
async fn meet(run: &mut Run, steps: [Step; 2], order: Meeting) -> Option<String> {
    let before = View::told(run).await;
    let outcomes = run.meet(steps, order).await?;
    let after = View::told(run).await;
    let [first, second] = outcomes
        .each_ref()
        .map(|outcome| answer(outcome, &before, &after));
    Some(format!("{first}; {second}; {}", state(run, &after, 1)))
}

fn agree(trace: &Trace, got: Result<Record, String>, expected: Result<Record, String>) {
    let [got, expected] = [got, expected].map(|record| record.unwrap_or_else(|e| panic!("{e}")));
    for (number, (got, expected)) in got.iter().zip(&expected).enumerate() {
        assert_eq!(got, expected, "after call {number} of '{trace}'");
    }
    assert_eq!(got.len(), expected.len());
}

/// Plays a trace. If calls are `joined`, steps that one call can stand for are recorded as one,
/// which they are unless the store is the one in memory.
///
/// A step makes no sense if what it needs has not come about, or is over on a machine that is too
/// slow: a claim whose lease has ended cannot be settled.
async fn record(mut run: Run, trace: &Trace, joined: bool) -> Result<Record, String> {
    let (mut record, alike) = (Record::new(), run.instances.len());
    let mut before = View::told(&run).await;
    let mut rest = &trace.0[..];
    while !rest.is_empty() {
        let together = if joined {
            alike_at(&run, &before, rest)
        } else {
            1
        };
        let (steps, later) = rest.split_at(together);
        rest = later;
        if joined {
            // Where the tests' clock is paused, no two calls come at the same time either.
            sleep(MOMENT).await;
        }
        let outcomes = run.steps(steps).await;
        let outcomes = outcomes.ok_or_else(|| format!("{steps:?} of '{trace}' make no sense"))?;
        let after = View::told(&run).await;
        let answers = outcomes
            .iter()
            .map(|answered| answer(answered, &before, &after));
        let mut answers: Vec<_> = answers.collect();
        for key in steps.iter().filter_map(|step| step.key()) {
            let row = run.get(key).await.map(|row| row.version);
            let rows = after.in_order();
            answers.push(format!(
                "{:?}",
                rows.iter().position(|at| Some(at.version) == row)
            ));
        }
        let state = state(&run, &after, alike);
        record.push((answers.join("; "), state));
        before = after;
    }
    Ok(record)
}

/// How many of the first steps one call of the store can stand for. Versions of the rows that one
/// call makes are in no order, so those of two keys have to be due at different times.
fn alike_at(run: &Run, before: &View, steps: &[Step]) -> usize {
    let mut made: Vec<(Option<Vec<u8>>, Option<bool>)> = Vec::new();
    for (number, &step) in steps.iter().enumerate() {
        let settled = || match step {
            Step::Call { by, .. } => {
                let claim = run.instances[usize::from(by)].claims.get(number)?;
                Some(before.rows.get(&claim.token)?.key.clone())
            }
            _ => None,
        };
        let (key, due) = (step.key().or_else(settled), step.is_due_at_call());
        let is_alike = number == 0 || steps[number - 1].joins(step);
        let mut others = made.iter().filter(|(other, _)| *other != key);
        if !is_alike || due.is_some() && others.any(|(_, other)| *other == due) {
            break;
        }
        made.push((key, due));
    }
    made.len()
}

/// The answer to a step, without what differs from store to store: versions are named by the rows
/// that have them.
fn answer(outcome: &Outcome, before: &View, after: &View) -> String {
    let place = |view: &View, version: Version| {
        let rows = view.in_order();
        rows.iter().position(|row| row.version == version)
    };
    let row = |version: Version| (place(before, version), place(after, version));
    let armed = |armed: &Armed| (row(armed.version), armed.loaded);
    let told = |rows: &[Scheduled]| -> BTreeSet<_> {
        let rows = rows.iter();
        rows.map(|told| row(told.version)).collect()
    };
    match outcome {
        Outcome::Written(written) => match &written[0] {
            WriteOutcome::Armed {
                row: made,
                replaced,
                ..
            } => format!("armed {:?}, replaced {:?}", armed(made), replaced.map(row)),
            WriteOutcome::Removed { version, value, .. } => {
                format!("removed {:?} {value:?}", row(*version))
            }
            WriteOutcome::InFlight(token) => format!("in flight {:?}", row(*token)),
            other => format!("{other:?}"),
        },
        Outcome::Loaded(loaded) => {
            let rows = loaded.rows.iter().map(|(version, _)| row(*version));
            let (rows, told) = (rows.collect::<Vec<_>>(), told(&loaded.scheduled));
            format!("loaded {rows:?} {} {told:?}", loaded.more)
        }
        Outcome::Unmarked(versions) => {
            let rows: Vec<_> = versions.iter().map(|version| row(*version)).collect();
            format!("unmarked {rows:?}")
        }
        Outcome::Unloaded(_) => "unloaded".to_owned(),
        Outcome::Fired(report) => {
            let fired = report.fired.iter().map(|fired| {
                let what = (&fired.key, &fired.value, fired.repeats);
                (row(fired.token), what, fired.attempt, fired.missed)
            });
            let fired: Vec<_> = fired.collect();
            // To the microsecond.
            let repeats = report.fired.iter().filter(|fired| fired.repeats);
            let cadence = report.next.iter().zip(repeats);
            let unit = after.window.as_micros();
            let cadence = cadence.map(|(next, fired)| {
                let since = next.due.since(fired.deadline).as_micros();
                (since / unit, since % unit)
            });
            let cadence: Vec<_> = cadence.collect();
            let made = report.later.iter().chain(&report.next);
            let (made, told) = (made.map(armed).collect::<Vec<_>>(), told(&report.scheduled));
            format!("fired {fired:?} {cadence:?}, armed {made:?}, told {told:?}")
        }
        Outcome::Settled(settled) => {
            let settled = settled.iter().map(|(token, _, settled)| match settled {
                Settled::Armed(made) => format!("{:?}: armed {:?}", row(*token), armed(made)),
                settled => format!("{:?}: {settled:?}", row(*token)),
            });
            settled.collect::<Vec<_>>().join(", ")
        }
        other => format!("{other:?}"),
    }
}
