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
/// memory of `SPARE` empty ones.
#[derive(Debug)]
pub(crate) struct BlockQueue<T, const BLOCK: usize, const SPARE: usize> {
    /// None of them is empty.
    blocks: VecDeque<Block<T>>,
    spare: Vec<VecDeque<T>>,
    len: usize,
}

#[derive(Debug)]
struct Block<T> {
    items: VecDeque<T>,
    /// None of the items is needed before this tick.
    earliest: u64,
}

impl<T, const BLOCK: usize, const SPARE: usize> BlockQueue<T, BLOCK, SPARE> {
    pub(crate) const fn new() -> Self {
        BlockQueue {
            blocks: VecDeque::new(),
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
        let blocks = self.blocks.iter().map(|block| block.earliest);
        blocks.min().unwrap_or(u64::MAX)
    }

    /// Appends an item that is needed by `tick`.
    pub(crate) fn push(&mut self, tick: u64, item: T) {
        self.len += 1;
        match self.blocks.back_mut() {
            Some(last) if last.items.len() < BLOCK => {
                last.earliest = last.earliest.min(tick);
                last.items.push_back(item);
            }
            _ => self.push_block(tick, item),
        }
    }

    fn push_block(&mut self, earliest: u64, item: T) {
        // The first block grows as needed.
        let capacity = if self.blocks.is_empty() { 0 } else { BLOCK };
        let spare = self.spare.pop();
        let mut items = spare.unwrap_or_else(|| VecDeque::with_capacity(capacity));
        items.push_back(item);
        self.blocks.push_back(Block { items, earliest });
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let items = &mut self.blocks.front_mut()?.items;
        let item = items.pop_front();
        self.len -= 1;
        if items.is_empty() {
            if let Some(emptied) = self.pop_block() {
                self.recycle(emptied);
            }
        }
        item
    }

    /// Takes the items of the first block, in order. Their memory can be [recycled](Self::recycle).
    pub(crate) fn pop_block(&mut self) -> Option<VecDeque<T>> {
        let Block { items, .. } = self.blocks.pop_front()?;
        shrink(&mut self.blocks);
        self.len -= items.len();
        Some(items)
    }

    /// Keeps the memory of a block whose items were taken, if it has few.
    pub(crate) fn recycle(&mut self, emptied: VecDeque<T>) {
        debug_assert!(emptied.is_empty(), "its items were taken");
        if self.spare.len() < SPARE {
            self.spare.push(emptied);
        }
    }

    /// Moves all items of the other queue behind those in here. It gets the memory of a block in
    /// return.
    pub(crate) fn append(&mut self, other: &mut Self) {
        if other.is_empty() {
            return;
        }
        self.len += mem::take(&mut other.len);
        self.blocks.append(&mut other.blocks);
        shrink(&mut other.blocks);
        if other.spare.is_empty() {
            other.spare.extend(self.spare.pop());
        }
    }
}

/// Frees a long list of blocks that is empty.
fn shrink<T>(blocks: &mut VecDeque<T>) {
    if blocks.is_empty() && blocks.capacity() > LISTED {
        *blocks = VecDeque::new();
    }
}
