//! A stale token finds nothing, even if its memory was reused or freed.

use std::collections::HashSet;

use super::super::arena::{self, Arena, Link, List};
use super::{Token, Wheel, inspect};

/// How many nodes a chunk has.
const CHUNK: usize = arena::CHUNK as usize;

/// More nodes than an empty arena keeps.
const MANY: usize = 1_500;

fn fill(arena: &mut Arena<usize>, count: usize) -> Vec<u32> {
    (0..count).map(|n| arena.insert(n)).collect()
}

#[test]
fn no_token_is_issued_twice() {
    let mut wheel = Wheel::with_slots(64, 0);
    let mut tokens = HashSet::new();
    for round in 0..200_u64 {
        let some: Vec<Token> = (0..3).map(|n| wheel.insert(round, n)).collect();
        assert!(some.iter().all(|&token| tokens.insert(token)));
        if round % 2 == 0 {
            assert!(some.iter().all(|&token| wheel.remove(token).is_some()));
        } else {
            assert_eq!(wheel.advance(round, usize::MAX).count(), 3);
        }
        assert!(tokens.iter().all(|&token| wheel.get(token).is_none()));
    }
    assert_eq!(
        wheel.bare.arena.nodes.capacity(),
        4,
        "the same nodes again and again"
    );
}

#[test]
fn keeps_tokens_stale_after_memory_was_returned() {
    let mut wheel = Wheel::with_slots(64, 0);
    let mut stale: Vec<Token> = Vec::new();
    for round in 0..4 {
        // Nodes of different ages: the youngest are on their first use when the memory goes.
        for n in 0..=round {
            let token = wheel.insert(n, 0);
            stale.push(token);
            wheel.remove(token);
        }
        let tokens: Vec<Token> = (0..MANY).map(|n| wheel.insert(n as u64, n)).collect();
        inspect(&wheel);
        for &old in &stale {
            assert_eq!(wheel.get(old), None);
            assert_eq!(wheel.tick_of(old), None);
            assert_eq!(wheel.get_mut(old), None);
            assert_eq!(wheel.remove(old), None);
            assert!(!wheel.reschedule(old, 1));
        }
        for (n, &token) in tokens.iter().enumerate() {
            assert_eq!(wheel.get(token), Some(&n));
            if n % 2 == 0 {
                assert_eq!(wheel.remove(token), Some(n));
            }
        }
        assert_eq!(wheel.advance(u64::MAX, usize::MAX).count(), MANY / 2);
        assert_eq!(wheel.bare.arena.nodes.capacity(), 0);
        stale.extend(tokens);
        assert!(stale.iter().all(|&old| wheel.get(old).is_none()));
        assert!(stale.iter().all(|old| wheel.bare.get(old.index).is_none()));
        wheel = {
            let mut next = Wheel::with_slots(64, 0);
            std::mem::swap(&mut next.bare.arena, &mut wheel.bare.arena);
            next.stamp = wheel.stamp;
            next
        };
    }
    let different: HashSet<Token> = stale.iter().copied().collect();
    assert_eq!(different.len(), stale.len(), "a token was given out twice");
}

#[test]
fn survives_a_token_of_another_wheel() {
    let mut one = Wheel::with_slots(64, 0);
    let mut two = Wheel::with_slots(64, 0);
    let far = (0..10).map(|n| one.insert(n, ())).last().expect("ten");
    assert_eq!(two.get(far), None);
    assert_eq!(two.remove(far), None);
    two.insert(0, ());
    assert_eq!(two.tick_of(far), None);
    inspect(&two);
}

#[test]
fn unlinks_nodes_in_the_middle_and_at_both_ends() {
    for gone in 0..8_u32 {
        let mut arena = Arena::new();
        let mut list = List::EMPTY;
        for index in fill(&mut arena, 3) {
            arena.push_back(&mut list, 5, 70, index);
            arena.assert_linked(list, 5);
        }
        let unlinked = (0..3).filter(|index| gone >> index & 1 == 1);
        let left: Vec<u32> = (0..3).filter(|index| gone >> index & 1 == 0).collect();
        for index in unlinked {
            let is_end = list.front() == Some(index) || arena.walk(list).last() == Some(index);
            let gap = arena.unlink(index);
            assert_eq!((gap.tick, gap.level()), (70, is_end.then_some(5)));
            list.close(gap);
            arena.assert_linked(list, 5);
        }
        assert!(arena.walk(list).eq(left.iter().copied()));
        assert_eq!(list.front(), left.first().copied());
        assert_eq!(list.is_empty(), left.is_empty());
    }
}

#[test]
fn tells_the_ends_of_lists_from_nodes() {
    let last = u32::try_from((1_u64 << 32) - 4097).expect("the highest index");
    for index in [0, 1, last] {
        assert_eq!(
            (Link::to(index).node(), Link::to(index).level()),
            (Some(index), None)
        );
    }
    for level in [0, 1, 63] {
        let end = Link::end(level);
        assert_eq!((end.node(), end.level()), (None, Some(usize::from(level))));
    }
}

#[test]
fn returns_memory_from_the_end_a_few_chunks_at_a_time() {
    let mut wheel = Wheel::with_slots(64, 0);
    let tokens: Vec<Token> = (0..20 * CHUNK).map(|n| wheel.insert(7, n)).collect();
    for &token in &tokens[1..] {
        wheel.remove(token);
    }
    assert_eq!(
        wheel.bare.arena.nodes.capacity(),
        20 * CHUNK,
        "nothing has advanced"
    );
    // The first chunk is in use, and an empty one is kept for the next items.
    for left in [12, 4, 2, 2] {
        assert_eq!(
            wheel.bare.has_spare(),
            wheel.bare.arena.nodes.capacity() > 2 * CHUNK
        );
        assert_eq!(wheel.advance(0, usize::MAX).count(), 0);
        assert_eq!(wheel.bare.arena.nodes.capacity(), left * CHUNK);
        inspect(&wheel);
    }
    let again: Vec<Token> = (0..20 * CHUNK).map(|n| wheel.insert(8, n)).collect();
    assert!(tokens[1..].iter().all(|&token| wheel.get(token).is_none()));
    assert_eq!(wheel.get(tokens[0]), Some(&0));
    for (n, &token) in again.iter().enumerate() {
        assert_eq!(wheel.remove(token), Some(n));
    }
    assert_eq!(wheel.remove(tokens[0]), Some(0));
    while wheel.bare.has_spare() {
        assert_eq!(wheel.advance(0, usize::MAX).count(), 0);
    }
    assert_eq!(wheel.bare.arena.nodes.capacity(), 0);
    inspect(&wheel);
}
