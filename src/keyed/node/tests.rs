//! When a set is forgotten.

use std::num::NonZeroU64;

use super::*;

fn set() -> SetKey {
    SetKey::new(0)
}

fn note(index: u32, n: u64, tick: u64) -> Note {
    Note {
        number: NonZeroU64::new(n).expect("numbers count from one"),
        tick,
        set: set(),
        index,
    }
}

// An actor that never parked kept an entry for each chunk of each set that had ended.
#[test]
fn chunks_of_a_forgotten_set_are_listed_no_more() {
    let mut wheel = KeyedWheel::new(8);
    for _ in 0..2 {
        wheel.apply(&note(256, 8, NEVER));
        assert_eq!(wheel.emptied, [(set(), 1)]);
        assert!(wheel.try_forget(set()));
        assert!(wheel.emptied.is_empty());
    }
}

#[test]
fn set_is_forgotten_with_its_chunks() {
    let mut wheel = KeyedWheel::new(8);
    for note in [note(0, 1, NEVER), note(256, 2, 9), note(600, 3, NEVER)] {
        wheel.apply(&note);
    }
    assert!(!wheel.free_emptied(1));
    assert!(wheel.try_forget(set()));
    assert!(wheel.wheel.is_empty());
}

#[test]
fn emptied_chunks_are_freed_a_few_at_a_time() {
    let mut wheel = KeyedWheel::new(8);
    for chunk in 0..7 {
        wheel.apply(&note(256 * chunk, 1, NEVER));
    }
    let left = [4, 2].map(|freed| wheel.free_emptied(freed));
    assert_eq!(left, [true, false], "the first one stays");
}
