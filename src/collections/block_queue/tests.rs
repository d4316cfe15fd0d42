//! Tests of the block queue: the order of its items, the bounds of blocks, and the memory it keeps.

use super::*;

const BLOCK: usize = 8;
const SPARE: usize = 3;

type Queue = BlockQueue<usize, BLOCK, SPARE>;

const NEVER: u64 = u64::MAX;

fn filled(items: impl IntoIterator<Item = usize>) -> Queue {
    let mut queue = Queue::new();
    items.into_iter().for_each(|item| queue.push(5, item));
    queue
}

fn drain(queue: &mut Queue) -> Vec<usize> {
    std::iter::from_fn(|| queue.pop()).collect()
}

#[test]
fn items_come_out_in_order() {
    let mut all = Queue::new();
    for count in [0, 1, 2, BLOCK, BLOCK + 1, 3 * BLOCK, 5 * BLOCK + 7] {
        let mut one = filled(0..count);
        let mut other = filled(count..2 * count);
        assert_eq!((one.is_empty(), one.len()), (count == 0, count));
        all.append(&mut one);
        all.append(&mut other);
        all.push(5, 2 * count);
        assert!(one.is_empty() && other.is_empty());
        assert_eq!(all.len(), 2 * count + 1);
        assert!(drain(&mut all).into_iter().eq(0..=2 * count), "of {count}");
        assert!(all.is_empty() && all.pop().is_none());
    }
}

#[test]
fn earliest_tick_is_that_of_a_block() {
    let mut queue = Queue::new();
    assert_eq!(queue.earliest(), NEVER);
    for tick in [30, 10, 20] {
        queue.push(tick, 0);
        (1..BLOCK).for_each(|n| queue.push(tick + 5, n));
    }
    assert_eq!(queue.earliest(), 10);
    for after in [10, 20, NEVER] {
        (0..BLOCK).for_each(|_| assert!(queue.pop().is_some()));
        assert_eq!(queue.earliest(), after);
    }
    queue.push(40, 1);
    queue.append(&mut filled([2]));
    assert_eq!(queue.earliest(), 5);
    assert_eq!((queue.pop(), queue.earliest()), (Some(1), 5));
    assert_eq!((queue.pop(), queue.earliest()), (Some(2), NEVER));
    queue.push(50, 3);
    assert_eq!(queue.earliest(), 50, "the earlier ticks are forgotten");
}

/// How many blocks it has memory for.
fn blocks(queue: &Queue) -> usize {
    usize::from(queue.first.items.capacity() > 0) + queue.rest.len() + queue.spare.len()
}

#[test]
fn memory_of_a_few_blocks_is_kept() {
    let mut queue = filled(0..100 * BLOCK);
    assert!(queue.rest.capacity() > LISTED);
    assert_eq!(drain(&mut queue).len(), 100 * BLOCK);
    assert_eq!((queue.rest.capacity(), blocks(&queue)), (0, SPARE + 1));
    let mut other = filled(0..100 * BLOCK);
    queue.append(&mut other);
    assert_eq!((other.rest.capacity(), blocks(&other)), (0, 1));
    assert_eq!(drain(&mut queue).len(), 100 * BLOCK);
    // From now on the same memory goes to and fro.
    for n in 0..10 {
        other.push(5, n);
        assert_eq!(blocks(&queue) + blocks(&other), SPARE + 2);
        queue.append(&mut other);
        assert_eq!(drain(&mut queue), [n]);
    }
}
