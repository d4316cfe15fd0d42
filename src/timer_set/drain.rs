//! Draining: takes all timers out of a set.

use std::ops::Range;

use super::table::Timer;
use super::{BATCH, Cause, Closed, Expired, Payload, Set, State};
use crate::clock;
use crate::metrics::Event;
use crate::shared::actor_mutex::Outbox;

impl<K, S: Payload> Set<K, S> {
    /// Takes every timer out that was armed before this call, earliest first.
    pub(crate) fn drain(&self) -> Result<Vec<Expired<K, S::Value>>, Closed> {
        let armed_by = self.open()?.order;
        Ok(self.take_all(armed_by))
    }

    /// Takes every timer out whose order of arming is at most `armed_by`, earliest first.
    pub(super) fn take_all(&self, armed_by: u64) -> Vec<Expired<K, S::Value>> {
        let now = self.shared.ticks.timestamp(clock::now());
        // Timers armed from here on are not taken, so this never grows while the set is locked.
        let mut taken: Vec<(Timer<K, S>, Cause)> = Vec::with_capacity(self.len());
        self.in_batches(|state, outbox, indices| {
            for index in indices {
                let timer = state.table.timer(index);
                if timer.is_none_or(|timer| timer.order.get() > armed_by) {
                    continue;
                }
                if let Some(mut timer) = state.take_out(outbox, index) {
                    let (due, cause) = timer.value.end(timer.deadline, now, &self.rules);
                    timer.deadline = due;
                    self.count_ended(state, Event::KeyedDrained, 1);
                    taken.push((timer, cause));
                }
            }
        });
        // The actor takes the indices off the wheel now. It may have nothing else left to do, and end.
        self.shared.mailbox.wake_by(0);
        taken.sort_unstable_by_key(|(timer, _)| (timer.deadline, timer.order));
        let expired = |(timer, cause): (Timer<K, S>, Cause)| Expired {
            key: timer.key,
            value: timer.value.into_value(),
            deadline: self.shared.ticks.instant(timer.deadline),
            missed: 0,
            cause,
        };
        taken.into_iter().map(expired).collect()
    }

    /// Ends every value and leaves its timer where it is, with the deadline it would have reached. The set is closed.
    pub(super) fn end_all(&self) {
        let now = self.shared.ticks.timestamp(clock::now());
        self.in_batches(|state, _, indices| {
            for index in indices {
                let slot = state.table.slot_mut(index);
                if let Some(timer) = slot.and_then(|slot| slot.timer.as_mut()) {
                    timer.deadline = timer.value.end(timer.deadline, now, &self.rules).0;
                }
            }
        });
    }

    /// Visits all indices, a batch under each hold of the lock.
    pub(super) fn in_batches(
        &self,
        mut visit: impl FnMut(&mut State<K, S>, &mut Outbox, Range<u32>),
    ) {
        let mut next = 0_u32;
        loop {
            let mut guard = self.lock();
            let (state, outbox) = guard.split();
            let until = state.table.end().min(next.saturating_add(BATCH));
            if next >= until {
                return;
            }
            visit(state, outbox, next..until);
            next = until;
        }
    }
}
