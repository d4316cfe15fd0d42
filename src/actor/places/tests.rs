//! Notes in any order, and the memory of what they name.

use std::num::NonZeroU64;

use super::*;

struct Set {
    wheel: Timers,
    places: Places,
}

impl Set {
    fn new() -> Self {
        Set {
            wheel: Timers::new(8),
            places: Places::default(),
        }
    }

    fn note(&mut self, index: u32, n: u64, tick: u64) -> Option<u32> {
        let note = Note {
            number: NonZeroU64::new(n).expect("numbers count from one"),
            tick,
            set: SetKey::new(0),
            index,
        };
        self.places.apply(&note, &mut self.wheel)
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
    set.note(0, 3, NEVER);
    set.note(0, 2, 7);
    assert!(set.wheel.is_empty(), "the visit is newer");
    set.note(0, 4, 9);
    assert_eq!(set.wheel.next_wake(), Some(9));
}

// N7
#[test]
fn chunk_that_changes_while_it_is_watched_is_watched_once_more() {
    let mut set = Set::new();
    set.note(CHUNK, 1, 5);
    assert_eq!(set.note(CHUNK, 2, NEVER), Some(1));
    set.note(CHUNK, 4, 7);
    assert_eq!(set.note(CHUNK, 5, NEVER), None, "it is watched already");
    assert!(set.places.free(1), "note 3 may be on its way");
    set.note(CHUNK, 3, 6);
    assert!(set.wheel.is_empty());
    assert!(!set.places.free(1));
    assert_eq!(set.places.chunks.len(), 1, "it is freed");
}
