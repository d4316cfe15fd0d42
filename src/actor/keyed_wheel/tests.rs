//! When a set is forgotten.

use std::num::NonZeroU64;

use super::*;

fn apply(wheel: &mut KeyedWheel, set: SetKey, index: u32, n: u64, tick: u64) {
    wheel.apply(&Note {
        number: NonZeroU64::new(n).expect("numbers count from one"),
        tick,
        set,
        index,
    });
}

// N7: a chunk of the next set with this key was freed, with the numbers of its indices.
#[test]
fn set_is_forgotten_only_after_its_watched_chunks() {
    let (mut wheel, mut backlog, set) = (KeyedWheel::new(8), Backlog::new(), SetKey::new(0));
    apply(&mut wheel, set, 256, 1, 9);
    apply(&mut wheel, set, 256, 2, NEVER);
    assert!(!wheel.try_forget(set), "its chunk is to be put behind");
    wheel.watch_emptied(&mut backlog);
    assert!(backlog.has_behind());
    assert!(!wheel.try_forget(set), "its chunk is behind");
    wheel.free_chunk(set, 1);
    assert!(wheel.try_forget(set));
}

#[test]
fn set_is_forgotten_with_chunks_that_are_not_watched() {
    let (mut wheel, mut backlog, set) = (KeyedWheel::new(8), Backlog::new(), SetKey::new(0));
    apply(&mut wheel, set, 0, 1, NEVER);
    apply(&mut wheel, set, 256, 2, 9);
    apply(&mut wheel, set, 600, 3, NEVER);
    wheel.watch_emptied(&mut backlog);
    wheel.free_chunk(set, 2);
    assert!(wheel.try_forget(set));
    assert!(wheel.wheel.is_empty());
}
