//! Explores the protocol: every sequence of steps, up to a bound, that a few instances can take on
//! a store.
//!
//! The store is real, and is used through its trait. The instances are abstract: they know what
//! those of `tickwheel-durable` know, a wheel, claims and an id, and make the same calls in every
//! order. Each call may lose its answer, an instance may die at any moment, and time passes in
//! units. So what races, retries and crashes can do to one another is not tried at random but
//! enumerated, within the bounds.
//!
//! # How
//!
//! Breadth first, so the trace of a violation is a shortest one. A trace is played from the start
//! on a new store each time, since a store cannot be copied. The state that it ends in is made
//! canonical; one that was seen before is not followed again. From each new state two *fair ends*
//! are played: all instances go on without faults, or only the first one does. Either way every
//! timer has to be delivered.
//!
//! # What is checked
//!
//! After each step: D1 and D2 (no value goes but by a removal, a replacement, an acknowledgement or
//! a death), D3, D4 (the answer to a write says what the key had), D5 (no two claims of a timer
//! while a lease lasts), D7 (versions grow; a lost claim changes nothing), D15 (attempts are
//! firings) and the loader's invariant (a row that a living instance has marked is on its wheel).
//! At each fair end: D2, D8, D9.
//!
//! # Traces
//!
//! A violation prints its trace, such as `0 set 0 near; 0 fire lost; tick`. The environment
//! variable `EXPLORE_TRACE` plays one, with the rows after each step, and `EXPLORE_DEPTH` explores
//! deeper.
//!
//! [`replays_each_transition`] plays one shortest trace for each kind of transition on any store.
//! Its answers and rows have to be those of the store in memory. On the real clock a unit is that
//! of the [pace](crate::Pace), ten times.

mod check;
mod replay;
mod run;
mod state;
mod step;

use std::collections::{HashMap, HashSet};
use tickwheel_durable::store::State;

use check::{History, View};
pub use replay::replays_each_transition;
use run::{Outcome, Run};
use state::state;
pub use step::{Call, Delay, How, Key, Step, StepError, Trace};

/// The environment variable that plays a trace.
const TRACE: &str = "EXPLORE_TRACE";

/// The environment variable that sets the greatest number of steps.
const DEPTH: &str = "EXPLORE_DEPTH";

/// After so many units without a fault everything that was set has been delivered.
const FAIR_UNITS: usize = 8;

/// What is explored.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// How many instances there are.
    pub instances: u8,
    /// The calls that each of them makes.
    pub calls: Vec<Call>,
    /// The most steps of a trace.
    pub depth: usize,
    /// The most answers that are lost and instances that die in a trace.
    pub faults: usize,
    /// The most timers that are set in a trace.
    pub sets: usize,
}

impl Bounds {
    /// One key: set, moved, removed and delivered by two instances.
    pub fn one_key() -> Self {
        let calls = [
            Call::Set(0, Delay::Zero),
            Call::Set(0, Delay::Near),
            Call::Set(0, Delay::Far),
            Call::SetIfAbsent(0, Delay::Near),
            Call::Move(0, Delay::Near),
            Call::Remove(0),
            Call::Load,
            Call::Fire,
            Call::FireUnloaded,
            Call::Unmark,
            Call::Settle(How::Ack),
            Call::Settle(How::Release),
            Call::Settle(How::Retry),
            Call::Settle(How::Unfire),
            Call::Settle(How::Extend),
            Call::Settle(How::Leave),
            Call::Settle(How::Dead),
        ];
        Bounds {
            instances: 2,
            calls: calls.into(),
            depth: 5,
            faults: 1,
            sets: 2,
        }
    }

    /// A repeating timer beside others of its key.
    pub fn repeating() -> Self {
        let calls = [
            Call::SetInterval(0),
            Call::Set(0, Delay::Near),
            Call::Remove(0),
            Call::Load,
            Call::Fire,
            Call::FireUnloaded,
            Call::Settle(How::Ack),
            Call::Settle(How::Release),
            Call::Settle(How::Leave),
            Call::Settle(How::Dead),
        ];
        Bounds {
            calls: calls.into(),
            depth: 6,
            ..Bounds::one_key()
        }
    }

