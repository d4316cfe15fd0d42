//! The clock of an idle timer or stream: its activity, the limits to how long that may be absent,
//! and the decision that a limit was reached.
//!
//! The futures, their handles and the actor share it. The actor only reads when it is
//! [due](IdleClock::due), and wakes the future then. The future [decides](IdleClock::decide) when
//! it is polled.
//!
//! An idle timer has one limit, for activity of either kind. A stream may have others: for reading
//! and for writing. Each limit has an [`Activity`] of its own.
//!
//! 1. [`decide`](IdleClock::decide) marks one activity as gone by its compare-and-exchange. That is
//!    the decision, for all limits: from then on [`touch`](IdleClock::touch) and
//!    [`enter`](IdleClock::enter) return `false`. Then `decide` ends the activity of either kind,
//!    whichever was gone: that keeps the last activity, and what comes later is not recorded.
//! 2. `touch` returns `true` only if it has recorded the activity of every limit; likewise `enter`.
//!
//! So a touch or guard that returns `true` took effect on each activity before that one's
//! compare-and-exchange, which then found it active or busy. The order in which they are written
//! does not matter for that. `touch` writes the activity of either kind last, so that one that
//! finds another gone has not changed the last activity, even while `decide` runs.
//!
//! All times are in nanoseconds from the wheel's origin.

// The protocol does not depend on these words, so they are not loom's.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::activity::{Activity, Reap};
use super::stalls::{Gap, Stalls};
use crate::clock;
use crate::tick::{LATEST_NANOS, Ticks, nanos};

#[cfg(all(test, tickwheel_loom))]
mod model;

/// No limit.
const UNLIMITED: u64 = u64::MAX;

/// When a verdict falls that is due then, and takes so much silence.
trait PutOff: Fn(u64, u64) -> u64 + Copy {}

impl<F: Fn(u64, u64) -> u64 + Copy> PutOff for F {}

/// The limits that a stream can have beside the one for activity of either kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct IdleClock {
    ticks: Ticks,
    stalls: Arc<Stalls>,
    /// Activity of any kind, whether limited or not.
    either: Limited,
    /// By [`Kind`]. `None` if there is no such limit, as in idle timers.
    kinds: Option<Box<[Limited; 2]>>,
}

/// Activity, and how long it may be absent.
#[derive(Debug)]
struct Limited {
    activity: Activity,
    /// The idle duration, or [`UNLIMITED`].
    limit: AtomicU64,
}

impl Limited {
    fn limit(&self) -> Option<u64> {
        let limit = self.limit.load(Ordering::Relaxed);
        (limit != UNLIMITED).then_some(limit)
    }

    /// When this limit alone is reached: see [`IdleClock::due`].
    fn due(&self, now: u64, clock: impl Fn() -> u64, put_off: impl PutOff) -> Option<u64> {
        let limit = self.limit()?;
        match self.activity.last_counted(now, limit, clock) {
            Some(last) => after(last, limit).map(|due| put_off(due, limit)),
            // Decided: there is nothing to wait for.
            None => Some(0),
        }
    }

    /// Decides whether this limit is reached at `now`.
    fn decide(&self, now: u64, put_off: impl PutOff) -> bool {
        let Some(limit) = self.limit() else {
            return false;
        };
        let is_over = |last| put_off(u64::saturating_add(last, limit), limit) <= now;
        let reaped = self.activity.reap_if(is_over);
        matches!(reaped, Reap::Reaped(_) | Reap::Gone)
    }
}

impl IdleClock {
    /// A clock with activity at `now`, and the limits for activity of either kind and of each
    /// [`Kind`].
    pub(crate) fn new(
        ticks: Ticks,
        stalls: Arc<Stalls>,
        either: Option<Duration>,
        kinds: [Option<Duration>; 2],
        now: u64,
    ) -> Self {
        let limited = |idle: Option<Duration>| Limited {
            activity: Activity::new(now, ticks.tick_nanos()),
            // A duration that does not fit is no limit.
            limit: AtomicU64::new(idle.map_or(UNLIMITED, nanos)),
        };
        IdleClock {
            ticks,
            stalls,
            either: limited(either),
            kinds: (kinds.iter().any(Option::is_some)).then(|| Box::new(kinds.map(limited))),
        }
    }

    pub(crate) fn ticks(&self) -> &Ticks {
        &self.ticks
    }

    /// The current time.
    pub(crate) fn now(&self) -> u64 {
        self.ticks.nanos(clock::now())
    }

    /// Activity of any kind, and that of each further limit.
    fn each(&self) -> impl Iterator<Item = &Limited> {
        std::iter::once(&self.either).chain(self.limited_kinds())
    }

