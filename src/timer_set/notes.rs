//! Sending notes, and keeping the slots of removed timers: N1, N4 and N5 of the [set](super).

use std::num::NonZeroU64;

use super::table::{Lag, Timer};
use super::{Kept, MAX_KEPT, Payload, Phase, Set, State};
use crate::shared::command::Command;
use crate::shared::mailbox::Pushed;
use crate::shared::note::Note;
use crate::tick::{NEVER, Timestamp};

impl<K, S: Payload> Set<K, S> {
    /// Pushes a note. The guard follows the wake rule.
    pub(super) fn note(&self, state: &mut State<K, S>, index: u32, tick: u64) {
        let Some(set) = state.key else {
            return;
        };
        let note = Note {
            number: state.next_number(),
            tick,
            set,
            index,
        };
        // Without an actor nothing will fire; it has closed the set, or is about to.
        if let Ok(pushed) = self.shared.enqueue(tick, Command::Note(note)) {
            state.pushed = Some(state.pushed.map_or(pushed, |other| other.and(pushed)));
        }
    }

    /// The timer at an index gets another deadline and order, and a note if the wheel processes it
    /// too late (N4).
    #[inline]
    pub(super) fn rearm(
        &self,
        state: &mut State<K, S>,
        index: u32,
        deadline: Timestamp,
        order: NonZeroU64,
    ) {
        let Some(slot) = state.table.get_mut(index) else {
            return;
        };
        let scheduled = slot.scheduled();
        slot.lag = Lag::between(scheduled.min(deadline), deadline);
        if let Some(timer) = &mut slot.timer {
            timer.deadline = deadline;
            timer.order = order;
        }
        if deadline < scheduled {
            let tick = self.tick(deadline);
            if tick < self.tick(scheduled) {
                self.note(state, index, tick);
            }
        }
    }

    pub(super) fn wake_after(&self, pushed: Pushed) {
        // A virtual clock moves on its own to the earliest tick of the wheel, also to that of a
        // timer that was removed. Without a handle, the actor ends when the wheel is empty.
        if self.shared.has_virtual_clock() || self.shared.is_orphaned() {
            self.shared.mailbox.wake_by(0);
        }
        self.shared.mailbox.wake_after(pushed);
    }

    /// Adds a timer, under no key, that is to be processed at `due`, in a kept slot or another one.
    /// Returns its index.
    #[inline]
    pub(super) fn insert(
        &self,
        state: &mut State<K, S>,
        kept: Option<Kept>,
        hash: u32,
        timer: Timer<K, S>,
        due: Timestamp,
    ) -> u32 {
        let deadline = timer.deadline;
        if let Some(Kept { index, scheduled }) = kept {
            let lag = Lag::between(scheduled, deadline);
            return state.table.fill(index, hash, timer, lag);
        }
        let index = (state.table).insert(hash, timer, Lag::between(due, deadline));
        if due != Timestamp::NEVER {
            self.note(state, index, self.tick(due));
        }
        index
    }

    /// Takes a timer out.
    pub(super) fn take_out(&self, state: &mut State<K, S>, index: u32) -> Option<Timer<K, S>> {
        let scheduled = state.table.get(index)?.scheduled();
        let timer = state.remove(index)?;
        self.vacate(state, index, scheduled);
        Some(timer)
    }

    /// A timer has left its slot: keeps the slot, or takes its index off the wheel (N5).
    #[inline]
    pub(super) fn vacate(&self, state: &mut State<K, S>, index: u32, scheduled: Timestamp) {
        let most = MAX_KEPT.min(state.table.len() + 1);
        let is_kept = scheduled != Timestamp::NEVER && state.kept.len() < most;
        if is_kept && self.may_keep(state) {
            state.kept.push(Kept { index, scheduled });
        } else {
            self.release(state, index);
        }
        if state.kept.len() > most {
            let oldest = state.kept.remove(0);
            self.release(state, oldest.index);
        }
    }

    pub(super) fn may_keep(&self, state: &State<K, S>) -> bool {
        // Watches have no use for kept slots.
        S::KEYED
            && state.has_handles
            && state.phase == Phase::Open
            && (!self.shared.has_virtual_clock() || self.shared.clock.sleeps_stay())
    }

    /// A slot without a timer is not kept.
    pub(super) fn release(&self, state: &mut State<K, S>, index: u32) {
        state.table.vacate(index);
        self.note(state, index, NEVER);
    }

    pub(super) fn release_all(&self, state: &mut State<K, S>) {
        while let Some(kept) = state.kept.pop() {
            self.release(state, kept.index);
        }
    }
}