    /// Two keys and three instances: what one of them does to the timers of another.
    pub fn two_keys() -> Self {
        let calls = [
            Call::Set(0, Delay::Near),
            Call::Set(1, Delay::Far),
            Call::Move(1, Delay::Near),
            Call::Load,
            Call::Fire,
            Call::FireUnloaded,
            Call::Unmark,
            Call::Settle(How::Ack),
        ];
        Bounds {
            instances: 3,
            calls: calls.into(),
            depth: 5,
            ..Bounds::one_key()
        }
    }

    /// These bounds with other depths, if the environment asks for one.
    #[must_use]
    fn with_environment(mut self) -> Self {
        let depth = std::env::var(DEPTH).ok();
        if let Some(depth) = depth.and_then(|depth| depth.parse().ok()) {
            self.depth = depth;
        }
        self
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = vec![Step::Tick];
        for by in 0..self.instances {
            for &call in &self.calls {
                for lost in [false, true] {
                    steps.push(Step::Call { by, call, lost });
                }
            }
            steps.push(Step::Crash { by });
        }
        steps
    }
}

/// What an exploration has seen.
#[derive(Debug, Clone)]
pub struct Explored {
    /// How many states.
    pub states: usize,
    /// How many steps from one state to another, or to the same.
    pub transitions: usize,
    /// One shortest trace for each kind of transition.
    pub traces: Vec<Trace>,
    /// How many instances take part in them.
    pub instances: u8,
}

/// A trace that has led to a new state, and what was learned on the way.
#[derive(Debug, Clone, Default)]
struct Node {
    trace: Trace,
    history: History,
    faults: usize,
    sets: usize,
}

/// Explores the store in memory within these bounds, under any clock.
///
/// # Panics
///
/// When a promise is broken: with the promise and the trace.
pub async fn explore(bounds: Bounds) -> Explored {
    let bounds = bounds.with_environment();
    if let Ok(trace) = std::env::var(TRACE) {
        let trace: Trace = trace
            .parse()
            .unwrap_or_else(|error| panic!("{TRACE}: {error}"));
        show(&bounds, &trace).await;
    }
    explored(&bounds).await
}

async fn explored(bounds: &Bounds) -> Explored {
    let steps = bounds.steps();
    let mut seen = HashSet::new();
    let mut kinds: HashMap<String, Trace> = HashMap::new();
    let mut transitions = 0;
    let mut level = vec![Node::default()];
    for _ in 0..bounds.depth {
        let mut next = Vec::new();
        for node in &level {
            for &step in &steps {
                let Some(grown) = node.grown(step, bounds) else {
                    continue;
                };
                let Some((grown, kind, state)) = taken(grown, step, bounds).await else {
                    continue;
                };
                transitions += 1;
                kinds.entry(kind).or_insert_with(|| grown.trace.clone());
                if seen.insert((state, grown.faults, grown.sets)) {
                    fair_end(bounds, &grown.trace, bounds.instances).await;
                    fair_end(bounds, &grown.trace, 1).await;
                    next.push(grown);
                }
            }
        }
        level = next;
    }
    let mut traces: Vec<_> = kinds.into_values().collect();
    traces.sort_by_cached_key(|trace| (trace.0.len(), trace.to_string()));
    Explored {
        states: seen.len(),
        transitions,
        traces,
        instances: bounds.instances,
    }
}

impl Node {
    /// This trace and one more step, if the bounds allow it.
    fn grown(&self, step: Step, bounds: &Bounds) -> Option<Node> {
        let mut node = self.clone();
        node.trace.0.push(step);
        match step {
            Step::Crash { .. } | Step::Call { lost: true, .. } => node.faults += 1,
            _ => {}
        }
        if let Step::Call { call, .. } = step {
            node.sets += usize::from(check::is_set(call));
        }
        (node.faults <= bounds.faults && node.sets <= bounds.sets).then_some(node)
    }
}

/// Plays a trace on a new store, without checks.
async fn played(bounds: &Bounds, steps: &[Step]) -> Run {
    let mut run = Run::in_memory(bounds.instances).await;
    for &step in steps {
        run.step(step).await;
    }
    run
}

