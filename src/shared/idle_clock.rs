//! What an idle timer or stream knows of its activity, and its limits: the hook that the actor asks when it looks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::shared::activity::{Activity, LATEST_NANOS};
use crate::tick::Ticks;

/// No limit.
const UNLIMITED: u64 = u64::MAX;

/// Activity of three kinds, each with a limit to how long it may be absent. A plain idle timer has only `all`.
#[derive(Debug)]
pub(crate) struct IdleClock {
    ticks: Ticks,
    /// Activity of any kind. Its word is never gone: an idle timer can be used again.
    all: Activity,
    /// The idle durations, in nanoseconds.
    all_limit: AtomicU64,
    read: Kind,
    write: Kind,
    /// Whether either of them has a limit; most have none.
    has_kinds: bool,
    /// It was found to be idle, and has not waited anew.
    expired: AtomicBool,
}

/// Activity of one kind, with a limit of its own.
#[derive(Debug)]
struct Kind {
    limit: u64,
    /// When it was last active, in nanoseconds from the origin; only kept if there is a limit.
    last: AtomicU64,
}

impl Kind {
    fn new(limit: u64, now: u64) -> Self {
        let last = AtomicU64::new(now);
        Kind { limit, last }
    }

    #[inline]
    fn touch(&self, nanos: u64) {
        if self.limit != UNLIMITED && nanos > self.last.load(Ordering::Relaxed) {
            self.last.fetch_max(nanos, Ordering::Relaxed);
        }
    }

    /// When the limit is reached, if there is one. Activity in the future is taken back as [`Activity::clamp`] does.
    fn due(&self, now: u64, clock: impl Fn() -> u64) -> Option<u64> {
        let latest = |now: u64| now.saturating_add(self.limit);
        let mut last = self.last.load(Ordering::Relaxed);
        while last > latest(now) {
            let latest = latest(clock());
            if last <= latest {
                break;
            }
            let clamped = (self.last).compare_exchange_weak(
                last,
                latest,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            last = clamped.map_or_else(|other| other, |_| latest);
        }
        after(last, self.limit)
    }
}

impl IdleClock {
    /// Active now.
    pub(crate) fn new(
        ticks: Ticks,
        all: Option<Duration>,
        read: Option<Duration>,
        write: Option<Duration>,
    ) -> Self {
        let now = ticks.nanos(Instant::now());
        IdleClock {
            ticks,
            all: Activity::new(now, ticks.tick_nanos(), 0),
            all_limit: AtomicU64::new(limit(all)),
            read: Kind::new(limit(read), now),
            write: Kind::new(limit(write), now),
            has_kinds: read.is_some() || write.is_some(),
            expired: AtomicBool::new(false),
        }
    }

    pub(crate) fn ticks(&self) -> &Ticks {
        &self.ticks
    }

    /// Records activity, of each kind. False when it was found to be idle before that.
    #[inline]
    pub(crate) fn touch_at(&self, at: Instant) -> bool {
        let nanos = self.ticks.touch(at);
        self.all.touch(nanos, self.ticks.tick_nanos());
        if self.has_kinds {
            self.read.touch(nanos);
            self.write.touch(nanos);
        }
        !self.expired.load(Ordering::Relaxed)
    }

    /// One more guard. False when there are too many; it is never gone.
    pub(crate) fn enter(&self) -> bool {
        self.all.enter()
    }

    /// One guard less; the release is activity of each kind.
    pub(crate) fn leave(&self, nanos: u64) {
        // First: when it is not busy any more, they count.
        self.read.touch(nanos);
        self.write.touch(nanos);
        self.all.leave(nanos, self.ticks.tick_nanos());
    }

    /// Records that something was read.
    pub(crate) fn touch_read(&self) {
        self.touch_kind(&self.read);
    }

    /// Records that something was written.
    pub(crate) fn touch_write(&self) {
        self.touch_kind(&self.write);
    }

    fn touch_kind(&self, kind: &Kind) {
        let nanos = self.ticks.touch(Instant::now());
        self.all.touch(nanos, self.ticks.tick_nanos());
        kind.touch(nanos);
    }

    pub(crate) fn set_limit(&self, idle: Duration) {
        self.all_limit.store(limit(Some(idle)), Ordering::Relaxed);
    }

    pub(crate) fn limit(&self) -> Duration {
        Duration::from_nanos(self.all_limit.load(Ordering::Relaxed))
    }

    pub(crate) fn set_expired(&self, expired: bool) {
        self.expired.store(expired, Ordering::Relaxed);
    }

    pub(crate) fn last_active(&self) -> Instant {
        // Rounded up it may lie in the future, by less than a tick.
        let last = self.ticks.at(self.all.last().unwrap_or(0));
        last.min(Instant::now())
    }

    /// When it is idle, in nanoseconds from the origin, if nothing happens until then. `None`: never.
    ///
    /// While a guard is held that is not known; then, a whole idle duration from `now`, it is time to ask again.
    pub(crate) fn due(&self, now: u64) -> Option<u64> {
        let all_limit = self.all_limit.load(Ordering::Relaxed);
        if self.all.is_busy() {
            let shortest = all_limit.min(self.read.limit).min(self.write.limit);
            return after(now, shortest);
        }
        // A touch in the future counts, but no more than one idle duration ahead.
        let latest = |now: u64| now.saturating_add(all_limit).min(LATEST_NANOS);
        let clock = || self.ticks.nanos(Instant::now());
        let last = self.all.clamp(latest(now), || latest(clock()));
        [
            after(last.unwrap_or(0), all_limit),
            self.read.due(now, clock),
            self.write.due(now, clock),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

fn limit(idle: Option<Duration>) -> u64 {
    let nanos = idle.and_then(|idle| u64::try_from(idle.as_nanos()).ok());
    nanos.unwrap_or(UNLIMITED)
}

fn after(nanos: u64, limit: u64) -> Option<u64> {
    nanos
        .checked_add(limit)
        .filter(|&due| limit != UNLIMITED && due < LATEST_NANOS)
}
