//! Explores the protocol: every sequence of steps, up to a bound, that a few instances can take on
//! a store.
//!
//! The store is real, and is used through its trait. The instances are abstract: they know what
//! those of `tickwheel-durable` know, a wheel, claims and an id, and make the same calls in every
//! order. Each call may lose its answer or never arrive, an instance may die at any moment, the
//! store may return to an earlier state, an operator may amend the charter and retry dead timers,
//! and time passes in units. Timers repeat by
//! a period or a schedule, under each rule for missed occurrences. So what races, retries and
//! crashes can do to one another is not tried at random but enumerated, within the bounds.
//!
//! # How
//!
//! Breadth first, so the trace of a violation is a shortest one. The state that a step leads to is
//! made canonical; one that was seen before is not followed again. From each new state two *fair
//! ends* are played: all instances go on without faults, or only the first one does. Either way
//! every timer has to be delivered.
//!
//! # What is checked
//!
//! After each step: D1 and D2 (no value goes but by a removal, a replacement, an acknowledgement or
//! a death, and no row changes but those that the step is about), D3, D4 (the answer to a write
//! says what the key had), D5 (no two claims of a timer while a lease lasts), D6, D7 (versions
//! grow; a lost claim changes nothing), D8 and D9 (the next occurrence waits for the time that the
//! rule says, and one that is skipped was missed), D15 (attempts are firings, and the last error is
//! kept), `at_most_once` (nothing fires twice), D16 (an instance that differs from the charter
//! changes nothing), hints, and the loader's invariant (a row that a living instance has marked is
//! on its wheel). At each fair end: D2 and D9.
//!
//! # Traces
//!
//! A broken promise prints its trace, such as `0 Set(0, Near); 0 Fire Lost; Tick`. The environment
//! variable `EXPLORE_TRACE` plays one within the bounds of each test, with the rows after each
//! step, and `EXPLORE_DEEPER=1` takes one more step.
//!
//! [`replays_each_transition`] and [`replays_the_other_transitions`] play one shortest trace for
//! each kind of transition on any store: those of up to four steps within nine of the bounds,
//! without steps back of the clock. Answers and rows have to be those of the store in memory. On
//! the real clock a unit is that of the [pace](crate::Pace), ten times. [`replay_on_clock`] does so
//! on a store with a clock that the test sets. [`long_traces_agree_with_memory`] plays long random
//! ones, which hold the store in memory to all that is said above, and in which one call stands for
//! several steps. [`calls_that_meet_take_turns`] makes two calls at once after each short trace.

mod bounds;
mod check;
mod instance;
mod invariants;
mod replay;
mod requests;
mod run;
mod state;
mod step;
mod taken;

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};

use fastrand::Rng;
use tickwheel_durable::store::State;

use bounds::Bounds;
use check::History;
use instance::Outcome;
pub use replay::{
    calls_that_meet_take_turns, long_traces_agree_with_memory, replay_on_clock,
    replays_each_transition, replays_the_other_transitions,
};
use run::Run;
use state::{View, state};
use step::{Call, Fault, Settling, Step, Trace};
use taken::{Taken, Verdict};

/// The environment variable that plays a trace.
const TRACE: &str = "EXPLORE_TRACE";

/// The environment variable that adds to the number of steps.
const DEEPER: &str = "EXPLORE_DEEPER";

/// After eight units without a fault everything that was set has been delivered.
const FAIR_UNITS: usize = 8;

/// A trace that has led to a new state, and what was learned on the way.
#[derive(Debug, Clone, Default)]
struct Node {
    trace: Trace,
    history: History,
    /// The state before the last step, if the store may return to it.
    before: Option<String>,
    /// The history before each step, if the store may return to it.
    past: Vec<History>,
}

/// The hash of a state, so long that no two states share one.
type Name = (u64, u64);

fn name(state: &impl Hash) -> Name {
    let hash = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, state).hash(&mut hasher);
        hasher.finish()
    };
    (hash(0), hash(1))
}

/// Explores the store in memory, under any clock, with so many steps and within bounds of this
/// name: `one-key`, `dead`, `repeating`, `one-at-a-time`, `each-missed`, `none-missed`, `calendar`,
/// `at-most-once`, `charters`, `blind`, `returning` or `two-keys`. Returns how many states it has
/// seen.
///
/// # Panics
///
/// When a promise is broken: with the promise and the trace.
pub async fn explore(bounds: &str, depth: usize) -> usize {
    explored(&Bounds::named(bounds, depth)).await.0
}

