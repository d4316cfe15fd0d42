//! The conversion between [`Instant`] and ticks.
//!
//! The promise "never early" rests on three rules:
//!
//! * A **deadline rounds up**: its tick is the first one that begins at the deadline or after it.
//! * **Now rounds down**: the current tick is the last one that has begun.
//! * **Unrepresentable deadlines never fire**: a deadline 292 years from the origin or later, which
//!   is as far as a [`Timestamp`] reaches, is [`NEVER`], a tick that `now` does not reach.
//!
//! A fourth rule follows for what is **late**: a timer can fire once its deadline's tick has begun,
//! so lateness [counts from there](Ticks::missed_by), and the rounding itself is none.
//!
//! Tick 0 begins at the *origin*, the instant at which the wheel was started. Instants before it
//! count as tick 0. Activity, which idle timers count in nanoseconds, rounds up to whole ticks as
//! well; so a busy thread writes its word once a tick.

use std::mem;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock;

#[cfg(all(test, not(any(tickwheel_loom, tickwheel_shuttle))))]
mod tests;

/// The tick of a deadline too far away to be reached.
pub(crate) const NEVER: u64 = u64::MAX;

/// [`Timestamp::NEVER`] in nanoseconds: a deadline this far from the origin never fires.
const NEVER_NANOS: u64 = i64::MAX.unsigned_abs();

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// The latest activity that can be recorded, in nanoseconds: 146 years after the origin, so that
/// adding a duration cannot overflow, and that two bits are left.
pub(crate) const LATEST_NANOS: u64 = (1 << 62) - 1;

/// A tick of an interval that comes later than this after it could counts as missed, as with Tokio.
/// Tokio's timer, on which the actor waits, and the wait of the operating system below it round up
/// to a millisecond each.
const MISSED_AFTER: Duration = Duration::from_millis(5);

/// How far from now [`far_future`] lies: about thirty years, as in Tokio.
const FAR_FUTURE: Duration = Duration::from_secs(86_400 * 365 * 30);

/// A point in time as nanoseconds from the origin, 292 years both ways. It is half the size of an
/// [`Instant`], and exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp(i64);

impl Timestamp {
    pub(crate) const NEVER: Timestamp = Timestamp(i64::MAX);
    pub(crate) const MIN: Timestamp = Timestamp(i64::MIN);

    /// How much later than `earlier` this is; zero if it is not later.
    pub(crate) fn since(self, earlier: Timestamp) -> Duration {
        if self.0 <= earlier.0 {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.0.abs_diff(earlier.0))
    }

    /// This timestamp moved by `nanos`, or `NEVER` if that is too far.
    pub(crate) fn plus(self, nanos: i64) -> Timestamp {
        Timestamp(self.0.saturating_add(nanos))
    }

    #[cfg(test)]
    pub(crate) fn nanos(self) -> i64 {
        self.0
    }

    /// Unsigned nanoseconds from the origin; zero for a timestamp before it.
    pub(crate) fn after_origin(self) -> u64 {
        u64::try_from(self.0).unwrap_or(0)
    }

    /// The timestamp this many nanoseconds from the origin; `NEVER` if that is too far.
    pub(crate) fn at(nanos: u64) -> Timestamp {
        match i64::try_from(nanos) {
            Ok(nanos) => Timestamp(nanos),
            Err(_) => Timestamp::NEVER,
        }
    }
}

/// Where ticks begin and how long one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticks {
    origin: Instant,
    nanos_per_tick: u64,
}

/// A tick that instants were rounded up to, and the range of instants that round up to it.
///
/// A busy thread rounds many instants up to the same tick in a row, and comparing is cheaper than
/// subtracting and dividing: a timeout takes 304 instructions instead of some 410.
#[derive(Debug, Clone, Copy)]
struct Range {
    /// The instant at which the tick before begins: instants up to it round up to less.
    after: Instant,
    /// The instant at which the tick begins.
    begin: Instant,
    tick: u64,
}

impl Range {
    /// Whether the instant rounds up to this tick.
    #[inline]
    fn holds(&self, instant: Instant) -> bool {
        self.after < instant && instant <= self.begin
    }
}

/// The tick that deadlines of one wheel were last rounded up to.
///
/// The range of a tick is computed when the same tick comes twice in a row. It would not pay for a
/// tick that comes once.
#[derive(Debug)]
pub(crate) struct Rounded {
    range: Range,
    /// The last tick that was not in the range.
    missed: u64,
}

