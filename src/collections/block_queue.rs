//! A queue made of blocks: growing it moves none of them, appending another queue copies no item,
//! and an emptied block goes back to the allocator by itself.
//!
//! Each item is needed by a tick, and each block has a lower bound of the ticks of its items. The
//! bound is exact when the block is filled, and does not rise while items are taken out. So a queue
//! may report a tick earlier than its earliest one, never a later one.

#[cfg(all(test, not(any(tickwheel_loom, tickwheel_shuttle))))]
mod tests;

use std::collections::VecDeque;
use std::mem;

/// A list of blocks keeps memory for at most this many.
const LISTED: usize = 64;

/// See the module. First in, first out. A block has at most `BLOCK` items; the queue keeps the
/// memory of `SPARE` empty ones, and of its first.
#[derive(Debug)]
pub(crate) struct BlockQueue<T, const BLOCK: usize, const SPARE: usize> {
    /// Empty if the queue is. It grows as needed.
    first: Block<T>,
    /// None of these is empty.
    rest: VecDeque<Block<T>>,
    spare: Vec<VecDeque<T>>,
    len: usize,
}

#[derive(Debug)]
struct Block<T> {
    items: VecDeque<T>,
    /// None of the items is needed before this tick; `u64::MAX` if there are none.
    earliest: u64,
}

impl<T> Block<T> {
    const fn new(items: VecDeque<T>) -> Self {
        Block {
            items,
            earliest: u64::MAX,
        }
    }

    fn push(&mut self, tick: u64, item: T) {
        self.earliest = self.earliest.min(tick);
        self.items.push_back(item);
    }
}

impl<T, const BLOCK: usize, const SPARE: usize> BlockQueue<T, BLOCK, SPARE> {
    pub(crate) const fn new() -> Self {
        BlockQueue {
            first: Block::new(VecDeque::new()),
            rest: VecDeque::new(),
            spare: Vec::new(),
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// No item in here is needed before this tick; `u64::MAX` when there is none.
    pub(crate) fn earliest(&self) -> u64 {
        let rest = self.rest.iter().map(|block| block.earliest);
        rest.fold(self.first.earliest, u64::min)
    }

    /// Appends an item that is needed by `tick`.
    pub(crate) fn push(&mut self, tick: u64, item: T) {
        self.len += 1;
        let last = self.rest.back_mut().unwrap_or(&mut self.first);
        if last.items.len() < BLOCK {
            last.push(tick, item);
        } else {
            self.push_block(tick, item);
        }
    }

    fn push_block(&mut self, tick: u64, item: T) {
        let spare = self.spare.pop();
        let mut block = Block::new(spare.unwrap_or_else(|| VecDeque::with_capacity(BLOCK)));
        block.push(tick, item);
        self.rest.push_back(block);
    }

    pub(crate) fn front(&self) -> Option<&T> {
        self.first.items.front()
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let item = self.first.items.pop_front()?;
        self.len -= 1;
        if self.first.items.is_empty() {
            self.first.earliest = u64::MAX;
            if let Some(next) = self.next_block() {
                let emptied = mem::replace(&mut self.first, next);
                self.recycle(emptied.items);
            }
        }
        Some(item)
    }

    /// Takes the items of the first block, in order. Their memory can be [recycled](Self::recycle).
    pub(crate) fn pop_block(&mut self) -> Option<VecDeque<T>> {
        if self.is_empty() {
            return None;
        }
        let next = self.next_block();
        let next = next.unwrap_or_else(|| Block::new(self.spare.pop().unwrap_or_default()));
        let Block { items, .. } = mem::replace(&mut self.first, next);
        self.len -= items.len();
        Some(items)
    }

    /// The block behind the first one.
    fn next_block(&mut self) -> Option<Block<T>> {
        let next = self.rest.pop_front();
        shrink(&mut self.rest);
        next
    }

    /// Keeps the memory of a block whose items were taken, if it has few.
    pub(crate) fn recycle(&mut self, emptied: VecDeque<T>) {
        debug_assert!(emptied.is_empty(), "its items were taken");
        if self.first.items.capacity() == 0 {
            self.first.items = emptied;
        } else if self.spare.len() < SPARE {
            self.spare.push(emptied);
        }
    }

    /// Moves all items of the other queue behind those in here. It gets the memory of a block in
    /// return.
    pub(crate) fn append(&mut self, other: &mut Self) {
        if other.is_empty() {
            return;
        }
        let was_empty = self.is_empty();
        self.len += mem::take(&mut other.len);
        let first = mem::replace(&mut other.first, Block::new(VecDeque::new()));
        if was_empty {
            other.first.items = mem::replace(&mut self.first, first).items;
        } else {
            other.first.items = self.spare.pop().unwrap_or_default();
            self.rest.push_back(first);
        }
        self.rest.append(&mut other.rest);
        shrink(&mut other.rest);
    }
}

/// Frees a long list of blocks that is empty.
fn shrink<T>(blocks: &mut VecDeque<T>) {
    if blocks.is_empty() && blocks.capacity() > LISTED {
        *blocks = VecDeque::new();
    }
}
