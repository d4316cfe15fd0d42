//! The wheel of keyed timers and watches, and the sets they belong to.
//!
//! Notes are applied, and the wheel is advanced, without a lock. An index that the wheel reaches
//! goes onto the list of its set. The actor [visits](TimerSet::visit) each set with such a list, or
//! with timers that it has found due. It only tries to lock the set: one that is locked by another
//! thread is visited again in the next turn, and delays nothing but itself. The same goes for the
//! [list](SetList) in which it looks a set up at the first visit.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Weak;

use super::places::{Places, Placing, Timers};
use crate::panic::catch_panic;
use crate::shared::note::{Item, Note, SetKey};
use crate::shared::sets::SetList;
use crate::shared::timer_set::{Contended, DueHeap, TimerSet, Visit};
use crate::shared::turn::Turn;
use crate::sync::EXPLORED;
use crate::tick::NEVER;
use crate::wheel::Step;

/// The cost of an attempt to lock a set that is locked by another thread. The unit is one timer.
const CONTENDED_COST: usize = if EXPLORED { 1 } else { 64 };

/// See the module.
#[derive(Debug)]
pub(super) struct KeyedWheel {
    /// Others only read it.
    pub(super) wheel: Timers,
    /// By the position of the set's key. `None` until a note about the set is applied.
    sets: Vec<Option<Box<Known>>>,
    /// Sets to be visited, those first that have waited longest.
    due: VecDeque<SetKey>,
    /// Items that the wheel has just reached; kept for its memory.
    reached: Vec<Item>,
    /// Chunks of places that have to be watched: see [`Places::emptied`].
    emptied: Vec<(SetKey, u32)>,
}

/// A set that the actor knows.
#[derive(Debug, Default)]
struct Known {
    /// `None` until the first visit.
    set: Option<Weak<dyn TimerSet>>,
    places: Places,
    /// Indices that the wheel has reached since the last visit.
    reached: Vec<u32>,
    /// The tick at which it reached the first of them, if there are any.
    reached_at: u64,
    /// Timers that were found due.
    due: DueHeap,
    /// It is in the list of sets to be visited.
    is_listed: bool,
}

impl Known {
    /// No timer of the set that the wheel has reached is due before this tick; `NEVER` if there is
    /// none.
    fn first(&self) -> u64 {
        let due = self.due.peek().map_or(NEVER, |&Reverse(due)| due.tick);
        if self.reached.is_empty() {
            due
        } else {
            due.min(self.reached_at)
        }
    }
}

impl KeyedWheel {
    pub(super) fn new(slots: usize) -> Self {
        KeyedWheel {
            wheel: Timers::new(slots),
            sets: Vec::new(),
            due: VecDeque::new(),
            reached: Vec::new(),
            emptied: Vec::new(),
        }
    }

    /// Applies a note.
    pub(super) fn apply(&mut self, note: &Note) {
        let position = note.set.position();
        if position >= self.sets.len() {
            self.sets.resize_with(position + 1, || None);
        }
        // A key is not released while a note is left, so no note is for an earlier set.
        let known = self.sets[position].get_or_insert_default();
        known.places.apply(note, &mut self.wheel);
        (self.emptied).extend(known.places.emptied().map(|chunk| (note.set, chunk)));
    }

    fn known(&mut self, set: SetKey) -> Option<&mut Known> {
        self.sets.get_mut(set.position())?.as_deref_mut()
    }

