//! The wheel of keyed timers and watches, and the sets they belong to.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::mem;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slab::Slab;

use crate::shared::timer_set::{Batch, Contended, Due, DueHeap, Item, LockMode, TimerSet, Timers};
use crate::shared::turn::Turn;
use crate::sync::EXPLORED;
use crate::tick::NEVER;
use crate::wheel::{BareWheel, Step};

/// How many dirty indices are processed under one hold of a set's lock.
const BATCH: usize = if EXPLORED { 2 } else { 256 };

/// A processed batch keeps memory for this many indices.
const KEPT_BATCH: usize = 1024;

/// The cost of an attempt to lock a set that is locked by another thread. The unit is one timer.
const CONTENDED_COST: usize = if EXPLORED { 1 } else { 64 };

/// The actor waits for the lock of a set after this many failed attempts. Meanwhile it does not advance the wheel beyond what
/// the set needs, so more of them would delay every timer.
pub(in crate::actor) const ATTEMPTS: u32 = if EXPLORED { 2 } else { 64 };

/// The list of sets with due timers keeps memory for this many.
const KEPT_DUE: usize = 64;

/// See the module.
///
/// # Locks that are taken
///
/// A thread that holds the lock of a set may be preempted for long. So the actor only tries to lock
/// a set, and on failure leaves it for its next turn. What it leaves keeps its place in the order
/// of ticks: dirty indices, taken or not, by the tick by which they are
/// [needed](Self::earliest_unprocessed); due timers in the list of due sets; items that came off
/// the wheel keep it from advancing, and the dirty indices of their set wait for them. After many
/// failed attempts the actor waits for the lock, at most once in a turn.
#[derive(Debug)]
pub(super) struct KeyedWheel {
    /// Others only read it.
    pub(super) wheel: Timers,
    records: Slab<Record>,
    /// Sets whose command was received and whose dirty indices were not taken.
    locked: VecDeque<Locked>,
    /// Batches with urgent indices, those that came first in front.
    urgent: VecDeque<InProgress>,
    /// Batches of which only the rest is left.
    rest: VecDeque<InProgress>,
    /// How many commands of sets were received. Each stands for a batch.
    received: u64,
    /// Memory for the next batch.
    spare_batch: Batch,
    /// Items that the wheel has reached and whose sets do not know it yet.
    expired: Vec<Item>,
    /// The indices of one set that the wheel has reached; kept for its memory.
    indices: Vec<u32>,
    /// Sets with timers that are due and were not delivered, by the tick of the first of them. An entry counts only while
    /// the set's record holds it.
    due: BinaryHeap<Reverse<DueSet>>,
    /// How many entries were put on that list.
    listed: u64,
}

#[derive(Debug)]
struct Record {
    set: Arc<dyn TimerSet>,
    /// How many of its batches are in progress.
    in_progress: usize,
    /// Its timers that are due and were not delivered.
    due: DueHeap,
    /// Its entry in the list of sets with timers that are due.
    listed: Option<DueSet>,
    /// How often in a row another thread had the lock of the set.
    attempts: u32,
}

/// A set in the list of those with due timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct DueSet {
    /// No timer of the set is due before this tick.
    tick: u64,
    /// The number of the entry: sets that are due together take turns.
    entry: u64,
    set: NonZeroU32,
}

/// A set that was locked when its dirty indices should have been taken.
#[derive(Debug)]
struct Locked {
    set: NonZeroU32,
    /// The number of the batch.
    number: u64,
}

/// Dirty indices that were taken from a set, and how far they are processed.
#[derive(Debug)]
struct InProgress {
    set: NonZeroU32,
    /// The number of the batch.
    number: u64,
    batch: Batch,
    /// How many of the urgent ones, and of the rest, are processed.
    urgent: usize,
    rest: usize,
    /// The set has ended.
    is_over: bool,
}

/// Which indices of a batch are to be processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Urgent,
    All,
}

impl InProgress {
    /// None of the indices that are left is needed before this tick.
    fn earliest(&self) -> u64 {
        if self.urgent < self.batch.urgent.len() {
            self.batch.earliest
        } else {
            self.batch.rest_earliest
        }
    }

