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

// N7: a chunk of the next set with this key was freed, with the numbers of its indices.
#[test]
fn set_is_forgotten_only_after_its_watched_chunks() {
    let (mut wheel, mut backlog) = (KeyedWheel::new(8), Backlog::new());
    for note in [note(256, 1, 9), note(256, 2, NEVER)] {
        wheel.apply(&note, &mut backlog);
    }
    assert!(backlog.has_behind());
    assert!(!wheel.try_forget(set()), "its chunk is behind");
    wheel.free_chunk(set(), 1, &mut backlog);
    assert!(wheel.try_forget(set()));
}

#[test]
fn set_is_forgotten_with_chunks_that_are_not_watched() {
    let (mut wheel, mut backlog) = (KeyedWheel::new(8), Backlog::new());
    for note in [note(0, 1, NEVER), note(256, 2, 9), note(600, 3, NEVER)] {
        wheel.apply(&note, &mut backlog);
    }
    wheel.free_chunk(set(), 2, &mut backlog);
    assert!(wheel.try_forget(set()));
    assert!(wheel.wheel.is_empty());
}
