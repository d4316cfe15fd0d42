//! Every order of what callers, the actor and the reader do with one index, by the set of states
//! that they lead to. The rules of the slot are the real ones; queue, node and hints are as simple
//! as they can be. In each state K2 and K3 hold, and at the end no timer is left.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::num::NonZeroU64;
use std::time::Duration;

use tokio::time::Instant;

use super::table::{Look, Slot, Timer};
use crate::tick::{NEVER, Ticks, Timestamp};

/// The last tick. Deadlines are not later.
const END: u64 = 4;

/// A timer: its deadline's tick, and its number.
type Armed = (u64, u64);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    timer: Option<Armed>,
    /// The slot is kept without a timer.
    is_kept: bool,
    /// The tick for which the slot is scheduled.
    scheduled: u64,
    /// The notes that the actor has not applied.
    notes: VecDeque<u64>,
    /// The tick of the node.
    node: u64,
    /// How many hints the reader has not looked at.
    hints: usize,
    /// What the reader has found due.
    due: BTreeSet<Armed>,
    clock: u64,
    /// The number of the last arming.
    number: u64,
    /// How many calls callers still make.
    calls: usize,
}

/// A rule that is left out, to see the check fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    /// The notes of the set take two queues.
    Order,
    /// A slot keeps its bound when its timer is found due.
    Reset,
    /// A timer that is due later gets no note.
    Note,
    /// What was found due counts whatever its number.
    Number,
    /// A slot is filled again for an earlier deadline.
    Bound,
}

struct World {
    ticks: Ticks,
    without: Without,
}

fn tick(deadline: Timestamp) -> u64 {
    u64::try_from(deadline.nanos()).map_or(NEVER, |tick| if tick > END { NEVER } else { tick })
}

fn timestamp(tick: u64) -> Timestamp {
    if tick == NEVER {
        Timestamp::NEVER
    } else {
        Timestamp::at(tick)
    }
}

impl State {
    fn slot(&self) -> Slot<(), ()> {
        let (deadline, number) = self.timer.unwrap_or((0, 1));
        let timer = Timer {
            deadline: timestamp(deadline),
            number: NonZeroU64::new(number).expect("it counts from one"),
            key: (),
            value: (),
        };
        let mut slot = Slot::of(0, timer, timestamp(self.scheduled));
        if self.timer.is_none() {
            slot.timer = None;
        }
        slot
    }

    fn note(&mut self, tick: u64) {
        self.notes.push_back(tick);
    }

    /// The tick at which the actor will have the node.
    fn node_to_be(&self) -> u64 {
        self.notes.back().copied().unwrap_or(self.node)
    }

    /// K2 and K3.
    fn complaint(&self) -> Option<&'static str> {
        let is_hinted = self.hints > 0;
        if let Some((deadline, number)) = self.timer {
            let is_found = self.due.iter().any(|due| due.1 == number);
            if !is_hinted && !is_found && self.node_to_be() > deadline {
                return Some("K3: nothing brings the timer to its reader");
            }
        }
        let is_used = self.timer.is_some() || self.is_kept;
        if is_used && self.scheduled != NEVER && !is_hinted && self.node_to_be() > self.scheduled {
            return Some("K2: the slot is scheduled, and its index is not");
        }
        None
    }

    fn leave(&mut self) {
        self.timer = None;
        self.scheduled = NEVER;
    }
}

impl World {
    /// The states after a call.
    fn calls(&self, state: &State, next: &mut Vec<State>) {
        let mut after = state.clone();
        after.calls -= 1;
        // Set or moved, also to what has passed.
        for deadline in 0..=END {
            let mut set = after.clone();
            set.number += 1;
            let number = NonZeroU64::new(set.number).expect("it counts from one");
            let mut slot = set.slot();
            if set.timer.is_some() {
                let note = slot.rearm(timestamp(deadline), number, &self.ticks);
                set.scheduled = tick(slot.scheduled);
                if let Some(tick) = note {
                    set.note(tick);
                }
            } else if set.is_kept {
                if !slot.is_in_time(timestamp(deadline)) && self.without != Without::Bound {
                    continue;
                }
                set.is_kept = false;
            } else {
                set.scheduled = deadline;
                set.note(deadline);
            }
            set.timer = Some((deadline, set.number));
            next.push(set);
        }
        if let Some((deadline, number)) = state.timer {
            // Touched: without a number, and without a note.
            for later in deadline + 1..=END {
                let mut touched = after.clone();
                touched.timer = Some((later, number));
                next.push(touched);
            }
            let is_scheduled = state.slot().is_scheduled();
            after.timer = None;
            if is_scheduled {
                let mut kept = after.clone();
                kept.is_kept = true;
                next.push(kept);
                after.note(NEVER);
            }
            after.leave();
            next.push(after);
        } else if state.is_kept {
            after.is_kept = false;
            after.note(NEVER);
            after.leave();
            next.push(after);
        }
    }

