//! Draining: takes all timers out of a set.

use std::num::NonZeroU64;
use std::ops::Range;

use super::table::Timer;
use super::{BATCH, Cause, Closed, Expired, Payload, Set, State};
use crate::clock;
use crate::metrics::Event;
use crate::shared::mailbox::WakeBy;

impl<K, S: Payload> Set<K, S> {
    /// Takes every timer out that was armed before this call, earliest first. A repeating timer
    /// counts as armed when it was set or moved: it may be due, and armed again, while this goes
    /// on.
    pub(crate) fn drain(&self) -> Result<Vec<Expired<K, S::Value>>, Closed> {
        let armed_by = self.open()?.number;
        Ok(self.take_all(armed_by))
    }

    /// Takes out every timer that was armed up to number `armed_by`, earliest first.
    pub(super) fn take_all(&self, armed_by: NonZeroU64) -> Vec<Expired<K, S::Value>> {
        let now = self.shared.ticks.timestamp(clock::now());
        // Timers armed from here on are not taken, so this never grows while the set is locked.
        let mut taken: Vec<(Timer<K, S>, Cause)> = Vec::with_capacity(self.len());
        for indices in self.batches() {
            let mut guard = self.lock();
            for index in indices {
                if (guard.armed_number(index)).is_none_or(|number| number > armed_by) {
                    continue;
                }
                if let Some(mut timer) = guard.take_out(index, Event::KeyedDrained) {
                    let (due, cause) = timer.value.end(timer.deadline, now, self.idle);
                    timer.deadline = due;
                    taken.push((timer, cause));
                }
            }
        }
        // The actor takes the indices off the wheel now. It may have nothing else left to do, and
        // end.
        self.shared.mailbox.wake(WakeBy::Now);
        taken.sort_unstable_by_key(|(timer, _)| (timer.deadline, timer.number));
        let expired = |(timer, cause): (Timer<K, S>, Cause)| Expired {
            key: timer.key,
            value: timer.value.into_value(),
            deadline: self.shared.ticks.instant(timer.deadline),
            missed: 0,
            cause,
        };
        taken.into_iter().map(expired).collect()
    }

    /// Ends every value and leaves its timer where it is, with the deadline it would have reached.
    /// The set is closed.
    pub(super) fn end_all(&self) {
        let now = self.shared.ticks.timestamp(clock::now());
        for indices in self.batches() {
            let mut guard = self.lock();
            for index in indices {
                if let Some(timer) = guard.table.timer_mut(index) {
                    timer.deadline = timer.value.end(timer.deadline, now, self.idle).0;
                }
            }
        }
    }

    /// All indices of now, in parts that one hold of the lock visits. Timers that are set meanwhile
    /// extend the table, and must not keep a visit going.
    pub(super) fn batches(&self) -> impl Iterator<Item = Range<u32>> + use<K, S> {
        let end = self.lock().table.end();
        let batch = move |from: u32| from..end.min(from.saturating_add(BATCH));
        (0..end).step_by(BATCH as usize).map(batch)
    }
}

impl<K, S: Payload> State<K, S> {
    /// The number of the timer at an index; of a repeating timer, the one it had when it was set or
    /// moved.
    fn armed_number(&self, index: u32) -> Option<NonZeroU64> {
        let timer = self.table.timer(index)?;
        let repeat = self.repeats.get(&index);
        Some(repeat.map_or(timer.number, |&(number, _)| number))
    }
}
