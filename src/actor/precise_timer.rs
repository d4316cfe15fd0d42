//! A timer of the operating system that wakes the actor within some tens of microseconds: on
//! Linux a `timerfd`, registered with the runtime's own I/O driver.
//!
//! The worker that would wake for Tokio's timer wakes for the descriptor instead, so there is no
//! thread besides. Whatever [the notifier](crate::shared::notifier) says of where the actor is
//! queued holds here too: a driver runs the turn in both cases.
//!
//! # Readiness
//!
//! The driver reports *that* the descriptor became readable, once for each expiration. The runtime
//! remembers it until a read finds nothing:
//!
//! 1. Setting the descriptor makes it unreadable. An expiration that the driver has not collected
//!    is gone then.
//! 2. What the driver has collected is read *before* the descriptor is set. So readiness that is
//!    found after that belongs to the new setting, or was on its way in another thread: a hint too
//!    many, never one too few.
//! 3. The time to wait is computed from a reading of the clock that precedes the setting. So the
//!    descriptor becomes readable at the instant that was asked for, or later.
//!
//! # Registration
//!
//! `AsyncFd` takes anything that has a descriptor, which may not be its own, so its constructors
//! are unsafe or deprecated. The reading end of a pipe takes an `OwnedFd`, watches it for being
//! readable, and reads it, whatever it is: all that this timer needs.
//!
//! # Density
//!
//! Ticks of 0.1 ms would mean up to 10,000 wake-ups a second, of some 20 to 40 us of CPU time each.
//! Precision matters most where timers are sparse. So where there were many wake-ups shortly
//! before, over some 1,400 a second, the [`Pace`] allows one no sooner than 0.7 ms after the last.
//! Tokio's timer wakes up to 1,000 times a second.

#[cfg(all(test, not(tickwheel_shuttle)))]
mod tests;

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::net::unix::pipe;
use tokio::time::Instant;

use crate::clock;

/// The shortest time to wait. Zero would disarm the descriptor.
const SHORTEST_WAIT: Duration = Duration::from_nanos(1);

/// See the module.
#[derive(Debug)]
pub(super) struct PreciseTimer {
    /// It is no pipe: see the module.
    descriptor: pipe::Receiver,
    /// When the descriptor becomes readable. `None` once that was seen, and while nothing is waited
    /// for.
    armed: Option<Instant>,
    pace: Pace,
}

impl PreciseTimer {
    /// Registers a descriptor with the current runtime.
    ///
    /// # Panics
    ///
    /// Panics if the runtime has no I/O driver.
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let descriptor = pipe::Receiver::from_owned_fd_unchecked(descriptor)?;
        Ok(PreciseTimer {
            descriptor,
            armed: None,
            pace: Pace {
                spent_until: clock::now(),
            },
        })
    }

    /// Makes it elapse at this instant, or as soon after as the pace allows; or never.
    pub(super) fn set(&mut self, at: Option<Instant>) -> io::Result<()> {
        let at = at.map(|at| self.pace.delay(at));
        if at == self.armed {
            return Ok(());
        }
        self.clear_readiness();
        let wait = at.map_or(Duration::ZERO, |at| {
            at.saturating_duration_since(clock::now())
                .max(SHORTEST_WAIT)
        });
        let once = Itimerspec {
            it_interval: timespec(Duration::ZERO),
            it_value: timespec(wait),
        };
        timerfd_settime(&self.descriptor, TimerfdTimerFlags::empty(), &once)?;
        self.armed = at;
        Ok(())
    }

    /// Ready once it has elapsed, perhaps before.
    pub(super) fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.descriptor.poll_read_ready(cx))?;
        self.clear_readiness();
        self.armed = None;
        self.pace.woke(clock::now());
        Poll::Ready(Ok(()))
    }

    /// Reads how often it has elapsed, until nothing is left, and calls the system only if it was
    /// readable.
    fn clear_readiness(&self) {
        let mut expirations = [0; size_of::<u64>()];
        while matches!(self.descriptor.try_read(&mut expirations), Ok(1..)) {}
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Bounds the rate of wake-ups: one for each [`INTERVAL`], and what was saved of the past ones.
#[derive(Debug)]
struct Pace {
    /// The end of the interval of the last wake-up, if each has one of its own and none begins
    /// before its wake-up. It is `SAVED` intervals ahead of the clock when nothing is saved, and
    /// one more at most.
    spent_until: Instant,
}

const INTERVAL: Duration = Duration::from_micros(700);

/// How many wake-ups are saved up at most: all are after as many intervals without one.
const SAVED: u32 = 16;

impl Pace {
    fn woke(&mut self, now: Instant) {
        let most = now + INTERVAL * (SAVED + 1);
        self.spent_until = (self.spent_until.max(now) + INTERVAL).min(most);
    }

    /// This instant, or the first later one at which a wake-up is allowed.
    fn delay(&self, at: Instant) -> Instant {
        let covered = self.spent_until.checked_sub(INTERVAL * SAVED);
        covered.map_or(at, |covered| covered.max(at))
    }
}
