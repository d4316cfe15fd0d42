//! One call cascades a bounded number of items. A bucket that is cascaded in part behaves like any
//! other.

use super::{CASCADE_LIMIT, Token, Wheel, inspect};

const MANY: u64 = 2 * CASCADE_LIMIT as u64 + 100;

/// A wheel of 64 slots with `MANY` items in the bucket `[4096, 8192)` of its level 2, due at the
/// ticks given by `due`.
fn crowded(due: impl Fn(u64) -> u64) -> (Wheel<u64>, Vec<Token>) {
    let mut wheel = Wheel::new(64);
    let tokens = (0..MANY).map(|n| wheel.insert(due(n), n)).collect();
    assert_eq!(wheel.next_wake(), Some(4096));
    (wheel, tokens)
}

#[test]
fn cascades_a_crowded_bucket_in_parts_and_loses_nothing() {
    let (mut wheel, _) = crowded(|n| 4096 + n % 4096);
    for _ in 0..2 {
        assert_eq!(wheel.advance(5000, usize::MAX).next(), None);
        assert_eq!((wheel.now(), wheel.next_wake()), (4096, Some(4096)));
        assert_eq!(wheel.len() as u64, MANY);
        inspect(&wheel);
    }
    let mut out: Vec<u64> = Vec::new();
    let mut calls = 0;
    while wheel.next_wake().is_some_and(|wake| wake <= 5000) {
        out.extend(wheel.advance(5000, usize::MAX));
        inspect(&wheel);
        calls += 1;
    }
    assert!(calls <= 3, "{calls} calls");
    assert!(out.is_sorted_by_key(|n| n % 4096));
    assert_eq!(wheel.now(), 5000);
    while let Some(wake) = wheel.next_wake() {
        out.extend(wheel.advance(wake, usize::MAX));
    }
    assert!(out.is_sorted_by_key(|n| n % 4096));
    out.sort_unstable();
    assert_eq!(out, (0..MANY).collect::<Vec<_>>());
}

#[test]
fn each_call_cascades_exactly_the_limit() {
    let (mut wheel, tokens) = crowded(|_| 5000);
    let moved = |wheel: &Wheel<u64>| super::on_level(wheel, 1).count();
    for calls in 1..=2 {
        assert_eq!(wheel.advance(4999, usize::MAX).count(), 0);
        assert_eq!(moved(&wheel), calls * CASCADE_LIMIT);
    }
    // The third call has some of its budget left, with which items reach level 0.
    assert_eq!(wheel.advance(4999, usize::MAX).count(), 0);
    assert_eq!(moved(&wheel), tokens.len() - (CASCADE_LIMIT - 100));
    assert_eq!(wheel.now(), 4992);
}

#[test]
fn ends_the_iterator_at_the_cascade_limit() {
    let (mut wheel, _) = crowded(|_| 4096);
    let mut advance = wheel.advance(5000, usize::MAX);
    for _ in 0..3 {
        assert_eq!(advance.next(), None);
    }
    assert_eq!(wheel.next_wake(), Some(wheel.now()));
    assert_eq!(wheel.advance(5000, usize::MAX).count(), 0);
    assert_eq!(wheel.advance(5000, usize::MAX).count() as u64, MANY);
}

#[test]
fn allows_every_change_to_a_half_cascaded_bucket() {
    let (mut wheel, tokens) = crowded(|n| 4096 + n / 3);
    assert_eq!(wheel.advance(4096, usize::MAX).next(), None);
    // Both halves: the rescheduled items at the front, and those still in the old bucket.
    let mut due: Vec<(u64, u64)> = Vec::new();
    for (n, &token) in tokens.iter().enumerate() {
        let n = n as u64;
        match n % 4 {
            0 => assert_eq!(wheel.remove(token), Some(n)),
            1 => {
                assert!(wheel.reschedule(token, 4096 + n / 2));
                due.push((4096 + n / 2, n));
            }
            2 => {
                assert!(wheel.reschedule(token, 10_000 + n));
                due.push((10_000 + n, n));
            }
            _ => due.push((4096 + n / 3, n)),
        }
        if n % 512 == 0 {
            inspect(&wheel);
        }
    }
    for n in MANY..MANY + 64 {
        wheel.insert(n - MANY + 4090, n);
        due.push(((n - MANY + 4090).max(4096), n));
    }
    inspect(&wheel);
    due.sort_unstable();
    let mut out = Vec::new();
    while let Some(wake) = wheel.next_wake() {
        let before = wheel.now();
        let items: Vec<u64> = wheel.advance(wake, usize::MAX).collect();
        assert!(before <= wake);
        out.extend(items.into_iter().map(|n| (wheel.now(), n)));
    }
    out.sort_unstable();
    assert_eq!(out, due);
}

#[test]
fn keeps_items_handed_out_before_the_limit() {
    let (mut wheel, _) = crowded(|_| 8191);
    wheel.insert(7, MANY);
    assert_eq!(wheel.advance(9000, usize::MAX).collect::<Vec<_>>(), [MANY]);
    assert_eq!(wheel.now(), 4096);
    let mut calls = 0;
    let mut out = 0;
    while !wheel.is_empty() {
        out += wheel.advance(9000, usize::MAX).count() as u64;
        calls += 1;
    }
    assert_eq!(out, MANY);
    // The items cascade by two levels, this many in a call; one call was made above.
    assert_eq!(calls, 2 * MANY / CASCADE_LIMIT as u64);
}

#[test]
fn does_nothing_on_a_budget_of_zero() {
    let (mut wheel, _) = crowded(|_| 4096);
    assert_eq!(wheel.advance(9000, 0).next(), None);
    assert_eq!(wheel.now(), 0);
}

/// With one cascade in each call, every partial state occurs.
#[test]
fn hands_out_the_same_on_the_smallest_budget() {
    for slots in [2, 4, 64] {
        let mut wheel = Wheel::starting_at(slots, 5);
        let mut ticks: Vec<u64> = (0..40).map(|n| 5 + n * n * n % 301).collect();
        for &tick in &ticks {
            wheel.insert(tick, tick);
        }
        ticks.sort_unstable();
        let mut out = Vec::new();
        while !wheel.is_empty() {
            let before = out.len();
            out.extend(super::advance(&mut wheel, 400, usize::MAX, 1));
            assert!(out[before..].iter().all(|&tick| tick <= wheel.now()));
            inspect(&wheel);
        }
        assert_eq!(out, ticks);
    }
}
