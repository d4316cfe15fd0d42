//! A slab whose nodes carry the links of the list they are on.
//!
//! The nodes lie in [chunks](Chunk). A vector of a million nodes takes milliseconds to grow, because it is moved, and to
//! free, because its pages go back one by one. The owner of the wheel would wait for that in the middle of a tick. Chunks
//! are allocated and freed one at a time, wherever they lie: an item that stays keeps the memory of its own chunk alone.

use super::chunk::{CHUNK, Chunk};
use super::node::{INDICES, Link, Node};

/// How many chunks are given back at a time at most.
const GIVEN_BACK: usize = 8;

#[allow(clippy::cast_possible_truncation)] // 4096
const CHUNK_U32: u32 = CHUNK as u32;

/// The two ends of a list of nodes. The nodes hold the links, the arena holds the nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    head: Link,
    tail: Link,
}

impl List {
    pub(super) const EMPTY: List = List {
        head: Link::end(0),
        tail: Link::end(0),
    };

    pub(super) fn is_empty(self) -> bool {
        self.head.node().is_none()
    }

    /// The node at the front.
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

/// What a node leaves behind when it is taken off its list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap {
    /// The tick for which the node was scheduled.
    pub(super) tick: u64,
    prev: Link,
    next: Link,
}

impl Gap {
    /// The level of the list if the gap is at an end of it. Then the list has to be [closed](List::close).
    #[inline]
    pub(super) fn level(self) -> Option<usize> {
        self.prev.level().or(self.next.level())
    }
}

/// See the module.
#[derive(Clone)]
pub(super) struct Arena<T> {
    chunks: Vec<Chunk<T>>,
    /// The chunks with room; the last one is used next.
    open: Vec<u32>,
    /// The chunks that had no item left and have memory. Some may have items again.
    empty: Vec<u32>,
    len: usize,
}

