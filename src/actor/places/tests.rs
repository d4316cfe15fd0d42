//! Notes in any order, and the memory of what they name.

use std::num::NonZeroU64;

use super::*;

struct Set {
    wheel: IndexWheel,
    places: Places,
}

fn note(index: u32, n: u64, tick: u64) -> Note {
    Note {
        number: NonZeroU64::new(n).expect("numbers count from one"),
        tick,
        set: SetKey::new(0),
        index,
    }
}

impl Set {
    fn new() -> Self {
        Set {
            wheel: IndexWheel::new(8),
            places: Places::default(),
        }
    }

    fn note(&mut self, index: u32, n: u64, tick: u64) -> Option<u32> {
        self.places.apply(&note(index, n, tick), &mut self.wheel)
    }

    fn visit(&mut self, index: u32, n: u64, tick: u64) -> Option<u32> {
        self.places.visited(&note(index, n, tick), &mut self.wheel)
    }

    /// The wheel reaches everything that is scheduled by this tick.
    fn reach(&mut self, until: u64) -> Vec<u32> {
        let reached: Vec<_> = self.wheel.advance(until, 100).map(|item| item.1).collect();
        for &index in &reached {
            self.places.reached(index);
        }
        reached
    }
}

#[test]
fn newest_note_wins_in_any_order() {
    let mut set = Set::new();
    set.note(0, 2, 5);
    set.note(0, 1, 3);
    set.note(0, 2, 4);
    assert_eq!(set.wheel.next_wake(), Some(5));
    set.note(0, 3, NEVER);
    set.note(0, 1, 3);
    assert!(set.wheel.is_empty());
}

// N3: a visit that takes an index off the wheel voids the notes that were sent before it.
#[test]
fn note_from_before_a_visit_is_void() {
    let mut set = Set::new();
    set.note(0, 1, 5);
    assert_eq!(set.reach(5), [0]);
    // Note 2 is on its way as the visit finds the timer due.
    set.visit(0, 3, NEVER);
    set.note(0, 2, 7);
    assert!(set.wheel.is_empty(), "the visit is newer");
    set.note(0, 4, 9);
    assert_eq!(set.wheel.next_wake(), Some(9));
}

// N6: while another thread has locked the set.
#[test]
fn index_that_waits_for_its_visit_is_not_reached_again() {
    let mut set = Set::new();
    set.note(0, 1, 5);
    assert_eq!(set.reach(5), [0]);
    set.note(0, 2, 6);
    assert!(set.reach(6).is_empty(), "it waits for its visit");
    set.visit(0, 3, 7);
    assert_eq!(set.reach(7), [0]);
}

#[test]
fn chunk_is_freed_if_nothing_is_scheduled_in_it() {
    let mut set = Set::new();
    for n in [1, 5] {
        set.note(CHUNK, n, 5);
        assert_eq!(set.note(CHUNK, n + 1, NEVER), Some(1));
        set.note(CHUNK, n + 2, 7);
        assert_eq!(set.note(CHUNK, n + 3, NEVER), None, "it is listed");
        set.places.free(1);
        assert_eq!(set.places.chunks.len(), 1);
    }
    assert_eq!(set.note(CHUNK, 9, NEVER), Some(1));
    set.note(CHUNK, 10, 6);
    set.places.free(1);
    assert_eq!(set.note(CHUNK, 9, NEVER), None, "it is older");
    assert_eq!(set.reach(6), [CHUNK]);
    assert_eq!(set.visit(CHUNK, 11, NEVER), Some(1), "it is not listed");
}

#[test]
fn chunk_of_an_index_that_waits_for_its_visit_stays() {
    let mut set = Set::new();
    set.note(CHUNK, 1, 5);
    assert_eq!(set.reach(5), [CHUNK]);
    assert_eq!(set.note(CHUNK, 2, NEVER), None);
    assert_eq!(set.visit(CHUNK, 3, NEVER), Some(1));
}

// A timer that was set and removed at once; its first note comes last.
#[test]
fn chunk_is_freed_that_never_had_a_node() {
    let mut set = Set::new();
    assert_eq!(set.note(CHUNK, 2, NEVER), Some(1));
    set.note(CHUNK, 1, 5);
    set.places.free(1);
    assert_eq!(set.places.chunks.len(), 1, "it is freed");
}
