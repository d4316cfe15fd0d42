//! Operation scripts, played on a wheel and on a sorted set beside it: the oracle.
//!
//! The property tests make their scripts from a distribution, the fuzz target and the replay of its
//! corpus decode them from bytes. This file names nothing but what the module around it imports, so
//! both can include it: `Wheel` and `Token`, and `inspect`, which checks as much of the wheel as
//! the including crate can see.

use std::collections::BTreeSet;

use super::{CASCADE_LIMIT, Token, Wheel, inspect};

/// The geometries scripts are played on.
pub(super) const SLOTS: [usize; 7] = [2, 4, 8, 16, 64, 256, 4096];

/// A tick in a script.
#[derive(Debug, Clone, Copy)]
pub(super) enum When {
    /// This many ticks after the wheel's current one.
    In(u64),
    /// This many before it.
    Ago(u64),
    /// This many after `next_wake`, and so around the starts of buckets.
    AfterWake(u64),
    /// This many before that.
    BeforeWake(u64),
    /// This many after the earliest item.
    AfterEarliest(u64),
    /// This tick.
    At(u64),
}

/// The tick for which an item is scheduled.
#[derive(Debug, Clone, Copy)]
pub(super) enum Move {
    To(When),
    Later(u64),
    Earlier(u64),
    Same,
}

/// One step of a script. Items are named by the order in which they were inserted, modulo how many
/// there have been: stale ones are named as often as live ones.
#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    Insert(When),
    Remove(usize),
    RemoveTwice(usize),
    Reschedule(usize, Move),
    Touch(usize),
    /// Advances with this budget and drops the iterator after this many items.
    Advance {
        to: When,
        budget: usize,
        take: usize,
    },
}

/// An item of the wheel: its number, and how often it has been written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Item {
    id: usize,
    marks: u32,
}

/// The fate of an item.
#[derive(Debug, Clone, Copy)]
struct Ticket {
    token: Token,
    marks: u32,
    /// The tick it is scheduled for, while it is.
    tick: Option<u64>,
}

/// A wheel and what it should hold.
#[derive(Clone)]
pub(super) struct World {
    wheel: Wheel<Item>,
    oracle: BTreeSet<(u64, usize)>,
    tickets: Vec<Ticket>,
    levels: usize,
}

impl World {
    pub(super) fn new(slots: usize, origin: u64) -> Self {
        let world = World {
            wheel: Wheel::with_slots(slots, origin),
            oracle: BTreeSet::new(),
            tickets: Vec::new(),
            levels: (u64::BITS.div_ceil(slots.trailing_zeros())) as usize,
        };
        world.check();
        world
    }

    /// Plays one step and checks everything after it.
    pub(super) fn play(&mut self, op: Op) {
        match op {
            Op::Insert(when) => self.insert(when),
            Op::Remove(name) => self.remove(name),
            Op::RemoveTwice(name) => {
                self.remove(name);
                self.remove(name);
            }
            Op::Reschedule(name, to) => self.reschedule(name, to),
            Op::Touch(name) => self.touch(name),
            Op::Advance { to, budget, take } => {
                self.advance(self.tick(to), budget, take);
            }
        }
        self.check();
    }

    /// Drives the wheel to the end of time, from wake to wake.
    pub(super) fn finish(&mut self) {
        while let Some(wake) = self.wheel.next_wake() {
            let now = self.wheel.now();
            let out = self.advance(wake, usize::MAX, usize::MAX);
            assert!(!out.is_empty() || wake > now, "a wake without any effect");
            self.check();
        }
        assert!(self.oracle.is_empty(), "lost: {:?}", self.oracle);
        self.advance(u64::MAX, usize::MAX, usize::MAX);
        assert_eq!(self.wheel.now(), u64::MAX);
        self.check();
    }

    /// Advances to one tick at once on one copy and in parts on another. Asserts that the same
    /// items come out, at the same ticks.
    pub(super) fn cut(&self, to: u64, parts: &[(u64, usize)]) {
        let mut whole = self.clone();
        let target = whole.wheel.now().max(to);
        let at_once = whole.advance(to, usize::MAX, usize::MAX);
        assert_eq!(whole.wheel.now(), target);
        whole.check();

        let mut cut = self.clone();
        let mut in_parts = Vec::new();
        for &(part, budget) in parts {
            in_parts.extend(cut.advance(part.min(to), budget, usize::MAX));
            cut.check();
        }
        in_parts.extend(cut.advance(to, usize::MAX, usize::MAX));
        cut.check();

        let ticks = |out: &[(u64, usize)]| out.iter().map(|&(tick, _)| tick).collect::<Vec<_>>();
        assert_eq!(ticks(&at_once), ticks(&in_parts));
        let sorted = |mut out: Vec<(u64, usize)>| {
            out.sort_unstable();
            out
        };
        assert_eq!(sorted(at_once), sorted(in_parts));
        assert_eq!(whole.oracle, cut.oracle);
    }

