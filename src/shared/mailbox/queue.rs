//! The two ends of the mailbox: a queue that callers fill, and the backlog into which the actor empties it.
//!
//! Both are made of blocks. The actor takes a burst of a million commands over block by block, without a copy, and frees
//! its memory a block at a time: neither a caller nor the actor ever waits until a vector of many megabytes is moved or
//! freed.
//!
//! Each block has a lower bound of the ticks by which its commands are needed. The bound is exact when the block is
//! filled, and does not rise while the block is applied. So a backlog may report a tick earlier than its earliest one,
//! until the block is applied, but never a later one.

use std::collections::VecDeque;
use std::mem;

use crate::sync::EXPLORED;
use crate::tick::NEVER;

/// How many commands a block has.
const BLOCK: usize = if EXPLORED { 4 } else { 512 };

/// How many empty blocks the backlog keeps, to give them to the queues.
const FREE_BLOCKS: usize = 4;

/// Some commands, and the earliest tick by which one of them is needed.
#[derive(Debug)]
struct Block<C> {
    commands: Vec<C>,
    earliest: u64,
}

impl<C> Block<C> {
    /// An empty block in this memory.
    fn new(memory: Vec<C>) -> Self {
        Block {
            commands: memory,
            earliest: NEVER,
        }
    }
}

/// The end that callers fill.
#[derive(Debug)]
pub(super) struct Queue<C> {
    full: Vec<Block<C>>,
    last: Block<C>,
    /// The actor has ended, and will not empty the queue any more.
    pub(super) closed: bool,
}

impl<C> Queue<C> {
    pub(super) fn new() -> Self {
        Queue {
            full: Vec::new(),
            last: Block::new(Vec::new()),
            closed: false,
        }
    }

    /// Appends a command that is needed by `tick`. Returns whether there are `bound` commands, or more.
    pub(super) fn push(&mut self, tick: u64, command: C, bound: usize) -> bool {
        if self.last.commands.len() == BLOCK {
            let next = Block::new(Vec::with_capacity(BLOCK));
            self.full.push(mem::replace(&mut self.last, next));
        }
        self.last.earliest = self.last.earliest.min(tick);
        self.last.commands.push(command);
        self.full.len() * BLOCK + self.last.commands.len() >= bound
    }

    pub(super) fn is_empty(&self) -> bool {
        self.last.commands.is_empty()
    }
}

/// The commands that the actor has taken and not applied. First in, first out.
#[derive(Debug)]
pub(crate) struct Backlog<C> {
    /// The block that is being applied; its next command is the last.
    current: Block<C>,
    blocks: VecDeque<Block<C>>,
    free: Vec<Vec<C>>,
}

impl<C> Backlog<C> {
    pub(crate) fn new() -> Self {
        Backlog {
            current: Block::new(Vec::new()),
            blocks: VecDeque::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.current.commands.is_empty() && self.blocks.is_empty()
    }

    /// No command in here is needed before this tick; `NEVER` when there is none.
    pub(crate) fn earliest(&self) -> u64 {
        let current = if self.current.commands.is_empty() {
            NEVER
        } else {
            self.current.earliest
        };
        let blocks = self.blocks.iter().map(|block| block.earliest);
        blocks.fold(current, u64::min)
    }

    /// Takes the next command out.
    pub(crate) fn pop(&mut self) -> Option<C> {
        if self.current.commands.is_empty() {
            let mut next = self.blocks.pop_front()?;
            next.commands.reverse();
            let applied = mem::replace(&mut self.current, next).commands;
            if self.free.len() < FREE_BLOCKS && applied.capacity() > 0 {
                self.free.push(applied);
            }
        }
        self.current.commands.pop()
    }

    /// The commands that come next, as far as they are in the current block.
    pub(crate) fn next(&self) -> impl Iterator<Item = &C> {
        self.current.commands.iter().rev()
    }

    /// Moves commands that are needed by `earliest` out of `commands` and behind all others.
    pub(crate) fn append(&mut self, commands: &mut Vec<C>, earliest: u64) {
        if !commands.is_empty() {
            let free = self.free.pop().unwrap_or_default();
            self.blocks.push_back(Block {
                commands: mem::replace(commands, free),
                earliest,
            });
        }
    }

    /// Some command in here is needed by `tick`, and its block may have a later bound. It is not known which command, so
    /// the last block gets the bound: once that is applied, all are.
    pub(super) fn lower_bound(&mut self, tick: u64) {
        let last = self.blocks.back_mut().unwrap_or(&mut self.current);
        last.earliest = last.earliest.min(tick);
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let blocks = self.blocks.iter().map(|block| block.commands.len());
        self.current.commands.len() + blocks.sum::<usize>()
    }

    /// Moves what is in the queue behind all others.
    pub(super) fn take(&mut self, queue: &mut Queue<C>) {
        self.blocks.extend(mem::take(&mut queue.full));
        let earliest = mem::replace(&mut queue.last.earliest, NEVER);
        self.append(&mut queue.last.commands, earliest);
        if self.blocks.is_empty() && self.blocks.capacity() > BLOCK {
            self.blocks = VecDeque::new();
        }
    }
}

#[cfg(all(test, not(tickwheel_loom)))]
mod tests {
    use super::*;

