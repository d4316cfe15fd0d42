//! The clock of an idle timer or stream: its activity and limits, in instants.
//!
//! The futures, their handles and the actor share it. The actor only reads when it is [due](IdleClock::due), and wakes
//! the future then. The future [decides](IdleClock::decide) when it is polled.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock;
use crate::shared::activity::limits::{Kind, Limits, UNLIMITED};
use crate::tick::Ticks;

/// See the module.
#[derive(Debug)]
pub(crate) struct IdleClock {
    ticks: Ticks,
    limits: Limits,
}

/// How long activity of each kind may be absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct IdleDurations {
    pub(crate) all: Option<Duration>,
    pub(crate) read: Option<Duration>,
    pub(crate) write: Option<Duration>,
    pub(crate) keep_alive: Option<Duration>,
}

impl IdleClock {
    /// A clock whose last activity is now.
    pub(crate) fn new(ticks: Ticks, idle: IdleDurations) -> Self {
        let IdleDurations {
            all,
            read,
            write,
            keep_alive,
        } = idle;
        let now = ticks.nanos(clock::now());
        let kinds = [read, write, keep_alive].map(nanos);
        IdleClock {
            ticks,
            limits: Limits::new(nanos(all), kinds, now, ticks.tick_nanos()),
        }
    }

    pub(crate) fn ticks(&self) -> &Ticks {
        &self.ticks
    }

    /// Records activity of every kind. Returns `false` if it came after the decision.
    #[inline]
    pub(crate) fn touch_at(&self, at: Instant) -> bool {
        self.limits.touch(self.ticks.touch(at))
    }

    /// Adds a guard. Returns `false` if it came after the decision or there are too many.
    pub(crate) fn enter(&self) -> bool {
        self.limits.enter()
    }

    /// Removes a guard.
    pub(crate) fn leave(&self) {
        self.limits.leave(self.now());
    }

    /// Records that bytes were read or written.
    pub(crate) fn progress(&self, kind: Kind) {
        self.limits.progress(kind, self.ticks.touch(clock::now()));
    }

    /// A response is owed from now on. Returns `false` if nothing depends on that.
    pub(crate) fn owe(&self) -> bool {
        self.limits.owe()
    }

    /// The response that was owed begins.
    pub(crate) fn respond(&self) {
        self.limits.respond(self.now());
    }

    pub(crate) fn set_limit(&self, idle: Duration) {
        self.limits.set_limit(nanos(Some(idle)));
    }

    pub(crate) fn limit(&self) -> Duration {
        Duration::from_nanos(self.limits.limit())
    }

    pub(crate) fn last_active(&self) -> Instant {
        // Rounding up may have moved it into the future, by less than a tick.
        self.ticks.at(self.limits.last()).min(clock::now())
    }

    /// When this will be idle, in nanoseconds from the origin, if nothing happens until then; `None` if never.
    ///
    /// A lower bound: activity before the decision makes it later. While a guard is held it is a whole limit from `now`,
    /// at which it has to be read again.
    pub(crate) fn due(&self, now: u64) -> Option<u64> {
        self.limits.due(now, || self.now())
    }

    /// Decides whether this is idle, at `reached` or by the clock, whichever is later. Only the owner may call this.
    ///
    /// `reached` is an instant that some clock has reached. It matters when the wheel's runtime and the caller's have
    /// different clocks, as when one of them is paused.
    pub(crate) fn decide(&self, reached: Instant) -> bool {
        self.limits
            .decide(self.now().max(self.ticks.nanos(reached)))
    }

    /// Begins a new period now, after the decision. Only the owner may call this.
    pub(crate) fn revive(&self) {
        self.limits.revive(self.now());
    }

    fn now(&self) -> u64 {
        self.ticks.nanos(clock::now())
    }
}

/// An idle duration in nanoseconds. One that does not fit is no limit.
fn nanos(idle: Option<Duration>) -> u64 {
    let nanos = idle.and_then(|idle| u64::try_from(idle.as_nanos()).ok());
    nanos.unwrap_or(UNLIMITED)
}