/// How many states there are, and one shortest trace for each kind of transition.
async fn explored(bounds: &Bounds) -> (usize, Vec<Trace>) {
    if let Ok(trace) = std::env::var(TRACE) {
        let trace = trace.parse();
        let trace: Trace = trace.unwrap_or_else(|step| panic!("{TRACE}: {step:?} is no step"));
        show(bounds, &trace).await;
    }
    let mut known = HashSet::new();
    let steps = bounds.all_steps();
    let mut seen = HashSet::new();
    let mut kinds: HashMap<Name, Trace> = HashMap::new();
    let mut level = vec![Node::default()];
    for _ in 0..bounds.depth {
        let mut next = Vec::new();
        for node in &level {
            let mut run = Run::in_memory(bounds).await;
            for &step in &node.trace.0 {
                run.step(step).await;
            }
            let before = View::of(&run).await;
            for &step in &steps {
                if !bounds.allow(&node.trace, step) {
                    continue;
                }
                let (mut grown, mut run) = (node.clone(), run.fork());
                let Some((outcome, after)) = grown.take(step, &mut run, &before).await else {
                    continue;
                };
                if let Some(kind) = kind(step, &outcome, [&before, &after]) {
                    kinds
                        .entry(name(&kind))
                        .or_insert_with(|| grown.trace.clone());
                }
                let state = state(&run, &after, bounds.alike());
                // What the store may return to belongs to the state.
                let before = bounds
                    .returns()
                    .then(|| grown.before.replace(state.clone()));
                let state = name(&(state, grown.history.handled(&after), before));
                if seen.insert((state, grown.trace.faults(), grown.trace.sets())) {
                    grown.ends_fairly(&run, &mut known).await;
                    next.push(grown);
                }
            }
        }
        level = next;
    }
    let mut traces: Vec<_> = kinds.into_values().collect();
    traces.sort_by_cached_key(|trace| (trace.0.len(), trace.to_string()));
    (seen.len(), traces)
}

impl Node {
    /// Takes one more step, and holds it to the promises. `None` if it makes no sense now.
    async fn take(&mut self, step: Step, run: &mut Run, before: &View) -> Option<(Outcome, View)> {
        let outcome = run.step(step).await?;
        let after = View::of(run).await;
        self.trace.0.push(step);
        if run.bounds.returns() {
            self.past.push(self.history.clone());
        }
        if let Step::Failover(steps) | Step::Restore(steps) = step {
            let earlier = self.past.len() - 1 - usize::from(steps);
            self.history.return_to(&self.past[earlier]);
        }
        let taken = Taken {
            step,
            outcome: &outcome,
            before,
            after: &after,
            run,
        };
        let checked = self.history.check(&taken);
        checked.unwrap_or_else(|broken| self.fails(&broken));
        Some((outcome, after))
    }

    /// Plays the two fair ends of the state that it has led to.
    async fn ends_fairly(&self, run: &Run, known: &mut HashSet<Name>) {
        for survivors in [run.bounds.instances, 1] {
            let end = run.fork().end(survivors, known).await;
            end.unwrap_or_else(|broken| self.fails(&broken));
        }
    }

    fn fails(&self, broken: &str) -> ! {
        let Node { trace, .. } = self;
        panic!("{broken}\n{} steps: {TRACE}='{trace}'", trace.0.len());
    }
}

/// Takes steps at random, and holds each to the promises. Returns the trace.
async fn walk(bounds: &Bounds, random: &mut Rng, steps: usize) -> Trace {
    let mut all = bounds.all_steps();
    // On a store with the real clock a unit is too long to pass.
    all.retain(|step| *step != Step::Tick);
    let calm: Vec<_> = all
        .iter()
        .filter(|step| !step.is_fault())
        .copied()
        .collect();
    let mut run = Run::in_memory(bounds).await;
    let mut node = Node::default();
    while node.trace.0.len() < steps {
        let any = random.usize(..12) == 0;
        let choices = if any { &all } else { &calm };
        let mut step = *random.choice(choices).expect("there are steps");
        let last = node.trace.0.last();
        if random.usize(..2) == 0 {
            // One that a call can join with the last one, if there is any.
            let joins = |step: &Step| last.is_some_and(|last| last.joins(*step));
            let joined: Vec<_> = calm.iter().filter(|step| joins(step)).copied().collect();
            step = random.choice(joined).unwrap_or(step);
        }
        if step == Step::Amend && !run.is_amended && random.usize(..8) != 0 {
            continue;
        }
        let before = View::of(&run).await;
        node.take(step, &mut run, &before).await;
    }
    node.ends_fairly(&run, &mut HashSet::new()).await;
    node.trace
}