    pub(super) fn tick(&self, when: When) -> u64 {
        let now = self.wheel.now();
        let wake = || self.wheel.next_wake().unwrap_or(now);
        match when {
            When::In(ticks) => now.saturating_add(ticks),
            When::Ago(ticks) => now.saturating_sub(ticks),
            When::AfterWake(ticks) => wake().saturating_add(ticks),
            When::BeforeWake(ticks) => wake().saturating_sub(ticks),
            When::AfterEarliest(ticks) => self
                .oracle
                .first()
                .map_or(now, |&(tick, _)| tick)
                .saturating_add(ticks),
            When::At(tick) => tick,
        }
    }

    fn insert(&mut self, when: When) {
        let (id, tick) = (self.tickets.len(), self.tick(when));
        let token = self.wheel.insert(tick, Item { id, marks: 0 });
        let tick = tick.max(self.wheel.now());
        self.oracle.insert((tick, id));
        self.tickets.push(Ticket {
            token,
            marks: 0,
            tick: Some(tick),
        });
    }

    /// The item that a script names, if there was any.
    fn named(&self, name: usize) -> Option<(usize, Ticket)> {
        let id = name.checked_rem(self.tickets.len())?;
        Some((id, self.tickets[id]))
    }

    fn remove(&mut self, name: usize) {
        let Some((id, ticket)) = self.named(name) else {
            return;
        };
        let item = self.wheel.remove(ticket.token);
        let marks = ticket.marks;
        assert_eq!(item, ticket.tick.map(|_| Item { id, marks }));
        self.gone(id);
    }

    fn reschedule(&mut self, name: usize, to: Move) {
        let Some((id, ticket)) = self.named(name) else {
            return;
        };
        let old = ticket.tick.unwrap_or(0);
        let tick = match to {
            Move::To(when) => self.tick(when),
            Move::Later(ticks) => old.saturating_add(ticks),
            Move::Earlier(ticks) => old.saturating_sub(ticks),
            Move::Same => old,
        };
        let rescheduled = self.wheel.reschedule(ticket.token, tick);
        assert_eq!(rescheduled, ticket.tick.is_some());
        if rescheduled {
            let tick = tick.max(self.wheel.now());
            assert!(self.oracle.remove(&(old, id)));
            self.oracle.insert((tick, id));
            self.tickets[id].tick = Some(tick);
        }
    }

    fn touch(&mut self, name: usize) {
        let Some((id, ticket)) = self.named(name) else {
            return;
        };
        let item = self.wheel.get_mut(ticket.token);
        assert_eq!(item.is_some(), ticket.tick.is_some());
        if let Some(item) = item {
            item.marks += 1;
            self.tickets[id].marks += 1;
        }
    }

    /// Advances, and drops the iterator after `take` items; returns the items that came out, by
    /// tick. Makes several calls if the wheel has to cascade too many items for one.
    fn advance(&mut self, to: u64, budget: usize, take: usize) -> Vec<(u64, usize)> {
        let limit = budget.min(take);
        let target = to.max(self.wheel.now());
        let rounds = self.oracle.len() * self.levels / CASCADE_LIMIT + 1;
        let mut all: Vec<(u64, usize)> = Vec::new();
        for _ in 0..rounds {
            let before = self.wheel.now();
            let done = all.len();
            let advance = self.wheel.advance(to, budget - done);
            let out: Vec<Item> = advance.take(take - done).collect();
            for item in out {
                let &(tick, _) = self.oracle.first().expect("more than there were");
                let ticket = self.tickets[item.id];
                assert_eq!(ticket.tick, Some(tick), "not in the order of the ticks");
                assert!(tick <= target, "early: {tick} at {target}");
                assert_eq!(item.marks, ticket.marks);
                self.gone(item.id);
                all.push((tick, item.id));
            }
            let now = self.wheel.now();
            assert!(before <= now && now <= target, "time: {before} -> {now}");
            if all.len() == limit {
                let last = all.last().map_or(before, |&(tick, _)| tick);
                assert_eq!(now, last, "time follows the items yielded");
                return all;
            }
            if now == target && self.wheel.next_wake() != Some(now) {
                let earliest = self.oracle.first();
                assert!(earliest.is_none_or(|&(tick, _)| tick > target), "late");
                return all;
            }
        }
        panic!("{rounds} calls should have been enough");
    }

