//! The algorithm of the wheel. Its owner names an item by the index of its node, and knows whether
//! the item is still there.

use std::fmt;

use super::arena::{Arena, FREED_CHUNKS};
use super::level::Level;

/// How many items one call of [`Wheel::advance`](super::Wheel::advance) cascades at most.
///
/// Cascading takes tens of nanoseconds an item, so a call stays far below a millisecond even at a
/// bucket with millions of items.
pub(super) const CASCADE_LIMIT: usize = 2048;

/// How many items one [step](BareWheel::step) takes off the wheel.
const BATCH: usize = if cfg!(tickwheel_shuttle) { 2 } else { 64 };

/// The cost of a step in which items only cascaded to lower levels. The unit is one due item.
const CASCADE_COST: usize = if cfg!(tickwheel_shuttle) { 2 } else { 128 };

/// See the module. An index is used again once its item was removed or has come out.
#[derive(Clone)]
pub(crate) struct BareWheel<T> {
    /// Everything scheduled before this tick has been yielded. Never goes backwards.
    pub(super) now: u64,
    /// log2 of the number of slots.
    pub(super) slot_bits: u32,
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
            levels: Vec::new(),
            arena: Arena::new(),
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    pub(crate) fn len(&self) -> usize {
        self.arena.in_use()
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
        self.get(index)?;
        self.unlink(index);
        Some(self.arena.remove(index))
    }

    /// Schedules the item at an index for another tick. Returns `false` if there is none.
    pub(crate) fn reschedule(&mut self, index: u32, tick: u64) -> bool {
        let is_there = self.get(index).is_some();
        if is_there {
            self.unlink(index);
            self.link(index, tick);
        }
        is_there
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.arena.get(index)?.item.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.arena.get_mut(index)?.item.as_mut()
    }

    /// The tick for which the item at an index is scheduled, if there is one.
    pub(crate) fn tick_of(&self, index: u32) -> Option<u64> {
        let node = self.arena.get(index)?;
        node.item.is_some().then_some(node.tick)
    }

    /// For how many items there is memory.
    pub(crate) fn places(&self) -> usize {
        self.arena.places()
    }

    /// An index above all that are in use.
    pub(crate) fn indices(&self) -> u32 {
        self.arena.indices()
    }

    /// The first index from this one on for which there is perhaps an item. It skips most of those
    /// that have none.
    pub(crate) fn next_in_use(&self, from: u32) -> Option<u32> {
        self.arena.next_in_use(from)
    }

    /// Whether unused memory is left. Each call of [`advance`](Self::advance) frees some.
    pub(crate) fn has_spare(&self) -> bool {
        self.arena.has_spare()
    }

    /// When there is next something to do: see [`Wheel::next_wake`](super::Wheel::next_wake).
    pub(crate) fn next_wake(&self) -> Option<u64> {
        let (start, ..) = self.next_bucket()?;
        Some(start)
    }

    /// When the first non-empty bucket starts of those that start after `tick`, which is not before
    /// the wheel's current one. Items that cascade from an earlier bucket may be due before that.
    pub(crate) fn next_wake_after(&self, tick: u64) -> Option<u64> {
        let levels = self.levels.iter();
        let first = |level: &Level| level.first_after(tick, self.now);
        levels.filter_map(first).min()
    }

