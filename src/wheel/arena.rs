//! A generational slab whose nodes carry the links of the list they are on.
//!
//! One allocation holds every node of a wheel. A node is named by its index, an owner outside by a [`Token`]:
//! index and generation. A node's generation changes whenever its item leaves, so a token kept too long finds
//! nothing; it never finds somebody else's item. A node whose generation is used up is retired instead of reused.

use std::fmt;
use std::num::NonZeroU32;

/// The index that means "no node": an end of a list, or an empty list.
const NIL: u32 = u32::MAX;

/// The first generation of every node.
const FIRST: NonZeroU32 = NonZeroU32::MIN;

/// An empty arena keeps at most this many nodes of memory; a larger one is given back.
const KEPT_NODES: usize = 1024;

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
    /// The index alone, for an owner that knows by itself whether its item is still filed.
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

#[derive(Clone)]
struct Node<T> {
    /// The tick the item is filed under.
    tick: u64,
    generation: NonZeroU32,
    /// Neighbours on the node's list. Of a vacant node, `next` is the next vacant one.
    prev: u32,
    next: u32,
    /// The level whose bucket the node is on.
    level: u8,
    /// `None` while the node is vacant.
    item: Option<T>,
}

/// See the module.
#[derive(Clone)]
pub(super) struct Arena<T> {
    nodes: Vec<Node<T>>,
    vacant: u32,
    len: usize,
    /// What a node that has never been used starts with: above every generation that was given out by nodes
    /// whose memory has been returned.
    fresh: NonZeroU32,
    /// The highest generation any node has.
    highest: NonZeroU32,
}