impl Rounded {
    /// Remembers nothing.
    pub(crate) fn new(ticks: &Ticks) -> Self {
        let empty = Range {
            after: ticks.origin,
            begin: ticks.origin,
            tick: 0,
        };
        Rounded {
            range: empty,
            missed: NEVER,
        }
    }

    /// The tick at which a timer with this deadline may fire: rounded up. The ticks have to be the
    /// same each time.
    #[inline]
    pub(crate) fn round_up(&mut self, ticks: &Ticks, deadline: Instant) -> u64 {
        if self.range.holds(deadline) {
            return self.range.tick;
        }
        self.round_up_other(ticks, deadline)
    }

    #[cold]
    fn round_up_other(&mut self, ticks: &Ticks, deadline: Instant) -> u64 {
        let tick = ticks.round_up(deadline);
        if mem::replace(&mut self.missed, tick) == tick {
            if let Some(range) = ticks.range(deadline) {
                self.range = range;
            }
        }
        tick
    }
}

impl Ticks {
    /// Ticks of length `tick`, counted from `origin`. `None` for a length of zero or over 584
    /// years.
    pub(crate) fn new(origin: Instant, tick: Duration) -> Option<Self> {
        let nanos_per_tick = u64::try_from(tick.as_nanos()).ok().filter(|&n| n > 0)?;
        Some(Ticks {
            origin,
            nanos_per_tick,
        })
    }

    /// The instant at which tick 0 begins.
    pub(crate) fn origin(&self) -> Instant {
        self.origin
    }

    pub(crate) fn tick_duration(&self) -> Duration {
        Duration::from_nanos(self.nanos_per_tick)
    }

    pub(crate) fn tick_nanos(&self) -> u64 {
        self.nanos_per_tick
    }

    /// How many whole ticks the duration has.
    pub(crate) fn whole_ticks(&self, duration: Duration) -> u64 {
        nanos(duration) / self.nanos_per_tick
    }

    /// The instant in nanoseconds from the origin. Zero if it lies before the origin, `u64::MAX` if
    /// it is too far.
    #[inline]
    pub(crate) fn nanos(&self, instant: Instant) -> u64 {
        nanos(instant.saturating_duration_since(self.origin))
    }

    /// The instant this many nanoseconds from the origin; an instant decades from now if there is
    /// none.
    pub(crate) fn at(&self, nanos: u64) -> Instant {
        self.instant(Timestamp::at(nanos))
    }

    /// The tick at which a timer with this deadline may fire: rounded up.
    pub(crate) fn round_up(&self, deadline: Instant) -> u64 {
        let nanos = self.nanos(deadline);
        if nanos >= NEVER_NANOS {
            return NEVER;
        }
        nanos.div_ceil(self.nanos_per_tick)
    }

    /// The range of instants that round up to the same tick as this one. `None` for the first tick,
    /// whose instants may lie before the origin, and from the last one on.
    fn range(&self, instant: Instant) -> Option<Range> {
        let nanos = self.nanos(instant);
        let tick = nanos.div_ceil(self.nanos_per_tick);
        let before = tick.checked_sub(1)?.checked_mul(self.nanos_per_tick)?;
        let begin = before.checked_add(self.nanos_per_tick)?;
        if begin >= NEVER_NANOS {
            // The instants of the last tick may lie on both sides of never.
            return None;
        }
        let after = instant.checked_sub(Duration::from_nanos(nanos - before))?;
        Some(Range {
            after,
            begin: after.checked_add(Duration::from_nanos(self.nanos_per_tick))?,
            tick,
        })
    }

    /// The tick that has begun at this timestamp: rounded down. Always before [`NEVER`].
    pub(crate) fn tick_at(&self, now: Timestamp) -> u64 {
        if now == Timestamp::NEVER {
            return NEVER - 1;
        }
        now.after_origin() / self.nanos_per_tick
    }

    /// When a timer with this deadline can fire: at the begin of its tick.
    pub(crate) fn can_fire(&self, deadline: Timestamp) -> Timestamp {
        self.begin_timestamp(self.round_up_timestamp(deadline))
    }

    /// The time from this deadline to the tick that has begun, if a timer that fires now is so late
    /// that a period counts as missed: later by [`MISSED_AFTER`] than it could fire.
    ///
    /// A period is missed if its own tick has passed. So the next one begins after the tick that
    /// has begun, perhaps not after now; its tick is to come.
    pub(crate) fn missed_by(&self, deadline: Timestamp, now: Timestamp) -> Option<Duration> {
        let is_missed = now.since(self.can_fire(deadline)) > MISSED_AFTER;
        is_missed.then(|| {
            let began = self.begin_timestamp(self.tick_at(now));
            began.since(deadline)
        })
    }

