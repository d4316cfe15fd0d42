//! A timer of the operating system that wakes the actor within some tens of microseconds: on
//! Linux a `timerfd`, which a thread waits on.
//!
//! It needs no I/O driver. Tokio cannot be asked whether a runtime has one: registering a
//! descriptor panics without it, and ends a process that is built with `panic = "abort"`.
//!
//! The thread calls the waker that was registered last. It is that of the [driver](super::hosted),
//! so the thread runs the actor's turn, as the runtime's own driver does when Tokio's timer has
//! elapsed.
//!
//! # Elapsing
//!
//! 1. *Never one too few.* The thread signals each expiration that it has read, and a signal is
//!    kept. An expiration that it has not read when the timer is set again is gone; then the actor
//!    is awake.
//! 2. *Perhaps one too many.* A signal may be of a former setting. It is a hint to look at the
//!    clock.
//! 3. The time to wait is computed from a reading of the clock that precedes the setting. So the
//!    timer elapses at the instant that was asked for, or later.
//!
//! # Density
//!
//! Ticks of 0.1 ms would mean up to 10,000 wake-ups a second, of some 20 to 40 us of CPU time each.
//! Precision matters most where timers are sparse. So where there were many wake-ups shortly
//! before, over some 1,400 a second, the [`Pace`] allows one no sooner than 0.7 ms after the last.
//! Tokio's timer wakes up to 1,000 times a second.

#[cfg(all(test, not(tickwheel_shuttle)))]
mod tests;

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::time::Instant;

use crate::clock;
use crate::shared::signal::Signal;
use crate::sync::atomic::{AtomicBool, Ordering};

/// The shortest time to wait. Zero would disarm the timer.
const SHORTEST_WAIT: Duration = Duration::from_nanos(1);

/// See the module.
#[derive(Debug)]
pub(super) struct PreciseTimer {
    alarm: Arc<Alarm>,
    /// When the timer elapses. `None` once that was seen, and while nothing is waited for.
    armed: Option<Instant>,
    pace: Pace,
}

/// What the thread has.
#[derive(Debug)]
struct Alarm {
    timer: File,
    elapsed: Signal,
    /// Whether the thread has ended, or is to end.
    ended: AtomicBool,
}

impl PreciseTimer {
    /// Makes the timer and its thread, which bears the name of the wheel.
    pub(super) fn new(wheel: &str) -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        let alarm = Arc::new(Alarm {
            timer: timer.into(),
            elapsed: Signal::new(),
            ended: AtomicBool::new(false),
        });
        let waiting = Arc::clone(&alarm);
        // A thread's name cannot have a zero byte.
        let thread = thread::Builder::new().name(wheel.replace('\0', " "));
        thread.spawn(move || waiting.run())?;
        Ok(PreciseTimer {
            alarm,
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
        if self.alarm.ended.load(Ordering::Acquire) {
            return Err(io::Error::other("its thread has ended"));
        }
        let wait = at.map_or(Duration::ZERO, |at| {
            at.saturating_duration_since(clock::now())
                .max(SHORTEST_WAIT)
        });
        self.alarm.set(wait)?;
        self.armed = at;
        Ok(())
    }

    /// Ready once it has elapsed, perhaps before.
    pub(super) fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let elapsed = self.alarm.elapsed.poll(cx);
        if elapsed.is_ready() {
            self.armed = None;
            self.pace.woke(clock::now());
        }
        elapsed
    }
}

impl Drop for PreciseTimer {
    fn drop(&mut self) {
        self.alarm.ended.store(true, Ordering::Release);
        // The system refuses a wrong descriptor or time only.
        let _ = self.alarm.set(SHORTEST_WAIT);
        drop(self.alarm.elapsed.unregister());
    }
}

impl Alarm {
    /// Makes the timer elapse after `wait`, or never if that is zero.
    fn set(&self, wait: Duration) -> io::Result<()> {
        let once = Itimerspec {
            it_interval: timespec(Duration::ZERO),
            it_value: timespec(wait),
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    /// What the thread runs.
    fn run(&self) {
        let mut expirations = [0; size_of::<u64>()];
        while !self.ended.load(Ordering::Acquire) {
            match (&self.timer).read(&mut expirations) {
                Ok(_) => self.elapsed.set(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.ended.store(true, Ordering::Release);
                    self.elapsed.set();
                }
            }
        }
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
