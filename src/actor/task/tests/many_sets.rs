//! Many sets that are due at once.

use std::cmp::Reverse;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::*;
use crate::shared::timer_set::{Batch, Contended, Due, DueHeap, Item, LockMode, TimerSet, Timers};

/// A set of one timer, due at tick 5, that counts how often it is asked to deliver.
#[derive(Debug, Default)]
struct OfOne {
    number: AtomicU32,
    asked: AtomicUsize,
}

impl TimerSet for OfOne {
    fn number(&self) -> &AtomicU32 {
        &self.number
    }

    fn earliest(&self) -> u64 {
        5
    }

    fn take_dirty(&self, batch: &mut Batch, _: LockMode) -> Result<bool, Contended> {
        batch.urgent.push(0);
        batch.earliest = 5;
        Ok(false)
    }

    fn process(
        &self,
        _: &[u32],
        _: u64,
        _: &Turn<'_>,
        wheel: &mut Timers,
        _: LockMode,
    ) -> Result<bool, Contended> {
        let set = NonZeroU32::new(self.number.load(Ordering::Relaxed)).expect("it has one");
        wheel.insert(5, Item { set, index: 0 });
        Ok(false)
    }

    fn process_expirations(
        &self,
        _: &[u32],
        _: &Turn<'_>,
        _: &mut Timers,
        due: &mut DueHeap,
        _: LockMode,
    ) -> Result<bool, Contended> {
        let order = NonZeroU64::MIN;
        let (tick, index) = (5, 0);
        due.push(Reverse(Due { tick, order, index }));
        Ok(false)
    }

    fn deliver(
        &self,
        _: u64,
        limit: &mut usize,
        _: &Turn<'_>,
        _: &mut Timers,
        due: &mut DueHeap,
        _: LockMode,
    ) -> Result<bool, Contended> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if *limit > 0 {
            *limit -= usize::from(due.pop().is_some());
        }
        Ok(false)
    }

    fn close(&self) {}
}

// Each turn once locked all sets that were due, which took the square of their number.
#[tokio::test(start_paused = true)]
async fn turn_locks_only_the_sets_it_delivers_from() {
    let (mut actor, wheel) = start();
    let sets: Vec<_> = (0..2_000).map(|_| Arc::new(OfOne::default())).collect();
    for set in &sets {
        let set = Arc::clone(set) as Arc<dyn TimerSet>;
        assert!(wheel.shared().send(5, Command::Set(set)).is_ok());
    }
    jump(ms(5));
    while step(&mut actor) == "again" {}
    for set in &sets {
        assert_eq!(set.asked.load(Ordering::Relaxed), 1);
    }
}
