//! Activity of several kinds, each with a limit to how long it may be absent, and the decision that a limit was reached.
//!
//! An idle timer has one limit. A stream may have one for reading, one for writing, one for both, and one that applies
//! only while no response is owed. Each kind has an [`Activity`] of its own.
//!
//! 1. [`decide`](Limits::decide) turns the activity of one kind to gone by its compare-and-exchange. That is the
//!    decision, for all kinds: from then on [`touch`](Limits::touch) and [`enter`](Limits::enter) return `false`.
//! 2. `touch` returns `true` only if it has recorded the activity of every kind that is limited; likewise `enter`.
//!
//! So a touch or guard that returns `true` took effect on each kind before that kind's compare-and-exchange, which then
//! found it active or busy. The order in which the kinds are written does not matter.

// The protocol does not depend on these words, so they are not loom's.
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Activity, LATEST_NANOS, Reap};

/// No limit.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// The kinds of activity that can have a limit of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    /// Between a response and the next request. It is busy while a response is owed.
    KeepAlive,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Limits {
    /// Activity of any kind.
    pub(super) all: Limited,
    /// `None` if no kind has a limit of its own; plain idle timers have none. By [`Kind`].
    kinds: Option<Box<[Limited; 3]>>,
    /// The last activity before the decision, for as long as `all` is gone.
    last_when_idle: AtomicU64,
    tick_nanos: u64,
}

/// Activity of one kind.
#[derive(Debug)]
pub(super) struct Limited {
    pub(super) activity: Activity,
    /// The idle duration in nanoseconds, or [`UNLIMITED`].
    limit: AtomicU64,
}

impl Limited {
    fn new(limit: u64, now: u64, tick_nanos: u64) -> Self {
        Limited {
            activity: Activity::new(now, tick_nanos, 0),
            limit: AtomicU64::new(limit),
        }
    }

    fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    fn is_limited(&self) -> bool {
        self.limit() != UNLIMITED
    }

    /// Like [`Limits::due`], for this kind alone.
    fn due(&self, now: u64, clock: impl Fn() -> u64) -> Option<u64> {
        let limit = self.limit();
        if limit == UNLIMITED {
            return None;
        }
        if self.activity.is_busy() {
            return after(now, limit);
        }
        // A touch in the future counts, up to one idle duration ahead.
        let latest = |now: u64| now.saturating_add(limit).min(LATEST_NANOS);
        match self.activity.clamp(latest(now), || latest(clock())) {
            Some(last) => after(last, limit),
            // Decided: there is nothing to wait for.
            None => Some(0),
        }
    }
}

impl Limits {
    /// Limits with activity at `now`. All limits are in nanoseconds; `kinds` are those of [`Kind`], in order.
    pub(crate) fn new(all: u64, kinds: [u64; 3], now: u64, tick_nanos: u64) -> Self {
        let has_kinds = kinds.iter().any(|&limit| limit != UNLIMITED);
        let limited = |limit| Limited::new(limit, now, tick_nanos);
        Limits {
            all: limited(all),
            kinds: has_kinds.then(|| Box::new(kinds.map(limited))),
            last_when_idle: AtomicU64::new(now),
            tick_nanos,
        }
    }

    /// Activity of any kind, and the kinds with a limit of their own.
    fn each(&self) -> impl Iterator<Item = &Limited> {
        std::iter::once(&self.all).chain(self.limited_kinds())
    }

    fn limited_kinds(&self) -> impl Iterator<Item = &Limited> {
        let kinds = self.kinds.iter().flat_map(|kinds| kinds.iter());
        kinds.filter(|kind| kind.is_limited())
    }

    fn kind(&self, kind: Kind) -> Option<&Activity> {
        let limited = &self.kinds.as_ref()?[kind as usize];
        limited.is_limited().then_some(&limited.activity)
    }

