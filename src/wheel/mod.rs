//! The hierarchical timing wheel: a pure data structure that takes ticks in and hands items out.
//!
//! It knows no clock, no runtime, no thread and no logger. Time is a `u64` count of ticks that the caller passes to
//! [`Wheel::advance`]; the caller decides how long a tick is. This crate's actor drives one, and so can any other event
//! loop.
//!
//! # How it works
//!
//! The wheel is a row of *levels*. Each level is a ring of `slots` buckets; a bucket of level *n* is `slots^n` ticks
//! wide, so level *n* spans `slots` times as much time as level *n - 1*. An item scheduled for tick `d` goes
//! into the lowest level whose window reaches it:
//!
//! ```text
//! unit(n, t) = t / slots^n
//! level      = the first n with  unit(n, d) - unit(n, now) < slots
//! bucket     = unit(level, d) % slots
//! ```
//!
//! The window of a level slides with the current time; it is not a fixed page. When time reaches the start of a bucket of
//! a higher level, the items in it *cascade*: each goes to a lower level, or is due. An item cascades at most once per
//! level, and far items cost nothing until then.
//!
//! A level is made when the first item is scheduled that far ahead. With 64 slots, eleven levels reach `u64::MAX` ticks.
//!
//! # A worked example
//!
//! Four slots, the current tick is 0. The ranges are the ticks a bucket stands for.
//!
//! | level | width | bucket 0 | bucket 1 | bucket 2 | bucket 3 |
//! |---|---|---|---|---|---|
//! | 0 | 1 | `[0,1)` | `[1,2)` | `[2,3)` | `[3,4)` |
//! | 1 | 4 | (now) | `[4,8)` | `[8,12)` | `[12,16)` |
//! | 2 | 16 | (now) | `[16,32)` | `[32,48)` | `[48,64)` |
//!
//! An item scheduled for tick 9 is too far for level 0 and goes to bucket 2 of level 1. At tick 6 the windows have slid:
//!
//! | level | width | bucket 0 | bucket 1 | bucket 2 | bucket 3 |
//! |---|---|---|---|---|---|
//! | 0 | 1 | `[8,9)` | `[9,10)` | `[6,7)` | `[7,8)` |
//! | 1 | 4 | `[16,20)` | (now) | `[8,12)` | `[12,16)` |
//! | 2 | 16 | (now) | `[16,32)` | `[32,48)` | `[48,64)` |
//!
//! A second item for tick 9 goes straight to bucket 1 of level 0. The first is still in `[8,12)`, whose start, 8, is the
//! next tick at which there is anything to do: [`Wheel::next_wake`]. At 8 the first item cascades to bucket 1 of level 0,
//! and at 9 both come out. At tick 7 there is nothing to do, and the caller need not wake.
//!
//! # Source
//!
//! G. Varghese and T. Lauck, *Hashed and Hierarchical Timing Wheels* (1987), in the form Apache Kafka gave it: sliding
//! windows, overflow levels on demand, and a clock driven by the next non-empty bucket instead of a periodic tick. Where
//! Kafka keeps its buckets in a queue ordered by time, this wheel keeps a bitmap for each level.

mod arena;
mod chunk;
mod level;
mod node;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::RangeInclusive;

use arena::Arena;
use level::Level;

pub use arena::Token;

/// How many items one call of [`Wheel::advance`] cascades at most.
///
/// Cascading takes tens of nanoseconds an item, so this keeps a call far below a millisecond even when it reaches a bucket
/// with millions of items.
const CASCADE_LIMIT: usize = 4096;

/// The numbers of slots a wheel can have; only the powers of two among them.
pub(crate) const SLOTS: RangeInclusive<usize> = 2..=4096;

