//! Sleeps under a virtual clock: Tokio's timer takes them over.
//!
//! # Why
//!
//! A test that passes with `tokio::time` has to pass with [`tickwheel::time`](crate::time): at the
//! same instants, with the same tasks woken in the same order, and the clock moved as far. Tokio
//! rounds deadlines to milliseconds of its own, fires timers in an order that follows from when
//! each was registered, and moves a paused clock to the earliest timer that exists. A wheel cannot
//! imitate that: Tokio does not tell when its driver started and last ran, the actor is one more
//! task between the driver and the tasks it wakes, and cancelled entries kept for reuse are timers
//! to which the clock is moved. So while the clock is virtual each sleep, also that of a timeout or
//! an interval, *is* one of Tokio's, made, registered and reset at the points where Tokio does so.
//!
//! The price is that a test under a paused clock does not test the wheel. This crate's own tests do
//! so by [`Builder::sleeps_on_wheel`](crate::Builder::sleeps_on_wheel).
//!
//! # When
//!
//! The clock of a runtime can be virtual only if it is a `current_thread` runtime, in a build with Tokio's `test-util`
//! ([`CAN_PAUSE`](clock::CAN_PAUSE)): other builds have none of this. It counts as virtual once it is first [found
//! paused](crate::shared::Shared::hands_sleeps_over), and stays so after `resume`. Each poll and each reset checks.
//!
//! `pause` may come when sleeps lie on the wheel. The first check that finds the virtual clock
//! sends the actor a command, and the actor evicts them: those that are armed are woken, poll and
//! go to Tokio's timer; it drops those that are cancelled. This happens before the clock moves on
//! its own, because the clock waits for all tasks. [`tickwheel::time::pause`](crate::time) checks
//! at once; after Tokio's own `pause` the next sleep does.
//!
//! These stay on the wheel: idle timers, keyed timers, sleeps that never fire, and sleeps that are
//! polled outside the wheel's runtime, since Tokio's timers belong to the runtime in which they are
//! made.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::task::coop;
use tokio::time::{self, Instant};

use super::{Sleep, Stage, drop_replaced, fallback, pool};
use crate::clock;
use crate::console::Resource;
use crate::metrics::Event;
use crate::panic::wake;
use crate::shared::entry::Phase;
use crate::tick::{NEVER, far_future};

/// A sleep without a wheel never fires if its deadline is further away than this. A wheel's ticks
/// reach about as far.
const FAR: Duration = Duration::from_secs(500 * 365 * 86_400);

impl Sleep {
    /// A sleep in a runtime whose clock is virtual and that has no wheel.
    #[cold]
    #[track_caller]
    pub(crate) fn on_tokio(resource: Resource, deadline: Instant) -> Self {
        let mut sleep = Sleep {
            deadline,
            tick: tick_without_wheel(deadline),
            entry: None,
            stage: Stage::Tokio,
            fallback: None,
            resource,
        };
        let timer = time::sleep_until(sleep.tokios_deadline());
        sleep.fallback = Some(Arc::new(Box::pin(timer)));
        sleep
    }

    /// Whether Tokio's timer has the sleep, or takes it over now because the clock is virtual.
    pub(super) fn is_tokios(&mut self) -> bool {
        self.is_handed_over() || self.hand_over()
    }

    fn is_handed_over(&self) -> bool {
        matches!(self.stage, Stage::Tokio | Stage::TokioUnarmed)
    }

    /// Hands the sleep to Tokio's timer if the clock is virtual. It is registered by the poll that
    /// follows.
    #[cold]
    fn hand_over(&mut self) -> bool {
        if self.stage == Stage::Done || !self.goes_to_tokio() {
            return false;
        }
        let (was, waker) = self.take_off();
        drop_replaced(waker);
        if was == Phase::Fired {
            self.stage = Stage::Done;
            return false;
        }
        self.make_timer();
        true
    }

    /// Resets the sleep as Tokio does, if Tokio's timer has it or takes it over now. The deadline is written already.
    pub(super) fn reset_tokios(&mut self) -> bool {
        let is_tokios = self.is_handed_over() || self.goes_to_tokio();
        if is_tokios {
            self.reset_registered();
        }
        is_tokios
    }