impl<T> Arena<T> {
    pub(super) const fn new() -> Self {
        Arena {
            chunks: Vec::new(),
            open: Vec::new(),
            empty: Vec::new(),
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Takes a node for `item`, and returns its index. The node is on no list yet.
    #[inline]
    pub(super) fn insert(&mut self, item: T) -> u32 {
        let number = match self.open.last() {
            Some(&number) => number,
            None => self.grow(),
        };
        let chunk = &mut self.chunks[number as usize];
        let place = chunk.insert(item);
        if chunk.is_full() {
            self.open.pop();
        }
        self.len += 1;
        number * CHUNK_U32 + place
    }

    /// One chunk more; returns its number.
    #[cold]
    fn grow(&mut self) -> u32 {
        let number = self.chunks.len();
        assert!(
            number < INDICES as usize / CHUNK,
            "a wheel holds at most 2^32 - 4096 items"
        );
        self.chunks.push(Chunk::new(number == 0));
        // Fewer than 2^20.
        #[allow(clippy::cast_possible_truncation)]
        let number = number as u32;
        self.open.push(number);
        number
    }

    /// Takes the item out of a node that is on no list. The node may be reused at once.
    #[inline]
    pub(super) fn remove(&mut self, index: u32) -> T {
        let number = index / CHUNK_U32;
        let chunk = &mut self.chunks[number as usize];
        let was_full = chunk.is_full();
        let item = chunk.remove(index % CHUNK_U32);
        if was_full {
            self.open.push(number);
        }
        self.len -= 1;
        if chunk.is_empty() {
            if !std::mem::replace(&mut chunk.is_listed, true) {
                self.empty.push(number);
            }
            if self.len == 0 {
                self.give_back();
            }
        }
        item
    }

    /// Frees some of the unused memory.
    pub(super) fn give_back(&mut self) {
        for _ in 0..GIVEN_BACK {
            if !self.has_spare() {
                break;
            }
            let number = self.empty.swap_remove(0);
            let chunk = &mut self.chunks[number as usize];
            chunk.is_listed = false;
            if chunk.is_empty() {
                chunk.release();
            }
        }
        let is_allocated = |chunk: &Chunk<T>| chunk.is_allocated();
        let left = self.chunks.iter().rposition(is_allocated);
        let left = left.map_or(0, |last| last + 1);
        if left < self.chunks.len() {
            self.chunks.truncate(left);
            self.open.retain(|&number| (number as usize) < left);
        }
    }

    /// Whether there is memory to free. An empty chunk is kept for the next items, but without any item only a small one.
    pub(super) fn has_spare(&self) -> bool {
        match self.empty.as_slice() {
            [] => false,
            &[only] => self.len == 0 && self.chunks[only as usize].is_large(),
            _ => true,
        }
    }

    /// The index that the next item will have.
    pub(super) fn next_index(&self) -> u32 {
        self.open.last().map_or(self.indices(), |&number| {
            number * CHUNK_U32 + self.chunks[number as usize].next_place()
        })
    }

    /// One more than the highest index there may be.
    #[allow(clippy::cast_possible_truncation)] // below `INDICES`
    pub(super) fn indices(&self) -> u32 {
        self.chunks.len() as u32 * CHUNK_U32
    }

    fn get(&self, index: u32) -> Option<&Node<T>> {
        let chunk = self.chunks.get((index / CHUNK_U32) as usize)?;
        chunk.nodes().get((index % CHUNK_U32) as usize)
    }

    #[inline]
    fn node(&self, index: u32) -> &Node<T> {
        &self.chunks[(index / CHUNK_U32) as usize].nodes()[(index % CHUNK_U32) as usize]
    }

    #[inline]
    fn node_mut(&mut self, index: u32) -> &mut Node<T> {
        &mut self.chunks[(index / CHUNK_U32) as usize].nodes_mut()[(index % CHUNK_U32) as usize]
    }

    /// The item at an index, if there is one.
    #[inline]
    pub(super) fn item(&self, index: u32) -> Option<&T> {
        self.get(index)?.item.as_ref()
    }

    /// The item at an index, if there is one.
    #[inline]
    pub(super) fn item_mut(&mut self, index: u32) -> Option<&mut T> {
        let chunk = self.chunks.get_mut((index / CHUNK_U32) as usize)?;
        let node = chunk.nodes_mut().get_mut((index % CHUNK_U32) as usize)?;
        node.item.as_mut()
    }

    /// The tick for which the item at an index is scheduled, if there is one.
    #[inline]
    pub(super) fn tick(&self, index: u32) -> Option<u64> {
        self.get(index)
            .and_then(|node| node.item.is_some().then_some(node.tick))
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

    /// The indices on `list`, front to back.
    #[cfg(any(test, fuzzing))]
    pub(super) fn walk(&self, list: List) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(list.front(), |&index| self.node(index).next.node())
    }

    /// Panics unless every chunk and the books are in order.
    #[cfg(test)]
    pub(super) fn assert_consistent(&self) {
        let nodes = || self.chunks.iter().flat_map(Chunk::nodes);
        let occupied = nodes().filter(|node| node.item.is_some()).count();
        assert_eq!(occupied, self.len, "items against items counted");
        self.chunks.iter().for_each(Chunk::assert_consistent);
        let mut open = self.open.clone();
        open.sort_unstable();
        let has_room = |&number: &u32| !self.chunks[number as usize].is_full();
        let with_room = (0..).take(self.chunks.len()).filter(has_room);
        assert!(open.into_iter().eq(with_room), "the chunks with room");
        let mut empty = self.empty.clone();
        empty.sort_unstable();
        let is_listed = |&number: &u32| self.chunks[number as usize].is_listed;
        let listed = (0..).take(self.chunks.len()).filter(is_listed);
        assert!(empty.into_iter().eq(listed), "the list of empty chunks");
        let is_lost =
            |chunk: &Chunk<T>| chunk.is_empty() && chunk.is_allocated() && !chunk.is_listed;
        assert!(
            !self.chunks.iter().any(is_lost),
            "an empty chunk not listed"
        );
    }

    /// Panics unless the links of the list agree in both directions, and its ends name the level.
    #[cfg(any(test, fuzzing))]
    pub(super) fn assert_linked(&self, list: List, level: u8) {
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

    /// How many nodes there is memory for.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.chunks.iter().map(Chunk::capacity).sum()
    }
}
