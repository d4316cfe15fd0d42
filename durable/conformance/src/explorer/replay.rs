//! Plays traces on any store, and compares with the store in memory.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use tickwheel_durable::store::{Fired, Settled, Store, Version, WriteOutcome};
use tokio::time::Instant;

use super::check::View;
use super::run::{Outcome, Run};
use super::state::state;
use super::step::{Step, Trace};
use super::{Bounds, Explored, explored};
use crate::world::{Stores, World};

/// A unit has room for a trace that is played beside others.
const PACE_UNITS: u32 = 10;

/// So many traces are played at once.
const AT_ONCE: usize = 64;

/// The most steps of a trace.
const DEPTH: usize = 4;

/// A trace is played again, with longer units, if the machine was too slow for it.
const TRIES: u32 = 5;

/// What a trace leaves: the canonical state after each step, and the answer to it.
type Record = Vec<(String, String)>;

/// Plays one shortest trace for each kind of transition, each in its own namespace. Answers
/// and rows have to be those of the store in memory.
pub async fn replays_each_transition<T: Stores>(world: &World<T>) {
    for (name, bounds) in [("one", Bounds::one_key()), ("repeat", Bounds::repeating())] {
        let explored = explored(&Bounds {
            depth: DEPTH,
            ..bounds
        })
        .await;
        replay(&world.part(name), &explored).await;
    }
}

async fn replay<T: Stores>(world: &World<T>, explored: &Explored) {
    let store: Arc<dyn Store> = Arc::new(world.store().await);
    let traces = explored.traces.iter().enumerate();
    let played = traces.map(async |(number, trace)| {
        let memory = Run::in_memory(explored.instances).await;
        let expected = record(memory, trace).await;
        for time in 1..=TRIES {
            let space = world.part(&format!("{number}-{time}")).namespace();
            let unit = world.units(PACE_UNITS * time);
            let run = Run::new(Arc::clone(&store), space, unit, explored.instances).await;
            let began = Instant::now();
            let record = record(run, trace).await;
            let ticks = trace.0.iter().filter(|step| **step == Step::Tick).count();
            let slept = unit * u32::try_from(ticks).unwrap_or(u32::MAX);
            // Deadlines lie half a unit from the ticks.
            if began.elapsed().saturating_sub(slept) < unit / 4 {
                for (step, (got, expected)) in record.iter().zip(&expected).enumerate() {
                    assert_eq!(got, expected, "after step {step} of '{trace}'");
                }
                return;
            }
        }
        panic!("no try was fast enough for '{trace}'");
    });
    let played = stream::iter(played).buffer_unordered(AT_ONCE);
    played.collect::<()>().await;
}

/// Plays a trace.
async fn record(mut run: Run, trace: &Trace) -> Record {
    let mut record = Record::new();
    for &step in &trace.0 {
        let before = View::of(&run).await;
        let outcome = run.step(step).await.expect("it made sense in memory");
        let after = View::of(&run).await;
        record.push((answer(&outcome, &before, &after), state(&run, &after).await));
    }
    record
}

/// The answer to a step, without what differs from store to store: versions are named by the rows
/// that have them.
fn answer(outcome: &Outcome, before: &View, after: &View) -> String {
    let place = |view: &View, version: &Version| {
        let rows = view.in_order();
        rows.iter().position(|row| row.version == *version)
    };
    let row = |version: &Version| (place(before, version), place(after, version));
    let rows = |versions: &[Version]| versions.iter().map(row).collect::<Vec<_>>();
    match outcome {
        Outcome::Tick | Outcome::Crash | Outcome::Unloaded => String::new(),
        Outcome::Written(WriteOutcome::Armed {
            row: armed,
            replaced,
            ..
        }) => {
            format!(
                "armed {:?} {:?}, replaced {:?}",
                row(&armed.version),
                armed.loaded,
                replaced.as_ref().map(row)
            )
        }
        Outcome::Written(WriteOutcome::Removed { version, value, .. }) => {
            format!("removed {:?} {value:?}", row(version))
        }
        Outcome::Written(WriteOutcome::InFlight(token)) => format!("in flight {:?}", row(token)),
        Outcome::Written(other) => format!("{other:?}"),
        Outcome::Loaded(versions) => format!("loaded {:?}", rows(versions)),
        Outcome::Unmarked(versions) => format!("unmarked {:?}", rows(versions)),
        Outcome::Fired(fired) => {
            let fired = fired.iter().map(|fired| {
                let Fired {
                    key,
                    value,
                    attempt,
                    missed,
                    repeats,
                    ..
                } = fired;
                (row(&fired.token), key, value, attempt, missed, repeats)
            });
            format!("fired {:?}", fired.collect::<Vec<_>>())
        }
        Outcome::Settled(token, _, Settled::Armed(armed)) => {
            format!(
                "settled {:?}, armed {:?} {:?}",
                row(token),
                row(&armed.version),
                armed.loaded
            )
        }
        Outcome::Settled(token, _, settled) => format!("settled {:?}: {settled:?}", row(token)),
    }
}
