//! The oracle of keyed timers: a sorted map, and the counts of everything.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::script_time::{Nanos, nanos};

/// A repeating timer that is received later than this after it could fire has missed periods.
const MISSED_AFTER: Nanos = 5_000_000;

/// The deadline of a timer that never fires: the library's range is 292 years.
pub(crate) const NEVER: Nanos = i64::MAX as Nanos;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Timer {
    pub(crate) value: u32,
    pub(crate) deadline: Nanos,
    order: u64,
    period: Option<Nanos>,
    /// How often the script had awaited when it was armed.
    awaits: u64,
    /// It was due when everything had settled since it was armed: the reader knows of it.
    is_known: bool,
}

/// An expiration as it should be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Out {
    pub(crate) key: u8,
    pub(crate) value: u32,
    pub(crate) deadline: Nanos,
    pub(crate) missed: Nanos,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) set: u64,
    pub(crate) fired: u64,
    pub(crate) removed: u64,
    pub(crate) replaced: u64,
    pub(crate) drained: u64,
    pub(crate) moved: u64,
}

#[derive(Debug)]
pub(crate) struct Oracle {
    tick: Nanos,
    max_keyed: usize,
    order: u64,
    awaits: u64,
    /// All timers that were not received, due or not.
    pub(crate) pending: BTreeMap<u8, Timer>,
    pub(crate) counts: Counts,
}

impl Oracle {
    pub(crate) fn new(tick: Duration, max_keyed: Option<usize>) -> Self {
        Oracle {
            tick: nanos(tick),
            max_keyed: max_keyed.unwrap_or(usize::MAX),
            order: 0,
            awaits: 0,
            pending: BTreeMap::new(),
            counts: Counts::default(),
        }
    }

    /// The tick at which a timer with this deadline fires: rounded up.
    fn tick_of(&self, deadline: Nanos) -> Nanos {
        deadline.max(0).div_euclid(self.tick) + Nanos::from(deadline.max(0) % self.tick != 0)
    }

    /// The begin of that tick, in nanoseconds.
    pub(crate) fn fires_at(&self, deadline: Nanos) -> Nanos {
        self.tick_of(deadline) * self.tick
    }

    fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// Returns the value that is replaced; an error when the key is refused.
    pub(crate) fn set(
        &mut self,
        key: u8,
        value: u32,
        deadline: Nanos,
        period: Option<Duration>,
    ) -> Result<Option<u32>, ()> {
        let is_new = !self.pending.contains_key(&key);
        if is_new && self.pending.len() >= self.max_keyed {
            return Err(());
        }
        let timer = Timer {
            value,
            deadline: deadline.min(NEVER),
            order: self.next_order(),
            awaits: self.awaits,
            is_known: false,
            period: period.map(|period| nanos(period).max(self.tick).min(NEVER)),
        };
        let replaced = self.pending.insert(key, timer);
        self.counts.set += 1;
        self.counts.replaced += u64::from(!is_new);
        Ok(replaced.map(|timer| timer.value))
    }

    /// Returns whether there is such a timer.
    pub(crate) fn move_to(&mut self, key: u8, deadline: Nanos) -> bool {
        let order = self.next_order();
        if let Some(timer) = self.pending.get_mut(&key) {
            timer.deadline = deadline.min(NEVER);
            timer.order = order;
            timer.awaits = self.awaits;
            timer.is_known = false;
            self.counts.moved += 1;
            return true;
        }
        false
    }

    pub(crate) fn remove(&mut self, key: u8) -> Option<u32> {
        let timer = self.pending.remove(&key)?;
        self.counts.removed += 1;
        Some(timer.value)
    }

    /// Empties the map, earliest first: by the deadline itself, then by order of arming.
    pub(crate) fn drain(&mut self) -> Vec<Out> {
        let mut all: Vec<_> = std::mem::take(&mut self.pending).into_iter().collect();
        self.counts.drained += all.len() as u64;
        all.sort_by_key(|(_, timer)| (timer.deadline, timer.order));
        let out = |(key, timer): (u8, Timer)| Out {
            key,
            value: timer.value,
            deadline: timer.deadline,
            missed: 0,
        };
        all.into_iter().map(out).collect()
    }

    /// The timer that is due next.
    pub(crate) fn earliest(&self) -> Option<(u8, Timer)> {
        (self.pending.iter())
            .map(|(&key, &timer)| (key, timer))
            .min_by_key(|(_, timer)| (self.tick_of(timer.deadline), timer.order))
            .filter(|(_, timer)| timer.deadline < NEVER)
    }

    /// The actor may take turns now.
    pub(crate) fn awaits(&mut self) {
        self.awaits += 1;
    }

    /// Everything has settled: the reader knows what is due.
    pub(crate) fn settled(&mut self, now: Nanos) {
        let tick = self.tick;
        for timer in self.pending.values_mut() {
            let ticks = timer.deadline.max(0);
            let fires_at = ticks + (tick - ticks % tick) % tick;
            timer.is_known |= timer.deadline < NEVER && fires_at <= now;
        }
    }

    /// Whether the reader knows of a timer that is due, so that it must receive one.
    pub(crate) fn is_any_known(&self) -> bool {
        self.pending.values().any(|timer| timer.is_known)
    }

    /// The reader receives the timer of a key. Asserts that it is due, and that none came before it
    /// of which the reader had to know.
    pub(crate) fn receive(&mut self, key: u8, now: Nanos) -> Out {
        let timer = *self.pending.get(&key).expect("it is pending");
        let at = self.fires_at(timer.deadline);
        assert!(
            at <= now,
            "received at {now}: {timer:?} of key {key} is due at {at}"
        );
        let place = (self.tick_of(timer.deadline), timer.order);
        for (other, first) in &self.pending {
            let is_before = (self.tick_of(first.deadline), first.order) < place;
            // Both were armed when the actor told the reader of this one. Without a turn of the
            // actor the reader has found it in the slot of another.
            let was_told = timer.awaits < self.awaits;
            let is_known = first.is_known || (was_told && first.awaits <= timer.awaits);
            assert!(
                !(is_before && is_known),
                "{other} comes before {key}: {first:?}, {timer:?}"
            );
        }
        self.counts.fired += 1;
        // Up to five milliseconds after it could fire nothing is missed; then what has had its
        // tick.
        let is_missed = now - at > MISSED_AFTER;
        let late = (timer.period).filter(|_| is_missed).map_or(0, |period| {
            (now - now.rem_euclid(self.tick) - timer.deadline) / period
        });
        let out = Out {
            key,
            value: timer.value,
            deadline: timer.deadline,
            missed: late,
        };
        let Some(period) = timer.period else {
            self.pending.remove(&key);
            return out;
        };
        let order = self.next_order();
        let next = timer.deadline + period * (late + 1);
        let timer = self.pending.get_mut(&key).expect("it is pending");
        timer.deadline = next.min(NEVER);
        timer.order = order;
        timer.awaits = self.awaits;
        timer.is_known = false;
        self.counts.set += 1;
        out
    }
}
