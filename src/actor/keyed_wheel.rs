//! The wheel of keyed timers and watches, and the sets they belong to.

use std::mem;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slab::Slab;

use super::advance::{Step, step};
use crate::shared::timer_set::{Batch, Delivery, DueHeap, SetWheel, TimerSet};
use crate::shared::turn::Turn;
use crate::sync::EXPLORED;
use crate::tick::NEVER;
use crate::wheel::BareWheel;

/// The most dirty indices that are processed under one hold of a set's lock.
const BATCH: usize = if EXPLORED { 2 } else { 256 };

/// Indices that are needed within this many ticks are processed before all others.
const HORIZON: u64 = if EXPLORED { 4 } else { 256 };

/// A processed batch keeps memory for this many indices.
const KEPT_BATCH: usize = 1024;

/// A timer on the wheel: its set, and its index there.
#[derive(Debug, Clone, Copy)]
struct Item {
    /// The set's number.
    set: NonZeroU32,
    index: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct KeyedWheel {
    wheel: BareWheel<Item>,
    records: Slab<Record>,
    /// The set whose dirty indices are being processed. At most one: the next command waits for it.
    in_hand: Option<InHand>,
    /// Memory for the next batch.
    spare_batch: Batch,
    /// The items that the wheel has reached; kept for its memory.
    expired: Vec<Item>,
    /// The indices of one set that the wheel has reached; kept for its memory.
    indices: Vec<u32>,
    /// Sets with timers that are due and were not delivered.
    due: Vec<NonZeroU32>,
}

#[derive(Debug)]
struct Record {
    set: Arc<dyn TimerSet>,
    /// How many of its indices are on the wheel.
    nodes: usize,
    /// Its timers that are due and were not delivered.
    due: DueHeap,
    /// It is in the list of sets with timers that are due.
    is_due: bool,
}

/// Dirty indices that were taken from a set, and how far they are processed.
#[derive(Debug)]
struct InHand {
    set: NonZeroU32,
    batch: Batch,
    /// How many of the urgent ones, and of the rest, are processed.
    urgent: usize,
    rest: usize,
}

impl InHand {
    /// The next indices to process, at most `limit`, and how far the processing has come in their list.
    fn next(&mut self, limit: usize) -> (&[u32], &mut usize) {
        let Batch { urgent, rest, .. } = &self.batch;
        let (list, processed) = if self.urgent < urgent.len() {
            (urgent, &mut self.urgent)
        } else {
            (rest, &mut self.rest)
        };
        let left = &list[*processed..];
        (&left[..left.len().min(limit)], processed)
    }

    fn is_processed(&self) -> bool {
        self.urgent + self.rest == self.batch.len()
    }
}

impl KeyedWheel {
    pub(super) fn new(slots: usize) -> Self {
        KeyedWheel {
            wheel: BareWheel::new(slots),
            records: Slab::new(),
            in_hand: None,
            spare_batch: Batch::default(),
            expired: Vec::new(),
            indices: Vec::new(),
            due: Vec::new(),
        }
    }

    /// The tick at which the wheel next has something to do.
    pub(super) fn next_wake(&self) -> Option<u64> {
        self.wheel.next_wake()
    }

    /// The wheel's current tick.
    pub(super) fn now(&self) -> u64 {
        self.wheel.now()
    }

    /// How many indices are on the wheel.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.wheel.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wheel.is_empty()
    }

    /// Whether the wheel has memory to give back.
    pub(super) fn has_spare(&self) -> bool {
        self.wheel.has_spare()
    }

    /// Whether dirty indices were taken from their set and are not processed yet.
    pub(super) fn has_unprocessed(&self) -> bool {
        self.in_hand.is_some()
    }

    /// The earliest tick by which an index is needed that was taken from its set and is not processed yet.
    pub(super) fn earliest_unprocessed(&self) -> u64 {
        match &self.in_hand {
            None => NEVER,
            Some(hand) if hand.urgent < hand.batch.urgent.len() => hand.batch.earliest,
            Some(hand) => hand.batch.rest_earliest,
        }
    }

    /// A set's command was received: takes its dirty indices in hand. The ones before must be processed.
    pub(super) fn receive(&mut self, set: &Arc<dyn TimerSet>, turn: &Turn<'_>) {
        debug_assert!(self.in_hand.is_none(), "the last batch was processed");
        let number = self.number_of(set);
        let mut batch = mem::take(&mut self.spare_batch);
        set.take_dirty(&mut batch, turn.tick.saturating_add(HORIZON));
        self.in_hand = Some(InHand {
            set: number,
            batch,
            urgent: 0,
            rest: 0,
        });
    }

