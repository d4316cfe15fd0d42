//! A sleep on its wheel: the owner's half of the protocol in [`entry`](crate::shared::entry).

use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tokio::task::coop;
use tokio::time::Instant;

use super::pool::{self, Reserved};
use crate::clock::{self, CAN_PAUSE};
use crate::metrics::Event;
use crate::panic::{drop_replaced, wake};
use crate::shared::entry::{EntryArc, Phase};
use crate::shared::{Shared, SleepContext, SleepEntry};
use crate::tick::NEVER;

/// See the module. Others only read its fields.
pub(super) struct OnWheel {
    pub(super) deadline: Instant,
    /// The deadline's tick. If it is `NEVER`, the deadline means nothing.
    pub(super) tick: u64,
    /// `None` while it is being dropped, and once it has left the wheel.
    pub(super) entry: Option<EntryArc<SleepEntry>>,
    pub(super) stage: Stage,
}

/// The stage of a sleep on its wheel. In four bytes it has more unused values than an `Instant`, so
/// one of them tells that a `Timer` is one of Tokio's: one comparison tells that and the stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Stage {
    /// Made for a duration above zero, not polled yet. Its deadline was in the future when it was
    /// made.
    New,
    /// Made for an instant, or for no time at all, and not polled yet. Its deadline may have passed
    /// when it was made.
    NewUnchecked,
    /// Reset while its entry was not armed, and not polled since.
    Reset,
    /// The entry is armed, or was and has fired.
    Armed,
    Done,
}

/// The wheel has ended, and the sleep has not completed.
pub(super) struct WheelEnded;

impl OnWheel {
    #[inline]
    pub(super) fn new(deadline: Instant, stage: Stage, reserved: Reserved) -> Self {
        OnWheel {
            deadline,
            tick: reserved.tick,
            entry: Some(reserved.entry),
            stage,
        }
    }

    #[inline]
    fn entry(&self) -> &EntryArc<SleepEntry> {
        self.entry.as_ref().expect("it is on the wheel")
    }