/// The kind of a transition: what reaches the store, and how it changes the states of rows.
fn kind(step: Step, outcome: &Outcome, views: [&View; 2]) -> Option<String> {
    let states = |view: &View| -> Vec<_> {
        let rows = view.in_order().into_iter();
        let rows = rows.map(|row| {
            let loaded = row.loaded_by.map(|by| view.is_alive(by));
            (row.state, row.due <= view.now, loaded, row.repeats())
        });
        rows.collect()
    };
    let step = match (step, outcome) {
        (_, Outcome::Unsent) => return None,
        (Step::Call { call, .. }, Outcome::Settled(settled)) => {
            let answers = settled.iter();
            let answers = answers.map(|(.., answer)| std::mem::discriminant(answer));
            format!("{call:?} {:?}", answers.collect::<Vec<_>>())
        }
        (Step::Call { call, .. }, Outcome::Written(written)) => {
            format!("{call:?} {:?}", std::mem::discriminant(&written[0]))
        }
        (Step::Call { call, .. }, outcome) => {
            format!("{call:?} {:?}", std::mem::discriminant(outcome))
        }
        (Step::Crash(_), _) => "crash".to_owned(),
        (step, _) => step.to_string(),
    };
    let [before, after] = views.map(states);
    Some(format!("{step} {before:?} {after:?}"))
}

impl Run {
    /// From here the first `survivors` instances go on without faults, under their charter, and the
    /// others are gone. Says what is wrong. In the end everything is delivered from the states that
    /// are `known` to lead there.
    async fn end(mut self, survivors: u8, known: &mut HashSet<Name>) -> Verdict {
        self.instances.truncate(usize::from(survivors));
        if self.is_amended {
            self.step(Step::Amend).await;
        }
        let mut passed = Vec::new();
        let (mut repeating, mut until) = (None, None);
        for _ in 0..FAIR_UNITS {
            let view = View::of(&self).await;
            let alike = self.bounds.alike().min(usize::from(survivors));
            let state = name(&state(&self, &view, alike));
            let mut left: Vec<_> = view.rows.values().collect();
            left.retain(|row| row.state != State::Dead);
            let repeat = left.iter().filter(|row| row.repeats()).count();
            if *repeating.get_or_insert(repeat) != repeat {
                return Err(format!(
                    "D9: a repeating timer has ended, {repeat} are left"
                ));
            }
            // All that was set, but not what has repeated meanwhile.
            let until = *until.get_or_insert(view.now.after(self.unit * 2));
            left.retain(|row| row.deadline <= until);
            if left.is_empty() || known.contains(&state) {
                known.extend(passed);
                return Ok(());
            }
            passed.push(state);
            for by in 0..survivors {
                self.serve(by).await;
            }
            self.step(Step::Tick).await;
        }
        let left: Vec<_> = self.rows().await.into_values().collect();
        let of = self.bounds.instances;
        Err(format!(
            "D2: {left:?} are not delivered, though {survivors} of {of} instances go on"
        ))
    }

    /// Does everything that an instance would do now, without faults: loads, fires and settles.
    async fn serve(&mut self, by: u8) {
        let fault = Fault::None;
        // The first loads may be an unload and an unmark, and the first fire a look for lost ones.
        // What was missed fires one after the other.
        let fires = [Call::Fire; FAIR_UNITS];
        for call in [Call::Load; 3].into_iter().chain(fires) {
            self.step(Step::Call { by, call, fault }).await;
        }
        while let Some(claim) = self.instances[usize::from(by)].claims.first() {
            let how = if self.bounds.is_blind(by) {
                Settling::Leave
            } else {
                claim.unanswered.unwrap_or(Settling::Ack)
            };
            let call = Call::Settle(how);
            self.step(Step::Call { by, call, fault }).await;
        }
    }
}

/// Plays a trace, and prints the rows after each step.
async fn show(bounds: &Bounds, trace: &Trace) {
    let mut run = Run::in_memory(bounds).await;
    let mut node = Node::default();
    for &step in &trace.0 {
        let (before, mut ahead) = (View::of(&run).await, run.fork());
        let Some(outcome) = ahead.step(step).await else {
            return println!("{step} makes no sense here");
        };
        println!("{step}: {outcome:?}");
        for row in ahead.rows().await.values() {
            println!("    {row:?}");
        }
        println!("    {ahead:?}");
        node.take(step, &mut run, &before).await;
    }
    node.ends_fairly(&run, &mut HashSet::new()).await;
}
