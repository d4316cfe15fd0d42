//! Counters that one owner writes and any thread reads.
//!
//! A thread owns the counters of its sleeps, a set those of its timers, and the actor its own. A
//! counter with one writer needs no atomic addition, and no owner writes a cache line of another
//! one. The writer of a set's counters holds the set's lock, or drops the set.
//!
//! Each [event](Event) adds to one counter alone, so no reader sees half of it. A keyed timer is
//! counted as added before it ends, and a reader reads `KeyedAdded` last. So it never sees more
//! ends than timers, and the [number of pending ones](Counts::keyed_pending) follows from the
//! counts.
//!
//! When an owner goes, its counts are added to those of the owners that are gone. That and reading
//! happen under one lock, so each owner is counted once. The lock is held for additions only: a
//! reader waits for no owner's lock, nor for its drop. No owner waits for a reader, which may be
//! preempted while it has the lock: the actor may drop a set. An owner that goes meanwhile leaves
//! its counters to the next thread that locks.

use std::ops::Deref;
use std::sync::Arc;

use slab::Slab;

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{CachePadded, Mutex, MutexGuard, lock, try_lock};

/// The events that are counted. A reader reads the last one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A sleep was made, or reset after it had fired.
    SleepMade,
    /// A keyed timer was set, and there was none under its key.
    KeyedAdded,
    /// A sleep reached its deadline.
    SleepFired,
    /// A sleep was dropped before it fired.
    SleepCancelled,
    /// A sleep went on with Tokio's timer.
    SleepHandedOver,
    /// A waiting sleep was given another deadline.
    SleepMoved,
    /// A keyed timer was set again under its key.
    KeyedReplaced,
    /// A keyed timer fired and is pending again.
    KeyedRepeated,
    /// A keyed timer was given another deadline.
    KeyedMoved,
    /// A keyed timer fired and left its set.
    KeyedFired,
    KeyedRemoved,
    KeyedDrained,
    /// The actor reached a timer that was due later.
    Rescheduled,
    /// The actor applied a command.
    Command,
    /// The actor took a turn.
    Turn,
    /// The actor began to wait.
    WakeUp,
}

const EVENTS: usize = Event::WakeUp as usize + 1;

/// The counters of one owner, by event.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    events: CachePadded<[AtomicU64; EVENTS]>,
    /// The owner is gone, and could not add them to those of the others.
    is_abandoned: AtomicBool,
}

/// A reading of counters, or a sum of such.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts([u64; EVENTS]);

impl Counters {
    /// Counts an event. Only for the owner.
    #[inline]
    pub(crate) fn add(&self, event: Event, n: u64) {
        let counter = &self.events.0[event as usize];
        // Release: a thread that reads this event reads what was counted before it, too.
        counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Release);
    }

    /// The counts, each of another moment during the call.
    pub(crate) fn read(&self) -> Counts {
        let mut counts = Counts::default();
        for (count, counter) in counts.0.iter_mut().zip(&self.events.0).rev() {
            *count = counter.load(Ordering::Acquire);
        }
        counts
    }
}

impl Counts {
    pub(super) fn add(&mut self, other: &Counts) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum += count;
        }
    }

    /// How often this event happened.
    pub(crate) fn get(&self, event: Event) -> u64 {
        self.0[event as usize]
    }

    /// How many keyed timers are pending.
    pub(crate) fn keyed_pending(&self) -> u64 {
        let ends = [Event::KeyedFired, Event::KeyedRemoved, Event::KeyedDrained];
        let ended = ends.map(|event| self.get(event)).iter().sum();
        self.get(Event::KeyedAdded).saturating_sub(ended)
    }
}

/// The counts of all owners.
#[derive(Debug, Default)]
pub(super) struct Total {
    owners: Mutex<Owners>,
    /// An owner has left its counters since the last sweep.
    has_abandoned: AtomicBool,
}

#[derive(Debug, Default)]
struct Owners {
    live: Slab<Arc<Counters>>,
    /// The sum over the owners that are gone.
    gone: Counts,
}

impl Total {
    pub(super) fn read(&self) -> Counts {
        let owners = self.lock();
        let mut sum = owners.gone;
        for (_, counters) in &owners.live {
            sum.add(&counters.read());
        }
        sum
    }

    fn lock(&self) -> MutexGuard<'_, Owners> {
        let mut owners = lock(&self.owners);
        if self.has_abandoned.swap(false, Ordering::Acquire) {
            let Owners { live, gone } = &mut *owners;
            live.retain(|_, counters| {
                let is_abandoned = counters.is_abandoned.load(Ordering::Acquire);
                if is_abandoned {
                    gone.add(&counters.read());
                }
                !is_abandoned
            });
        }
        owners
    }
}

/// The counters of an owner in the total, which keeps their counts when they are dropped.
#[derive(Debug)]
pub(crate) struct OwnCounters {
    counters: Arc<Counters>,
    total: Arc<Total>,
    key: usize,
}

impl OwnCounters {
    pub(super) fn new(total: &Arc<Total>) -> Self {
        let counters = Arc::<Counters>::default();
        let key = total.lock().live.insert(Arc::clone(&counters));
        OwnCounters {
            counters,
            total: Arc::clone(total),
            key,
        }
    }
}

impl Deref for OwnCounters {
    type Target = Counters;

    fn deref(&self) -> &Counters {
        &self.counters
    }
}

impl Drop for OwnCounters {
    fn drop(&mut self) {
        let Some(mut owners) = try_lock(&self.total.owners) else {
            self.counters.is_abandoned.store(true, Ordering::Release);
            self.total.has_abandoned.store(true, Ordering::Release);
            return;
        };
        owners.gone.add(&self.counters.read());
        owners.live.try_remove(self.key);
        if owners.live.is_empty() {
            // A slab keeps its memory; a burst of owners should not.
            owners.live = Slab::new();
        }
    }
}

#[cfg(all(test, not(tickwheel_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn counts_of_an_owner_are_kept_when_it_is_gone() {
        let total = Arc::<Total>::default();
        let (one, other) = (OwnCounters::new(&total), OwnCounters::new(&total));
        one.add(Event::SleepMade, 3);
        other.add(Event::SleepMade, 4);
        drop(one);
        assert_eq!(total.read().get(Event::SleepMade), 7);
        drop(other);
        assert_eq!(total.read().get(Event::SleepMade), 7);
    }

    #[test]
    fn owner_that_goes_while_the_counts_are_read_waits_for_nothing() {
        let total = Arc::<Total>::default();
        let (one, other) = (OwnCounters::new(&total), OwnCounters::new(&total));
        one.add(Event::SleepMade, 3);
        other.add(Event::SleepMade, 4);
        let reader = total.lock();
        drop(one);
        drop(reader);
        assert_eq!(total.read().get(Event::SleepMade), 7);
        assert_eq!(total.lock().live.len(), 1);
        drop(other);
        assert_eq!(total.read().get(Event::SleepMade), 7);
        assert_eq!(total.lock().live.len(), 0);
    }

    // Reading waited on a condition variable until the thread that dropped the set went on.
    #[test]
    fn counts_a_set_whose_drop_has_begun_and_not_gone_on() {
        let total = Arc::<Total>::default();
        let counters = OwnCounters::new(&total);
        counters.add(Event::KeyedAdded, 2);
        assert_eq!(total.read().keyed_pending(), 2);
        counters.add(Event::KeyedDrained, 2);
        let drained = total.read();
        assert_eq!(
            (drained.get(Event::KeyedAdded), drained.keyed_pending()),
            (2, 0)
        );
        drop(counters);
        assert_eq!(total.read(), drained);
    }
}
