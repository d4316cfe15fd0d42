//! The wheel of keyed timers and watches, and the sets they belong to.
//!
//! Notes are applied, and the wheel is advanced, without a lock. An index that the wheel reaches
//! goes onto the list of its set. The actor [visits](TimerSet::visit) each set with such a list, or
//! with timers that it has found due. It only tries to lock the set: one that is locked by another
//! thread is visited again in the next turn, and delays nothing but itself. The same goes for the
//! [list](crate::shared::sets) in which it looks a set up at the first visit.

#[cfg(all(test, not(tickwheel_shuttle)))]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::mem;
use std::sync::Weak;

use super::backlog::{Backlog, Deferred};
use super::places::{IndexWheel, Places};
use crate::shared::note::{Note, SetKey};
use crate::shared::timer_set::{Due, DueTimers, TimerSet};
use crate::shared::turn::Turn;
use crate::sync::IN_EXPLORER;
use crate::tick::NEVER;

/// The cost of an attempt to lock a set that is locked by another thread. The unit is one timer.
const CONTENDED_COST: usize = if IN_EXPLORER { 1 } else { 64 };

/// An empty heap of due timers, and an empty list of chunks, keep memory for this many.
const KEPT_CAPACITY: usize = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct KeyedWheel {
    /// Others only read it.
    pub(super) wheel: IndexWheel,
    /// By the position of the set's key. `None` until a note about the set is applied.
    sets: Vec<Option<Box<Known>>>,
    /// The sets with due timers, those first that have waited longest for a visit.
    due_sets: VecDeque<SetKey>,
    /// No timer of these sets is due before this tick.
    earliest: u64,
    /// The visits since all of these sets were asked for their earliest tick.
    visits: usize,
    /// What the wheel has just reached; kept for its memory.
    reached: Vec<(SetKey, u32)>,
    /// The notes of the last visit; kept for its memory.
    notes: Vec<Note>,
    /// An empty heap for the next set that has none; kept for its memory.
    found: BinaryHeap<Reverse<Due>>,
    /// Chunks of places that were left with nothing scheduled.
    emptied: Vec<(SetKey, u32)>,
}

/// A set that the actor knows.
#[derive(Debug, Default)]
struct Known {
    /// `None` until the first visit.
    set: Option<Weak<dyn TimerSet>>,
    places: Places,
    due: DueTimers,
}

/// A set with a node or a due timer, which is not forgotten.
fn expect_known(sets: &mut [Option<Box<Known>>], set: SetKey) -> &mut Known {
    let known = sets[set.position()].as_deref_mut();
    known.expect("a set is forgotten once it has neither nodes nor due timers")
}

impl KeyedWheel {
    pub(super) fn new(slots: usize) -> Self {
        KeyedWheel {
            wheel: IndexWheel::new(slots),
            sets: Vec::new(),
            due_sets: VecDeque::new(),
            earliest: NEVER,
            visits: 0,
            reached: Vec::new(),
            notes: Vec::new(),
            found: BinaryHeap::new(),
            emptied: Vec::new(),
        }
    }

    /// Applies a note.
    pub(super) fn apply(&mut self, note: &Note) {
        let position = note.set.position();
        if position >= self.sets.len() {
            self.sets.resize_with(position + 1, || None);
        }
        // A key keeps its set while a note is left, so no note is for an earlier set.
        let known = self.sets[position].get_or_insert_default();
        if let Some(chunk) = known.places.apply(note, &mut self.wheel) {
            self.emptied.push((note.set, chunk));
        }
    }

    fn known(&mut self, set: SetKey) -> Option<&mut Known> {
        self.sets.get_mut(set.position())?.as_deref_mut()
    }

    /// The actor has parked: frees at most that many chunks of places (N7). Returns whether some
    /// are left.
    pub(super) fn free_emptied(&mut self, limit: usize) -> bool {
        for _ in 0..limit {
            let Some((set, chunk)) = self.emptied.pop() else {
                break;
            };
            if let Some(known) = self.known(set) {
                known.places.free(chunk);
            }
        }
        if self.emptied.is_empty() {
            self.emptied.shrink_to(KEPT_CAPACITY);
        }
        !self.emptied.is_empty()
    }

