//! How late timers fire, since when that counts, and the warning of it.
//!
//! A timer is late from its deadline on, or from when it was armed if its deadline had passed by
//! then. So a deadline of last week, which durable timers may load, is not a week of lateness. The
//! warning counts from the deadline's tick, before which no timer fires: on a wheel with ticks of
//! seconds, punctual timers fire seconds after their deadlines.
//!
//! An entry has no room for the time when it was armed. The actor knows an instant instead,
//! [`armed_after`](Lateness::armed_after):
//!
//! > A timer that fires, and has a deadline before `armed_after`, was armed after that
//! > instant.
//!
//! Two facts advance this instant.
//!
//! 1. A turn has fired everything that was due by some tick. Had a timer with a deadline by that
//!    tick been armed before the turn read the clock, it would have fired too.
//! 2. While the actor waits for a tick, no timer of its wheels is due before that, and by the [wake
//!    rule](crate::shared::mailbox) the first command that is needed earlier notifies it. A timer
//!    with a deadline before the notification that has not fired was therefore armed together with
//!    it, or later.
//!
//! The time between the notification and the turn counts: then a task kept the worker from running
//! the actor.
//!
//! # What the warning says
//!
//! It says what the actor has measured since everything that was due had last fired: for how long
//! it waited for its turns though it could have run, for how long those turns took, how many timers
//! they fired, and whether more are due. It names no cause, since it cannot tell many of them
//! apart: tasks that block their workers and a machine without processor time look the same to it.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock;
use crate::shared::Shared;
use crate::shared::turn::Turn;
use crate::tick::{NEVER, Ticks, Timestamp};

/// The least time between two warnings of being late.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// The actor's activity since its last turn.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pause {
    /// It let other tasks run, from then on.
    Yielded(Instant),
    /// It waited for this tick, or for a notification.
    Waited { from: Instant, until: Option<u64> },
}

/// See the module.
#[derive(Debug)]
pub(super) struct Lateness {
    /// A timer that fires, and has a deadline before this instant, was armed after it.
    pub(super) armed_after: Timestamp,
    since_done: Facts,
    warned: Option<Timestamp>,
}

/// What has happened since everything that was due had last fired.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    /// How long the actor could have run and did not.
    pub(super) waited: Duration,
    /// How long its turns took.
    pub(super) turns_took: Duration,
    /// How many timers fired.
    pub(super) fired: usize,
}

impl Lateness {
    pub(super) fn new() -> Self {
        Lateness {
            armed_after: Timestamp::MIN,
            since_done: Facts::default(),
            warned: None,
        }
    }

    /// A turn begins. Returns how long the actor could have run before and did not.
    pub(super) fn begin(&mut self, pause: Pause, began: Instant, shared: &Shared) -> Duration {
        let ready = match pause {
            Pause::Yielded(from) => from,
            Pause::Waited { from, until } => {
                let until = until.unwrap_or(NEVER);
                // An earlier notification is of an earlier wait.
                let notified = shared.mailbox.notifier().last_notified();
                let notified = notified.filter(|&at| at >= from).unwrap_or(began);
                let at_tick = shared.ticks.begin(until).unwrap_or(began);
                let ready = began.min(notified).min(at_tick);
                // A timer that is due at that tick may have a deadline from the start of the last
                // one on.
                let at = shared.ticks.timestamp(ready);
                self.has_fired(until.saturating_sub(1), at, &shared.ticks);
                ready
            }
        };
        let kept_waiting = began.saturating_duration_since(ready);
        self.since_done.waited += kept_waiting;
        kept_waiting
    }

    /// At `at`, every timer had fired that was armed and due by this tick.
    pub(super) fn has_fired(&mut self, tick: u64, at: Timestamp, ticks: &Ticks) {
        let since = ticks.begin_timestamp(tick).min(at);
        self.armed_after = self.armed_after.max(since);
    }

    /// A turn ends that took this long; `is_done` says that everything due has fired.
    pub(super) fn end(&mut self, turn: &Turn<'_>, took: Duration, is_done: bool) {
        self.since_done.turns_took += took;
        self.since_done.fired += turn.count();
        let too_soon = |warned| turn.now.since(warned) < WARNING_INTERVAL;
        if let Some(lateness) = turn.too_late() {
            if !self.warned.is_some_and(too_soon) {
                self.warned = Some(turn.now);
                self.warn(lateness, is_done, turn.shared);
            }
        }
        if is_done {
            self.since_done = Facts::default();
        }
    }

    #[cold]
    fn warn(&self, lateness: Duration, is_done: bool, shared: &Shared) {
        let Facts {
            waited,
            turns_took,
            fired,
        } = self.since_done;
        let clock = if clock::is_virtual() {
            "virtual"
        } else {
            "real"
        };
        tracing::warn!(
            wheel = %shared.name,
            ?lateness,
            ?waited,
            ?turns_took,
            fired,
            more_are_due = !is_done,
            clock,
            "timers are late: the actor waited for {waited:?} to run, its turns took {turns_took:?}, and fired {fired} timers"
        );
    }

    #[cfg(test)]
    pub(super) fn facts(&self) -> Facts {
        self.since_done
    }
}
