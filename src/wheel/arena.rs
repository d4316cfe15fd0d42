//! A generational slab whose nodes carry the links of the list they are on.
//!
//! The arena names a node by its index. Owners outside name it by a [`Token`]: index and generation. A node's generation
//! changes whenever its item leaves, so a token that was kept too long finds nothing, and never another item. A node whose
//! generation is used up is retired instead of reused.
//!
//! The nodes lie in [chunks](Chunk). A vector of a million nodes takes milliseconds to grow, because it is moved, and to
//! free, because its pages go back one by one. The owner of the wheel would wait for that in the middle of a tick. Chunks
//! are allocated and freed one at a time, and memory can go back before the last item has left.

use std::fmt;
use std::num::NonZeroU32;

use super::chunk::{CHUNK, Chunk};
use super::node::{NIL, Node};

/// The first generation of every node.
const FIRST: NonZeroU32 = NonZeroU32::MIN;

/// How many chunks are given back at a time at most.
const GIVEN_BACK: usize = 8;

#[allow(clippy::cast_possible_truncation)] // 4096
const CHUNK_U32: u32 = CHUNK as u32;

/// All indices are below [`NIL`].
const MOST_CHUNKS: usize = (1 << 32) / CHUNK - 1;

/// Names one item in a [`Wheel`](super::Wheel) for as long as the item is there.
///
/// Tokens are generational: once the item was removed or handed out its token is stale for good. A stale token
/// yields `None` everywhere, and never another item, however often the memory behind it has been reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token {
    index: u32,
    generation: NonZeroU32,
}

impl Token {
    /// The index alone, for an owner that knows whether its item is still scheduled.
    pub(crate) fn index(self) -> u32 {
        self.index
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}v{})", self.index, self.generation)
    }
}

/// The two ends of a list of nodes. The nodes hold the links, the arena holds the nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

impl List {
    pub(super) const EMPTY: List = List {
        head: NIL,
        tail: NIL,
    };

    pub(super) fn is_empty(self) -> bool {
        self.head == NIL
    }

    /// The node at the front.
    pub(super) fn front(self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }
}

/// See the module.
#[derive(Clone)]
pub(super) struct Arena<T> {
    chunks: Vec<Chunk<T>>,
    /// The chunks with room; the last one is used next.
    open: Vec<u32>,
    len: usize,
    /// The generation of a new node: above every generation of the nodes whose memory was freed.
    fresh: NonZeroU32,
    /// The highest generation any node has, or had.
    highest: NonZeroU32,
}

