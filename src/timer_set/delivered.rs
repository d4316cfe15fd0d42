//! The expirations that were delivered and not received.

use std::collections::VecDeque;

use crate::sync::EXPLORED;

/// How many expirations a block has.
const BLOCK: usize = if EXPLORED { 2 } else { 256 };

/// A queue made of blocks: growing it moves none of them, and a block goes back when it has been taken.
pub(super) struct Delivered<T> {
    blocks: VecDeque<VecDeque<T>>,
}

impl<T> Delivered<T> {
    pub(super) const fn new() -> Self {
        Delivered {
            blocks: VecDeque::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.blocks.iter().map(VecDeque::len).sum()
    }

    pub(super) fn push(&mut self, expired: T) {
        match self.blocks.back_mut() {
            Some(block) if block.len() < BLOCK => block.push_back(expired),
            _ => self.blocks.push_back(VecDeque::from([expired])),
        }
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        let block = self.blocks.front_mut()?;
        let expired = block.pop_front();
        // The last block stays for the next expiration.
        if block.is_empty() && self.blocks.len() > 1 {
            self.blocks.pop_front();
            if self.blocks.len() == 1 {
                self.blocks.shrink_to_fit();
            }
        }
        expired
    }
}

impl<T> IntoIterator for Delivered<T> {
    type Item = T;
    type IntoIter = std::iter::Flatten<std::collections::vec_deque::IntoIter<VecDeque<T>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.blocks.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_out_in_order_and_gives_blocks_back() {
        let mut delivered = Delivered::new();
        for round in 0..3 {
            (0..10_000).for_each(|n| delivered.push(n));
            assert_eq!(delivered.len(), 10_000);
            assert!((0..10_000).all(|n| delivered.pop() == Some(n)), "{round}");
            assert!(delivered.len() == 0 && delivered.pop().is_none());
            assert_eq!(delivered.blocks.len(), 1);
            assert!(delivered.blocks.capacity() <= 4);
        }
    }
}