    /// Registers the new deadline with Tokio's timer at once. A waiting task goes on waiting, for
    /// that.
    #[cold]
    fn reset_registered(&mut self) {
        let mut waker = None;
        if !self.is_handed_over() {
            let (was, waiting) = self.take_off();
            waker = waiting;
            if was == Phase::Fired || self.stage == Stage::Done {
                self.count(Event::SleepMade);
            }
            self.make_timer();
        }
        self.stage = Stage::Tokio;
        let deadline = self.tokios_deadline();
        let Some(mut timer) = self.fallback() else {
            return;
        };
        timer.as_mut().reset(deadline);
        let Some(waker) = waker else { return };
        let mut cx = Context::from_waker(&waker);
        if pin!(coop::unconstrained(timer)).poll(&mut cx).is_ready() {
            wake(Some(waker));
        }
    }

    /// Gives a sleep that has just completed another deadline, or none. Tokio's timer registers it
    /// at the next poll, not now, as for the next tick of an interval.
    pub(crate) fn rearm_when_polled(&mut self, deadline: Option<Instant>) {
        let (Stage::Tokio, Some(deadline)) = (self.stage, deadline) else {
            return self.reset_or_never(deadline);
        };
        self.deadline = deadline;
        self.tick = self.tick_of(deadline);
        self.resource.reset(deadline);
        self.stage = Stage::TokioUnarmed;
        if let Some(timer) = self.fallback() {
            // Takes the task's waker out: the reset must not wake the task that is about to poll.
            let mut cx = Context::from_waker(Waker::noop());
            let _elapsed = pin!(coop::unconstrained(timer)).poll(&mut cx);
        }
    }

    /// Polls Tokio's timer, which takes care of the budget.
    #[cold]
    pub(super) fn poll_tokios(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_never = self.tick == NEVER;
        let deadline = self.tokios_deadline();
        let is_unarmed = self.stage == Stage::TokioUnarmed;
        if is_unarmed && !coop::has_budget_remaining() {
            return coop::poll_proceed(cx).map(|_| ());
        }
        self.stage = Stage::Tokio;
        let Some(mut timer) = self.fallback() else {
            return Poll::Ready(());
        };
        if is_unarmed {
            timer.as_mut().reset(deadline);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if !is_never {
                return Poll::Ready(());
            }
            // It fired at the instant that stands for never, decades away.
            timer.as_mut().reset(far_future());
        }
    }

    fn goes_to_tokio(&self) -> bool {
        self.tick != NEVER
            && self.stage != Stage::Fallback
            && (self.entry.as_ref()).is_some_and(|entry| {
                let context = entry.context();
                context.clock.is_none() && context.shared.hands_sleeps_over()
            })
    }

    /// Disarms the entry if it is armed. Returns the phase it was in, and the waker.
    fn take_off(&self) -> (Phase, Option<Waker>) {
        match &self.entry {
            Some(entry) if self.stage == Stage::Armed => {
                let disarmed = entry.disarm();
                (disarmed.was, disarmed.waker)
            }
            _ => (Phase::Idle, None),
        }
    }

    /// Makes the timer, which is not registered yet.
    fn make_timer(&mut self) {
        self.fallback = Some(Arc::new(fallback::sleep_until(self.tokios_deadline())));
        self.stage = Stage::Tokio;
        self.count(Event::SleepHandedOver);
    }

    /// The deadline for Tokio's timer. Tokio panics at an instant that is nearly the last one there
    /// is.
    pub(super) fn tokios_deadline(&self) -> Instant {
        if self.tick == NEVER {
            far_future()
        } else {
            self.deadline
        }
    }

    #[inline]
    pub(super) fn tick_of(&self, deadline: Instant) -> u64 {
        match &self.entry {
            Some(entry) => pool::tick(&entry.context().shared, deadline),
            None => tick_without_wheel(deadline),
        }
    }
}

/// Only whether it is `NEVER` matters.
fn tick_without_wheel(deadline: Instant) -> u64 {
    if deadline.saturating_duration_since(clock::now()) > FAR {
        NEVER
    } else {
        0
    }
}
