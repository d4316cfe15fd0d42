//! The timer of a sleep: an entry on the wheel, or one of Tokio's timers.
//!
//! Nothing else knows which of the two it is. A sleep begins on the wheel, unless its runtime has a
//! virtual clock and no wheel. It leaves the wheel once, at a poll or a reset, and does not come
//! back:
//!
//! 1. *The wheel has ended*. A poll finds that out, unless the sleep is due.
//! 2. *The clock is virtual*. Each poll and each reset asks that first, in builds where a clock can
//!    be paused. A sleep that has completed stays on the wheel until it is reset.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::time::Instant;

use super::on_tokio::{OnTokio, is_far};
use super::on_wheel::{OnWheel, Stage, WheelEnded};
use crate::clock::CAN_PAUSE;
use crate::metrics::Event;
use crate::panic::drop_replaced;
use crate::tick::{NEVER, Ticks, far_future};

/// See the module.
pub(super) enum Timer {
    Wheel(OnWheel),
    /// An `Arc`, because its drop is inlined except for its rare half: a timer on the wheel is
    /// dropped in a few instructions.
    Tokio(Arc<OnTokio>),
}

fn get(timer: &mut Arc<OnTokio>) -> &mut OnTokio {
    Arc::get_mut(timer).expect("no other reference exists")
}

impl Timer {
    /// A timer in a runtime that has a virtual clock and no wheel.
    #[track_caller]
    pub(super) fn on_tokio(deadline: Option<Instant>) -> Self {
        let is_never = deadline.is_none_or(is_far);
        let deadline = deadline.unwrap_or_else(far_future);
        Timer::Tokio(Arc::new(OnTokio::new(deadline, is_never)))
    }

    #[inline]
    pub(super) fn deadline(&self) -> Instant {
        match self {
            Timer::Wheel(timer) => timer.deadline,
            Timer::Tokio(timer) => timer.deadline,
        }
    }

    pub(super) fn is_elapsed(&self) -> bool {
        match self {
            Timer::Wheel(timer) => timer.is_elapsed(),
            Timer::Tokio(timer) => timer.is_elapsed(),
        }
    }

    /// The ticks by which it fires, if it is on a wheel.
    pub(super) fn ticks(&self) -> Option<&Ticks> {
        match self {
            Timer::Wheel(timer) => Some(&timer.shared().ticks),
            Timer::Tokio(_) => None,
        }
    }

    /// The stage of a timer on the wheel.
    #[inline]
    pub(super) fn stage(&self) -> Option<Stage> {
        match self {
            Timer::Wheel(timer) => Some(timer.stage),
            Timer::Tokio(_) => None,
        }
    }

    // --- resets ---

    /// Gives it another deadline, or none if it never completes.
    #[inline]
    pub(super) fn reset(&mut self, deadline: Option<Instant>) {
        match self {
            Timer::Wheel(timer) => {
                if timer.reset(deadline) {
                    self.hand_over_on_reset();
                }
            }
            Timer::Tokio(timer) => get(timer).reset(deadline),
        }
    }

    /// Like [`reset`](Self::reset) for a timer that has just completed, as for the next tick of an
    /// interval.
    pub(super) fn rearm_when_polled(&mut self, deadline: Option<Instant>) {
        match self {
            Timer::Wheel(timer) => {
                if timer.reset(deadline) {
                    timer.count(Event::SleepMade);
                    self.hand_over();
                }
            }
            Timer::Tokio(timer) => get(timer).rearm_when_polled(deadline),
        }
    }

    // --- polls ---

    /// Arms a new timer without reading the clock. Returns whether it waits on the wheel now; if
    /// not, it has to be polled.
    #[inline]
    pub(super) fn arm(&mut self, cx: &mut Context<'_>) -> bool {
        match self {
            Timer::Wheel(timer) if !CAN_PAUSE => timer.poll_arm(cx).is_pending(),
            _ => false,
        }
    }

    /// Polls it by one of two functions, according to where it is. Tokio's takes care of the
    /// cooperative budget.
    pub(super) fn poll_by<T>(
        &mut self,
        cx: &mut Context<'_>,
        on_wheel: impl FnOnce(&mut OnWheel, &mut Context<'_>) -> Poll<Result<T, WheelEnded>>,
        on_tokio: impl FnOnce(&mut OnTokio, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if CAN_PAUSE {
            self.hand_over_if_virtual();
        }
        let timer = match self {
            Timer::Wheel(timer) => match ready!(on_wheel(timer, cx)) {
                Ok(output) => return Poll::Ready(output),
                Err(WheelEnded) => self.hand_over(),
            },
            Timer::Tokio(timer) => get(timer),
        };
        on_tokio(timer, cx)
    }

    // --- leaving the wheel ---

    /// Goes to Tokio if the clock is virtual. The poll that follows registers the timer there.
    #[cold]
    fn hand_over_if_virtual(&mut self) {
        let Timer::Wheel(timer) = self else { return };
        if timer.stage == Stage::Done || !timer.goes_to_tokio() {
            return;
        }
        let (has_completed, waker) = timer.disarm();
        drop_replaced(waker);
        if !has_completed {
            self.hand_over();
        }
    }

    /// The clock is virtual: goes to Tokio, and registers the new deadline there. A task that waits
    /// goes on waiting.
    #[cold]
    fn hand_over_on_reset(&mut self) {
        let Timer::Wheel(timer) = self else { return };
        let (has_completed, waker) = timer.disarm();
        if has_completed {
            timer.count(Event::SleepMade);
        }
        let timer = self.hand_over();
        timer.register();
        if let Some(waker) = waker {
            timer.wait(waker);
        }
    }

    /// Leaves the wheel for one of Tokio's timers, which is not registered yet.
    #[cold]
    fn hand_over(&mut self) -> &mut OnTokio {
        if let Timer::Wheel(left) = self {
            // Making a timer may panic, so the sleep is counted after that.
            let timer = Arc::new(OnTokio::anywhere(left.deadline, left.tick == NEVER));
            left.hand_over();
            *self = Timer::Tokio(timer);
        }
        match self {
            Timer::Tokio(timer) => get(timer),
            Timer::Wheel(_) => unreachable!("it has left the wheel"),
        }
    }
}
