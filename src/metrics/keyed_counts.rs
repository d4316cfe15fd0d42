//! The counts of keyed timers: the counters of one set, and what is read of them.
//!
//! Counters lie outside of their set, so reading them takes neither a reference to the set nor its lock. Only the thread
//! that holds the lock writes them, so none needs an atomic addition.
//!
//! Each [event](KeyedEvent) adds to one counter alone: no reader sees half of it. A timer is counted as added before it
//! ends, and a reader reads `Added` last. So it never sees more ends than timers, and the
//! [number of pending ones](KeyedCounts::pending) follows from the counts.

use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The events of a keyed timer that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyedEvent {
    /// It was set, and there was none under its key. The first one here, so that it is read last.
    Added,
    /// It was set again under its key.
    Replaced,
    /// It fired and is pending again.
    Repeated,
    /// It was given another deadline.
    Moved,
    /// It fired and left the set.
    Fired,
    Removed,
    Drained,
}

const EVENTS: usize = KeyedEvent::Drained as usize + 1;

/// How often a reader reads counters that change meanwhile.
const READS: usize = 4;

/// The counters of one set, by event. Other sets' threads write none of their cache lines.
#[derive(Debug)]
pub(crate) struct KeyedCounters(CachePadded<[AtomicU64; EVENTS]>);

/// A reading of counters, or a sum of such.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyedCounts([u64; EVENTS]);

impl KeyedCounters {
    pub(crate) fn new() -> Self {
        KeyedCounters(CachePadded([0; EVENTS].map(AtomicU64::new)))
    }

    /// Counts an event. Only for the thread that holds the lock of the set, or drops the set.
    #[inline]
    pub(crate) fn add(&self, event: KeyedEvent, n: u64) {
        let counter = &self.0.0[event as usize];
        // Release: whoever reads this event reads what was counted before it, too.
        counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Release);
    }

    /// The counts at one moment. If they keep changing, each is of a moment of its own during the call.
    pub(crate) fn read(&self) -> KeyedCounts {
        let mut counts = self.read_once();
        for _ in 1..READS {
            let again = self.read_once();
            if again == counts {
                break;
            }
            counts = again;
        }
        counts
    }

    fn read_once(&self) -> KeyedCounts {
        let mut counts = KeyedCounts::default();
        for (count, counter) in counts.0.iter_mut().zip(&self.0.0).rev() {
            *count = counter.load(Ordering::Acquire);
        }
        counts
    }
}

impl KeyedCounts {
    pub(crate) fn add(&mut self, other: &KeyedCounts) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum += count;
        }
    }

    /// How often this event happened.
    pub(crate) fn get(&self, event: KeyedEvent) -> u64 {
        self.0[event as usize]
    }

    /// How many timers were set.
    pub(crate) fn set(&self) -> u64 {
        let sets = [
            KeyedEvent::Added,
            KeyedEvent::Replaced,
            KeyedEvent::Repeated,
        ];
        sets.map(|event| self.get(event)).iter().sum()
    }

    /// How many timers fired.
    pub(crate) fn fired(&self) -> u64 {
        self.get(KeyedEvent::Fired) + self.get(KeyedEvent::Repeated)
    }

    /// How many timers are pending.
    pub(crate) fn pending(&self) -> u64 {
        let ends = [KeyedEvent::Fired, KeyedEvent::Removed, KeyedEvent::Drained];
        let ended = ends.map(|event| self.get(event)).iter().sum();
        self.get(KeyedEvent::Added).saturating_sub(ended)
    }
}