    #[inline]
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.entry().context().shared
    }

    pub(super) fn count(&self, event: Event) {
        pool::count(self.shared(), event);
    }

    pub(super) fn is_elapsed(&self) -> bool {
        match self.stage {
            Stage::New | Stage::NewUnchecked => false,
            Stage::Reset => self.is_due(),
            Stage::Armed => self.entry().phase() == Phase::Fired,
            Stage::Done => true,
        }
    }

    /// Gives it another deadline, or none if it never completes. Returns `true` if it has to leave
    /// the wheel; the entry is not changed then.
    #[inline]
    pub(super) fn reset(&mut self, deadline: Option<Instant>) -> bool {
        let Some(entry) = &self.entry else {
            return false;
        };
        let shared = &entry.context().shared;
        (self.deadline, self.tick) = match deadline {
            Some(deadline) => (deadline, pool::round_up(shared, deadline)),
            None => (shared.ticks.never(), NEVER),
        };
        if CAN_PAUSE && self.goes_to_tokio() {
            return true;
        }
        let has_fired = match self.stage {
            Stage::New | Stage::NewUnchecked | Stage::Reset => false,
            Stage::Armed => {
                let (was, action) = entry.move_to(self.tick);
                if was == Phase::Armed {
                    if shared.act(entry, action) {
                        pool::count(shared, Event::SleepMoved);
                        return false;
                    }
                    // The actor has ended. The waiting task, perhaps another one, has to poll to
                    // find that out.
                    wake(entry.close());
                }
                was == Phase::Fired
            }
            Stage::Done => true,
        };
        if has_fired {
            pool::count(shared, Event::SleepMade);
        }
        self.stage = Stage::Reset;
        false
    }

    /// Whether it goes to Tokio if it is polled or reset here, because the clock is virtual.
    #[inline(never)]
    pub(super) fn goes_to_tokio(&self) -> bool {
        let SleepContext { shared, clock } = &**self.entry().context();
        self.tick != NEVER
            && clock.is_none()
            && !shared.clock.sleeps_on_wheel()
            && shared.detect_virtual_clock()
    }

    /// Ready once the deadline is reached, or the wheel has ended before.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WheelEnded>> {
        match self.stage {
            Stage::New | Stage::NewUnchecked | Stage::Reset if self.is_due() => self.poll_due(),
            Stage::New | Stage::NewUnchecked | Stage::Reset => self.poll_arm(cx),
            Stage::Armed => self.poll_armed(cx, true),
            Stage::Done => Poll::Ready(Ok(())),
        }
    }

    /// Like [`poll`](Self::poll), and takes a unit of the task's cooperative budget when it is
    /// ready.
    pub(super) fn poll_with_budget(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), WheelEnded>> {
        let result = ready!(self.poll(cx));
        if result.is_ok() {
            // Only a ready poll costs budget, so that a task with sleeps that are always ready
            // yields now and then.
            ready!(coop::poll_proceed(cx)).made_progress();
        }
        Poll::Ready(result)
    }

    /// Like [`poll`](Self::poll), for a caller that has just read the clock.
    pub(super) fn poll_fired(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WheelEnded>> {
        match self.stage {
            Stage::Armed => self.poll_armed(cx, false),
            Stage::Reset => self.poll_arm(cx),
            _ => self.poll(cx),
        }
    }

    /// Arms the entry without reading the clock. An overdue sleep that is armed fires on the
    /// actor's next turn.
    #[inline]
    pub(super) fn poll_arm(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WheelEnded>> {
        let waker = cx.waker().clone();
        // Not by `entry`: with a path that panics a timeout takes a fifth more instructions.
        let armed = match &self.entry {
            Some(entry) => entry.try_arm(self.tick, waker),
            None => Err(waker),
        };
        match armed {
            Ok(()) => {
                self.stage = Stage::Armed;
                Poll::Pending
            }
            Err(waker) => self.poll_arm_any(waker),
        }
    }

    /// Like [`poll_arm`](Self::poll_arm) where arming may take a command.
    #[inline(never)]
    fn poll_arm_any(&mut self, waker: Waker) -> Poll<Result<(), WheelEnded>> {
        let entry = self.entry();
        if !entry.context().shared.arm(entry, self.tick, waker) {
            return self.poll_ended();
        }
        self.stage = Stage::Armed;
        Poll::Pending
    }

    /// Polls an armed sleep. One that is overdue and has not fired is ready only if the poll reads
    /// the clock.
    pub(super) fn poll_armed(
        &mut self,
        cx: &mut Context<'_>,
        reads_clock: bool,
    ) -> Poll<Result<(), WheelEnded>> {
        let entry = self.entry();
        let (phase, replaced) = entry.poll(cx.waker());
        drop_replaced(replaced);
        match phase {
            Phase::Fired => {
                self.stage = Stage::Done;
                Poll::Ready(Ok(()))
            }
            Phase::Closed => self.poll_ended(),
            // The actor has evicted the entry, and this is not the actor's runtime: arm it again.
            Phase::Idle => {
                self.stage = Stage::Reset;
                self.poll_arm(cx)
            }
            Phase::Armed if !(reads_clock && self.is_due()) => Poll::Pending,
            Phase::Armed => {
                let disarmed = entry.disarm();
                if disarmed.was == Phase::Fired {
                    // The actor has fired and counted it meanwhile.
                    self.stage = Stage::Done;
                    return Poll::Ready(Ok(()));
                }
                self.poll_due()
                // The waker is dropped here: its panic finds the sleep completed and counted.
            }
        }
    }

    /// The wheel has ended.
    #[cold]
    fn poll_ended(&mut self) -> Poll<Result<(), WheelEnded>> {
        if self.is_due() {
            return self.poll_due();
        }
        Poll::Ready(Err(WheelEnded))
    }

    /// The sleep is due, and the actor has not fired it.
    fn poll_due(&mut self) -> Poll<Result<(), WheelEnded>> {
        self.stage = Stage::Done;
        self.count(Event::SleepFired);
        Poll::Ready(Ok(()))
    }

    /// Whether the clock has reached the deadline. A clock other than the actor's does not count:
    /// then the actor decides.
    fn is_due(&self) -> bool {
        self.tick != NEVER && clock::now() >= self.deadline && !self.shared().clock.is_foreign()
    }

    /// Disarms the entry if it is armed. Returns whether the sleep has completed, and the waker of
    /// a task that waits.
    pub(super) fn disarm(&mut self) -> (bool, Option<Waker>) {
        match &self.entry {
            Some(entry) if self.stage == Stage::Armed => {
                let disarmed = entry.disarm();
                if disarmed.was == Phase::Fired {
                    self.stage = Stage::Done;
                }
                (disarmed.was == Phase::Fired, disarmed.waker)
            }
            _ => (self.stage == Stage::Done, None),
        }
    }

    /// It was disarmed, or the wheel has ended: one of Tokio's timers goes on with it.
    pub(super) fn hand_over(&mut self) {
        self.count(Event::SleepHandedOver);
        if let Some(entry) = self.entry.take() {
            if entry.release() {
                entry.context().shared.count_stale(1);
            }
        }
    }

    /// Cancels the sleep in any stage.
    #[inline(never)]
    fn cancel_any(&mut self) {
        let Some(entry) = &self.entry else {
            return;
        };
        // The waker is dropped last, because its drop may panic.
        let _waker;
        let (is_cancelled, scheduled) = match self.stage {
            // The entry is as it came from the pool. It is probably scheduled by this tick.
            Stage::New | Stage::NewUnchecked => (true, self.tick),
            Stage::Reset | Stage::Armed | Stage::Done => {
                let disarmed = entry.disarm();
                _waker = disarmed.waker;
                let is_cancelled = match self.stage {
                    Stage::Armed => disarmed.was != Phase::Fired,
                    Stage::Reset => true,
                    _ => false,
                };
                (is_cancelled, disarmed.scheduled)
            }
        };
        pool::give_any(&mut self.entry, scheduled, is_cancelled);
    }
}

impl Drop for OnWheel {
    /// Cancels the sleep.
    #[inline]
    fn drop(&mut self) {
        if !matches!(self.stage, Stage::Armed) {
            return self.cancel_any();
        }
        match self.entry.as_ref().and_then(|entry| entry.try_disarm()) {
            // The waker is dropped last, because its drop may panic.
            Some(disarmed) => pool::give(&mut self.entry, disarmed.scheduled, disarmed.waker),
            None => self.cancel_any(),
        }
    }
}