/// A hierarchical timing wheel over `u64` ticks. The [module](self) explains how it works.
///
/// Inserting and removing are O(1), amortised over the growth of its memory. Advancing is O(1) per item and level, however
/// many ticks have passed.
///
/// # Examples
///
/// ```
/// use tickwheel::wheel::Wheel;
///
/// let mut wheel = Wheel::new(64);
/// wheel.insert(5, "tea");
/// let eggs = wheel.insert(7, "eggs");
/// wheel.insert(1_000_000, "taxes");
///
/// assert_eq!(wheel.next_wake(), Some(5));
/// assert_eq!(wheel.advance(6, usize::MAX).collect::<Vec<_>>(), ["tea"]);
///
/// assert_eq!(wheel.remove(eggs), Some("eggs"));
/// assert_eq!(wheel.remove(eggs), None);
/// assert_eq!(wheel.len(), 1);
/// ```
#[derive(Clone)]
pub struct Wheel<T> {
    /// The tick up to which everything has been handed out. Never goes backwards.
    now: u64,
    /// log2 of the number of slots.
    slot_bits: u32,
    /// Bit *n* is set when level *n* holds anything.
    occupied_levels: u64,
    levels: Vec<Level>,
    arena: Arena<T>,
}

impl<T> Wheel<T> {
    /// Makes an empty wheel at tick 0.
    ///
    /// # Panics
    ///
    /// Panics if `slots` is not a power of two from 2 to 4096.
    pub fn new(slots: usize) -> Self {
        Self::starting_at(slots, 0)
    }

    /// Makes an empty wheel whose current tick is `now`.
    ///
    /// # Panics
    ///
    /// Panics if `slots` is not a power of two from 2 to 4096.
    pub fn starting_at(slots: usize, now: u64) -> Self {
        assert!(
            slots.is_power_of_two() && SLOTS.contains(&slots),
            "slots is {slots}, but must be a power of two from {} to {}",
            SLOTS.start(),
            SLOTS.end(),
        );
        Wheel {
            now,
            slot_bits: slots.trailing_zeros(),
            occupied_levels: 0,
            levels: Vec::new(),
            arena: Arena::new(),
        }
    }

    /// The current tick. Every item due before it has been handed out.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// How many items are in the wheel.
    pub fn len(&self) -> usize {
        self.arena.len()
    }

    /// Whether the wheel holds no item.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Schedules `item` to be handed out at `tick`. A tick that is not in the future is due at once.
    ///
    /// # Panics
    ///
    /// Panics if the wheel already holds 2<sup>32</sup> - 4096 items.
    #[doc(alias = "schedule")]
    pub fn insert(&mut self, tick: u64, item: T) -> Token {
        let token = self.arena.insert(item);
        self.link(token.index(), tick);
        token
    }

    /// Removes the item, whose memory serves the next ones. `None` if the token is stale.
    #[doc(alias = "cancel")]
    pub fn remove(&mut self, token: Token) -> Option<T> {
        let index = self.arena.find(token)?;
        self.unlink(index);
        Some(self.arena.remove(index))
    }

    /// Schedules the item for another tick, earlier or later. Its token stays valid.
    ///
    /// Returns `false` and does nothing if the token is stale.
    #[doc(alias = "reset")]
    pub fn reschedule(&mut self, token: Token, tick: u64) -> bool {
        let Some(index) = self.arena.find(token) else {
            return false;
        };
        self.unlink(index);
        self.link(index, tick);
        true
    }

    /// The item behind the token, if it is still in the wheel.
    pub fn get(&self, token: Token) -> Option<&T> {
        self.arena.item(self.arena.find(token)?)
    }

