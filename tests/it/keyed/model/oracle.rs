//! The oracle of keyed timers: a sorted map, and the counts of everything.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::support::script_time::{Nanos, nanos};

/// The deadline of a timer that never fires: the library's range is 292 years.
pub(crate) const NEVER: Nanos = i64::MAX as Nanos;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Timer {
    pub(crate) value: u32,
    pub(crate) deadline: Nanos,
    order: u64,
    period: Option<Nanos>,
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
    pub(crate) pending: BTreeMap<u8, Timer>,
    /// The expirations that were delivered and not received.
    pub(crate) fired: VecDeque<Out>,
    pub(crate) counts: Counts,
}

impl Oracle {
    pub(crate) fn new(tick: Duration, max_keyed: Option<usize>) -> Self {
        Oracle {
            tick: nanos(tick),
            max_keyed: max_keyed.unwrap_or(usize::MAX),
            order: 0,
            pending: BTreeMap::new(),
            fired: VecDeque::new(),
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

    /// The timer that fires next.
    pub(crate) fn earliest(&self) -> Option<(u8, Timer)> {
        (self.pending.iter())
            .map(|(&key, &timer)| (key, timer))
            .min_by_key(|(_, timer)| (self.tick_of(timer.deadline), timer.order))
            .filter(|(_, timer)| timer.deadline < NEVER)
    }

    /// Whether a timer is due.
    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        (self.earliest()).is_some_and(|(_, timer)| self.fires_at(timer.deadline) <= now)
    }

    /// The wheel has fired `n` timers by `now`: fires the first `n`, and asserts that they are due.
    pub(crate) fn fire(&mut self, n: u64, now: Nanos) {
        for _ in 0..n {
            let (key, timer) = self.earliest().expect("more fired than there were");
            let at = self.fires_at(timer.deadline);
            assert!(
                at <= now,
                "fired at {now}: {timer:?} of key {key} is due at {at}"
            );
            self.counts.fired += 1;
            let missed = (timer.period).map_or(0, |period| (now - timer.deadline) / period);
            self.fired.push_back(Out {
                key,
                value: timer.value,
                deadline: timer.deadline,
                missed,
            });
            let order = self.next_order();
            let Some(period) = timer.period else {
                self.pending.remove(&key);
                continue;
            };
            let next = timer.deadline + period * (missed + 1);
            let timer = self.pending.get_mut(&key).expect("it is pending");
            timer.deadline = next.min(NEVER);
            timer.order = order;
            self.counts.set += 1;
        }
    }
}