    /// The next indices to process, at most `limit`, and how far the processing has come in their list. `None` when that
    /// part is processed.
    fn next(&mut self, part: Part, limit: usize) -> Option<(&[u32], &mut usize)> {
        let Batch { urgent, rest, .. } = &self.batch;
        let (list, processed) = if self.urgent < urgent.len() {
            (urgent, &mut self.urgent)
        } else if part == Part::All && self.rest < rest.len() {
            (rest, &mut self.rest)
        } else {
            return None;
        };
        let left = &list[*processed..];
        Some((&left[..left.len().min(limit)], processed))
    }
}

impl KeyedWheel {
    /// With as many slots as the other wheel, and at the same tick.
    pub(super) fn beside<T>(other: &BareWheel<T>) -> Self {
        KeyedWheel {
            wheel: Timers::beside(other),
            records: Slab::new(),
            locked: VecDeque::new(),
            urgent: VecDeque::new(),
            rest: VecDeque::new(),
            received: 0,
            spare_batch: Batch::default(),
            expired: Vec::new(),
            indices: Vec::new(),
            due: BinaryHeap::new(),
            listed: 0,
        }
    }

    /// Whether there are dirty indices whose command was received and that are not processed yet.
    pub(super) fn has_unprocessed(&self) -> bool {
        !(self.locked.is_empty() && self.urgent.is_empty() && self.rest.is_empty())
    }

    /// The earliest tick by which one of these is needed.
    pub(super) fn earliest_unprocessed(&self) -> u64 {
        if !self.has_unprocessed() {
            return NEVER;
        }
        let locked = |locked: &Locked| self.records[key(locked.set)].set.earliest();
        let not_taken = self.locked.iter().map(locked).min().unwrap_or(NEVER);
        let taken = self
            .in_progress()
            .map(InProgress::earliest)
            .min()
            .unwrap_or(NEVER);
        not_taken.min(taken)
    }

    /// How many commands of sets were received.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// How many commands, from the first one on, have had their dirty indices processed. Those of
    /// later commands may be processed too.
    pub(super) fn processed(&self) -> u64 {
        let locked = self.locked.iter().map(|locked| locked.number);
        let in_progress = self.in_progress().map(|current| current.number);
        locked.chain(in_progress).min().unwrap_or(self.received)
    }

    fn in_progress(&self) -> impl Iterator<Item = &InProgress> {
        self.urgent.iter().chain(&self.rest)
    }

    /// A set's command was received: takes its dirty indices, and processes the urgent ones as far
    /// as the budget allows.
    pub(super) fn receive(&mut self, set: &Arc<dyn TimerSet>, budget: &mut usize, turn: &Turn<'_>) {
        let set = self.number_of(set);
        self.records[key(set)].in_progress += 1;
        let number = self.received;
        self.received += 1;
        self.begin_batch(Locked { set, number }, budget, turn);
    }

    /// Takes the dirty indices of a set, and processes the urgent ones as far as the budget allows.
    fn begin_batch(&mut self, from: Locked, budget: &mut usize, turn: &Turn<'_>) {
        let mut batch = mem::take(&mut self.spare_batch);
        let record = &mut self.records[key(from.set)];
        let taken = (record.set).take_dirty(&mut batch, record.lock_mode(turn));
        let Ok(is_over) = record.attempted(taken) else {
            *budget = budget.saturating_sub(CONTENDED_COST);
            self.spare_batch = batch;
            self.locked.push_back(from);
            return;
        };
        if record.in_progress > 1 {
            // An index that was dirty already is in an earlier batch, and may be needed earlier by now.
            let in_progress = self.urgent.iter_mut().chain(&mut self.rest);
            for other in in_progress.filter(|other| other.set == from.set) {
                other.batch.lower(&batch);
            }
        }
        let current = InProgress {
            set: from.set,
            number: from.number,
            batch,
            urgent: 0,
            rest: 0,
            is_over,
        };
        self.process_batch(current, Part::Urgent, budget, turn);
    }