    fn drain(backlog: &mut Backlog<usize>) -> Vec<usize> {
        std::iter::from_fn(|| backlog.pop()).collect()
    }

    #[test]
    fn keeps_the_order_of_commands() {
        let mut backlog = Backlog::new();
        for count in [0, 1, 2, BLOCK, BLOCK + 1, 3 * BLOCK, 5 * BLOCK + 7] {
            let (mut one, mut other) = (Queue::new(), Queue::new());
            for n in 0..count {
                assert_eq!(one.push(5, n, 600), n >= 599);
                other.push(5, count + n, 1);
            }
            assert_eq!(one.is_empty(), count == 0);
            backlog.take(&mut one);
            backlog.take(&mut other);
            backlog.append(&mut vec![2 * count, 2 * count + 1], 5);
            assert!(one.is_empty() && other.is_empty() && !backlog.is_empty());
            let all: Vec<usize> = (0..2 * count + 2).collect();
            assert_eq!(drain(&mut backlog), all, "of {count}");
            assert!(backlog.is_empty());
        }
    }

    #[test]
    fn knows_the_earliest_tick_of_what_it_holds() {
        let mut backlog = Backlog::new();
        assert_eq!(backlog.earliest(), NEVER);
        let mut queue = Queue::new();
        // A block that is needed by 30, one by 10 and one by 20.
        for tick in [30, 10, 20] {
            queue.push(tick, 0, 1);
            (1..BLOCK).for_each(|n| assert!(queue.push(tick + 5, n, 1)));
        }
        backlog.take(&mut queue);
        assert_eq!(backlog.earliest(), 10);
        for after in [10, 20, NEVER] {
            (0..BLOCK).for_each(|_| assert!(backlog.pop().is_some()));
            assert_eq!(backlog.earliest(), after);
        }
        backlog.append(&mut vec![1, 2], 40);
        assert_eq!(backlog.earliest(), 40);
        queue.push(50, 3, 1);
        backlog.take(&mut queue);
        assert_eq!(backlog.earliest(), 40, "the queue forgot its earlier ticks");
    }

    #[test]
    fn holds_a_lower_bound_until_all_before_it_are_applied() {
        let mut backlog = Backlog::new();
        backlog.append(&mut vec![1, 2], 9);
        backlog.append(&mut vec![3, 4], 9);
        backlog.lower_bound(5);
        for _ in 0..4 {
            assert_eq!(backlog.earliest(), 5);
            assert!(backlog.pop().is_some());
        }
        assert_eq!(backlog.earliest(), NEVER);
        backlog.lower_bound(5);
        assert_eq!(backlog.earliest(), NEVER, "nothing is left to be needed");
        backlog.append(&mut vec![1, 2], 9);
        assert_eq!((backlog.pop(), backlog.earliest()), (Some(1), 9));
        backlog.lower_bound(5);
        assert_eq!(backlog.earliest(), 5, "in the current block");
    }

    #[test]
    fn reuses_a_few_blocks_after_a_burst() {
        let mut backlog = Backlog::new();
        let mut queue = Queue::new();
        for _ in 0..100 * BLOCK {
            queue.push(5, (), 1);
        }
        backlog.take(&mut queue);
        while backlog.pop().is_some() {}
        assert_eq!(backlog.free.len(), FREE_BLOCKS);
        backlog.take(&mut queue);
        for _ in 0..10 {
            queue.push(5, (), 1);
            let memory = queue.last.commands.as_ptr();
            backlog.take(&mut queue);
            while backlog.pop().is_some() {}
            assert!(backlog.current.commands.as_ptr() == memory);
        }
    }
}
