//! The timer of a sleep: an entry on the wheel, or one of Tokio's timers.
//!
//! Nothing else knows which of the two it is. A sleep begins on the wheel, unless its runtime has a
//! virtual clock and no wheel. It leaves the wheel once, at a poll or a reset, and does not come
//! back:
//!
//! 1. *The wheel has ended*, which a poll of a sleep finds that is not due.
//! 2. *The clock is virtual*. Each poll and each reset asks that first, in builds where a clock can
//!    be paused. A sleep that has completed stays on the wheel until it is reset.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tokio::time::Instant;

use super::on_tokio::{OnTokio, tick_without_wheel};
use super::on_wheel::{Ended, OnWheel, Stage, drop_replaced};
use crate::clock::CAN_PAUSE;
use crate::metrics::Event;
use crate::shared::SleepEntry;
use crate::tick::{NEVER, far_future};

/// When a sleep is due.
#[derive(Debug, Clone, Copy)]
pub(super) struct Due {
    pub(super) deadline: Instant,
    /// The deadline's tick. If it is `NEVER`, the instant means nothing.
    pub(super) tick: u64,
}

/// See the module.
pub(super) struct Timer {
    due: Due,
    place: Place,
}

enum Place {
    Wheel(OnWheel),
    Tokio(Tokios),
}

/// One of Tokio's timers. An `Arc`, because its drop is inlined except for its rare half: a timer
/// on the wheel drops its place in a few instructions.
struct Tokios(Arc<OnTokio>);

impl Tokios {
    fn new(timer: OnTokio) -> Self {
        Tokios(Arc::new(timer))
    }

    fn get(&mut self) -> &mut OnTokio {
        Arc::get_mut(&mut self.0).expect("no other reference exists")
    }
}

impl Timer {
    #[inline]
    pub(super) fn on_wheel(due: Due, entry: Arc<SleepEntry>, stage: Stage) -> Self {
        Timer {
            due,
            place: Place::Wheel(OnWheel::new(entry, stage)),
        }
    }

    /// A timer in a runtime that has a virtual clock and no wheel.
    #[track_caller]
    pub(super) fn on_tokio(deadline: Instant) -> Self {
        let tick = tick_without_wheel(deadline);
        let due = Due { deadline, tick };
        Timer {
            due,
            place: Place::Tokio(Tokios::new(OnTokio::new(&due))),
        }
    }

    #[inline]
    pub(super) fn deadline(&self) -> Instant {
        self.due.deadline
    }

    pub(super) fn is_elapsed(&self) -> bool {
        match &self.place {
            Place::Wheel(timer) => timer.is_elapsed(&self.due),
            Place::Tokio(timer) => timer.0.is_elapsed() && self.due.tick != NEVER,
        }
    }

    /// The stage of a timer on the wheel.
    #[inline]
    pub(super) fn stage(&self) -> Option<Stage> {
        match &self.place {
            Place::Wheel(timer) => Some(timer.stage()),
            Place::Tokio(_) => None,
        }
    }

    /// The entry of a timer on the wheel.
    #[cfg(test)]
    pub(super) fn entry(&self) -> Option<&Arc<SleepEntry>> {
        match &self.place {
            Place::Wheel(timer) => timer.entry(),
            Place::Tokio(_) => None,
        }
    }

    // --- resets ---

    #[inline]
    pub(super) fn set_deadline(&mut self, deadline: Instant) {
        match &mut self.place {
            Place::Wheel(timer) if !CAN_PAUSE => timer.set_deadline(&mut self.due, deadline),
            _ => self.set_deadline_anywhere(deadline),
        }
    }

    #[inline(never)]
    fn set_deadline_anywhere(&mut self, deadline: Instant) {
        let tick = match &self.place {
            Place::Wheel(timer) => timer.tick(deadline),
            Place::Tokio(_) => tick_without_wheel(deadline),
        };
        self.reset(Due { deadline, tick });
    }

    /// It never completes.
    pub(super) fn set_never(&mut self) {
        let deadline = match &self.place {
            Place::Wheel(timer) => timer.shared().map(|shared| shared.ticks.never()),
            Place::Tokio(_) => None,
        };
        self.reset(Due {
            deadline: deadline.unwrap_or_else(far_future),
            tick: NEVER,
        });
    }