    fn limited_kinds(&self) -> impl Iterator<Item = &Limited> {
        let kinds = self.kinds.iter().flat_map(|kinds| kinds.iter());
        kinds.filter(|kind| kind.limit().is_some())
    }

    fn kind(&self, kind: Kind) -> Option<&Activity> {
        let limited = &self.kinds.as_ref()?[kind as usize];
        limited.limit().map(|_| &limited.activity)
    }

    /// Records activity of every kind. Returns `false` if it came after the decision.
    #[inline]
    pub(crate) fn touch_at(&self, at: Instant) -> bool {
        self.touch(self.ticks.nanos(at))
    }

    /// Records activity of every kind. Returns `false` if it came after the decision.
    #[inline]
    fn touch(&self, nanos: u64) -> bool {
        (self.kinds.is_none() || self.touch_kinds(nanos))
            && self.either.activity.touch(nanos, self.ticks.tick_nanos())
    }

    fn touch_kinds(&self, nanos: u64) -> bool {
        self.limited_kinds()
            .all(|limited| limited.activity.touch(nanos, self.ticks.tick_nanos()))
    }

    /// Records that bytes were read or written.
    pub(crate) fn progress(&self, kind: Kind, nanos: u64) {
        for activity in std::iter::once(&self.either.activity).chain(self.kind(kind)) {
            activity.touch(nanos, self.ticks.tick_nanos());
        }
    }

    /// Adds a guard. Returns `false`, and adds none, if it came after the decision or there are too
    /// many.
    pub(crate) fn enter(&self) -> bool {
        for (entered, limited) in self.each().enumerate() {
            if !limited.activity.enter() {
                // A release at the origin is no activity.
                (self.each().take(entered))
                    .for_each(|limited| limited.activity.leave(0, self.ticks.tick_nanos()));
                return false;
            }
        }
        true
    }

    /// Removes a guard; the release is activity of every kind.
    pub(crate) fn leave(&self, nanos: u64) {
        self.each()
            .for_each(|limited| limited.activity.leave(nanos, self.ticks.tick_nanos()));
    }

    /// When this will be idle, if nothing happens until then; `None` if never.
    ///
    /// A lower bound: activity before the decision makes it later. While a guard is held it is a
    /// whole limit from `now`, at which it has to be read again. The owner knows of a `gap`.
    pub(crate) fn due(&self, now: u64, gap: Gap) -> Option<u64> {
        self.due_by(now, gap, || self.now())
    }

    /// Stalls and a gap put verdicts off.
    fn put_off(&self, gap: Gap) -> impl PutOff + '_ {
        move |due, limit| (self.stalls.put_off(due, limit)).max(gap.put_off(due, limit))
    }

    /// Like [`due`](Self::due); `clock` reads the time again.
    fn due_by(&self, now: u64, gap: Gap, clock: impl Fn() -> u64 + Copy) -> Option<u64> {
        self.each()
            .filter_map(|limited| limited.due(now, clock, self.put_off(gap)))
            .min()
    }

    /// Decides whether this is idle at `now`, once and for all until it is revived. Only the owner
    /// may call this.
    pub(crate) fn decide(&self, now: u64, gap: Gap) -> bool {
        let is_idle = (self.each()).any(|limited| limited.decide(now, self.put_off(gap)));
        if is_idle {
            // No guard is lost: one that has an effect keeps every limit from being reached. It may
            // be gone already.
            let _ = self.either.activity.end();
        }
        is_idle
    }

    /// Begins a new period at `now`, after the decision. For a single limit only; only the owner
    /// may call this.
    pub(crate) fn revive(&self, now: u64) {
        debug_assert!(self.kinds.is_none(), "a stream stays idle");
        self.either.activity.revive(now, self.ticks.tick_nanos());
    }

    /// The last activity of any kind.
    pub(crate) fn last_active(&self) -> Instant {
        // Rounding up may have moved it into the future, by less than a tick.
        self.ticks.at(self.either.activity.last()).min(clock::now())
    }

    pub(crate) fn set_limit(&self, idle: Duration) {
        self.either.limit.store(nanos(idle), Ordering::Relaxed);
    }

    /// The shortest limit.
    pub(crate) fn shortest_limit(&self) -> Duration {
        let limits = self.each().filter_map(Limited::limit);
        limits.min().map_or(Duration::MAX, Duration::from_nanos)
    }

    pub(crate) fn limit(&self) -> Duration {
        Duration::from_nanos(self.either.limit.load(Ordering::Relaxed))
    }
}

fn after(nanos: u64, limit: u64) -> Option<u64> {
    nanos.checked_add(limit).filter(|&due| due < LATEST_NANOS)
}
