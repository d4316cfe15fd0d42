//! The two ends of the way to the actor: a queue that submitters fill, and the backlog it is emptied into.
//!
//! Both are made of blocks. A burst of a million commands is handed over block by block, never copied, and its memory
//! goes back a block at a time, as it is worked off: neither a submitter nor the actor ever waits for a vector of many
//! megabytes to be moved or freed.

use std::collections::VecDeque;
use std::mem;

/// How many commands there are to a block.
const BLOCK: usize = 512;

/// How many empty blocks the backlog keeps, to give them to the queues.
const SPARES: usize = 4;

/// What submitters fill.
#[derive(Debug)]
pub(super) struct Queue<C> {
    full: Vec<Vec<C>>,
    last: Vec<C>,
    /// Nobody will empty it any more.
    pub(super) closed: bool,
}

impl<C> Queue<C> {
    pub(super) fn new() -> Self {
        Queue {
            full: Vec::new(),
            last: Vec::new(),
            closed: false,
        }
    }

    /// Appends a command; true when there are `bound` of them, or more.
    pub(super) fn push(&mut self, command: C, bound: usize) -> bool {
        if self.last.len() == BLOCK {
            self.full
                .push(mem::replace(&mut self.last, Vec::with_capacity(BLOCK)));
        }
        self.last.push(command);
        self.full.len() * BLOCK + self.last.len() >= bound
    }

    pub(super) fn is_empty(&self) -> bool {
        self.last.is_empty()
    }
}

/// What the actor works off.
#[derive(Debug)]
pub(crate) struct Backlog<C> {
    /// The block in hand, the next command last.
    current: Vec<C>,
    blocks: VecDeque<Vec<C>>,
    spares: Vec<Vec<C>>,
}

impl<C> Backlog<C> {
    pub(crate) fn new() -> Self {
        Backlog {
            current: Vec::new(),
            blocks: VecDeque::new(),
            spares: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.current.is_empty() && self.blocks.is_empty()
    }

    /// Takes the next command out.
    pub(crate) fn pop(&mut self) -> Option<C> {
        if self.current.is_empty() {
            let mut next = self.blocks.pop_front()?;
            next.reverse();
            let worked_off = mem::replace(&mut self.current, next);
            if self.spares.len() < SPARES && worked_off.capacity() > 0 {
                self.spares.push(worked_off);
            }
        }
        self.current.pop()
    }

    /// The commands that come next, as far as they are in the block in hand.
    pub(crate) fn next(&self) -> impl Iterator<Item = &C> {
        self.current.iter().rev()
    }

    /// Puts a command back in front of all others.
    pub(crate) fn put_back(&mut self, command: C) {
        self.current.push(command);
    }

    /// Puts commands behind all others, and takes them out of `commands`.
    pub(crate) fn append(&mut self, commands: &mut Vec<C>) {
        if !commands.is_empty() {
            let spare = self.spares.pop().unwrap_or_default();
            self.blocks.push_back(mem::replace(commands, spare));
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.current.len() + self.blocks.iter().map(Vec::len).sum::<usize>()
    }

    /// Puts what is in the queue behind all others.
    pub(super) fn take(&mut self, queue: &mut Queue<C>) {
        self.blocks.extend(mem::take(&mut queue.full));
        self.append(&mut queue.last);
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
    fn commands_come_out_in_the_order_in_which_they_went_in() {
        let mut backlog = Backlog::new();
        for count in [0, 1, 2, BLOCK, BLOCK + 1, 3 * BLOCK, 5 * BLOCK + 7] {
            let (mut one, mut other) = (Queue::new(), Queue::new());
            for n in 0..count {
                assert_eq!(one.push(n, 600), n >= 599);
                other.push(count + n, 1);
            }
            assert_eq!(one.is_empty(), count == 0);
            backlog.take(&mut one);
            backlog.take(&mut other);
            backlog.append(&mut vec![2 * count, 2 * count + 1]);
            assert!(one.is_empty() && other.is_empty() && !backlog.is_empty());
            let all: Vec<usize> = (0..2 * count + 2).collect();
            assert_eq!(drain(&mut backlog), all, "of {count}");
            assert!(backlog.is_empty());
        }
    }

    #[test]
    fn what_is_put_back_comes_first() {
        let mut backlog = Backlog::new();
        backlog.append(&mut vec![1, 2, 3]);
        assert_eq!(backlog.pop(), Some(1));
        assert!(backlog.next().eq(&[2, 3]));
        backlog.put_back(1);
        assert!(backlog.next().eq(&[1, 2, 3]));
        assert_eq!(drain(&mut backlog), [1, 2, 3]);
        backlog.put_back(4);
        backlog.append(&mut vec![5]);
        assert_eq!(drain(&mut backlog), [4, 5]);
    }

    #[test]
    fn a_burst_leaves_a_few_blocks_to_be_used_again() {
        let mut backlog = Backlog::new();
        let mut queue = Queue::new();
        for _ in 0..100 * BLOCK {
            queue.push((), 1);
        }
        backlog.take(&mut queue);
        while backlog.pop().is_some() {}
        assert_eq!(backlog.spares.len(), SPARES);
        backlog.take(&mut queue);
        for _ in 0..10 {
            queue.push((), 1);
            let memory = queue.last.as_ptr();
            backlog.take(&mut queue);
            while backlog.pop().is_some() {}
            assert!(backlog.current.as_ptr() == memory, "it was used again");
        }
    }
}
