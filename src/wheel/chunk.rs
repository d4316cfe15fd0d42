//! A piece of the arena: some nodes side by side, and which of them are vacant.

use std::num::NonZeroU32;

use super::node::{NIL, Node};

/// How many nodes a chunk has; a power of two.
pub(super) const CHUNK: usize = 4096;

/// A wheel without items keeps memory for at most this many nodes.
const KEPT: usize = 1024;

/// See the module. Nodes are named by their place in the chunk.
#[derive(Debug, Clone)]
pub(super) struct Chunk<T> {
    nodes: Vec<Node<T>>,
    /// The vacant node to be used next, whose `next` is the one after that.
    vacant: u32,
    /// How many nodes hold an item.
    occupied: usize,
}

impl<T> Chunk<T> {
    /// The first chunk of an arena grows as needed. Further chunks are allocated whole, because the wheel is large then.
    pub(super) fn new(is_first: bool) -> Self {
        Chunk {
            nodes: Vec::with_capacity(if is_first { 0 } else { CHUNK }),
            vacant: NIL,
            occupied: 0,
        }
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
        if self.vacant == NIL {
            self.nodes.len() as u32
        } else {
            self.vacant
        }
    }

    /// Puts the item into the next place. Returns that place and its node's generation, which is `fresh` for a new node.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // at most 4096
    pub(super) fn insert(&mut self, item: T, fresh: NonZeroU32) -> (u32, NonZeroU32) {
        self.occupied += 1;
        let place = self.vacant;
        let Some(node) = self.nodes.get_mut(place as usize) else {
            self.nodes.push(Node::new(item, fresh));
            return (self.nodes.len() as u32 - 1, fresh);
        };
        self.vacant = node.next;
        node.item = Some(item);
        (place, node.generation)
    }

    /// Takes the item out of a node that is on no list. Returns it, and the node's next generation.
    #[inline]
    pub(super) fn remove(&mut self, place: u32) -> (T, NonZeroU32) {
        let node = &mut self.nodes[place as usize];
        let item = node.item.take().expect("only occupied nodes are linked");
        self.occupied -= 1;
        // The last generation is never given out: reaching it retires the node.
        node.generation = node.generation.saturating_add(1);
        let generation = node.generation;
        if generation != NonZeroU32::MAX {
            node.next = self.vacant;
            self.vacant = place;
        }
        (item, generation)
    }

    /// Whether there is no place for another item.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.vacant == NIL && self.nodes.len() == CHUNK
    }

    /// How many nodes it has memory for.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.nodes.capacity()
    }

    /// Panics unless the vacant nodes, the retired ones and the books are in order.
    #[cfg(test)]
    pub(super) fn assert_consistent(&self) {
        let occupied = self.nodes.iter().filter(|node| node.item.is_some()).count();
        assert_eq!(occupied, self.occupied, "items against items counted");
        let retired = |node: &&Node<T>| node.generation == NonZeroU32::MAX;
        let retired = self.nodes.iter().filter(retired).count();
        let mut vacant = 0;
        let mut place = self.vacant;
        while place != NIL {
            vacant += 1;
            let node = &self.nodes[place as usize];
            assert!(node.item.is_none(), "node {place} is vacant and occupied");
            assert_ne!(node.generation, NonZeroU32::MAX, "node {place} is retired");
            assert!(
                vacant <= self.nodes.len(),
                "the vacant nodes go in a circle"
            );
            place = node.next;
        }
        assert_eq!(occupied + vacant + retired, self.nodes.len(), "nodes lost");
        assert!(self.nodes.len() <= CHUNK);
    }
}
