//! The wheel's memory: a slab of nodes that carry the links of the list they are on.

use crate::collections::{ChunkSlab, INDICES, SlabCell};

/// How many nodes a chunk has.
const CHUNK: u32 = if cfg!(tickwheel_shuttle) { 4 } else { 4096 };

/// How many chunks are freed at a time at most.
pub(super) const FREED_CHUNKS: usize = 8;

/// The neighbour of a node, or the end of the list.
///
/// An end says which level the list is a bucket of. No node does, because its bucket is looked up
/// only when the first or the last node leaves it. That makes a node 8 bytes smaller.
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

impl<T> SlabCell for Node<T> {
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

/// The two ends of a list of nodes. The nodes hold the links, the arena holds the nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    pub(super) head: Link,
    pub(super) tail: Link,
}

impl List {
    pub(super) const EMPTY: List = List {
        head: Link::end(0),
        tail: Link::end(0),
    };

    pub(super) fn is_empty(self) -> bool {
        self.head.node().is_none()
    }

    pub(super) fn front(self) -> Option<u32> {
        self.head.node()
    }

    /// A node has left this list, at one or both of its ends.
    #[inline]
    pub(super) fn close(&mut self, gap: Gap) {
        if gap.prev.node().is_none() {
            self.head = gap.next;
        }
        if gap.next.node().is_none() {
            self.tail = gap.prev;
        }
    }
}

/// The neighbours, tick and level of a node that was taken off its list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap {
    /// The tick for which the node was scheduled.
    pub(super) tick: u64,
    prev: Link,
    next: Link,
}

impl Gap {
    /// The level of the list if the gap is at an end of it. Then the list has to be
    /// [closed](List::close).
    #[inline]
    pub(super) fn level(self) -> Option<usize> {
        match self.prev.level() {
            None => self.next.level(),
            level => level,
        }
    }
}

/// See the module.
pub(super) type Arena<T> = ChunkSlab<Node<T>, CHUNK>;

impl<T> Arena<T> {
    /// Takes a node for `item`, and returns its index. The node is on no list yet.
    #[inline]
    pub(super) fn insert(&mut self, item: T) -> u32 {
        self.take(|node| node.item = Some(item))
    }

    /// Takes the item out of a node that is on no list. The node may be reused at once.
    #[inline]
    pub(super) fn remove(&mut self, index: u32) -> T {
        let item = self.vacate(index, |node| node.item.take());
        if self.in_use() == 0 {
            self.free_spare(FREED_CHUNKS);
        }
        item.expect("only occupied nodes are linked")
    }

    #[inline]
    pub(super) fn node(&self, index: u32) -> &Node<T> {
        self.get(index).expect("links name nodes")
    }

    #[inline]
    fn node_mut(&mut self, index: u32) -> &mut Node<T> {
        self.get_mut(index).expect("links name nodes")
    }

    /// Appends the node to `list`, the bucket of `level` for this tick.
    #[inline]
    pub(super) fn push_back(&mut self, list: &mut List, level: u8, tick: u64, index: u32) {
        let end = Link::end(level);
        let node = self.node_mut(index);
        node.tick = tick;
        node.next = end;
        match list.tail.node() {
            None => {
                node.prev = end;
                list.head = Link::to(index);
            }
            Some(tail) => {
                node.prev = Link::to(tail);
                self.node_mut(tail).next = Link::to(index);
            }
        }
        list.tail = Link::to(index);
    }

    /// Takes the node off its list.
    #[inline]
    #[must_use = "the list may have to be closed"]
    pub(super) fn unlink(&mut self, index: u32) -> Gap {
        let &Node {
            tick, prev, next, ..
        } = self.node(index);
        if let Some(prev) = prev.node() {
            self.node_mut(prev).next = next;
        }
        if let Some(next) = next.node() {
            self.node_mut(next).prev = prev;
        }
        Gap { tick, prev, next }
    }
}

/// The nodes of the actor's wheels.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(
    size_of::<Node<Box<()>>>() == 24 && size_of::<Node<(std::num::NonZeroU32, u32)>>() == 24
);