    /// The item behind the token, if it is still in the wheel.
    pub fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let index = self.arena.find(token)?;
        self.arena.item_mut(index)
    }

    /// The tick for which the item is scheduled, if it still is.
    pub fn tick_of(&self, token: Token) -> Option<u64> {
        Some(self.arena.tick(self.arena.find(token)?))
    }

    /// The token of the item at `index`, for an owner that keeps the index alone.
    pub(crate) fn token_at(&self, index: u32) -> Option<Token> {
        self.arena.token(index)
    }

    /// The index that the next item to be inserted will have.
    pub(crate) fn next_index(&self) -> u32 {
        self.arena.next_index()
    }

    /// One more than the highest index of an item.
    pub(crate) fn indices(&self) -> u32 {
        self.arena.indices()
    }

    /// Whether there is memory left to give back, some of which each call of [`advance`](Wheel::advance) does.
    pub(crate) fn has_spare(&self) -> bool {
        self.arena.has_spare()
    }

    /// The tick at which [`advance`](Wheel::advance) next has something to do, or `None` if the wheel is empty.
    ///
    /// It is a lower bound: no item is due before it, but at the start of a bucket of a higher level items only cascade.
    /// An item causes at most one such stop per level. The tick is never before [`now`](Wheel::now); if it equals `now`,
    /// there is something to do at once.
    pub fn next_wake(&self) -> Option<u64> {
        self.next_bucket().map(|(start, ..)| start)
    }

    /// Moves the current tick to `now` and hands out the items due by then, tick by tick.
    ///
    /// One call hands out at most `budget` items and cascades at most 4096. The iterator then ends, the current tick stays
    /// at what was reached, and [`next_wake`](Wheel::next_wake) is at or before the `now` given here: call again to go on.
    /// Items that an iterator has not handed out when it is dropped stay in the wheel.
    ///
    /// A `now` before the current tick counts as the current tick, because time does not go backwards.
    ///
    /// # Examples
    ///
    /// ```
    /// use tickwheel::wheel::Wheel;
    ///
    /// let mut wheel = Wheel::new(64);
    /// for item in 0..3 {
    ///     wheel.insert(10, item);
    /// }
    /// assert_eq!(wheel.advance(10, 2).count(), 2);
    /// assert_eq!(wheel.next_wake(), Some(10));
    /// assert_eq!(wheel.advance(10, 2).count(), 1);
    /// assert_eq!(wheel.next_wake(), None);
    /// ```
    #[must_use = "time moves as the iterator is consumed"]
    pub fn advance(&mut self, now: u64, budget: usize) -> Advance<'_, T> {
        self.arena.give_back();
        Advance {
            target: now.max(self.now),
            budget,
            cascades: CASCADE_LIMIT,
            bucket: None,
            wheel: self,
        }
    }

    fn slot_mask(&self) -> u64 {
        (1 << self.slot_bits) - 1
    }

    /// How far a tick is shifted to give its unit at `level`.
    fn shift(&self, level: usize) -> u32 {
        // There are at most 64 levels.
        #[allow(clippy::cast_possible_truncation)]
        let level = level as u32;
        level * self.slot_bits
    }

    /// The bucket of `level` that stands for `tick`.
    #[allow(clippy::cast_possible_truncation)] // masked to at most 12 bits
    fn slot(&self, level: usize, tick: u64) -> usize {
        ((tick >> self.shift(level)) & self.slot_mask()) as usize
    }

    /// The lowest level whose window, as it lies now, reaches `tick`.
    fn level_for(&self, tick: u64) -> usize {
        let distance = tick - self.now;
        // The level whose width has as many digits as the distance is the right one, or one too low: the two ticks may be
        // `slots` units apart, by their positions within a unit.
        let level = (distance | 1).ilog2() / self.slot_bits;
        let shift = level * self.slot_bits;
        let units = (tick >> shift) - (self.now >> shift);
        level as usize + usize::from(units > self.slot_mask())
    }

    /// Puts the node on the bucket for `tick`.
    fn link(&mut self, index: u32, tick: u64) {
        // A tick in the past counts as the current one, in the node too: `unlink` finds its bucket again.
        let tick = tick.max(self.now);
        let level = self.level_for(tick);
        let slot = self.slot(level, tick);
        while self.levels.len() <= level {
            self.levels.push(Level::new(1 << self.slot_bits));
        }
        let buckets = &mut self.levels[level];
        // There are at most 64 levels.
        #[allow(clippy::cast_possible_truncation)]
        self.arena
            .push_back(buckets.bucket_mut(slot), level as u8, tick, index);
        buckets.mark(slot);
        self.occupied_levels |= 1 << level;
    }

    /// Takes the node off the bucket it is on, which is the one for the tick that is returned.
    fn unlink(&mut self, index: u32) -> u64 {
        let (level, tick) = self.arena.scheduled(index);
        let slot = self.slot(level, tick);
        let buckets = &mut self.levels[level];
        self.arena.unlink(buckets.bucket_mut(slot), index);
        buckets.unmark_if_empty(slot);
        if buckets.is_empty() {
            self.occupied_levels &= !(1 << level);
        }
        tick
    }

    /// The non-empty bucket that starts first, as start, level and slot; of several the one of the highest level.
    fn next_bucket(&self) -> Option<(u64, usize, usize)> {
        let mut first: Option<(u64, usize, usize)> = None;
        let mut levels = self.occupied_levels;
        while levels != 0 {
            let level = levels.trailing_zeros() as usize;
            levels &= levels - 1;
            let here = self.slot(level, self.now);
            let slot = self.levels[level].next_occupied(here)?;
            let distance = (slot.wrapping_sub(here) as u64) & self.slot_mask();
            let shift = self.shift(level);
            // A bucket at distance zero has started; the items left in it are due or cascade now.
            let start = (((self.now >> shift) + distance) << shift).max(self.now);
            if first.is_none_or(|(earliest, ..)| start <= earliest) {
                first = Some((start, level, slot));
            }
        }
        first
    }

    /// Panics unless everything lies where it belongs. For tests and fuzzing; O(n).
    #[cfg(any(test, fuzzing))]
    #[doc(hidden)]
    pub fn assert_invariants(&self) {
        let mut seen = 0;
        for (n, level) in self.levels.iter().enumerate() {
            assert!(level.is_consistent(), "bitmap of level {n}");
            assert_eq!(
                self.occupied_levels >> n & 1 == 1,
                !level.is_empty(),
                "bit of level {n}"
            );
            for slot in 0..=self.slot_mask() {
                let slot = usize::try_from(slot).expect("at most 4096");
                for index in self.arena.walk(level.bucket(slot)) {
                    seen += 1;
                    let tick = self.arena.tick(index);
                    assert!(tick >= self.now, "tick {tick} is past");
                    assert_eq!(self.arena.level(index), n);
                    assert_eq!(self.slot(n, tick), slot);
                    let units = (tick >> self.shift(n)) - (self.now >> self.shift(n));
                    assert!(units <= self.slot_mask(), "tick {tick} outside the window");
                }
            }
        }
        assert_eq!(seen, self.len(), "items on buckets against items counted");
        if let Some(next) = self.next_wake() {
            assert!(next >= self.now);
        }
        assert_eq!(self.next_wake().is_none(), self.is_empty());
    }
}

