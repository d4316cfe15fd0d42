//! Tests of the rules that the wheel's documentation states, one for each.

use super::{Wheel, inspect};

#[test]
fn follows_the_worked_example() {
    let mut wheel = Wheel::new(4);
    let first = wheel.insert(9, "first");
    let place = |wheel: &Wheel<_>, token| (super::level_of(wheel, token), wheel.next_wake());
    assert_eq!(place(&wheel, first), (1, Some(8)));
    assert_eq!(wheel.advance(6, usize::MAX).next(), None);
    let second = wheel.insert(9, "second");
    assert_eq!(place(&wheel, second), (0, Some(8)));
    assert_eq!(wheel.advance(8, usize::MAX).next(), None);
    assert_eq!(place(&wheel, first), (0, Some(9)));
    assert_eq!(wheel.advance(9, usize::MAX).count(), 2);
}

#[test]
fn makes_levels_when_needed() {
    let mut wheel = Wheel::new(64);
    assert_eq!(wheel.bare.levels.len(), 0);
    for (tick, levels) in [(63, 1), (64, 2), (4095, 2), (4096, 3), (u64::MAX, 11)] {
        wheel.insert(tick, ());
        assert_eq!(wheel.bare.levels.len(), levels, "for tick {tick}");
    }
}

#[test]
fn treats_past_ticks_as_due_at_once() {
    let mut wheel = Wheel::starting_at(64, 1_000);
    let tokens = [0, 1, 999, 1_000].map(|tick| wheel.insert(tick, tick));
    for token in tokens {
        assert_eq!(wheel.tick_of(token), Some(1_000));
    }
    inspect(&wheel);
    assert_eq!(wheel.next_wake(), Some(1_000));
    assert_eq!(wheel.advance(0, usize::MAX).count(), 4);
    assert_eq!(wheel.now(), 1_000);
}

#[test]
fn p9_time_does_not_go_backwards() {
    let mut wheel = Wheel::starting_at(64, 100);
    wheel.insert(150, ());
    assert_eq!(wheel.advance(120, usize::MAX).count(), 0);
    assert_eq!(wheel.advance(50, usize::MAX).count(), 0);
    assert_eq!(wheel.now(), 120);
    assert_eq!(wheel.advance(150, usize::MAX).count(), 1);
}

#[test]
fn moves_time_as_the_iterator_is_consumed() {
    let mut wheel = Wheel::new(64);
    for tick in [10, 20, 30] {
        wheel.insert(tick, tick);
    }
    let _unused = wheel.advance(100, usize::MAX);
    assert_eq!(wheel.now(), 0);
    let mut advance = wheel.advance(100, usize::MAX);
    assert_eq!(advance.next(), Some(10));
    assert_eq!(advance.next(), Some(20));
    assert_eq!((wheel.now(), wheel.len()), (20, 1));
    assert!(wheel.advance(100, usize::MAX).eq([30]));
    assert_eq!(wheel.now(), 100);
}

#[test]
fn leaves_the_rest_due_at_once_on_a_spent_budget() {
    let mut wheel = Wheel::new(64);
    for tick in [10, 10, 10, 70, 70] {
        wheel.insert(tick, tick);
    }
    let mut advance = wheel.advance(100, 2);
    assert!(advance.by_ref().eq([10, 10]));
    assert_eq!(advance.next(), None, "it has ended");
    assert_eq!((wheel.now(), wheel.next_wake()), (10, Some(10)));
    assert!(wheel.advance(100, 2).eq([10, 70]));
    assert_eq!((wheel.now(), wheel.next_wake()), (70, Some(70)));
    assert!(wheel.advance(100, 2).eq([70]));
    assert_eq!((wheel.now(), wheel.next_wake()), (100, None));
}

#[test]
fn stops_once_a_level_for_a_far_item() {
    let mut wheel = Wheel::new(64);
    let hour = 3_600_001;
    wheel.insert(hour, ());
    let mut stops = Vec::new();
    while let Some(wake) = wheel.next_wake() {
        stops.push(wake);
        let _ = wheel.advance(wake, usize::MAX).count();
    }
    let on_the_way = [18, 12, 6, 0].map(|bits| hour >> bits << bits);
    assert_eq!(stops, on_the_way);
}

/// An item that cascades at its own tick is not overtaken by one that was scheduled at level 0
/// later.
#[test]
fn empties_a_bucket_that_starts_now_before_level_0() {
    let mut wheel = Wheel::new(4);
    wheel.insert(16, "from level 2");
    assert_eq!(wheel.advance(15, usize::MAX).next(), None);
    wheel.insert(16, "from level 0");
    let (start, level, _) = wheel.bare.next_bucket().expect("two items");
    assert_eq!((start, level), (16, 2));
    assert_eq!(wheel.advance(16, usize::MAX).count(), 2);
}

#[test]
fn allows_access_to_items_in_the_wheel() {
    let mut wheel = Wheel::new(64);
    let token = wheel.insert(1 << 30, 1);
    *wheel.get_mut(token).expect("it is there") += 1;
    assert_eq!(wheel.get(token), Some(&2));
    assert_eq!(wheel.tick_of(token), Some(1 << 30));
    assert!(wheel.reschedule(token, 5));
    assert_eq!(wheel.tick_of(token), Some(5));
    assert!(wheel.advance(5, usize::MAX).eq([2]));
    assert_eq!((wheel.get(token), wheel.tick_of(token)), (None, None));
    assert_eq!(wheel.get_mut(token), None);
    assert!(!wheel.reschedule(token, 7));
    assert!(wheel.is_empty());
}

#[test]
fn clones_independently() {
    let mut wheel = Wheel::new(64);
    let token = wheel.insert(100, ());
    let mut copy = wheel.clone();
    assert_eq!(copy.remove(token), Some(()));
    inspect(&wheel);
    inspect(&copy);
    assert_eq!((wheel.len(), copy.len()), (1, 0));
    assert_eq!(wheel.advance(100, usize::MAX).count(), 1);
}

#[test]
fn shows_its_state_but_not_its_items() {
    let mut wheel = Wheel::starting_at(64, 7);
    let token = wheel.insert(100, "secret");
    assert_eq!(
        format!("{wheel:?}"),
        "Wheel { now: 7, slots: 64, levels: 2, len: 1, next_wake: Some(64) }",
    );
    assert_eq!(format!("{token:?}"), "Token(0v1)");
    assert_eq!(
        format!("{:?}", wheel.advance(9, 3)),
        "Advance { wheel: Wheel { now: 7, slots: 64, levels: 2, len: 1, next_wake: Some(64) }, \
         target: 9, budget: 3, cascades: 2048 }",
    );
}

#[test]
fn knows_no_clock_runtime_thread_or_logger() {
    let files = [
        include_str!("../mod.rs"),
        include_str!("../arena.rs"),
        include_str!("../bare.rs"),
        include_str!("../../collections/chunk_slab.rs"),
        include_str!("../level.rs"),
    ];
    for line in files.into_iter().flat_map(str::lines) {
        let code = line.split("//").next().unwrap_or("");
        for stranger in ["tokio", "tracing", "time::", "Instant", "sync::", "thread"] {
            assert!(!code.contains(stranger), "{line}");
        }
    }
}