    /// Processes the dirty indices in hand, as far as the budget goes. Returns whether some are left.
    pub(super) fn process(&mut self, budget: &mut usize, turn: &Turn<'_>) -> bool {
        let Some(mut hand) = self.in_hand.take() else {
            return false;
        };
        let number = hand.set;
        let record = &mut self.records[key(number)];
        while !hand.is_processed() && *budget > 0 {
            let (indices, processed) = hand.next(BATCH.min(*budget));
            let (set, mut wheel) = record.lend(number, &mut self.wheel);
            set.process(indices, turn, &mut wheel);
            *processed += indices.len();
            *budget -= indices.len();
        }
        if !hand.is_processed() {
            self.in_hand = Some(hand);
            return true;
        }
        let Batch { urgent, rest, .. } = &mut hand.batch;
        urgent.clear();
        rest.clear();
        urgent.shrink_to(KEPT_BATCH);
        rest.shrink_to(KEPT_BATCH);
        self.spare_batch = hand.batch;
        self.forget_if_over(number);
        false
    }

    /// Processes the timers that the wheel reaches by tick `until`, as far as the budget goes. Returns whether there are
    /// more.
    pub(super) fn advance(&mut self, until: u64, budget: &mut usize, turn: &Turn<'_>) -> bool {
        loop {
            match step(&mut self.wheel, &mut self.expired, until, budget) {
                Step::Batch => self.process_expired(turn),
                Step::More => return true,
                Step::Done => return false,
            }
        }
    }

    /// Processes the items that the wheel has reached.
    fn process_expired(&mut self, turn: &Turn<'_>) {
        let KeyedWheel {
            wheel,
            records,
            expired,
            indices,
            due,
            ..
        } = self;
        for run in expired.chunk_by(|one, next| one.set == next.set) {
            indices.clear();
            indices.extend(run.iter().map(|item| item.index));
            let number = run[0].set;
            let record = &mut records[key(number)];
            record.nodes -= run.len();
            let (set, mut wheel) = record.lend(number, wheel);
            set.process_expirations(indices, turn, &mut wheel);
            if !mem::replace(&mut record.is_due, true) {
                due.push(number);
            }
        }
        expired.clear();
    }

    /// Delivers the timers that are due before tick `before`, at most `limit`. Returns whether some of them are left.
    pub(super) fn deliver(&mut self, before: u64, mut limit: usize, turn: &Turn<'_>) -> bool {
        let mut left = false;
        for number in mem::take(&mut self.due) {
            let record = &mut self.records[key(number)];
            let (set, mut wheel) = record.lend(number, &mut self.wheel);
            let delivery = set.deliver(before, &mut limit, turn, &mut wheel);
            left |= delivery == Delivery::More;
            if delivery == Delivery::Done {
                record.is_due = false;
                self.forget_if_over(number);
            } else {
                self.due.push(number);
            }
        }
        // The next turn begins with the set that had to wait.
        self.due.reverse();
        left
    }

    /// The actor's number for a set; a new one if it has none.
    fn number_of(&mut self, set: &Arc<dyn TimerSet>) -> NonZeroU32 {
        if let Some(number) = NonZeroU32::new(set.number().load(Ordering::Relaxed)) {
            return number;
        }
        let vacant = self.records.vacant_entry();
        // Zero means none.
        let number = u32::try_from(vacant.key()).unwrap_or(u32::MAX);
        let number = NonZeroU32::MIN.saturating_add(number);
        set.number().store(number.get(), Ordering::Relaxed);
        vacant.insert(Record {
            set: Arc::clone(set),
            nodes: 0,
            due: DueHeap::new(),
            is_due: false,
        });
        number
    }

    /// Drops the record of a set that is over and has nothing on the wheel.
    fn forget_if_over(&mut self, number: NonZeroU32) {
        let record = &self.records[key(number)];
        let is_in_hand = self.in_hand.as_ref().is_some_and(|hand| hand.set == number);
        if record.nodes == 0 && !record.is_due && !is_in_hand && record.set.is_over() {
            let record = self.records.remove(key(number));
            record.set.number().store(0, Ordering::Relaxed);
        }
    }
}

/// The position of the record of a set with this number.
fn key(number: NonZeroU32) -> usize {
    number.get() as usize - 1
}

impl Record {
    /// The set, and the wheel as it may use it.
    fn lend<'a>(
        &'a mut self,
        number: NonZeroU32,
        wheel: &'a mut BareWheel<Item>,
    ) -> (&'a dyn TimerSet, Lent<'a>) {
        let lent = Lent {
            wheel,
            number,
            nodes: &mut self.nodes,
            due: &mut self.due,
        };
        (&*self.set, lent)
    }
}

/// The wheel and the heap of due timers, lent to one set.
struct Lent<'a> {
    wheel: &'a mut BareWheel<Item>,
    number: NonZeroU32,
    nodes: &'a mut usize,
    due: &'a mut DueHeap,
}

impl SetWheel for Lent<'_> {
    fn insert(&mut self, tick: u64, index: u32) -> u32 {
        *self.nodes += 1;
        let set = self.number;
        self.wheel.insert(tick, Item { set, index })
    }

    fn tick(&self, node: u32) -> u64 {
        self.wheel.tick_of(node).unwrap_or(0)
    }

    fn reschedule(&mut self, node: u32, tick: u64) {
        self.wheel.reschedule(node, tick);
    }

    fn remove(&mut self, node: u32) {
        if self.wheel.remove(node).is_some() {
            *self.nodes -= 1;
        }
    }

    fn due(&mut self) -> &mut DueHeap {
        self.due
    }
}
