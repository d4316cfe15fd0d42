//! A timer that is looked at and changed under one hold of the lock.

use std::fmt;
use std::mem;

use tokio::time::Instant;

use super::payload::Plain;
use super::set::{Guard, Repeat};
use super::table::Timer;
use crate::metrics::Event;
use crate::panic::drop_caught;
use crate::tick::Timestamp;

/// A pending timer, while [`update`](crate::KeyedTimers::update) or
/// [`set_or_update`](crate::KeyedTimers::set_or_update) keeps its set locked.
///
/// No other call comes between what you read here and what you change.
pub struct TimerMut<'a, K, V> {
    guard: Guard<'a, K, Plain<V>>,
    index: u32,
}

impl<'a, K, V> TimerMut<'a, K, V> {
    /// The timer at an index that was found under this hold.
    pub(super) fn new(guard: Guard<'a, K, Plain<V>>, index: u32) -> Self {
        TimerMut { guard, index }
    }

    fn timer(&self) -> &Timer<K, Plain<V>> {
        found(self.guard.table.timer(self.index))
    }

    /// The key.
    pub fn key(&self) -> &K {
        &self.timer().key
    }

    /// The value.
    pub fn value(&self) -> &V {
        &self.timer().value.0
    }

    /// The value, to be changed in place.
    pub fn value_mut(&mut self) -> &mut V {
        &mut found(self.guard.table.timer_mut(self.index)).value.0
    }

    /// The deadline, as [`KeyedTimers::deadline`](crate::KeyedTimers::deadline) returns it. It has
    /// passed if the timer is overdue and not received.
    pub fn deadline(&self) -> Instant {
        let ticks = &self.guard.set().shared.ticks;
        ticks.instant(self.timer().deadline)
    }

    /// Moves the timer, earlier or later, as
    /// [`move_timer_at`](crate::KeyedTimers::move_timer_at) does.
    pub fn set_deadline(&mut self, deadline: Instant) {
        let deadline = self.guard.set().shared.ticks.timestamp(deadline);
        self.move_to(deadline);
    }

    pub(super) fn move_to(&mut self, deadline: Timestamp) {
        self.guard.rearm(self.index, deadline);
        self.guard.counters.add(Event::KeyedMoved, 1);
    }

    /// Sets the timer anew, and unlocks the set. Returns the value before.
    pub(super) fn replace(
        mut self,
        value: V,
        deadline: Timestamp,
        repeat: Option<Repeat<K, Plain<V>>>,
    ) -> V {
        self.guard.rearm(self.index, deadline);
        self.guard.set_repeat(self.index, repeat);
        self.guard.counters.add(Event::KeyedReplaced, 1);
        mem::replace(self.value_mut(), value)
    }

    /// Removes the timer, unlocks the set, and returns the value. The timer never expires.
    pub fn remove(mut self) -> V {
        let Timer { key, value, .. } = found(self.guard.take_out(self.index, Event::KeyedRemoved));
        drop(self);
        // The caller gets the value even if the drop of the key panics.
        drop_caught([key]);
        value.0
    }
}

/// What stands at the index: no other call removes it under this hold.
fn found<T>(timer: Option<T>) -> T {
    timer.expect("it was found under this hold")
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for TimerMut<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerMut")
            .field("key", self.key())
            .field("value", self.value())
            .field("deadline", &self.deadline())
            .finish()
    }
}