/// Plays the trace of a node and checks its last step. `None` if the step makes no sense there.
async fn taken(mut node: Node, step: Step, bounds: &Bounds) -> Option<(Node, String, String)> {
    let before = &node.trace.0[..node.trace.0.len() - 1];
    let mut run = played(bounds, before).await;
    let before = View::of(&run).await;
    let outcome = run.step(step).await?;
    let after = View::of(&run).await;
    let checked = (node.history).check(step, &outcome, &before, &after, &run);
    checked.unwrap_or_else(|broken| panic!("{broken}\n{TRACE}='{}'", node.trace));
    let kind = kind(step, &outcome, &before, &after);
    let state = state(&run, &after).await;
    Some((node, kind, state))
}

/// The kind of a transition: the step, and how it changes the states of rows.
fn kind(step: Step, outcome: &Outcome, before: &View, after: &View) -> String {
    let states = |view: &View| -> Vec<_> {
        let rows = view.rows.values();
        let rows = rows.map(|row| {
            let loaded = row.loaded_by.is_some();
            (row.state, row.due <= view.now, loaded, row.repeats())
        });
        rows.collect()
    };
    let settled = match outcome {
        Outcome::Settled(_, _, settled) => format!("{:?}", std::mem::discriminant(settled)),
        _ => String::new(),
    };
    let step = match step {
        Step::Call { call, lost, .. } => format!("{call:?} {lost}"),
        Step::Crash { .. } => "crash".to_owned(),
        Step::Tick => "tick".to_owned(),
    };
    format!("{step} {settled} {:?} {:?}", states(before), states(after))
}

/// From the end of a trace the first `survivors` instances go on without faults, and the others are
/// gone.
async fn fair_end(bounds: &Bounds, trace: &Trace, survivors: u8) {
    let broken = |what: String| -> ! {
        panic!(
            "{what}, {survivors} of {} instances go on\n{TRACE}='{trace}'",
            bounds.instances
        )
    };
    let mut run = played(bounds, &trace.0).await;
    run.instances.truncate(usize::from(survivors));
    let repeating = |view: &View| view.rows.values().filter(|row| row.repeats()).count();
    let at_first = View::of(&run).await;
    for _ in 0..FAIR_UNITS {
        for by in 0..survivors {
            run.serve(by).await;
        }
        if run
            .rows()
            .await
            .0
            .values()
            .all(|row| row.state == State::Dead)
        {
            break;
        }
        run.step(Step::Tick).await;
    }
    let at_last = View::of(&run).await;
    let mut rows = at_last.rows.values();
    let left =
        rows.find(|row| row.state != State::Dead && !row.repeats() && row.due <= at_first.now);
    if let Some(left) = left {
        broken(format!("D2: {left:?} is delivered to no instance"));
    }
    if repeating(&at_first) != repeating(&at_last) {
        broken("D9: a repeating timer has ended".to_owned());
    }
}

impl Run {
    /// Does everything that an instance would do now, without faults: loads, fires and
    /// acknowledges.
    async fn serve(&mut self, by: u8) {
        let lost = false;
        // The first load may be an unload.
        for call in [Call::Load, Call::Load, Call::Fire, Call::FireUnloaded] {
            self.step(Step::Call { by, call, lost }).await;
        }
        while let Some(how) = self.next_settle(by) {
            let call = Call::Settle(how);
            self.step(Step::Call { by, call, lost }).await;
        }
    }

    /// How the oldest claim of an instance is settled next: as was tried before, else it is
    /// acknowledged.
    fn next_settle(&self, by: u8) -> Option<How> {
        let claim = self.instances[usize::from(by)].claims.first()?;
        Some(claim.unanswered.unwrap_or(How::Ack))
    }
}

/// Plays a trace, and prints the rows after each step.
async fn show(bounds: &Bounds, trace: &Trace) {
    let mut run = Run::in_memory(bounds.instances).await;
    let mut node = Node::default();
    for &step in &trace.0 {
        let before = View::of(&run).await;
        let Some(outcome) = run.step(step).await else {
            panic!("{step} makes no sense here");
        };
        let after = View::of(&run).await;
        println!("{step}: {outcome:?}");
        for row in after.rows.values() {
            println!("    {row:?}");
        }
        for instance in &run.instances {
            println!("    {instance:?}");
        }
        let checked = (node.history).check(step, &outcome, &before, &after, &run);
        checked.unwrap_or_else(|broken| panic!("{broken}"));
    }
    fair_end(bounds, trace, bounds.instances).await;
    fair_end(bounds, trace, 1).await;
}
