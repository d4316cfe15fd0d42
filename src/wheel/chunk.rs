//! A piece of the arena: some nodes side by side, and which of them are vacant.

use super::node::{Link, Node};

/// How many nodes a chunk has; a power of two.
pub(super) const CHUNK: usize = 4096;

/// A wheel without items keeps memory for at most this many nodes.
const KEPT: usize = 1024;

/// See the module. Nodes are named by their place in the chunk.
#[derive(Debug, Clone)]
pub(super) struct Chunk<T> {
    nodes: Vec<Node<T>>,
    /// The vacant node to be used next, whose `next` is the one after that.
    vacant: Link,
    /// How many nodes hold an item.
    occupied: usize,
    /// It allocates all of its memory at once.
    is_whole: bool,
    /// It is in the arena's list of empty chunks.
    pub(super) is_listed: bool,
}

impl<T> Chunk<T> {
    /// A chunk that has no memory yet. The first one of an arena grows as needed. Further chunks are allocated whole, because
    /// the wheel is large then.
    pub(super) fn new(is_first: bool) -> Self {
        Chunk {
            nodes: Vec::new(),
            vacant: Link::end(0),
            occupied: 0,
            is_whole: !is_first,
            is_listed: false,
        }
    }

    /// Frees the memory of a chunk without items. It allocates some again when it is used.
    pub(super) fn release(&mut self) {
        self.nodes = Vec::new();
        self.vacant = Link::end(0);
    }

    /// Whether it has memory.
    pub(super) fn is_allocated(&self) -> bool {
        self.nodes.capacity() > 0
    }

    #[inline]
    pub(super) fn nodes(&self) -> &[Node<T>] {
        &self.nodes
    }

    #[inline]
    pub(super) fn nodes_mut(&mut self) -> &mut [Node<T>] {
        &mut self.nodes
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// Whether it has more memory than a wheel without items should keep.
    pub(super) fn is_large(&self) -> bool {
        self.nodes.capacity() > KEPT
    }

    /// The place that the next item will get, if there is room.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // at most 4096
    pub(super) fn next_place(&self) -> u32 {
        self.vacant.node().unwrap_or(self.nodes.len() as u32)
    }

    /// Puts the item into the next place, and returns that place.
    #[inline]
    pub(super) fn insert(&mut self, item: T) -> u32 {
        self.occupied += 1;
        let place = self.next_place();
        if let Some(node) = self.nodes.get_mut(place as usize) {
            self.vacant = node.next;
            node.item = Some(item);
        } else {
            if self.is_whole && self.nodes.is_empty() {
                self.nodes.reserve_exact(CHUNK);
            }
            self.nodes.push(Node::new(item));
        }
        place
    }

    /// Takes the item out of a node that is on no list.
    #[inline]
    pub(super) fn remove(&mut self, place: u32) -> T {
        let node = &mut self.nodes[place as usize];
        let item = node.item.take().expect("only occupied nodes are linked");
        self.occupied -= 1;
        node.next = self.vacant;
        self.vacant = Link::to(place);
        item
    }

    /// Whether there is no place for another item.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.occupied == CHUNK
    }

    /// How many nodes it has memory for.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.nodes.capacity()
    }

    /// Panics unless the vacant nodes and the books are in order.
    #[cfg(test)]
    pub(super) fn assert_consistent(&self) {
        let occupied = self.nodes.iter().filter(|node| node.item.is_some()).count();
        assert_eq!(occupied, self.occupied, "items against items counted");
        let mut vacant = 0;
        let mut next = self.vacant;
        while let Some(place) = next.node() {
            vacant += 1;
            let node = &self.nodes[place as usize];
            assert!(node.item.is_none(), "node {place} is vacant and occupied");
            assert!(
                vacant <= self.nodes.len(),
                "the vacant nodes go in a circle"
            );
            next = node.next;
        }
        assert_eq!(occupied + vacant, self.nodes.len(), "nodes lost");
        assert!(self.nodes.len() <= CHUNK);
    }
}