    /// Yields what is due by `now`: see [`Wheel::advance`](super::Wheel::advance).
    pub(crate) fn advance(&mut self, now: u64, budget: usize) -> Drain<'_, T> {
        self.arena.free_spare(FREED_CHUNKS);
        self.drain(now, budget)
    }

    fn drain(&mut self, now: u64, budget: usize) -> Drain<'_, T> {
        Drain {
            target: now.max(self.now),
            budget,
            cascades: CASCADE_LIMIT,
            bucket: None,
            wheel: self,
        }
    }

    /// Takes a step towards tick `until`: puts items that it reaches into `due`, which is empty, or
    /// lets items cascade. Returns `false` if no item is left that is scheduled by that tick, or
    /// the budget is used up.
    ///
    /// A step reaches one tick at most. An item that turns out to have been moved is therefore
    /// rescheduled before the next tick is processed, and does not overtake items that are due
    /// between its old deadline and its new one.
    #[must_use]
    pub(crate) fn step(&mut self, until: u64, due: &mut Vec<T>, budget: &mut usize) -> bool {
        debug_assert!(due.is_empty(), "the last batch was processed");
        let bucket = self.next_bucket().filter(|(tick, ..)| *tick <= until);
        let Some((tick, ..)) = bucket else {
            self.arena.free_spare(FREED_CHUNKS);
            // It may have gone further in an earlier turn. Items scheduled at its tick since then
            // wait for commands in the backlog that are needed earlier.
            self.now = self.now.max(until);
            return false;
        };
        if *budget == 0 {
            return false;
        }
        due.extend(self.drain(tick, BATCH.min(*budget)));
        let cost = if due.is_empty() {
            CASCADE_COST
        } else {
            due.len()
        };
        *budget = budget.saturating_sub(cost);
        true
    }

    /// The tick before which no item is left, after the last [step](Self::step) towards `until`. A
    /// wheel that stopped may have more items at its current tick.
    pub(crate) fn done_before(&self, until: u64) -> u64 {
        match self.next_wake() {
            Some(tick) if tick <= until => self.now,
            _ => until + 1,
        }
    }

    pub(super) fn slot_mask(&self) -> u64 {
        (1 << self.slot_bits) - 1
    }

    /// The lowest level with a window that reaches `tick` from now.
    fn level_for(&self, tick: u64) -> usize {
        let (mut unit, mut here, mut level) = (tick, self.now, 0);
        while unit - here > self.slot_mask() {
            unit >>= self.slot_bits;
            here >>= self.slot_bits;
            level += 1;
        }
        level
    }

    /// Puts the node on the bucket for `tick`.
    fn link(&mut self, index: u32, tick: u64) {
        // A tick in the past counts as the current one, in the node too: `unlink` finds its bucket
        // again.
        let tick = tick.max(self.now);
        let level = self.level_for(tick);
        // There are at most 64 levels.
        #[allow(clippy::cast_possible_truncation)]
        while self.levels.len() <= level {
            let shift = self.levels.len() as u32 * self.slot_bits;
            self.levels.push(Level::new(1 << self.slot_bits, shift));
        }
        let bucket = self.levels[level].occupy(tick);
        #[allow(clippy::cast_possible_truncation)] // at most 64, too
        self.arena.push_back(bucket, level as u8, tick, index);
    }

    /// Takes the node off the bucket it is on, which is the one for the tick that is returned.
    fn unlink(&mut self, index: u32) -> u64 {
        let gap = self.arena.unlink(index);
        if let Some(level) = gap.level() {
            self.levels[level].close(gap);
        }
        gap.tick
    }

    /// The non-empty bucket that starts first, as start, level and slot; of several the one of the
    /// highest level.
    pub(super) fn next_bucket(&self) -> Option<(u64, usize, usize)> {
        let mut first: Option<(u64, usize, usize)> = None;
        for (level, buckets) in self.levels.iter().enumerate() {
            let Some((start, slot)) = buckets.first(self.now) else {
                continue;
            };
            if first.is_none_or(|(earliest, ..)| start <= earliest) {
                first = Some((start, level, slot));
            }
        }
        first
    }
}

/// Shows no item.
impl<T> fmt::Debug for BareWheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel")
            .field("now", &self.now)
            .field("slots", &(1_u32 << self.slot_bits))
            .field("levels", &self.levels.len())
            .field("len", &self.len())
            .field("next_wake", &self.next_wake())
            .finish_non_exhaustive()
    }
}

/// The iterator of [`BareWheel::advance`].
pub(crate) struct Drain<'a, T> {
    pub(super) wheel: &'a mut BareWheel<T>,
    pub(super) target: u64,
    pub(super) budget: usize,
    pub(super) cascades: usize,
    /// The bucket of level 0 that is being taken out. Nothing is inserted meanwhile, so its items
    /// come next.
    bucket: Option<usize>,
}

impl<T> Iterator for Drain<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.budget == 0 {
            return None;
        }
        let wheel = &mut *self.wheel;
        loop {
            if let Some(slot) = self.bucket {
                if let Some(index) = wheel.levels[0].bucket(slot).front() {
                    wheel.unlink(index);
                    self.budget -= 1;
                    return Some(wheel.arena.remove(index));
                }
                if wheel.now == self.target {
                    // Items that cascade at this tick have cascaded before the bucket was returned.
                    return None;
                }
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

#[cfg(all(test, not(any(tickwheel_loom, tickwheel_shuttle))))]
mod tests {
    use super::*;

    // Such a step once moved the wheel on, and dropped what was due. In debug builds it was an
    // assertion that failed.
    #[test]
    fn keeps_items_when_an_earlier_tick_has_to_wait() {
        let (mut wheel, mut due) = (BareWheel::new(8), Vec::new());
        let mut budget = 1_000;
        assert!(!wheel.step(10, &mut due, &mut budget));
        assert_eq!(wheel.done_before(10), 11);
        wheel.insert(10, 'a');
        // A command in the backlog is needed at 8.
        assert!(!wheel.step(7, &mut due, &mut budget));
        assert_eq!((wheel.len(), wheel.now(), &due[..]), (1, 10, &[][..]));
        assert_eq!(wheel.done_before(7), 8);
        assert!(!wheel.step(10, &mut due, &mut 0), "it has no budget");
        assert_eq!(wheel.done_before(10), 10);
        assert!(wheel.step(10, &mut due, &mut budget));
        assert_eq!((&due[..], wheel.done_before(10)), (&['a'][..], 11));
    }

    #[test]
    fn next_wake_after_a_tick_is_that_of_a_later_bucket() {
        let mut wheel = BareWheel::starting_at(8, 5);
        assert_eq!(wheel.next_wake_after(5), None);
        for tick in [6, 7, 12, 21, 30] {
            wheel.insert(tick, ());
        }
        // The items from 16 on lie on the second level: the first bucket of eight ticks starts at
        // 16.
        let after = [5, 6, 7, 11, 12, 15, 16, 23, 24, 100];
        let found = after.map(|tick| wheel.next_wake_after(tick));
        let expected = [6, 7, 12, 12, 16, 16, 24, 24].map(Some);
        assert_eq!(found, [&expected[..], &[None, None]].concat()[..]);
        assert_eq!(wheel.next_wake_after(u64::MAX), None);
    }
}
