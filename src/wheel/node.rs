//! A node of the arena: room for one item, with the links of the list it is on.

use crate::collections::{Cell, INDICES};

/// The neighbour of a node, or the end of the list.
///
/// An end says which level the list is a bucket of. No node does, because the bucket is needed only
/// when the first or the last node leaves it. That makes a node 8 bytes smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link(u32);

impl Link {
    #[inline]
    pub(super) fn to(index: u32) -> Link {
        debug_assert!(index < INDICES);
        Link(index)
    }

    /// The end of a bucket of this level. There are at most 64 levels.
    #[inline]
    pub(super) const fn end(level: u8) -> Link {
        Link(INDICES + level as u32)
    }

    /// The node, unless this is an end.
    #[inline]
    pub(super) fn node(self) -> Option<u32> {
        (self.0 < INDICES).then_some(self.0)
    }

    /// The level, if this is an end.
    #[inline]
    pub(super) fn level(self) -> Option<usize> {
        self.0.checked_sub(INDICES).map(|level| level as usize)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Node<T> {
    /// The tick the item is scheduled for.
    pub(super) tick: u64,
    /// The neighbours on the node's list. While the node is vacant, `next` is the slab's.
    pub(super) prev: Link,
    pub(super) next: Link,
    /// `None` while the node is vacant.
    pub(super) item: Option<T>,
}

impl<T> Cell for Node<T> {
    fn new() -> Self {
        Node {
            tick: 0,
            prev: Link::end(0),
            next: Link::end(0),
            item: None,
        }
    }

    #[inline]
    fn is_in_use(&self) -> bool {
        self.item.is_some()
    }

    #[inline]
    fn next_vacant(&self) -> u32 {
        self.next.0
    }

    #[inline]
    fn set_next_vacant(&mut self, place: u32) {
        self.next.0 = place;
    }
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    #[test]
    fn takes_24_bytes_on_the_wheels_of_the_actor() {
        assert_eq!(size_of::<Node<Box<()>>>(), 24);
        assert_eq!(size_of::<Node<(NonZeroU32, u32)>>(), 24);
    }
}