impl<T> Arena<T> {
    pub(super) const fn new() -> Self {
        Arena {
            nodes: Vec::new(),
            vacant: NIL,
            len: 0,
            fresh: FIRST,
            highest: FIRST,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Takes a node for `item`; it is on no list yet.
    pub(super) fn insert(&mut self, tick: u64, item: T) -> Token {
        if self.vacant != NIL {
            self.len += 1;
            let index = self.vacant;
            let node = &mut self.nodes[index as usize];
            self.vacant = node.next;
            node.tick = tick;
            node.item = Some(item);
            return Token {
                index,
                generation: node.generation,
            };
        }
        let index = u32::try_from(self.nodes.len()).unwrap_or(NIL);
        assert!(index != NIL, "a wheel holds at most 2^32 - 1 items");
        self.len += 1;
        self.nodes.push(Node {
            tick,
            generation: self.fresh,
            prev: NIL,
            next: NIL,
            level: 0,
            item: Some(item),
        });
        Token {
            index,
            generation: self.fresh,
        }
    }

    /// Takes the item out of a node that is on no list. The node may be reused at once.
    pub(super) fn remove(&mut self, index: u32) -> T {
        let node = &mut self.nodes[index as usize];
        let item = node.item.take().expect("only occupied nodes are linked");
        self.len -= 1;
        // The last generation is never given out: reaching it retires the node.
        if let Some(next) = node.generation.checked_add(1) {
            node.generation = next;
            self.highest = self.highest.max(next);
            if next != NonZeroU32::MAX {
                node.next = self.vacant;
                self.vacant = index;
            }
        }
        if self.len == 0 && self.nodes.capacity() > KEPT_NODES {
            self.give_back();
        }
        item
    }

    /// Returns the memory of an empty arena. Whatever tokens are still around stay stale, because the next nodes
    /// start above every generation there has been.
    fn give_back(&mut self) {
        // Close to the end of the generations a fresh start would retire every node after a few uses.
        if self.highest.get() > u32::MAX / 2 {
            return;
        }
        self.nodes = Vec::new();
        self.vacant = NIL;
        self.fresh = self.highest;
    }

    /// The node's index, if the token is not stale.
    pub(super) fn find(&self, token: Token) -> Option<u32> {
        let node = self.nodes.get(token.index as usize)?;
        (node.generation == token.generation && node.item.is_some()).then_some(token.index)
    }

    /// The token of an occupied node.
    pub(super) fn token(&self, index: u32) -> Option<Token> {
        let node = self.nodes.get(index as usize)?;
        node.item.as_ref()?;
        Some(Token {
            index,
            generation: node.generation,
        })
    }

    pub(super) fn item(&self, index: u32) -> Option<&T> {
        self.nodes[index as usize].item.as_ref()
    }

    pub(super) fn item_mut(&mut self, index: u32) -> Option<&mut T> {
        self.nodes[index as usize].item.as_mut()
    }

    pub(super) fn tick(&self, index: u32) -> u64 {
        self.nodes[index as usize].tick
    }

    pub(super) fn set_tick(&mut self, index: u32, tick: u64) {
        self.nodes[index as usize].tick = tick;
    }

    pub(super) fn level(&self, index: u32) -> usize {
        usize::from(self.nodes[index as usize].level)
    }

    /// Appends the node to `list`, a bucket of `level`.
    pub(super) fn push_back(&mut self, list: &mut List, level: u8, index: u32) {
        let node = &mut self.nodes[index as usize];
        node.level = level;
        node.prev = list.tail;
        node.next = NIL;
        match list.tail {
            NIL => list.head = index,
            tail => self.nodes[tail as usize].next = index,
        }
        list.tail = index;
    }

    /// Takes the node off `list`, which must be the one it is on.
    pub(super) fn unlink(&mut self, list: &mut List, index: u32) {
        let Node { prev, next, .. } = self.nodes[index as usize];
        match prev {
            NIL => list.head = next,
            prev => self.nodes[prev as usize].next = next,
        }
        match next {
            NIL => list.tail = prev,
            next => self.nodes[next as usize].prev = prev,
        }
    }

    /// The indices on `list`, front to back.
    #[cfg(any(test, fuzzing))]
    pub(super) fn walk(&self, list: List) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(list.front(), |&index| {
            let next = self.nodes[index as usize].next;
            (next != NIL).then_some(next)
        })
    }

    /// Panics unless the vacant nodes, the retired ones and the books are in order.
    #[cfg(test)]
    pub(super) fn assert_consistent(&self) {
        let occupied = self.nodes.iter().filter(|node| node.item.is_some()).count();
        assert_eq!(occupied, self.len, "items against items counted");
        let retired = |node: &&Node<T>| node.generation == NonZeroU32::MAX;
        let retired = self.nodes.iter().filter(retired).count();
        let mut vacant = 0;
        let mut index = self.vacant;
        while index != NIL {
            vacant += 1;
            let node = &self.nodes[index as usize];
            assert!(node.item.is_none(), "node {index} is vacant and occupied");
            assert_ne!(node.generation, NonZeroU32::MAX, "node {index} is retired");
            assert!(
                vacant <= self.nodes.len(),
                "the vacant nodes go in a circle"
            );
            index = node.next;
        }
        assert_eq!(occupied + vacant + retired, self.nodes.len(), "nodes lost");
        let highest = self.nodes.iter().map(|node| node.generation).max();
        assert!(highest.is_none_or(|highest| highest <= self.highest.max(self.fresh)));
        assert!(self.fresh <= self.highest);
    }

    /// Panics unless the links of the list agree in both directions.
    #[cfg(test)]
    pub(super) fn assert_linked(&self, list: List) {
        let mut before = NIL;
        for index in self.walk(list) {
            let node = &self.nodes[index as usize];
            assert!(node.item.is_some(), "node {index} is listed but vacant");
            assert_eq!(node.prev, before, "the way back from node {index}");
            before = index;
        }
        assert_eq!(list.tail, before, "the end of the list");
    }

    /// How many nodes there is memory for.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.nodes.capacity()
    }

    /// Makes a vacant node as old as if it had been used this often.
    #[cfg(test)]
    pub(super) fn age(&mut self, index: u32, generation: u32) {
        let node = &mut self.nodes[index as usize];
        let generation = NonZeroU32::new(generation).expect("the first is 1");
        assert!(node.item.is_none() && node.generation <= generation);
        node.generation = generation;
        self.highest = self.highest.max(generation);
    }
}
