//! What an idle timer or stream knows of its activity, and its limits: the hook that the actor asks when it looks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::activity::{Activity, LATEST_NANOS};
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
    read_limit: u64,
    write_limit: u64,
    /// When it last read and wrote, in nanoseconds from the origin; only kept if there is a limit.
    read: AtomicU64,
    write: AtomicU64,
    /// It was found to be idle, and has not waited anew.
    expired: AtomicBool,
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
            all: Activity::new(now, ticks.grain(), 0),
            all_limit: AtomicU64::new(limit(all)),
            read_limit: limit(read),
            write_limit: limit(write),
            read: AtomicU64::new(now),
            write: AtomicU64::new(now),
            expired: AtomicBool::new(false),
        }
    }

    pub(crate) fn ticks(&self) -> &Ticks {
        &self.ticks
    }

    pub(crate) fn activity(&self) -> &Activity {
        &self.all
    }

    /// Records activity. False when it was found to be idle before that.
    #[inline]
    pub(crate) fn touch_at(&self, at: Instant) -> bool {
        self.all.touch(self.ticks.touch(at), self.ticks.grain());
        !self.expired.load(Ordering::Relaxed)
    }

    /// Records that something was read.
    pub(crate) fn touch_read(&self) {
        self.touch_kind(self.read_limit, &self.read);
    }

    /// Records that something was written.
    pub(crate) fn touch_write(&self) {
        self.touch_kind(self.write_limit, &self.write);
    }

    fn touch_kind(&self, limit: u64, last: &AtomicU64) {
        let nanos = self.ticks.touch(Instant::now());
        self.all.touch(nanos, self.ticks.grain());
        if limit != UNLIMITED {
            // A stream is read, and written, by one task at a time.
            last.fetch_max(nanos, Ordering::Relaxed);
        }
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
            let shortest = all_limit.min(self.read_limit).min(self.write_limit);
            return after(now, shortest);
        }
        // A touch in the future counts, but no more than one idle duration ahead.
        let latest = now.saturating_add(all_limit).min(LATEST_NANOS);
        let last = self.all.clamp(latest).unwrap_or(0);
        [
            after(last, all_limit),
            after(self.read.load(Ordering::Relaxed), self.read_limit),
            after(self.write.load(Ordering::Relaxed), self.write_limit),
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