    /// Takes the dirty indices of sets that were locked in earlier turns, and processes the urgent
    /// ones as far as the budget allows.
    pub(super) fn process_urgent(&mut self, budget: &mut usize, turn: &Turn<'_>) {
        for _ in 0..self.locked.len() {
            if *budget == 0 {
                return;
            }
            let Some(from) = self.locked.pop_front() else {
                return;
            };
            self.begin_batch(from, budget, turn);
        }
        for _ in 0..self.urgent.len() {
            if *budget == 0 {
                return;
            }
            let Some(current) = self.urgent.pop_front() else {
                return;
            };
            self.process_batch(current, Part::Urgent, budget, turn);
        }
    }

    /// Processes the other indices in progress, as far as the budget allows.
    pub(super) fn process_rest(&mut self, budget: &mut usize, turn: &Turn<'_>) {
        for _ in 0..self.rest.len() {
            if *budget == 0 {
                return;
            }
            let Some(current) = self.rest.pop_front() else {
                return;
            };
            self.process_batch(current, Part::All, budget, turn);
        }
    }

    /// Processes some of the indices, and keeps the others in progress.
    fn process_batch(
        &mut self,
        mut current: InProgress,
        part: Part,
        budget: &mut usize,
        turn: &Turn<'_>,
    ) {
        let number = current.set;
        // An index that was marked again may be needed earlier than its first batch says. Then a
        // later batch lists it too.
        let earliest = self.earliest_unprocessed().min(current.earliest());
        let may_process = self.catch_up_with(number, turn);
        if !may_process {
            *budget = budget.saturating_sub(CONTENDED_COST);
        }
        let record = &mut self.records[key(number)];
        while may_process && *budget > 0 {
            let Some((indices, processed)) = current.next(part, BATCH.min(*budget)) else {
                break;
            };
            let lock_mode = record.lock_mode(turn);
            let result = (record.set).process(indices, earliest, turn, &mut self.wheel, lock_mode);
            let Ok(is_over) = record.attempted(result) else {
                *budget = budget.saturating_sub(CONTENDED_COST);
                break;
            };
            *budget -= indices.len();
            *processed += indices.len();
            current.is_over = is_over;
        }
        if current.urgent < current.batch.urgent.len() {
            self.urgent.push_back(current);
        } else if current.rest < current.batch.rest.len() {
            self.rest.push_back(current);
        } else {
            record.in_progress -= 1;
            current.batch.clear(KEPT_BATCH);
            self.spare_batch = current.batch;
            self.forget_if_over(number, current.is_over);
        }
    }

    /// Whether the dirty indices of a set may be processed. An index that came off the wheel and is
    /// not processed yet still names its node, which another index may have by now. So such indices
    /// come first.
    fn catch_up_with(&mut self, number: NonZeroU32, turn: &Turn<'_>) -> bool {
        let is_left = |expired: &[Item]| expired.iter().any(|item| item.set == number);
        if !is_left(&self.expired) {
            return true;
        }
        // It fails at the first set that is locked, which may be another one.
        let _ = self.process_expired(turn);
        !is_left(&self.expired)
    }

    /// Fires the timers that are due by tick `until`: processes at most `limit`, and delivers as many. Returns the tick
    /// before which every timer has fired, and whether there may be more.
    pub(super) fn fire(&mut self, until: u64, limit: usize, turn: &Turn<'_>) -> (u64, bool) {
        let is_left = self.advance(until, limit, turn);
        // A wheel that stopped may have more timers at its current tick.
        let before = (self.wheel.now() + u64::from(!is_left)).min(until + 1);
        if self.due.is_empty() {
            return (before, is_left);
        }
        self.deliver(before, limit, turn);
        match self.due.peek() {
            Some(&Reverse(first)) if first.tick < before => (first.tick, true),
            _ => (before, is_left),
        }
    }

    /// Processes the timers that the wheel reaches by tick `until`, as far as the budget goes. Returns whether there are
    /// more.
    fn advance(&mut self, until: u64, mut budget: usize, turn: &Turn<'_>) -> bool {
        loop {
            if self.process_expired(turn).is_err() {
                return true;
            }
            match self.wheel.step(until, &mut self.expired, &mut budget) {
                Step::Batch => {}
                Step::More => return true,
                Step::Done => return false,
            }
        }
    }

