//! The algorithm of the wheel. Its owner names an item by the index of its node, and knows whether
//! the item is still there.

use std::fmt;

use super::arena::Arena;
use super::level::Level;

/// How many items one call of [`Wheel::advance`](super::Wheel::advance) cascades at most.
///
/// Cascading takes tens of nanoseconds an item, so a call stays far below a millisecond even at a
/// bucket with millions of items.
pub(super) const CASCADE_LIMIT: usize = 2048;

/// See the module. Once an item was removed or yielded, its index names another one.
#[derive(Clone)]
pub(crate) struct BareWheel<T> {
    /// Everything scheduled by this tick has been yielded. Never goes backwards.
    pub(super) now: u64,
    /// log2 of the number of slots.
    pub(super) slot_bits: u32,
    /// Bit *n* is set when level *n* holds anything.
    occupied_levels: u64,
    pub(super) levels: Vec<Level>,
    pub(super) arena: Arena<T>,
}

impl<T> BareWheel<T> {
    /// An empty wheel at tick 0. `slots` is a power of two.
    pub(crate) fn new(slots: usize) -> Self {
        Self::starting_at(slots, 0)
    }

    pub(super) fn starting_at(slots: usize, now: u64) -> Self {
        BareWheel {
            now,
            slot_bits: slots.trailing_zeros(),
            occupied_levels: 0,
            levels: Vec::new(),
            arena: Arena::new(),
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    pub(crate) fn len(&self) -> usize {
        self.arena.nodes.in_use()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Schedules an item, and returns its index.
    pub(crate) fn insert(&mut self, tick: u64, item: T) -> u32 {
        let index = self.arena.insert(item);
        self.link(index, tick);
        index
    }

    /// Removes the item at an index, if there is one.
    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        self.arena.item(index)?;
        self.unlink(index);
        Some(self.arena.remove(index))
    }

    /// Schedules the item at an index for another tick. Returns `false` if there is none.
    pub(crate) fn reschedule(&mut self, index: u32, tick: u64) -> bool {
        let is_there = self.arena.item(index).is_some();
        if is_there {
            self.unlink(index);
            self.link(index, tick);
        }
        is_there
    }

    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.arena.item(index)
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.arena.item_mut(index)
    }

    /// The tick for which the item at an index is scheduled, if there is one.
    pub(crate) fn tick_of(&self, index: u32) -> Option<u64> {
        self.arena.tick(index)
    }

    /// The index that the next item to be inserted will have.
    pub(crate) fn next_index(&self) -> u32 {
        self.arena.nodes.next_index()
    }

    /// One more than the highest index of an item.
    pub(crate) fn indices(&self) -> u32 {
        self.arena.nodes.indices()
    }

    /// Whether unused memory is left. Each call of [`advance`](Self::advance) frees some.
    pub(crate) fn has_spare(&self) -> bool {
        self.arena.nodes.has_spare()
    }

    /// As [`Wheel::next_wake`](super::Wheel::next_wake).
    pub(crate) fn next_wake(&self) -> Option<u64> {
        self.next_bucket().map(|(start, ..)| start)
    }

    /// As [`Wheel::advance`](super::Wheel::advance).
    pub(crate) fn advance(&mut self, now: u64, budget: usize) -> Due<'_, T> {
        self.arena.free_spare();
        Due {
            target: now.max(self.now),
            budget,
            cascades: CASCADE_LIMIT,
            bucket: None,
            wheel: self,
        }
    }

    pub(super) fn slot_mask(&self) -> u64 {
        (1 << self.slot_bits) - 1
    }

    /// How far a tick is shifted to give its unit at `level`.
    pub(super) fn shift(&self, level: usize) -> u32 {
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
        // The level whose width has as many digits as the distance is the right one, or one too
        // low: the two ticks may be `slots` units apart, by their positions within a unit.
        let level = (distance | 1).ilog2() / self.slot_bits;
        let shift = level * self.slot_bits;
        let units = (tick >> shift) - (self.now >> shift);
        level as usize + usize::from(units > self.slot_mask())
    }

    /// Puts the node on the bucket for `tick`.
    fn link(&mut self, index: u32, tick: u64) {
        // A tick in the past counts as the current one, in the node too: `unlink` finds its bucket
        // again.
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
        let gap = self.arena.unlink(index);
        if let Some(level) = gap.level() {
            let slot = self.slot(level, gap.tick);
            let buckets = &mut self.levels[level];
            buckets.bucket_mut(slot).close(gap);
            buckets.unmark_if_empty(slot);
            if buckets.is_empty() {
                self.occupied_levels &= !(1 << level);
            }
        }
        gap.tick
    }

    /// The non-empty bucket that starts first, as start, level and slot; of several the one of the
    /// highest level.
    pub(super) fn next_bucket(&self) -> Option<(u64, usize, usize)> {
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
    pub(super) fn assert_invariants(&self) {
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
                let list = level.bucket(slot);
                self.arena
                    .assert_linked(list, u8::try_from(n).expect("at most 64"));
                for index in self.arena.walk(list) {
                    seen += 1;
                    let tick = self.arena.tick(index).expect("it is occupied");
                    assert!(tick >= self.now, "tick {tick} is past");
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

/// Shows no item.
impl<T> fmt::Debug for BareWheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BareWheel {
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
            .field("len", &arena.nodes.in_use())
            .field("next_wake", &self.next_wake())
            .finish()
    }
}

/// The iterator of [`BareWheel::advance`].
pub(crate) struct Due<'a, T> {
    pub(super) wheel: &'a mut BareWheel<T>,
    pub(super) target: u64,
    pub(super) budget: usize,
    pub(super) cascades: usize,
    /// The bucket of level 0 that is being taken out. Nothing is inserted meanwhile, so its items
    /// come next.
    bucket: Option<usize>,
}

impl<T> Iterator for Due<'_, T> {
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