    /// How many whole periods a repeating timer has missed that had this deadline and fires now.
    /// Its next deadline comes after as many, and one more. `period` is in nanoseconds.
    pub(crate) fn missed_periods(&self, deadline: Timestamp, period: i64, now: Timestamp) -> i64 {
        let late = self.missed_by(deadline, now).map_or(0, nanos);
        i64::try_from(late).unwrap_or(i64::MAX) / period.max(1)
    }

    /// When the tick begins; `None` if that is over 584 years away, or no `Instant` reaches that
    /// far.
    pub(crate) fn begin(&self, tick: u64) -> Option<Instant> {
        let nanos = tick.checked_mul(self.nanos_per_tick)?;
        self.origin.checked_add(Duration::from_nanos(nanos))
    }

    /// When the tick begins, as a timestamp; `NEVER` if that is too far.
    pub(crate) fn begin_timestamp(&self, tick: u64) -> Timestamp {
        Timestamp::at(tick.saturating_mul(self.nanos_per_tick))
    }

    /// The instant as a timestamp, exactly. `NEVER` if it is too far, the oldest timestamp if it is
    /// too long ago.
    pub(crate) fn timestamp(&self, instant: Instant) -> Timestamp {
        if let Some(after) = instant.checked_duration_since(self.origin) {
            return Timestamp::at(nanos(after));
        }
        let before = Timestamp::at(nanos(self.origin.saturating_duration_since(instant)));
        Timestamp(-before.0)
    }

    /// The timestamp of `now + delay`; `NEVER` if that is too far.
    pub(crate) fn timestamp_after(&self, delay: Duration) -> Timestamp {
        after(delay).map_or(Timestamp::NEVER, |deadline| self.timestamp(deadline))
    }

    /// The instant that is shown for "never": 292 years after the origin. A timer for this instant
    /// is never due either.
    pub(crate) fn never(&self) -> Instant {
        self.instant(Timestamp::NEVER)
    }

    /// The timestamp as an instant. `NEVER` is the last one, so that instants keep the order of
    /// timestamps; without such an `Instant` on this platform, it is one decades from now.
    pub(crate) fn instant(&self, timestamp: Timestamp) -> Instant {
        let distance = Duration::from_nanos(timestamp.0.unsigned_abs());
        let instant = if timestamp.0 >= 0 {
            self.origin.checked_add(distance)
        } else {
            self.origin.checked_sub(distance)
        };
        instant.unwrap_or_else(far_future)
    }

    /// The tick of a deadline given as a timestamp: rounded up, as [`round_up`](Self::round_up)
    /// does.
    pub(crate) fn round_up_timestamp(&self, timestamp: Timestamp) -> u64 {
        if timestamp == Timestamp::NEVER {
            return NEVER;
        }
        timestamp.after_origin().div_ceil(self.nanos_per_tick)
    }
}

/// Rounds nanoseconds from the origin up to the start of a tick, as activity is recorded. At most
/// [`LATEST_NANOS`].
pub(crate) fn round_up_to_tick(nanos: u64, tick_nanos: u64) -> u64 {
    let ticks = nanos.min(LATEST_NANOS).div_ceil(tick_nanos);
    ticks.saturating_mul(tick_nanos).min(LATEST_NANOS)
}

/// Like [`Ticks::missed_by`] for a timer of Tokio's, which knows no ticks but its own millisecond.
pub(crate) fn missed_on_tokio(deadline: Instant, now: Instant) -> Option<Duration> {
    let late = now.saturating_duration_since(deadline);
    (late > MISSED_AFTER).then_some(late)
}

/// `now + delay`, or `None` if that is too far to be an `Instant`.
#[inline]
pub(crate) fn after(delay: Duration) -> Option<Instant> {
    clock::now().checked_add(delay)
}

/// An instant that no program reaches.
pub(crate) fn far_future() -> Instant {
    let now = clock::now();
    now.checked_add(FAR_FUTURE).unwrap_or(now)
}

/// The duration in nanoseconds, or `u64::MAX` if that is 584 years or more.
pub(crate) fn nanos(duration: Duration) -> u64 {
    let secs = duration.as_secs().saturating_mul(NANOS_PER_SEC);
    secs.saturating_add(u64::from(duration.subsec_nanos()))
}