    fn actor(&self, state: &State, next: &mut Vec<State>) {
        for first in 0..state.notes.len().min(2) {
            if first == 0 || self.without == Without::Order {
                let mut applied = state.clone();
                applied.node = applied.notes.remove(first).expect("it is there");
                next.push(applied);
            }
        }
        if state.node <= state.clock {
            let mut reached = state.clone();
            reached.node = NEVER;
            reached.hints += 1;
            next.push(reached);
        }
        if state.clock < END {
            let mut later = state.clone();
            later.clock += 1;
            next.push(later);
        }
    }

    /// The reader looks at the slot.
    fn look(&self, state: &mut State) {
        let Some((deadline, _)) = state.timer else {
            if state.is_kept {
                state.is_kept = false;
                state.leave();
            }
            return;
        };
        let mut slot = state.slot();
        let look = slot.look(timestamp(deadline), state.clock, &self.ticks);
        if self.without != Without::Reset {
            state.scheduled = tick(slot.scheduled);
        }
        match look {
            Look::Due { tick, number } => {
                state.due.insert((tick, number.get()));
            }
            Look::Later(tick) if self.without != Without::Note => state.note(tick),
            Look::Later(_) | Look::Nothing => {}
        }
    }

    fn reader(&self, state: &State, next: &mut Vec<State>) {
        if state.hints > 0 {
            let mut looked = state.clone();
            looked.hints -= 1;
            self.look(&mut looked);
            next.push(looked);
        }
        let Some(&found) = state.due.first() else {
            return;
        };
        let mut decided = state.clone();
        decided.due.pop_first();
        let counts = |timer: &Armed| timer.1 == found.1 || self.without == Without::Number;
        let Some((deadline, _)) = decided.timer.filter(counts) else {
            next.push(decided);
            return;
        };
        if deadline > found.0 && self.without != Without::Number {
            // It was touched.
            self.look(&mut decided);
            next.push(decided);
            return;
        }
        assert!(deadline <= state.clock, "early");
        if state.calls > 0 {
            // It repeats.
            let mut again = decided.clone();
            let deadline = (deadline + 1).min(END);
            again.calls -= 1;
            again.number += 1;
            again.timer = Some((deadline, again.number));
            again.scheduled = deadline;
            again.note(deadline);
            next.push(again);
        }
        decided.leave();
        next.push(decided);
    }
}

/// Goes through all states. Returns how many there are, or the first complaint.
fn explore(calls: usize, without: Without) -> Result<usize, String> {
    let ticks = Ticks::new(Instant::now(), Duration::from_nanos(1)).expect("not zero");
    let world = World { ticks, without };
    let first = State {
        timer: None,
        is_kept: false,
        scheduled: NEVER,
        notes: VecDeque::new(),
        node: NEVER,
        hints: 0,
        due: BTreeSet::new(),
        clock: 0,
        number: 0,
        calls,
    };
    let mut seen = HashSet::from([first.clone()]);
    let mut todo = vec![first];
    let mut next = Vec::new();
    while let Some(state) = todo.pop() {
        if let Some(complaint) = state.complaint() {
            return Err(format!("{complaint}: {state:?}"));
        }
        if state.calls > 0 {
            world.calls(&state, &mut next);
        }
        world.actor(&state, &mut next);
        world.reader(&state, &mut next);
        if next.is_empty() && (state.timer.is_some() || state.is_kept) {
            return Err(format!("it is left: {state:?}"));
        }
        let new = next.drain(..).filter(|state| seen.insert(state.clone()));
        todo.extend(new);
    }
    Ok(seen.len())
}

#[test]
fn every_order_brings_each_timer_to_its_reader() {
    let calls = if cfg!(debug_assertions) { 3 } else { 5 };
    let states = explore(calls, Without::Nothing).expect("K2 and K3 hold");
    assert!(states > 5_000, "{states} are few");
}

#[test]
fn order_is_found_that_breaks_what_a_rule_holds() {
    for without in [
        Without::Order,
        Without::Reset,
        Without::Note,
        Without::Bound,
    ] {
        let complaint = explore(3, without).expect_err("it is needed");
        assert!(complaint.starts_with('K'), "{without:?}: {complaint}");
    }
    let early = std::panic::catch_unwind(|| explore(3, Without::Number));
    assert!(early.is_err(), "what was found due is received early");
}
