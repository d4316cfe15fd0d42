//! The explorer's facts: what the parties of a schedule know, and the checks against that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::world::{MAIN, Wait, block_on, fail, is_too_late, since_begin, then, tick_of};
use crate::{KeyedTimers, TimerWheel, clock};

/// Keys below this one belong to plain timers.
pub(super) const KEYS: u64 = 3;

/// Keys from this one on belong to repeating timers alone.
pub(super) const INTERVALS: u64 = 100;

/// A delay that no schedule waits for.
pub(super) const HOUR: Duration = Duration::from_secs(3_600);

/// The facts that callers and readers know of a schedule.
#[derive(Debug, Default)]
pub(super) struct Facts {
    next: u64,
    /// The values of keyed timers that were set.
    pub(super) set: BTreeSet<u64>,
    /// The values that came out: expired, removed, replaced, drained or unexpired.
    pub(super) out: BTreeSet<u64>,
    pub(super) received: u64,
    pub(super) idle: Duration,
    pub(super) watches: BTreeMap<u64, Watched>,
    /// Watches that were reaped.
    pub(super) reaped: BTreeSet<u64>,
    /// Watches on which a touch or a guard came too late.
    pub(super) refused: BTreeSet<u64>,
    /// The reader of keyed timers pauses.
    pub(super) receiver_is_away: bool,
    /// The reader of the reaper's stream pauses.
    pub(super) reader_is_away: bool,
    pub(super) was_shut_down: bool,
    pub(super) last_metrics: (u64, u64),
}

#[derive(Debug, Default)]
pub(super) struct Watched {
    /// The last activity was at this instant or later.
    pub(super) not_before: Duration,
    /// The last activity was at this instant or earlier.
    pub(super) not_after: Duration,
    pub(super) busy: bool,
    pub(super) reaped: bool,
}

impl Facts {
    pub(super) fn next_value(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// The facts that all parties share. It is never locked across a step.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedFacts(Arc<Mutex<Facts>>);

impl SharedFacts {
    pub(super) fn update<R>(&self, f: impl FnOnce(&mut Facts) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records that a keyed timer has come out, which happens once.
    pub(super) fn came_out(&self, key: u64, value: u64) {
        if key < INTERVALS && !self.update(|facts| facts.out.insert(value)) {
            fail(format!("timer {key} (value {value}) came out twice"));
        }
    }
}

/// Checks that every keyed timer that is due was received, and that the actor runs soon enough for
/// each.
pub(super) fn check_timers(
    timers: &KeyedTimers<u64, u64>,
    facts: &SharedFacts,
    target: Option<Duration>,
) -> Result<(), String> {
    let now = clock::elapsed();
    if facts.update(|facts| facts.receiver_is_away) {
        return Ok(());
    }
    for key in (0..KEYS).chain(INTERVALS..INTERVALS + 4) {
        let deadline = timers.deadline(&key);
        let Some(due) = deadline.map(|at| tick_of(since_begin(at))) else {
            continue;
        };
        if is_too_late(due, now, target) {
            return Err(format!(
                "timer {key} is due at {due:?}; {}",
                then(now, target)
            ));
        }
    }
    Ok(())
}

/// Checks that every idle watch was reaped, and that the actor runs soon enough for each.
pub(super) fn check_watches(facts: &Facts, target: Option<Duration>) -> Result<(), String> {
    let now = clock::elapsed();
    if facts.reader_is_away {
        return Ok(());
    }
    for (key, watched) in &facts.watches {
        let due = tick_of(tick_of(watched.not_after) + facts.idle);
        if !watched.busy && !watched.reaped && is_too_late(due, now, target) {
            return Err(format!(
                "watch {key} is idle at {due:?}; {}",
                then(now, target)
            ));
        }
    }
    Ok(())
}

/// Checks the end of a schedule, when only the wheel is left: nothing is pending, and everything is
/// counted once.
pub(super) fn check_totals(wheel: &TimerWheel, facts: &SharedFacts) {
    block_on(MAIN, Wait::default(), wheel.settle());
    let (was_shut_down, received) = facts.update(|l| (l.was_shut_down, l.received));
    if wheel.is_shutdown() != was_shut_down {
        fail("the wheel has ended without a shutdown");
    }
    let m = wheel.metrics();
    let ended = m.keyed_fired + m.keyed_removed + m.keyed_replaced + m.keyed_drained;
    let sleeps = m.sleeps_fired + m.sleeps_cancelled + m.sleeps_handed_over;
    if m.keyed_pending != 0 || m.keyed_set != ended {
        fail(format!("the counters of keyed timers do not add up: {m:?}"));
    }
    if m.keyed_fired != received {
        fail(format!(
            "{} keyed timers fired, {received} were received",
            m.keyed_fired
        ));
    }
    let lost = facts.update(|l| l.set.symmetric_difference(&l.out).copied().next());
    if let Some(value) = lost {
        fail(format!("a timer was set to {value}, which never came out"));
    }
    let refused = facts.update(|l| l.refused.difference(&l.reaped).copied().next());
    if let Some(key) = refused.filter(|_| !was_shut_down) {
        fail(format!("watch {key} was neither touched nor reaped"));
    }
    if m.sleeps_pending != 0 || m.sleeps_made != sleeps {
        fail(format!("the counters of sleeps do not add up: {m:?}"));
    }
}
