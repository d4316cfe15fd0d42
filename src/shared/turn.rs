//! One turn of the actor.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Shared;
use crate::metrics::{Event, Metrics};
use crate::tick::{Timestamp, nanos};

/// One turn of the actor: its time, read once, and its counts.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pub(crate) tick: u64,
    pub(crate) now: Timestamp,
    /// A timer with an earlier deadline was armed after this.
    pub(crate) armed_after: Timestamp,
    pub(crate) shared: &'a Shared,
    /// The greatest lateness above [`Shared::late_warning`]; zero if there was none.
    too_late: Cell<Duration>,
    /// How many timers fired.
    count: Cell<usize>,
}

impl<'a> Turn<'a> {
    pub(crate) fn new(now: Timestamp, shared: &'a Shared) -> Self {
        Turn {
            tick: shared.ticks.tick_at(now),
            now,
            armed_after: Timestamp::MIN,
            shared,
            too_late: Cell::new(Duration::ZERO),
            count: Cell::new(0),
        }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.shared.metrics.0
    }

    /// The turn goes on at a later time.
    pub(crate) fn go_on(&mut self, now: Timestamp) {
        self.tick = self.shared.ticks.tick_at(now);
        self.now = now;
    }

    /// A timer with this deadline fired. It is late from its deadline on, or from when it was armed
    /// if that is later.
    pub(crate) fn fired(&self, deadline: Timestamp) {
        let lateness = self.now.since(deadline.max(self.armed_after));
        self.metrics().lateness.record(lateness);
        self.count.set(self.count.get() + 1);
        if lateness > self.shared.late_warning {
            self.fired_too_late(deadline);
        }
    }

    /// Its lateness may be the wheel's own rounding.
    #[cold]
    fn fired_too_late(&self, deadline: Timestamp) {
        let could = self.shared.ticks.can_fire(deadline).max(self.armed_after);
        let lateness = self.now.since(could);
        if lateness > self.shared.late_warning {
            self.too_late.set(self.too_late.get().max(lateness));
        }
    }

    /// How many timers have fired.
    pub(crate) fn count(&self) -> usize {
        self.count.get()
    }

    /// A timer was processed, found to be due later, and rescheduled.
    pub(crate) fn rescheduled(&self) {
        self.metrics().actor.add(Event::Rescheduled, 1);
    }

    /// The greatest lateness of those that call for a warning.
    pub(crate) fn too_late(&self) -> Option<Duration> {
        Some(self.too_late.get()).filter(|lateness| !lateness.is_zero())
    }

    /// Counts the turn, which took this long.
    pub(crate) fn end(&self, took: Duration) {
        self.metrics().actor.add(Event::Turn, 1);
        let nanos = nanos(took);
        // Only the actor writes it.
        let longest = &self.metrics().longest_turn;
        if nanos > longest.load(Ordering::Relaxed) {
            longest.store(nanos, Ordering::Relaxed);
        }
    }
}
