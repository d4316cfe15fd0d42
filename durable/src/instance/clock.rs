//! The store's clock, as seen from here.
//!
//! Each response with the store's time gives an estimate of how far that clock is from the local
//! one: the store read its clock between the call and the response, so the middle is wrong by half
//! a round trip at most. A short round trip gives a better estimate than a long one, and an old
//! estimate gets worse as the clocks drift. The better one is kept.
//!
//! An estimate only decides when the instance tries to fire a row. The store then compares with its
//! own clock, so a bad estimate costs a little time, and breaks no promise.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;
use crate::store::StoreTime;

/// How far clocks drift apart, at worst: 200 us in a second.
const DRIFT_PER_SECOND: u32 = 5_000;

/// A step of the store's clock by more than this, beyond what the estimates allow for, reschedules
/// all rows.
const STEP_MICROS: u64 = 5_000;

/// An estimate that was not confirmed for this long says little about when a write is late.
const OLD: Duration = Duration::from_secs(60);

/// The best estimate of the store's clock.
pub(crate) struct StoreClock {
    estimate: Mutex<Estimate>,
}

#[derive(Clone, Copy)]
struct Estimate {
    /// The store's clock showed `store` at `local`, more or less the `error`.
    local: Instant,
    store: StoreTime,
    error: Duration,
    /// When the last response with the store's time was received, whether it gave the estimate or
    /// not.
    observed: Instant,
}

impl Estimate {
    fn new(sent: Instant, received: Instant, now: StoreTime) -> Self {
        let error = received.saturating_duration_since(sent) / 2;
        Estimate {
            local: sent + error,
            store: now,
            error,
            observed: received,
        }
    }

    /// The error, grown since.
    fn error_at(&self, now: Instant) -> Duration {
        self.error + now.saturating_duration_since(self.local) / DRIFT_PER_SECOND
    }

    /// The store's time at a local instant, in microseconds.
    fn store_at(&self, local: Instant) -> i64 {
        let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        let since = micros(local.saturating_duration_since(self.local));
        let before = micros(self.local.saturating_duration_since(local));
        self.store
            .as_micros()
            .saturating_add(since)
            .saturating_sub(before)
    }
}

impl StoreClock {
    pub(crate) fn new(sent: Instant, received: Instant, now: StoreTime) -> Self {
        StoreClock {
            estimate: Mutex::new(Estimate::new(sent, received, now)),
        }
    }

    /// Records the time of a response. Returns by how many microseconds the store's clock has
    /// stepped, if it has.
    pub(crate) fn observe(&self, sent: Instant, received: Instant, now: StoreTime) -> Option<i64> {
        let new = Estimate::new(sent, received, now);
        let mut estimate = lock(&self.estimate);
        let step = new
            .store
            .as_micros()
            .saturating_sub(estimate.store_at(new.local));
        let doubt = new.error + estimate.error_at(received);
        let doubt = u64::try_from(doubt.as_micros()).unwrap_or(u64::MAX);
        let stepped = step.unsigned_abs() > doubt.saturating_add(STEP_MICROS);
        if stepped || new.error <= estimate.error_at(received) {
            *estimate = new;
        }
        estimate.observed = received;
        stepped.then_some(step)
    }

    /// The time that the store's clock shows now, more or less.
    pub(crate) fn now(&self) -> StoreTime {
        let estimate = *lock(&self.estimate);
        StoreTime::from_micros(estimate.store_at(Instant::now()))
    }

    /// The store's time at a local instant, at the latest.
    pub(crate) fn latest_at(&self, instant: Instant) -> StoreTime {
        let estimate = *lock(&self.estimate);
        StoreTime::from_micros(estimate.store_at(instant)).after(estimate.error_at(instant))
    }

    /// Whether the last response with the store's time is long ago, as for an instance that only
    /// writes.
    pub(crate) fn is_old(&self) -> bool {
        lock(&self.estimate).observed.elapsed() > OLD
    }

    /// The local instant at which the store's clock shows that time, or a little later.
    pub(crate) fn instant_of(&self, time: StoreTime) -> Instant {
        let estimate = *lock(&self.estimate);
        let ahead = time.since(estimate.store);
        let behind = estimate.store.since(time);
        let instant = estimate.local + ahead;
        // Overdue rows keep their order; no row needs an instant before the process started.
        instant.checked_sub(behind).unwrap_or(estimate.local)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn at(millis: i64) -> StoreTime {
        StoreTime::from_micros(1_000_000_000 + millis * 1_000)
    }

    #[test]
    fn takes_the_middle_of_the_round_trip() {
        let sent = Instant::now();
        let clock = StoreClock::new(sent, sent + 10 * MILLI, at(0));
        assert_eq!(clock.instant_of(at(100)), sent + 105 * MILLI);
        assert_eq!(clock.instant_of(at(-3)), sent + 2 * MILLI);
    }

    #[test]
    fn keeps_the_estimate_of_the_shorter_round_trip() {
        let sent = Instant::now();
        let clock = StoreClock::new(sent, sent + 2 * MILLI, at(0));
        // A slow response: its time was read at its very end.
        let stepped = clock.observe(sent + 10 * MILLI, sent + 60 * MILLI, at(59));
        assert_eq!(stepped, None);
        assert_eq!(clock.instant_of(at(100)), sent + 101 * MILLI);
        // As good as the first, and newer.
        clock.observe(sent + 99 * MILLI, sent + 101 * MILLI, at(100));
        assert_eq!(clock.instant_of(at(100)), sent + 100 * MILLI);
    }

    #[test]
    fn follows_a_step_whatever_the_round_trip() {
        let sent = Instant::now();
        let clock = StoreClock::new(sent, sent, at(0));
        let later = sent + 1_000 * MILLI;
        let stepped = clock.observe(later, later + 40 * MILLI, at(3_601_020));
        assert_eq!(stepped, Some(3_600_000_000));
        assert_eq!(clock.instant_of(at(3_601_020)), later + 20 * MILLI);
    }
}