    /// Forgets a set that was dropped, when every command about it is applied. Returns whether it
    /// has: one with due timers has to be visited first.
    pub(super) fn try_forget(&mut self, set: SetKey) -> bool {
        if self.known(set).is_some_and(|known| !known.due.is_empty()) {
            return false;
        }
        let known = self.sets.get_mut(set.position());
        if let Some(mut known) = known.and_then(Option::take) {
            if known.places.has_listed() {
                self.emptied.retain(|&(listed, _)| listed != set);
            }
            known.places.clear(&mut self.wheel);
        }
        while self.sets.last().is_some_and(Option::is_none) {
            self.sets.pop();
        }
        if self.sets.len() <= self.sets.capacity() / 4 {
            self.sets.shrink_to_fit();
        }
        true
    }

    /// Fires the timers that are due by tick `until`: advances the wheel by at most `limit` timers,
    /// and processes at most twice as many in their sets. Returns the tick before which every timer
    /// has fired.
    pub(super) fn fire(
        &mut self,
        until: u64,
        limit: usize,
        turn: &Turn<'_>,
        backlog: &mut Backlog,
    ) -> u64 {
        let before = self.advance(until, limit);
        self.visit_due(before, 2 * limit, turn, backlog);
        // Not in each turn, if there are more sets than a turn visits.
        if self.visits >= self.due_sets.len() {
            self.visits = 0;
            self.earliest = self.ask_due_sets();
        }
        debug_assert!(self.earliest <= self.ask_due_sets(), "a lower bound");
        before.min(self.earliest)
    }

    /// No timer of a due set is due before this tick.
    fn ask_due_sets(&self) -> u64 {
        let due = self.due_sets.iter();
        let due = due.filter_map(|set| self.sets[set.position()].as_ref());
        let earliest = due.map(|known| known.due.earliest());
        earliest.min().unwrap_or(NEVER)
    }

    /// Takes the timers off the wheel that it reaches by tick `until`, as far as the budget goes.
    /// Returns the tick before which none is left.
    fn advance(&mut self, until: u64, mut budget: usize) -> u64 {
        while self.wheel.step(until, &mut self.reached, &mut budget) {
            while let Some((set, index)) = self.reached.pop() {
                let known = expect_known(&mut self.sets, set);
                known.places.reached(index);
                if known.due.is_empty() {
                    self.due_sets.push_back(set);
                }
                let tick = self.wheel.now();
                known.due.reach(index, tick);
                self.earliest = self.earliest.min(tick);
            }
        }
        self.wheel.done_before(until)
    }

    /// Visits sets in turn, and delivers timers that are due before tick `before`.
    fn visit_due(&mut self, before: u64, mut limit: usize, turn: &Turn<'_>, backlog: &mut Backlog) {
        // As many visits as there are sets, not counting those that leave more to process.
        let mut visits_left = self.due_sets.len();
        while visits_left > 0 && limit > 0 {
            visits_left -= 1;
            let Some(set) = self.due_sets.pop_front() else {
                return;
            };
            let processed = self.visit(set, before, limit, turn, backlog);
            let cost = processed.map_or(CONTENDED_COST, |processed| processed.max(1));
            limit = limit.saturating_sub(cost);
            self.visits += 1;
            let left = self.known(set).map_or(NEVER, |known| known.due.earliest());
            if left != NEVER {
                self.earliest = self.earliest.min(left);
                self.due_sets.push_back(set);
                visits_left += usize::from(processed.is_some_and(|processed| processed > 0));
            }
        }
    }

    /// Visits a set if it may have timers due before tick `before`. Returns how many timers it has
    /// processed, or `None` if another thread has locked the set or the list.
    fn visit(
        &mut self,
        set: SetKey,
        before: u64,
        limit: usize,
        turn: &Turn<'_>,
        backlog: &mut Backlog,
    ) -> Option<usize> {
        let known = expect_known(&mut self.sets, set);
        if known.due.reached.is_empty() && known.due.earliest() >= before {
            return Some(0);
        }
        if known.set.is_none() {
            known.set = Some(turn.shared.sets.try_get(set)?);
        }
        let Some(visited) = known.set.as_ref().and_then(Weak::upgrade) else {
            // It was dropped with its timers.
            known.due.clear();
            return Some(0);
        };
        let due = &mut known.due;
        if due.found.capacity() == 0 {
            mem::swap(&mut due.found, &mut self.found);
        }
        let processed = visited.visit(due, before, limit, &mut self.notes, turn);
        if due.found.is_empty() {
            self.found = mem::take(&mut due.found);
            self.found.shrink_to(KEPT_CAPACITY);
        }
        for note in self.notes.drain(..) {
            if let Some(chunk) = known.places.visited(&note, &mut self.wheel) {
                self.emptied.push((set, chunk));
            }
        }
        if let Some(set) = visited.give_back() {
            backlog.defer(Deferred::Forget(set));
        }
        processed
    }
}