    /// Records activity of every kind. Returns `false` if it came after the decision.
    #[inline]
    pub(crate) fn touch(&self, nanos: u64) -> bool {
        let alive = self.all.activity.touch(nanos, self.tick_nanos);
        alive && (self.kinds.is_none() || self.touch_kinds(nanos))
    }

    fn touch_kinds(&self, nanos: u64) -> bool {
        self.limited_kinds()
            .all(|limited| limited.activity.touch(nanos, self.tick_nanos))
    }

    /// Records that bytes were read or written.
    pub(crate) fn progress(&self, kind: Kind, nanos: u64) {
        self.all.activity.touch(nanos, self.tick_nanos);
        for kind in [kind, Kind::KeepAlive] {
            if let Some(activity) = self.kind(kind) {
                activity.touch(nanos, self.tick_nanos);
            }
        }
    }

    /// Adds a guard. Returns `false`, and adds none, if it came after the decision or there are too many.
    pub(crate) fn enter(&self) -> bool {
        for (entered, limited) in self.each().enumerate() {
            if !limited.activity.enter() {
                // A release at the origin is no activity.
                (self.each().take(entered))
                    .for_each(|limited| limited.activity.leave(0, self.tick_nanos));
                return false;
            }
        }
        true
    }

    /// Removes a guard; the release is activity of every kind.
    pub(crate) fn leave(&self, nanos: u64) {
        self.each()
            .for_each(|limited| limited.activity.leave(nanos, self.tick_nanos));
    }

    /// A response is owed from now on. Returns `false` if nothing depends on that.
    pub(crate) fn owe(&self) -> bool {
        self.kind(Kind::KeepAlive).is_some_and(Activity::enter)
    }

    /// The response that was [owed](Self::owe) begins, which is activity of that kind.
    pub(crate) fn respond(&self, nanos: u64) {
        if let Some(activity) = self.kind(Kind::KeepAlive) {
            activity.leave(nanos, self.tick_nanos);
        }
    }

    /// When this will be idle, in nanoseconds from the origin, if nothing happens until then; `None` if never.
    ///
    /// It may be later, since touches and guards count until the decision, but not earlier. While a guard is held this
    /// is one whole limit from `now`. `clock` reads the time anew.
    pub(crate) fn due(&self, now: u64, clock: impl Fn() -> u64 + Copy) -> Option<u64> {
        self.each()
            .filter_map(|limited| limited.due(now, clock))
            .min()
    }

    /// Decides whether this is idle at `now`, once and for all until it is revived. Only the owner may call this.
    pub(crate) fn decide(&self, now: u64) -> bool {
        if let Some(last) = self.all.activity.last() {
            self.last_when_idle.store(last, Ordering::Relaxed);
        }
        self.each().any(|limited| {
            let limit = limited.limit();
            let since = now.checked_sub(limit).filter(|_| limit != UNLIMITED);
            let reaped = since.map(|since| limited.activity.reap(since));
            matches!(reaped, Some(Reap::Reaped(_) | Reap::Gone))
        })
    }

    /// Begins a new period at `now`, after the decision. For one limit only; only the owner may call this.
    pub(crate) fn revive(&self, now: u64) {
        debug_assert!(self.kinds.is_none(), "a stream stays idle");
        self.all.activity.revive(now, self.tick_nanos);
    }

    /// The last activity of any kind.
    pub(crate) fn last(&self) -> u64 {
        let when_idle = || self.last_when_idle.load(Ordering::Relaxed);
        self.all.activity.last().unwrap_or_else(when_idle)
    }

    pub(crate) fn set_limit(&self, limit: u64) {
        self.all.limit.store(limit, Ordering::Relaxed);
    }

    pub(crate) fn limit(&self) -> u64 {
        self.all.limit()
    }
}

fn after(nanos: u64, limit: u64) -> Option<u64> {
    nanos.checked_add(limit).filter(|&due| due < LATEST_NANOS)
}
