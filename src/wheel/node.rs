//! A node of the arena: room for one item, with the links of the list it is on.

use std::num::NonZeroU32;

/// The index that means "no node": an end of a list, or an empty list.
pub(super) const NIL: u32 = u32::MAX;

#[derive(Debug, Clone)]
pub(super) struct Node<T> {
    /// The tick the item is scheduled for.
    pub(super) tick: u64,
    pub(super) generation: NonZeroU32,
    /// The neighbours on the node's list. In a vacant node, `next` is the next vacant place of its chunk.
    pub(super) prev: u32,
    pub(super) next: u32,
    /// The level whose bucket the node is on.
    pub(super) level: u8,
    /// `None` while the node is vacant.
    pub(super) item: Option<T>,
}

impl<T> Node<T> {
    pub(super) fn new(item: T, generation: NonZeroU32) -> Self {
        Node {
            tick: 0,
            generation,
            prev: NIL,
            next: NIL,
            level: 0,
            item: Some(item),
        }
    }
}
