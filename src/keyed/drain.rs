//! Draining: takes all timers out of a set.
//!
//! The table is taken away whole, whatever its length, and the set goes on with an empty one under
//! another key. The actor takes the nodes off the wheel that the old key has.

use super::error::ClosedError;
use super::payload::Payload;
use super::set::Set;
use super::table::Timer;
use super::unexpired::Unexpired;
use crate::clock;
use crate::metrics::Event;
use crate::panic::drop_pair;
use crate::shared::stalls::Gap;
use crate::tick::Timestamp;

impl<K, S: Payload> Set<K, S> {
    /// Takes every timer out, earliest first.
    pub(crate) fn drain(&self) -> Result<Vec<Unexpired<K, S::Value>>, ClosedError> {
        let mut guard = self.open()?;
        let taken = guard.take_all();
        let is_known = guard.register();
        drop(guard);
        if !is_known {
            self.hints.end();
        }
        Ok(self.sort(
            taken.table.into_timers(),
            self.shared.ticks.timestamp(clock::now()),
        ))
    }

    /// Takes out the timers that `ends` is true of, earliest first. It may have changed those.
    pub(crate) fn drain_if(
        &self,
        mut ends: impl FnMut(&S) -> bool,
    ) -> Result<Vec<Unexpired<K, S::Value>>, ClosedError> {
        drop(self.open()?);
        let mut taken = Vec::new();
        for indices in self.batches() {
            // Not under the lock.
            taken.reserve(indices.len());
            let Ok(mut guard) = self.open() else {
                break;
            };
            for index in indices {
                if guard
                    .table
                    .timer(index)
                    .is_some_and(|timer| ends(&timer.value))
                {
                    taken.extend(guard.take_out(index, Event::KeyedDrained));
                }
            }
        }
        Ok(self.sort(taken.into_iter(), self.shared.ticks.timestamp(clock::now())))
    }

    /// After the actor has ended: every timer that was not received, earliest first.
    pub(super) fn take_unreceived(&self) -> Vec<Unexpired<K, S::Value>> {
        if !self.hints.is_ended() {
            return Vec::new();
        }
        let taken = self.lock().take_all();
        // They are returned as they were when the actor ended.
        let tick = self.shared.told_before.0.tick();
        self.sort(
            taken.table.into_timers(),
            self.shared.ticks.begin_timestamp(tick),
        )
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

    fn sort(
        &self,
        taken: impl Iterator<Item = Timer<K, S>>,
        now: Timestamp,
    ) -> Vec<Unexpired<K, S::Value>> {
        let silence = self.silence(Gap::default());
        let end = |mut timer: Timer<K, S>| {
            timer.deadline = timer.value.end(timer.deadline, now, &silence);
            timer
        };
        let mut ended: Vec<_> = taken.map(end).collect();
        ended.sort_unstable_by_key(|timer| (timer.deadline, timer.number));
        let unexpired = |timer: Timer<K, S>| Unexpired {
            key: timer.key,
            value: timer.value.into_value(),
            deadline: self.shared.ticks.instant(timer.deadline),
        };
        ended.into_iter().map(unexpired).collect()
    }
}