    fn reset(&mut self, due: Due) {
        self.due = due;
        if CAN_PAUSE && self.reset_if_virtual() {
            return;
        }
        match &mut self.place {
            Place::Wheel(timer) => timer.reset(&self.due),
            Place::Tokio(timer) => timer.get().reset(&self.due),
        }
    }

    /// Like [`set_deadline`](Self::set_deadline) for a timer that has just completed, as for the
    /// next tick of an interval.
    pub(super) fn rearm_when_polled(&mut self, deadline: Instant) {
        match &mut self.place {
            Place::Wheel(_) => self.set_deadline(deadline),
            Place::Tokio(timer) => {
                let tick = tick_without_wheel(deadline);
                self.due = Due { deadline, tick };
                timer.get().rearm_when_polled();
            }
        }
    }

    // --- polls ---

    /// Arms a new timer without reading the clock. Returns whether it waits on the wheel now; if
    /// not, it has to be polled.
    #[inline]
    pub(super) fn arm(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.place {
            Place::Wheel(timer) if !CAN_PAUSE => timer.poll_arm(&self.due, cx).is_pending(),
            _ => false,
        }
    }

    /// Polls it by one of two functions, according to where it is. Tokio's takes care of the
    /// cooperative budget.
    pub(super) fn poll_by<T>(
        &mut self,
        cx: &mut Context<'_>,
        on_wheel: impl FnOnce(&mut OnWheel, &Due, &mut Context<'_>) -> Poll<Result<T, Ended>>,
        on_tokio: impl FnOnce(&mut OnTokio, &Due, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if CAN_PAUSE {
            self.leave_if_virtual();
        }
        if let Place::Wheel(timer) = &mut self.place {
            if let Ok(output) = ready!(on_wheel(timer, &self.due, cx)) {
                return Poll::Ready(output);
            }
            self.leave();
        }
        match &mut self.place {
            Place::Tokio(timer) => on_tokio(timer.get(), &self.due, cx),
            Place::Wheel(_) => unreachable!("it has left the wheel"),
        }
    }

    // --- leaving the wheel ---

    /// Whether a timer that is polled or reset here goes to Tokio because the clock is virtual.
    fn is_to_leave(&self) -> bool {
        let Place::Wheel(timer) = &self.place else {
            return false;
        };
        let may_leave = |entry: &Arc<SleepEntry>| {
            let context = entry.context();
            context.clock.is_none() && context.shared.hands_sleeps_over()
        };
        self.due.tick != NEVER && timer.entry().is_some_and(may_leave)
    }

    /// Goes to Tokio if the clock is virtual. The poll that follows registers the timer there.
    #[cold]
    fn leave_if_virtual(&mut self) {
        if self.stage() == Some(Stage::Done) || !self.is_to_leave() {
            return;
        }
        let (has_completed, waker) = self.disarm();
        drop_replaced(waker);
        if !has_completed {
            self.leave();
        }
    }

    /// Goes to Tokio if the clock is virtual, and registers the new deadline there. A task that
    /// waits goes on waiting.
    #[cold]
    fn reset_if_virtual(&mut self) -> bool {
        if !self.is_to_leave() {
            return false;
        }
        let (has_completed, waker) = self.disarm();
        if let (true, Place::Wheel(timer)) = (has_completed, &self.place) {
            timer.count(Event::SleepMade);
        }
        self.leave();
        if let Place::Tokio(timer) = &mut self.place {
            timer.get().reset(&self.due);
            if let Some(waker) = waker {
                timer.get().wait(waker);
            }
        }
        true
    }

    /// Disarms a timer that leaves the wheel. Returns whether it has completed, and the waker of a
    /// task that waits.
    fn disarm(&mut self) -> (bool, Option<Waker>) {
        match &mut self.place {
            Place::Wheel(timer) => timer.disarm(),
            Place::Tokio(_) => (false, None),
        }
    }

    /// Leaves the wheel for one of Tokio's timers, which is not registered yet.
    #[cold]
    fn leave(&mut self) {
        // Making a timer may panic, so the sleep is counted after that.
        let timer = Tokios::new(OnTokio::anywhere(&self.due));
        if let Place::Wheel(left) = mem::replace(&mut self.place, Place::Tokio(timer)) {
            left.count(Event::SleepHandedOver);
        }
    }
}

impl Drop for Timer {
    #[inline]
    fn drop(&mut self) {
        if let Place::Wheel(timer) = &mut self.place {
            timer.cancel(&self.due);
        }
    }
}
