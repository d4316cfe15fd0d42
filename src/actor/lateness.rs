//! How late timers fire, since when that counts, and the warning that names the cause.
//!
//! A timer is late from its deadline on, or from when it was armed if its deadline had passed by
//! then. So a deadline of last week, which durable timers may load, is not a week of lateness. An
//! entry has no room for the time when it was armed. The actor knows an instant instead,
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

use std::time::Duration;

use tokio::time::Instant;

use crate::clock;
use crate::shared::Shared;
use crate::shared::notifier::ActorNotifier;
use crate::shared::stalls::Gap;
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
    /// How long the actor could have run and did not, since everything that was due had last fired.
    kept_waiting: Duration,
    warned: Option<Timestamp>,
}

impl Lateness {
    pub(super) fn new() -> Self {
        Lateness {
            armed_after: Timestamp::MIN,
            kept_waiting: Duration::ZERO,
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
        let is_virtual = || shared.clock.was_found_virtual() || clock::is_virtual();
        let (from, to) = (shared.ticks.nanos(ready), shared.ticks.nanos(began));
        if let Some(stall) = Gap::between(from, to, is_virtual) {
            shared.stalls.record(stall);
        }
        self.kept_waiting += kept_waiting;
        kept_waiting
    }

    /// At `at`, every timer had fired that was armed and due by this tick.
    pub(super) fn has_fired(&mut self, tick: u64, at: Timestamp, ticks: &Ticks) {
        let since = ticks.begin_timestamp(tick).min(at);
        self.armed_after = self.armed_after.max(since);
    }

    /// The turn ends; `is_done` says that everything due has fired.
    pub(super) fn end(&mut self, turn: &Turn<'_>, is_done: bool) {
        let (lateness, shared) = (turn.latest(), turn.shared);
        let too_soon = |warned| turn.now.since(warned) < WARNING_INTERVAL;
        if lateness > shared.late_warning && !self.warned.is_some_and(too_soon) {
            self.warned = Some(turn.now);
            let is_on_thread = matches!(shared.mailbox.notifier(), ActorNotifier::Thread(..));
            let cause = if clock::is_virtual() {
                "the paused clock was moved past their deadlines"
            } else {
                self.cause(lateness, is_on_thread)
            };
            tracing::warn!(wheel = %shared.name, ?lateness, "timers are late: {cause}");
        }
        if is_done {
            self.kept_waiting = Duration::ZERO;
        }
    }

    /// The cause of this lateness, for a clock that no test moves.
    pub(super) fn cause(&self, lateness: Duration, is_on_thread: bool) -> &'static str {
        match (self.kept_waiting > lateness / 2, is_on_thread) {
            (true, false) => "worker threads are blocked",
            (true, true) => "the system does not run the actor's thread",
            (false, _) => "more are due, or more commands arrive, than the actor can process",
        }
    }
}
