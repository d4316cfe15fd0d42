//! What holds between any two calls of a wheel: every node lies where it belongs, and the bitmaps
//! say so. For tests and fuzzing; O(n).

use super::Wheel;
use super::arena::{Arena, Link, List};
use super::bare::BareWheel;
use super::level::Level;

impl<T> Wheel<T> {
    /// Panics unless everything lies where it belongs.
    #[doc(hidden)]
    pub fn assert_invariants(&self) {
        self.bare.assert_invariants();
    }
}

impl<T> BareWheel<T> {
    fn assert_invariants(&self) {
        let mut seen = 0;
        for (n, level) in self.levels.iter().enumerate() {
            assert!(level.is_consistent(), "bitmap of level {n}");
            for slot in 0..=self.slot_mask() {
                let slot = usize::try_from(slot).expect("at most 4096");
                let list = level.bucket(slot);
                (self.arena).assert_linked(list, u8::try_from(n).expect("at most 64"));
                for index in self.arena.walk(list) {
                    seen += 1;
                    let tick = self.tick_of(index).expect("it is occupied");
                    assert!(tick >= self.now, "tick {tick} is past");
                    assert_eq!(level.slot(tick), slot);
                    let units = (tick >> level.shift) - (self.now >> level.shift);
                    assert!(units <= self.slot_mask(), "tick {tick} outside the window");
                }
            }
        }
        assert_eq!(seen, self.len(), "items on buckets against items counted");
        assert!(self.next_wake().is_none_or(|next| next >= self.now));
        assert_eq!(self.next_wake().is_none(), self.is_empty());
    }
}

impl Level {
    /// Whether the bitmap agrees with the buckets.
    fn is_consistent(&self) -> bool {
        let bits = u64::BITS as usize;
        let bit = |slot: usize| self.words[slot / bits] >> (slot % bits) & 1 == 1;
        (0..self.buckets.len()).all(|slot| bit(slot) != self.buckets[slot].is_empty())
    }
}

impl<T> Arena<T> {
    /// The nodes of a list, in order.
    pub(super) fn walk(&self, list: List) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(list.front(), |&index| self.node(index).next.node())
    }

    /// Panics unless the links of the list agree in both directions, and its ends name the level.
    fn assert_linked(&self, list: List, level: u8) {
        let mut before = Link::end(level);
        for index in self.walk(list) {
            let node = self.node(index);
            assert!(node.item.is_some(), "node {index} is listed but vacant");
            assert_eq!(node.prev, before, "the way back from node {index}");
            before = Link::to(index);
        }
        if let Some(last) = before.node() {
            assert_eq!(self.node(last).next, Link::end(level), "the end");
            assert_eq!(list.tail, before, "the tail");
        }
        assert_eq!(list.head.node().is_none(), list.tail.node().is_none());
    }
}
