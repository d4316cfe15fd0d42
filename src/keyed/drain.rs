//! Draining: takes all timers out of a set.
//!
//! The table is taken away whole, whatever its length, and the set goes on with an empty one under
//! another key. The actor takes the nodes off the wheel that the old key has.

use super::error::ClosedError;
use super::expired::{Cause, Expired};
use super::payload::Payload;
use super::set::{Set, Taken};
use super::table::Timer;
use crate::clock;
use crate::panic::drop_pair;
use crate::shared::stalls::Gap;
use crate::tick::Timestamp;

impl<K, S: Payload> Set<K, S> {
    /// Takes every timer out, earliest first.
    pub(crate) fn drain(&self) -> Result<Vec<Expired<K, S::Value>>, ClosedError> {
        let mut guard = self.open()?;
        let taken = guard.take_all();
        let is_known = guard.register();
        drop(guard);
        if !is_known {
            self.hints.end();
        }
        Ok(self.sort(taken, self.shared.ticks.timestamp(clock::now())))
    }

    /// After the actor has ended: every timer that was not received, earliest first.
    pub(super) fn take_unreceived(&self) -> Vec<Expired<K, S::Value>> {
        if !self.hints.is_ended() {
            return Vec::new();
        }
        let taken = self.lock().take_all();
        // They are returned as they were when the actor ended.
        let tick = self.shared.told_before.0.tick();
        self.sort(taken, self.shared.ticks.begin_timestamp(tick))
    }

    /// The stream is dropped: drops every timer.
    pub(super) fn close(&self) {
        let mut guard = self.lock();
        guard.has_stream = false;
        let taken = guard.take_all();
        drop(guard);
        self.hints.forget_reader();
        let now = self.shared.ticks.timestamp(clock::now());
        for timer in taken.table.into_timers() {
            timer
                .value
                .end(timer.deadline, now, &self.silence(Gap::default()));
            drop_pair(timer.key, timer.value);
        }
    }

    fn sort(&self, taken: Taken<K, S>, now: Timestamp) -> Vec<Expired<K, S::Value>> {
        let end = |mut timer: Timer<K, S>| {
            let (due, cause) = timer
                .value
                .end(timer.deadline, now, &self.silence(Gap::default()));
            timer.deadline = due;
            (timer, cause)
        };
        let mut ended: Vec<_> = taken.table.into_timers().map(end).collect();
        ended.sort_unstable_by_key(|(timer, _)| (timer.deadline, timer.number));
        let expired = |(timer, cause): (Timer<K, S>, Cause)| Expired {
            key: timer.key,
            value: timer.value.into_value(),
            deadline: self.shared.ticks.instant(timer.deadline),
            missed: 0,
            cause,
        };
        ended.into_iter().map(expired).collect()
    }
}