    /// Processes the items that the wheel has reached.
    fn process_expired(&mut self, turn: &Turn<'_>) -> Result<(), Contended> {
        while let Some(&Item { set: number, .. }) = self.expired.first() {
            let run = self.expired.iter().take_while(|item| item.set == number);
            self.indices.clear();
            self.indices.extend(run.map(|item| item.index));
            let record = &mut self.records[key(number)];
            let lock_mode = record.lock_mode(turn);
            let (wheel, due) = (&mut self.wheel, &mut record.due);
            let result =
                (record.set).process_expirations(&self.indices, turn, wheel, due, lock_mode);
            let is_over = record.attempted(result)?;
            self.expired.drain(..self.indices.len());
            self.list_due(number);
            self.forget_if_over(number, is_over);
        }
        Ok(())
    }

    /// Delivers the timers that are due before tick `before`, at most `limit`.
    fn deliver(&mut self, before: u64, mut limit: usize, turn: &Turn<'_>) {
        let mut contended = Vec::new();
        while let Some(&Reverse(first)) = self.due.peek() {
            let number = first.set;
            let record = self.records.get_mut(key(number));
            let Some(record) = record.filter(|record| record.listed == Some(first)) else {
                self.due.pop();
                continue;
            };
            if first.tick >= before || limit == 0 {
                break;
            }
            self.due.pop();
            record.listed = None;
            let lock_mode = record.lock_mode(turn);
            let left = limit;
            let (wheel, due) = (&mut self.wheel, &mut record.due);
            let result = (record.set).deliver(before, &mut limit, turn, wheel, due, lock_mode);
            let Ok(is_over) = record.attempted(result) else {
                limit = limit.saturating_sub(CONTENDED_COST);
                contended.push(number);
                continue;
            };
            // Checking a set that has nothing to deliver any more also counts against the limit.
            limit = limit.min(left - 1);
            self.list_due(number);
            self.forget_if_over(number, is_over);
        }
        for number in contended {
            self.list_due(number);
        }
        if self.due.is_empty() {
            self.due.shrink_to(KEPT_DUE);
        }
    }

    /// Lists a set by its first due timer, unless it is listed so already.
    fn list_due(&mut self, number: NonZeroU32) {
        let record = &mut self.records[key(number)];
        let Some(&Reverse(Due { tick, .. })) = record.due.peek() else {
            return;
        };
        if record.listed.is_none_or(|listed| tick < listed.tick) {
            let entry = DueSet {
                tick,
                entry: self.listed,
                set: number,
            };
            self.listed += 1;
            record.listed = Some(entry);
            self.due.push(Reverse(entry));
        }
    }

    /// The actor's number for a set; a new one if it has none.
    fn number_of(&mut self, set: &Arc<dyn TimerSet>) -> NonZeroU32 {
        if let Some(number) = NonZeroU32::new(set.number().load(Ordering::Relaxed)) {
            return number;
        }
        let vacant = self.records.vacant_entry();
        // Zero stands for no number.
        let number = u32::try_from(vacant.key()).unwrap_or(u32::MAX);
        let number = NonZeroU32::MIN.saturating_add(number);
        set.number().store(number.get(), Ordering::Relaxed);
        vacant.insert(Record {
            set: Arc::clone(set),
            in_progress: 0,
            due: DueHeap::new(),
            listed: None,
            attempts: 0,
        });
        number
    }

    /// Drops the record of a set that has ended and has nothing here.
    fn forget_if_over(&mut self, number: NonZeroU32, is_over: bool) {
        let record = &self.records[key(number)];
        if is_over && record.in_progress == 0 && record.listed.is_none() {
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
    /// Whether the actor waits for the lock of the set.
    fn lock_mode(&self, turn: &Turn<'_>) -> LockMode {
        if self.attempts >= ATTEMPTS && turn.may_wait() {
            LockMode::Block
        } else {
            LockMode::Try
        }
    }

    /// Counts an attempt to lock the set.
    fn attempted<T>(&mut self, result: Result<T, Contended>) -> Result<T, Contended> {
        self.attempts = if result.is_ok() { 0 } else { self.attempts + 1 };
        result
    }
}
