//! Sending notes, and keeping the slots of removed timers: N1, N4 and N5 of the [set](super).

use std::num::NonZeroU64;

use super::table::Timer;
use super::{Guard, Kept, MAX_KEPT, Payload};
use crate::metrics::Event;
use crate::shared::command::Command;
use crate::shared::mailbox::WakeBy;
use crate::tick::{NEVER, Timestamp};

impl<K, S: Payload> Guard<'_, K, S> {
    /// Pushes a note. The drop of the guard follows the wake rule. Not inlined: most changes send
    /// none.
    #[inline(never)]
    pub(super) fn note(&mut self, index: u32, tick: u64) {
        let Some(set) = self.set_key else { return };
        // Without an actor nothing will fire; it has closed the set, or is about to.
        let shared = &self.set().shared;
        let note = Command::Note { set, index, tick };
        let Ok(mut wake_by) = shared.enqueue_for(set, tick, note) else {
            return;
        };
        // A virtual clock moves on its own to the earliest tick of the wheel, also to that of a
        // timer that was removed.
        if shared.clock.was_found_virtual() {
            wake_by = wake_by.min(WakeBy::Now);
        }
        self.after.wake_by = self.after.wake_by.min(wake_by);
    }

    /// The timer at an index gets another deadline, and a note if the wheel processes it too late
    /// (N4). Returns the number of this arming.
    #[inline]
    pub(super) fn rearm(&mut self, index: u32, deadline: Timestamp) -> NonZeroU64 {
        let number = self.next_number();
        let Some(slot) = self.table.get_mut(index) else {
            return number;
        };
        let scheduled = slot.rearm(deadline, number);
        if deadline < scheduled {
            let tick = self.set().tick(deadline);
            if tick < self.set().tick(scheduled) {
                self.note(index, tick);
            }
        }
        number
    }

    /// Takes out a timer, and counts its end as `event`.
    pub(super) fn take_out(&mut self, index: u32, event: Event) -> Option<Timer<K, S>> {
        let scheduled = self.table.get(index)?.scheduled;
        // One more than the timers that are left.
        let most = MAX_KEPT.min(self.len());
        let timer = self.remove(index)?;
        self.count_ended(event, 1);
        // Its slot is kept, or its index leaves the wheel (N5).
        if scheduled != Timestamp::NEVER && self.kept.len() < most && self.may_keep() {
            self.kept.push(Kept { index, scheduled });
        } else {
            self.vacate(index, scheduled);
        }
        if self.kept.len() > most {
            let oldest = self.kept.remove(0);
            self.vacate(oldest.index, oldest.scheduled);
        }
        Some(timer)
    }

    pub(super) fn may_keep(&self) -> bool {
        let shared = &self.set().shared;
        // Watches have no use for kept slots.
        S::KEYED
            && self.has_handles
            && self.is_open
            && (!shared.clock.was_found_virtual() || shared.clock.sleeps_on_wheel())
    }

    /// A slot without a timer is not kept: its index leaves the wheel.
    fn vacate(&mut self, index: u32, scheduled: Timestamp) {
        debug_assert!(self.kept.iter().all(|kept| kept.index != index), "N5");
        self.table.vacate(index);
        if scheduled != Timestamp::NEVER {
            self.note(index, NEVER);
        }
    }

    pub(super) fn vacate_kept(&mut self) {
        while let Some(kept) = self.kept.pop() {
            self.vacate(kept.index, kept.scheduled);
        }
    }

    /// Counts the end of timers, which left the set.
    pub(super) fn count_ended(&self, event: Event, n: usize) {
        self.counters.add(event, n as u64);
        let set = self.set();
        set.resource.changed(-i64::try_from(n).unwrap_or(i64::MAX));
        set.shared.unreserve(n);
    }
}
