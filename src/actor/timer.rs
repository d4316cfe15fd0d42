//! The timer that the actor's task waits on: Tokio's, which rounds up to a millisecond, or a
//! [precise one](super::precise_timer).
//!
//! 1. *Only the clock decides what is due.* That the timer has elapsed is a hint to look at it, so
//!    the actor may be woken twice for one tick, or too early.
//! 2. *Nothing to wait for arms nothing.*
//! 3. *Where the clock can be paused Tokio's timer is always armed.* A paused clock moves on to the
//!    next of Tokio's timers, so it would not see the wheel otherwise. The precise timer is armed
//!    too, but not while the clock is virtual: it follows the real one.
//! 4. *A precise timer that fails is given up*, for Tokio's.
//!
//! # Two of Tokio's timers
//!
//! Arming the earliest of a driver's timers wakes the driver, also if the very worker that arms it
//! is the next to park there: a system call, and a round of the worker for nothing. An actor with
//! no other timer beside its own would do so each time. So a second timer is armed for the tick
//! that follows the next one. When the first has elapsed, the second is the earliest, and the actor
//! mostly waits on that. It then arms the first again, for a later instant.

use std::future::Future;
use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::time::{self, Instant};

use super::precise_timer::PreciseTimer;
use crate::clock;

/// See the module.
#[derive(Debug)]
pub(crate) struct ActorTimer {
    /// For the next turn.
    next: TokioTimer,
    /// For the turn after that.
    after_next: TokioTimer,
    precise: Option<PreciseTimer>,
}

type TokioTimer = Option<Pin<Box<time::Sleep>>>;

impl ActorTimer {
    /// Waits on Tokio's timer alone.
    pub(crate) fn tokio() -> Self {
        ActorTimer {
            next: None,
            after_next: None,
            precise: None,
        }
    }

    /// Waits on a precise timer if this system has one, and else on Tokio's. The reason is logged
    /// then.
    pub(crate) fn precise(wheel: &str) -> Self {
        let mut timer = ActorTimer::tokio();
        match PreciseTimer::new(wheel) {
            Ok(precise) => timer.precise = Some(precise),
            Err(error) => give_up(wheel, &error),
        }
        timer
    }

    /// Makes it elapse at the instant `next`, and not before, or never. After that it will probably
    /// be set to `after_next`. `can_pause` says whether the clock can be paused.
    pub(crate) fn set(
        &mut self,
        next: Option<Instant>,
        after_next: Option<Instant>,
        can_pause: bool,
        wheel: &str,
    ) {
        let is_precise = self.set_precise(next, can_pause, wheel);
        let [next, after_next] =
            [next, after_next].map(|at| at.filter(|_| can_pause || !is_precise));
        if next.is_some() && deadline(&self.after_next) == next {
            mem::swap(&mut self.next, &mut self.after_next);
        }
        arm(&mut self.next, next);
        arm(&mut self.after_next, after_next);
    }

    /// Sets the precise timer. Returns whether it can be relied on.
    fn set_precise(&mut self, at: Option<Instant>, can_pause: bool, wheel: &str) -> bool {
        let Some(timer) = &mut self.precise else {
            return false;
        };
        let at = at.filter(|_| !(can_pause && clock::is_virtual()));
        if let Err(error) = timer.set(at) {
            self.precise = None;
            give_up(wheel, &error);
        }
        self.precise.is_some()
    }

    /// Ready once it has elapsed, perhaps before.
    pub(crate) fn poll_elapsed(&mut self, precise: &Waker, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(timer) = &mut self.precise {
            if timer
                .poll_elapsed(&mut Context::from_waker(precise))
                .is_ready()
            {
                return Poll::Ready(());
            }
        }
        // Polling arms them, too.
        let mut has_elapsed = false;
        for timer in [&mut self.next, &mut self.after_next].into_iter().flatten() {
            has_elapsed |= timer.as_mut().poll(cx).is_ready();
        }
        if has_elapsed {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

fn deadline(timer: &TokioTimer) -> Option<Instant> {
    timer.as_ref().map(|timer| timer.deadline())
}

/// Makes Tokio's timer elapse at this instant, or never.
fn arm(timer: &mut TokioTimer, at: Option<Instant>) {
    match (at, timer) {
        (None, timer) => *timer = None,
        (Some(at), Some(timer)) if timer.deadline() == at && !timer.is_elapsed() => {}
        (Some(at), Some(timer)) => timer.as_mut().reset(at),
        (Some(at), timer) => *timer = Some(Box::pin(time::sleep_until(at))),
    }
}

#[cold]
fn give_up(wheel: &str, error: &io::Error) {
    tracing::warn!(wheel, %error, "timers are precise to a millisecond only: the actor waits on Tokio's timer");
}

#[cfg(test)]
impl ActorTimer {
    /// The instants for which Tokio's timers are armed.
    pub(super) fn armed_tokio(&self) -> [Option<Instant>; 2] {
        [&self.next, &self.after_next].map(deadline)
    }
}

#[cfg(all(
    test,
    feature = "precise",
    target_os = "linux",
    not(any(tickwheel_loom, tickwheel_shuttle))
))]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The instants for which Tokio's timer and the precise one are armed after it is set to `at`.
    fn armed(timer: &mut ActorTimer, at: Instant, can_pause: bool) -> [Option<Instant>; 2] {
        timer.set(Some(at), None, can_pause, "wheel");
        let precise = timer.precise.as_ref().and_then(PreciseTimer::armed);
        [timer.armed_tokio()[0], precise]
    }

    #[tokio::test]
    async fn precise_timer_replaces_tokios_where_no_clock_can_be_paused() {
        let mut timer = ActorTimer::precise("wheel");
        let at = clock::now() + Duration::from_secs(5);
        assert_eq!(armed(&mut timer, at, false), [None, Some(at)]);
        assert_eq!(armed(&mut timer, at, true), [Some(at); 2]);
        timer.set(None, None, true, "wheel");
        assert_eq!(timer.armed_tokio(), [None; 2]);
        let precise = timer.precise.as_ref().map(PreciseTimer::armed);
        assert_eq!(precise, Some(None));
    }

    #[tokio::test]
    async fn precise_timer_is_disarmed_once_the_clock_is_virtual() {
        let mut timer = ActorTimer::precise("wheel");
        let at = clock::now() + Duration::from_secs(5);
        assert_eq!(armed(&mut timer, at, true), [Some(at); 2]);
        time::pause();
        assert_eq!(armed(&mut timer, at, true), [Some(at), None]);
    }
}
