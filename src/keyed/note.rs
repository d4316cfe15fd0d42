//! Notes to the actor, and the slots of removed timers that are kept.

use std::num::NonZeroU64;

use super::payload::Payload;
use super::set::Guard;
use super::table::{Slot, Timer};
use crate::metrics::Event;
use crate::shared::command::Command;
use crate::shared::mailbox::WakeBy;
use crate::sync::IN_EXPLORER;
use crate::tick::{NEVER, Timestamp};

/// The most slots that are kept with their nodes.
const MAX_KEPT: usize = if IN_EXPLORER { 2 } else { 16 };

impl<K, S: Payload> Guard<'_, K, S> {
    /// Pushes a note: schedule the index for this tick, or take it off the wheel. The drop of the
    /// guard follows the wake rule. Not inlined: most changes send none.
    #[inline(never)]
    pub(super) fn note(&mut self, index: u32, tick: u64) {
        debug_assert!(
            tick == NEVER
                || (self.table.get(index))
                    .is_some_and(|slot| self.set().tick(slot.scheduled) == tick),
            "K2: a note is for the tick for which the slot is scheduled"
        );
        // Without one nothing expires any more.
        let Some(set) = self.key else { return };
        let shared = &self.set().shared;
        let note = Command::Note { set, index, tick };
        // An error means that the actor has ended.
        let Ok(mut wake_by) = shared.enqueue_for(set, tick, note) else {
            return;
        };
        // A virtual clock moves on its own to the earliest tick of the wheel, also to that of a
        // timer that was removed.
        if shared.clock.was_found_virtual() {
            wake_by = wake_by.min(WakeBy::Now);
        }
        self.wake(wake_by);
    }

    /// The timer at an index gets another deadline, and a note if its reader would look at it too
    /// late (K2). Returns the number of this arming.
    #[inline]
    pub(super) fn rearm(&mut self, index: u32, deadline: Timestamp) -> NonZeroU64 {
        let (number, ticks) = (self.next_number(), &self.set().shared.ticks);
        let Some(slot) = self.table.get_mut(index) else {
            return number;
        };
        if let Some(tick) = slot.rearm(deadline, number, ticks) {
            self.note(index, tick);
        }
        number
    }

    /// Takes out a timer, and counts its end as `event`. Its slot is kept, or vacated.
    pub(super) fn take_out(&mut self, index: u32, event: Event) -> Option<Timer<K, S>> {
        // One more than the timers that are left.
        let most = MAX_KEPT.min(self.len());
        let timer = self.remove(index)?;
        self.count_ended(event, 1);
        let is_scheduled = (self.table.get(index)).is_some_and(Slot::is_scheduled);
        if is_scheduled && self.kept.len() < most && self.may_keep() {
            self.kept.push(index);
        } else {
            self.vacate(index);
        }
        if self.kept.len() > most {
            let oldest = self.kept.remove(0);
            self.vacate(oldest);
        }
        Some(timer)
    }

    /// A kept slot for a timer that is due then: the one that was kept last of those that are
    /// scheduled early enough.
    #[inline]
    pub(super) fn take_kept(&mut self, due: Timestamp) -> Option<u32> {
        let slot = |index: u32| self.table.get(index);
        let is_in_time = |&index: &u32| slot(index).is_some_and(|slot| slot.is_in_time(due));
        let position = self.kept.iter().rposition(is_in_time)?;
        Some(self.kept.remove(position))
    }

    pub(super) fn may_keep(&self) -> bool {
        let shared = &self.set().shared;
        // Watches have no use for kept slots.
        S::KEYED
            && self.has_handles
            && self.is_open()
            && (!shared.clock.was_found_virtual() || shared.clock.sleeps_on_wheel())
    }

    /// A slot without a timer is not kept: its index leaves the wheel.
    fn vacate(&mut self, index: u32) {
        debug_assert!(!self.kept.contains(&index), "it is not kept");
        let is_scheduled = (self.table.get(index)).is_some_and(Slot::is_scheduled);
        self.table.vacate(index);
        if is_scheduled {
            self.note(index, NEVER);
        }
    }

    pub(super) fn vacate_kept(&mut self) {
        while let Some(index) = self.kept.pop() {
            self.vacate(index);
        }
    }
}
