//! Many sets that are due at once.

use std::cmp::Reverse;
use std::num::NonZeroU64;
use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::shared::note::{Note, SetKey};
use crate::shared::timer_set::{Due, DueTimers, TimerSet};

/// A set of one timer, due at tick 5, that counts how often it is visited.
#[derive(Debug, Default)]
struct OfOne(AtomicUsize);

impl TimerSet for OfOne {
    fn visit(
        &self,
        due: &mut DueTimers,
        before: u64,
        limit: usize,
        _: &mut Vec<Note>,
        _: &Turn<'_>,
    ) -> Option<usize> {
        self.0.fetch_add(1, Ordering::Relaxed);
        for index in due.reached.drain(..) {
            due.found.push(Reverse(Due {
                tick: 5,
                number: NonZeroU64::MIN,
                index,
            }));
        }
        let delivers = limit > 0 && before > 5;
        Some(usize::from(delivers && due.found.pop().is_some()))
    }

    fn give_back(self: Arc<Self>) -> Option<SetKey> {
        None
    }

    fn vacate_kept(&self) {}

    fn close(&self) {}
}

// Each turn once locked all sets that were due, which took the square of their number.
#[tokio::test(start_paused = true)]
async fn turn_visits_a_due_set_twice_at_most() {
    let (mut actor, wheel) = start();
    let sets: Vec<_> = (0..2_000).map(|_| Arc::new(OfOne::default())).collect();
    for set in &sets {
        let weak: Weak<OfOne> = Arc::downgrade(set);
        let note = Note {
            number: NonZeroU64::MIN,
            tick: 5,
            set: wheel.shared().sets.register(weak).expect("it is open"),
            index: 0,
        };
        assert!(wheel.shared().enqueue(5, Command::Note(note)).is_ok());
    }
    jump(ms(5));
    while step(&mut actor) == "again" {}
    for set in &sets {
        // Once when the wheel has reached it, once to deliver.
        assert!((1..=2).contains(&set.0.load(Ordering::Relaxed)));
    }
}