    /// The chunks to be [freed](Self::free_chunk) when every command is applied that is on its way
    /// now.
    pub(super) fn emptied(&mut self) -> impl Iterator<Item = (SetKey, u32)> + '_ {
        self.emptied.drain(..)
    }

    /// Every command is applied that was on its way when the chunk was [emptied](Self::emptied).
    pub(super) fn free_chunk(&mut self, set: SetKey, chunk: u32) {
        let known = self.known(set);
        if known.is_some_and(|known| known.places.free(chunk)) {
            self.emptied.push((set, chunk));
        }
    }

    /// The set was dropped, and every command about it is applied.
    pub(super) fn forget(&mut self, set: SetKey) {
        if let Some(known) = self.sets.get_mut(set.position()) {
            if let Some(mut known) = known.take() {
                known.places.clear(&mut self.wheel);
            }
        }
        self.due.retain(|&other| other != set);
        self.emptied.retain(|&(other, _)| other != set);
        while self.sets.last().is_some_and(Option::is_none) {
            self.sets.pop();
        }
        if self.sets.len() <= self.sets.capacity() / 4 {
            self.sets.shrink_to_fit();
        }
    }

    /// Fires the timers that are due by tick `until`: advances the wheel by at most `limit` timers,
    /// and processes at most twice as many in their sets. Returns the tick before which every timer
    /// has fired.
    pub(super) fn fire(
        &mut self,
        until: u64,
        limit: usize,
        turn: &Turn<'_>,
        sets: &SetList,
    ) -> u64 {
        let before = self.advance(until, limit);
        self.visit_due(before, 2 * limit, turn, sets);
        let left = self.due.iter();
        let left = left.filter_map(|set| self.sets[set.position()].as_ref());
        left.map(|known| known.first()).fold(before, u64::min)
    }

    /// Takes the timers off the wheel that it reaches by tick `until`, as far as the budget goes.
    /// Returns the tick before which none is left.
    fn advance(&mut self, until: u64, mut budget: usize) -> u64 {
        loop {
            let step = self.wheel.step(until, &mut self.reached, &mut budget);
            let tick = self.wheel.now();
            while let Some(Item { set, index }) = self.reached.pop() {
                let known = self.sets[set.position()].as_deref_mut();
                let known = known.expect("a set that is forgotten has no node");
                known.places.reached(index);
                (self.emptied).extend(known.places.emptied().map(|chunk| (set, chunk)));
                if known.reached.is_empty() {
                    known.reached_at = tick;
                }
                known.reached.push(index);
                if !known.is_listed {
                    known.is_listed = true;
                    self.due.push_back(set);
                }
            }
            if step != Step::Batch {
                return self.wheel.done_before(step, until);
            }
        }
    }

    /// Visits sets in turn, and delivers timers that are due before tick `before`.
    fn visit_due(&mut self, before: u64, mut limit: usize, turn: &Turn<'_>, sets: &SetList) {
        // How many sets are left that were not visited in vain.
        let mut round = self.due.len();
        while round > 0 && limit > 0 {
            round -= 1;
            let Some(set) = self.due.pop_front() else {
                return;
            };
            let left = limit;
            let visited = self.visit(set, before, &mut limit, turn, sets);
            let has_processed = limit < left;
            if visited == Err(Contended) {
                limit = limit.saturating_sub(CONTENDED_COST);
            }
            let Some(known) = self.known(set) else {
                continue;
            };
            known.is_listed = known.first() < NEVER;
            if known.is_listed {
                self.due.push_back(set);
                round += usize::from(has_processed);
            }
        }
    }

    /// Visits a set that has timers due before tick `before`.
    fn visit(
        &mut self,
        set: SetKey,
        before: u64,
        limit: &mut usize,
        turn: &Turn<'_>,
        sets: &SetList,
    ) -> Result<(), Contended> {
        let Some(known) = self.sets[set.position()].as_deref_mut() else {
            return Ok(());
        };
        if known.reached.is_empty() && known.first() >= before {
            return Ok(());
        }
        if known.set.is_none() {
            known.set = sets.try_get(set)?;
        }
        let Known {
            places,
            reached,
            due,
            ..
        } = known;
        let Some(visited) = known.set.as_ref().and_then(Weak::upgrade) else {
            // It was dropped with its timers.
            reached.clear();
            due.clear();
            return Ok(());
        };
        let wheel = &mut Placing {
            set,
            places,
            wheel: &mut self.wheel,
        };
        let result = visited.visit(Visit {
            reached,
            due,
            before,
            limit,
            turn,
            wheel,
        });
        (self.emptied).extend(known.places.emptied().map(|chunk| (set, chunk)));
        // It may be the last reference: its drop drops keys and values.
        catch_panic("a key or a value panicked as its set was dropped", || {
            drop(visited);
        });
        result
    }
}
