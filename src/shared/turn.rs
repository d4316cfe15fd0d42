//! One turn of the actor.

use std::cell::Cell;
use std::time::Duration;

use crate::metrics::{Event, Metrics};
use crate::tick::Timestamp;

/// One turn of the actor: its time, read once, and its counts.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pub(crate) tick: u64,
    pub(crate) now: Timestamp,
    /// A timer with an earlier deadline was armed after this.
    armed_after: Timestamp,
    metrics: &'a Metrics,
    latest: Cell<Duration>,
    /// How many timers fired.
    count: Cell<usize>,
    /// The actor has waited for the lock of a set.
    waited: Cell<bool>,
}

impl<'a> Turn<'a> {
    pub(crate) fn new(tick: u64, now: Timestamp, metrics: &'a Metrics) -> Self {
        Turn {
            tick,
            now,
            armed_after: Timestamp::MIN,
            metrics,
            latest: Cell::new(Duration::ZERO),
            count: Cell::new(0),
            waited: Cell::new(false),
        }
    }

    /// Whether the actor may wait for the lock of a set, which it may once.
    pub(crate) fn may_wait(&self) -> bool {
        !self.waited.replace(true)
    }

    /// This turn at a later time.
    pub(crate) fn at(self, tick: u64, now: Timestamp) -> Self {
        Turn { tick, now, ..self }
    }

    /// This turn, in which each timer with a deadline before `armed_after` was armed after that.
    pub(crate) fn with_armed_after(self, armed_after: Timestamp) -> Self {
        Turn {
            armed_after,
            ..self
        }
    }

    /// A timer with this deadline fired. It is late from its deadline on, or from when it was armed if that is later.
    pub(crate) fn fired(&self, deadline: Timestamp) {
        let lateness = self.now.since(deadline.max(self.armed_after));
        self.metrics.lateness.record(lateness);
        self.latest.set(self.latest.get().max(lateness));
        self.count.set(self.count.get() + 1);
    }

    /// How many timers have fired.
    pub(crate) fn count(&self) -> usize {
        self.count.get()
    }

    /// A sleep fired.
    pub(crate) fn fired_sleep(&self, deadline: Timestamp) {
        self.metrics.actor.add(Event::SleepFired, 1);
        self.fired(deadline);
    }

    /// A timer was processed, found to be due later, and rescheduled.
    pub(crate) fn rescheduled(&self) {
        self.metrics.actor.add(Event::Rescheduled, 1);
    }

    /// The greatest lateness so far.
    pub(crate) fn latest(&self) -> Duration {
        self.latest.get()
    }

    /// Counts the turn, which took this long.
    pub(crate) fn end(&self, took: Duration) {
        self.metrics.record_turn(took);
    }
}
