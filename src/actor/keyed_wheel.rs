//! The sets of keyed timers as the actor knows them, and the wheel that it lends to each of them.

use std::mem;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slab::Slab;

use super::task::LOOKS_PER_TURN;
use crate::actor::advance::advance;
use crate::keyed::{AnySet, Delivered};
use crate::shared::turn::{Shelf, Turn};
use crate::wheel::Wheel;

/// Names a timer on the wheel: whose it is, and which of theirs.
#[derive(Debug, Clone, Copy)]
struct Item {
    /// The set's number.
    owner: NonZeroU32,
    slot: u32,
}

/// The sets that have, or had, timers on the wheel.
#[derive(Debug)]
pub(super) struct KeyedWheel {
    wheel: Wheel<Item>,
    records: Slab<Record>,
    /// The wheel's items that are looked at; kept for its memory.
    due: Vec<Item>,
    /// Those with timers that came off the wheel and were not delivered.
    ripe: Vec<NonZeroU32>,
    /// The slots of one set that are looked at; kept for its memory.
    slots: Vec<u32>,
}

#[derive(Debug)]
struct Record {
    set: Arc<dyn AnySet>,
    /// How many slots of it are on the wheel.
    nodes: usize,
    /// It is on the list of the ripe.
    ripe: bool,
    /// How many of its notes belong to the backlog as it was filled, and have not been attended to.
    quota: usize,
}

/// How far a set was attended to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attended {
    /// It has nothing noted any more; so many slots were.
    All(usize),
    /// All that was noted when this began; more was noted since.
    Enough(usize),
    /// The budget is used up.
    Part,
}

impl KeyedWheel {
    pub(super) fn new(slots: usize) -> Self {
        KeyedWheel {
            wheel: Wheel::new(slots),
            records: Slab::new(),
            due: Vec::new(),
            ripe: Vec::new(),
            slots: Vec::new(),
        }
    }

    /// When the wheel next has something to do.
    pub(super) fn next_wake(&self) -> Option<u64> {
        self.wheel.next_wake()
    }

    /// The wheel's current tick.
    pub(super) fn now(&self) -> u64 {
        self.wheel.now()
    }

    /// How many timers are on the wheel.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.wheel.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wheel.is_empty()
    }

    /// Whether memory of the wheel is left to give back.
    pub(super) fn has_spare(&self) -> bool {
        self.wheel.has_spare()
    }

    /// Attends to at most `budget` of the slots that the set has noted.
    ///
    /// Only what was noted by the time this began belongs to the present backlog; a flood of more has to wait.
    pub(super) fn attend(
        &mut self,
        set: &Arc<dyn AnySet>,
        budget: usize,
        turn: &Turn<'_>,
    ) -> Attended {
        let number = self.number_of(set);
        let record = &mut self.records[key(number)];
        let began = record.quota == 0;
        let limit = if began {
            budget
        } else {
            record.quota.min(budget)
        };
        let (set, mut lent) = record.lend(number, &mut self.wheel);
        let (n, left) = set.attend(limit, turn, &mut lent);
        record.quota = if began { left } else { record.quota - limit };
        let quota = record.quota;
        self.forget_if_over(number);
        match (quota, left) {
            (0, 0) => Attended::All(n),
            (0, _) => Attended::Enough(n),
            _ => Attended::Part,
        }
    }

    /// Looks at the timers that are filed by tick `until`, as far as the budget goes; true when there is more.
    pub(super) fn advance(&mut self, until: u64, budget: &mut usize, turn: &Turn<'_>) -> bool {
        let KeyedWheel {
            wheel,
            records,
            due,
            ripe,
            slots,
        } = self;
        advance(wheel, due, until, budget, |wheel, due| {
            for run in due.chunk_by(|one, next| one.owner == next.owner) {
                slots.clear();
                slots.extend(run.iter().map(|item| item.slot));
                let number = run[0].owner;
                let record = &mut records[key(number)];
                record.nodes -= run.len();
                let (set, mut lent) = record.lend(number, wheel);
                set.look(slots, turn, &mut lent);
                if !mem::replace(&mut record.ripe, true) {
                    ripe.push(number);
                }
            }
        })
    }

    /// Delivers what came off the wheel and is due before tick `before`; true when some of that is left.
    pub(super) fn deliver(&mut self, before: u64, turn: &Turn<'_>) -> bool {
        let mut limit = LOOKS_PER_TURN;
        let mut left = false;
        for number in mem::take(&mut self.ripe) {
            let record = &mut self.records[key(number)];
            let (set, mut lent) = record.lend(number, &mut self.wheel);
            let delivered = set.deliver(before, &mut limit, turn, &mut lent);
            left |= delivered == Delivered::More;
            if delivered == Delivered::All {
                record.ripe = false;
                self.forget_if_over(number);
            } else {
                self.ripe.push(number);
            }
        }
        // The next turn begins with the set that had to wait.
        self.ripe.reverse();
        left
    }

    /// The actor's number for a set; a new one if it has none.
    fn number_of(&mut self, set: &Arc<dyn AnySet>) -> NonZeroU32 {
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
            ripe: false,
            quota: 0,
        });
        number
    }

    /// Lets a set go that nobody uses any more.
    fn forget_if_over(&mut self, number: NonZeroU32) {
        let record = &self.records[key(number)];
        if record.nodes == 0 && record.quota == 0 && !record.ripe && record.set.is_over() {
            let record = self.records.remove(key(number));
            record.set.number().store(0, Ordering::Relaxed);
        }
    }
}

/// Where the record of a set with this number is.
fn key(number: NonZeroU32) -> usize {
    number.get() as usize - 1
}

impl Record {
    /// The set, and the wheel as it may use it.
    fn lend<'a>(
        &'a mut self,
        owner: NonZeroU32,
        wheel: &'a mut Wheel<Item>,
    ) -> (&'a dyn AnySet, Lent<'a>) {
        let nodes = &mut self.nodes;
        (
            &*self.set,
            Lent {
                wheel,
                owner,
                nodes,
            },
        )
    }
}

/// The wheel in the hands of one set.
struct Lent<'a> {
    wheel: &'a mut Wheel<Item>,
    owner: NonZeroU32,
    nodes: &'a mut usize,
}

impl Shelf for Lent<'_> {
    fn insert(&mut self, tick: u64, slot: u32) -> u32 {
        *self.nodes += 1;
        let owner = self.owner;
        self.wheel.insert(tick, Item { owner, slot }).index()
    }

    fn tick(&self, node: u32) -> u64 {
        let token = self.wheel.token_at(node);
        token.and_then(|t| self.wheel.tick_of(t)).unwrap_or(0)
    }

    fn reschedule(&mut self, node: u32, tick: u64) {
        if let Some(token) = self.wheel.token_at(node) {
            self.wheel.reschedule(token, tick);
        }
    }

    fn remove(&mut self, node: u32) {
        let token = self.wheel.token_at(node);
        if token.and_then(|t| self.wheel.remove(t)).is_some() {
            *self.nodes -= 1;
        }
    }
}