impl<T> Arena<T> {
    pub(super) const fn new() -> Self {
        Arena {
            chunks: Vec::new(),
            open: Vec::new(),
            len: 0,
            fresh: FIRST,
            highest: FIRST,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Takes a node for `item`; it is on no list yet.
    #[inline]
    pub(super) fn insert(&mut self, item: T) -> Token {
        let number = match self.open.last() {
            Some(&number) => number,
            None => self.grow(),
        };
        let chunk = &mut self.chunks[number as usize];
        let (place, generation) = chunk.insert(item, self.fresh);
        if chunk.is_full() {
            self.open.pop();
        }
        self.len += 1;
        let index = number * CHUNK_U32 + place;
        Token { index, generation }
    }

    /// One chunk more; returns its number.
    #[cold]
    fn grow(&mut self) -> u32 {
        let number = self.chunks.len();
        assert!(
            number < MOST_CHUNKS,
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
        let (item, generation) = chunk.remove(index % CHUNK_U32);
        if was_full && !chunk.is_full() {
            self.open.push(number);
        }
        self.highest = self.highest.max(generation);
        self.len -= 1;
        if self.len == 0 {
            self.give_back();
        }
        item
    }

    /// Frees some of the unused memory. Tokens of freed nodes stay stale, because new nodes start above every generation
    /// there has been.
    pub(super) fn give_back(&mut self) {
        let before = self.chunks.len();
        while self.has_spare() && before - self.chunks.len() < GIVEN_BACK {
            self.chunks.pop();
        }
        if self.chunks.len() < before {
            self.fresh = self.highest;
            let left = self.chunks.len();
            self.open.retain(|&number| (number as usize) < left);
        }
    }

    /// Whether there is memory to free: the last of two empty chunks at the end, or the only chunk if it is empty and large.
    pub(super) fn has_spare(&self) -> bool {
        let spare = match self.chunks.as_slice() {
            [.., one, other] => one.is_empty() && other.is_empty(),
            [only] => only.is_empty() && only.is_large(),
            [] => false,
        };
        // Near the last generation, new nodes would be retired after a few uses.
        spare && self.highest.get() <= u32::MAX / 2
    }

    /// The index that the next item will have.
    pub(super) fn next_index(&self) -> u32 {
        self.open.last().map_or(self.indices(), |&number| {
            number * CHUNK_U32 + self.chunks[number as usize].next_place()
        })
    }

    /// One more than the highest index there may be.
    #[allow(clippy::cast_possible_truncation)] // MOST_CHUNKS
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

    /// The node's index, if the token is not stale.
    pub(super) fn find(&self, token: Token) -> Option<u32> {
        let node = self.get(token.index)?;
        (node.generation == token.generation && node.item.is_some()).then_some(token.index)
    }

    /// The token of an occupied node.
    pub(super) fn token(&self, index: u32) -> Option<Token> {
        let node = self.get(index)?;
        node.item.as_ref()?;
        Some(Token {
            index,
            generation: node.generation,
        })
    }

    pub(super) fn item(&self, index: u32) -> Option<&T> {
        self.node(index).item.as_ref()
    }

    pub(super) fn item_mut(&mut self, index: u32) -> Option<&mut T> {
        self.node_mut(index).item.as_mut()
    }

    pub(super) fn tick(&self, index: u32) -> u64 {
        self.node(index).tick
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn level(&self, index: u32) -> usize {
        usize::from(self.node(index).level)
    }

    /// Where the node is scheduled: level and tick.
    #[inline]
    pub(super) fn scheduled(&self, index: u32) -> (usize, u64) {
        let node = self.node(index);
        (usize::from(node.level), node.tick)
    }

    /// Appends the node to `list`, the bucket of `level` for this tick.
    #[inline]
    pub(super) fn push_back(&mut self, list: &mut List, level: u8, tick: u64, index: u32) {
        let node = self.node_mut(index);
        node.tick = tick;
        node.level = level;
        node.prev = list.tail;
        node.next = NIL;
        match list.tail {
            NIL => list.head = index,
            tail => self.node_mut(tail).next = index,
        }
        list.tail = index;
    }

    /// Takes the node off `list`, which must be the one it is on.
    #[inline]
    pub(super) fn unlink(&mut self, list: &mut List, index: u32) {
        let &Node { prev, next, .. } = self.node(index);
        match prev {
            NIL => list.head = next,
            prev => self.node_mut(prev).next = next,
        }
        match next {
            NIL => list.tail = prev,
            next => self.node_mut(next).prev = prev,
        }
    }

    /// The indices on `list`, front to back.
    #[cfg(any(test, fuzzing))]
    pub(super) fn walk(&self, list: List) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(list.front(), |&index| {
            let next = self.node(index).next;
            (next != NIL).then_some(next)
        })
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
        let highest = nodes().map(|node| node.generation).max();
        assert!(highest.is_none_or(|highest| highest <= self.highest.max(self.fresh)));
        assert!(self.fresh <= self.highest);
    }

    /// Panics unless the links of the list agree in both directions.
    #[cfg(test)]
    pub(super) fn assert_linked(&self, list: List) {
        let mut before = NIL;
        for index in self.walk(list) {
            let node = self.node(index);
            assert!(node.item.is_some(), "node {index} is listed but vacant");
            assert_eq!(node.prev, before, "the way back from node {index}");
            before = index;
        }
        assert_eq!(list.tail, before, "the end of the list");
    }

    /// How many nodes there is memory for.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.chunks.iter().map(Chunk::capacity).sum()
    }

    /// Makes a vacant node as old as if it had been used this often.
    #[cfg(test)]
    pub(super) fn age(&mut self, index: u32, generation: u32) {
        let node = self.node_mut(index);
        let generation = NonZeroU32::new(generation).expect("the first is 1");
        assert!(node.item.is_none() && node.generation <= generation);
        node.generation = generation;
        self.highest = self.highest.max(generation);
    }
}