    /// The item has left the wheel.
    fn gone(&mut self, id: usize) {
        if let Some(tick) = self.tickets[id].tick.take() {
            assert!(self.oracle.remove(&(tick, id)));
        }
    }

    /// Compares every answer of the wheel with the oracle's.
    fn check(&self) {
        inspect(&self.wheel);
        assert_eq!(self.wheel.len(), self.oracle.len());
        assert_eq!(self.wheel.is_empty(), self.oracle.is_empty());
        match (self.wheel.next_wake(), self.oracle.first()) {
            (Some(wake), Some(&(earliest, _))) => {
                assert!(wake >= self.wheel.now(), "{wake} is past");
                assert!(wake <= earliest, "{wake} misses {earliest}");
            }
            (wake, earliest) => assert!(wake.is_none() && earliest.is_none(), "{wake:?}"),
        }
        for (id, ticket) in self.tickets.iter().enumerate() {
            let item = ticket.tick.map(|_| Item {
                id,
                marks: ticket.marks,
            });
            assert_eq!(self.wheel.get(ticket.token), item.as_ref());
            assert_eq!(self.wheel.tick_of(ticket.token), ticket.tick);
        }
    }
}

/// Plays the script that the bytes spell, to the end. Any bytes are a script.
pub(super) fn play_bytes(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    // The smaller the ring, the more there is to happen, and the cheaper it is to check.
    let slots = match bytes.next().unwrap_or(0) % 16 {
        wide @ 12..=15 => SLOTS[usize::from(wide) - 9],
        narrow => SLOTS[usize::from(narrow) % 3],
    };
    let origin = bytes.ticks().unwrap_or(0);
    // Half of the origins lie at the end of time.
    let origin = if bytes.next().unwrap_or(0) % 2 == 0 {
        origin
    } else {
        u64::MAX - origin
    };
    let mut world = World::new(slots, origin);
    while let Some(op) = bytes.op() {
        world.play(op);
    }
    world.cut(
        world.tick(When::AfterEarliest(9)),
        &[(world.tick(When::AfterWake(0)), 1)],
    );
    world.finish();
}

/// The rest of a script. Every part of it is one byte, or one and eight for an arbitrary number of
/// ticks.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn ticks(&mut self) -> Option<u64> {
        Some(match self.next()? {
            small @ 0..=63 => u64::from(small),
            bits @ 64..=127 => (1 << (bits - 64)) - 1,
            bits @ 128..=191 => 1 << (bits - 128),
            bits @ 192..=254 => (1 << (bits - 192)) + 1,
            255 => {
                let (ticks, rest) = self.0.split_first_chunk()?;
                self.0 = rest;
                u64::from_le_bytes(*ticks)
            }
        })
    }

    fn when(&mut self) -> Option<When> {
        let kind = self.next()?;
        let ticks = self.ticks()?;
        Some(match kind % 8 {
            0..=2 => When::In(ticks),
            3 => When::Ago(ticks),
            4 => When::AfterWake(ticks),
            5 => When::BeforeWake(ticks),
            6 => When::AfterEarliest(ticks),
            _ => When::At(ticks),
        })
    }

    fn op(&mut self) -> Option<Op> {
        Some(match self.next()? % 12 {
            0..=3 => Op::Insert(self.when()?),
            4 => Op::Remove(self.next()?.into()),
            5 => Op::RemoveTwice(self.next()?.into()),
            6 => Op::Reschedule(self.next()?.into(), Move::To(self.when()?)),
            7 => {
                let name = self.next()?.into();
                let to = match self.next()? % 3 {
                    0 => Move::Later(self.ticks()?),
                    1 => Move::Earlier(self.ticks()?),
                    _ => Move::Same,
                };
                Op::Reschedule(name, to)
            }
            8 => Op::Touch(self.next()?.into()),
            9 => Op::Advance {
                to: self.when()?,
                budget: self.next()?.into(),
                take: self.next()?.into(),
            },
            _ => Op::Advance {
                to: self.when()?,
                budget: usize::MAX,
                take: usize::MAX,
            },
        })
    }
}