impl<T> fmt::Debug for Wheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wheel {
            now,
            slot_bits,
            occupied_levels: _,
            levels,
            arena,
        } = self;
        f.debug_struct("Wheel")
            .field("now", now)
            .field("slots", &(1_u32 << slot_bits))
            .field("levels", &levels.len())
            .field("len", &arena.len())
            .field("next_wake", &self.next_wake())
            .finish()
    }
}

/// The items that [`Wheel::advance`] hands out, in the order of their ticks.
///
/// Time moves as the iterator is consumed. Items that are not taken stay in the wheel.
pub struct Advance<'a, T> {
    wheel: &'a mut Wheel<T>,
    target: u64,
    budget: usize,
    cascades: usize,
    /// The bucket of level 0 that is being handed out. Nothing is inserted meanwhile, so its items come next.
    bucket: Option<usize>,
}

impl<T> Iterator for Advance<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.budget == 0 {
            return None;
        }
        let wheel = &mut *self.wheel;
        loop {
            let due = |slot: usize| wheel.levels[0].bucket(slot).front();
            if let Some(index) = self.bucket.and_then(due) {
                wheel.unlink(index);
                self.budget -= 1;
                return Some(wheel.arena.remove(index));
            }
            let Some((start, level, slot)) = wheel.next_bucket().filter(|b| b.0 <= self.target)
            else {
                wheel.now = self.target;
                return None;
            };
            wheel.now = start;
            self.bucket = (level == 0).then_some(slot);
            if level == 0 {
                continue;
            }
            if self.cascades == 0 {
                return None;
            }
            self.cascades -= 1;
            let front = wheel.levels[level].bucket(slot).front();
            let index = front.expect("the bitmap names non-empty buckets only");
            let tick = wheel.unlink(index);
            wheel.link(index, tick);
        }
    }
}

impl<T> fmt::Debug for Advance<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Advance {
            wheel,
            target,
            budget,
            cascades,
            bucket: _,
        } = self;
        f.debug_struct("Advance")
            .field("wheel", wheel)
            .field("target", target)
            .field("budget", budget)
            .field("cascades", cascades)
            .finish()
    }
}
