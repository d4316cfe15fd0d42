//! The only conversion between [`Instant`] and ticks.
//!
//! Three rules, and the promise "never early" rests on them:
//!
//! * a **deadline rounds up**: its tick is the first one that begins at the deadline or after it;
//! * **now rounds down**: the current tick is the last one that has begun;
//! * **too far means never**: what does not fit is [`NEVER`], a tick that `now` does not reach.
//!
//! Tick 0 begins at the *origin*, the instant the wheel was started. Instants before it count as tick 0.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::LocalKey;
use std::time::Duration;

use tokio::time::Instant;

/// The tick of a deadline too far away to be reached.
pub(crate) const NEVER: u64 = u64::MAX;

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// The latest activity that can be recorded, in nanoseconds: 146 years after the origin, so that adding a duration
/// cannot overflow.
pub(crate) const LATEST_NANOS: u64 = 1 << 62;

/// What stands for "never" where an [`Instant`] has to be shown: about thirty years from now, as in Tokio.
const FAR_FUTURE: Duration = Duration::from_secs(86_400 * 365 * 30);

/// A point in time as nanoseconds from the origin: half the size of an [`Instant`], and exact.
///
/// Reaches 292 years both ways; `Timestamp::NEVER` lies beyond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp(i64);

impl Timestamp {
    pub(crate) const NEVER: Timestamp = Timestamp(i64::MAX);

    /// How much later than `earlier` this is; zero when it is not.
    pub(crate) fn since(self, earlier: Timestamp) -> Duration {
        let nanos = i128::from(self.0) - i128::from(earlier.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }

    /// This stamp moved by `nanos`, or `NEVER` when that is too far.
    pub(crate) fn plus(self, nanos: i64) -> Timestamp {
        Timestamp(self.0.saturating_add(nanos))
    }

    pub(crate) fn nanos(self) -> i64 {
        self.0
    }

    /// As unsigned nanoseconds from the origin; before it counts as zero.
    pub(crate) fn after_origin(self) -> u64 {
        u64::try_from(self.0).unwrap_or(0)
    }

    /// From unsigned nanoseconds from the origin; what is too far is `NEVER`.
    pub(crate) fn at(nanos: u64) -> Timestamp {
        i64::try_from(nanos).map_or(Timestamp::NEVER, Timestamp)
    }
}

/// Where ticks begin and how long one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticks {
    /// Tells these from all others that were made, in one comparison.
    id: u64,
    origin: Instant,
    nanos_per_tick: u64,
}

/// The result of rounding up, and the instants that have the same.
///
/// Subtracting and dividing costs more than all else there is to arming a timer or touching one; comparing is cheap. A
/// busy thread rounds thousands of instants up to the same tick, one after the other.
#[derive(Debug, Clone, Copy)]
struct RoundedUp {
    /// Of the [`Ticks`].
    id: u64,
    /// The tick before has begun then: instants up to it are rounded to less.
    after: Instant,
    /// The tick begins.
    begin: Instant,
    tick: u64,
    /// When it begins, in nanoseconds from the origin.
    nanos: u64,
}

thread_local! {
    /// Of the deadlines of sleeps that are rounded on this thread, and of the touches.
    static DEADLINE: Last = const { Last::new() };
    static TOUCH: Last = const { Last::new() };
}

/// What a thread remembers of what it has rounded up.
///
/// A result is worked out in full when the same tick comes twice in a row: where each is another, that would be wasted.
#[derive(Debug)]
struct Last {
    result: Cell<Option<RoundedUp>>,
    /// The tick, and whose it is, that was rounded up to when the result was of no use.
    missed: Cell<(u64, u64)>,
}

impl Last {
    const fn new() -> Self {
        Last {
            result: Cell::new(None),
            missed: Cell::new((u64::MAX, NEVER)),
        }
    }
}

impl RoundedUp {
    /// Whether the instant has this result, for the ticks with this id.
    #[inline]
    fn holds(&self, id: u64, instant: Instant) -> bool {
        self.id == id && self.after < instant && instant <= self.begin
    }
}

impl Ticks {
    /// Ticks of length `tick`, counted from `origin`. A length of zero or beyond 584 years is not a tick.
    pub(crate) fn new(origin: Instant, tick: Duration) -> Option<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let nanos_per_tick = u64::try_from(tick.as_nanos()).ok().filter(|&n| n > 0)?;
        Some(Ticks {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            origin,
            nanos_per_tick,
        })
    }

    /// The length of a tick.
    pub(crate) fn tick(&self) -> Duration {
        Duration::from_nanos(self.nanos_per_tick)
    }

    /// The tick_nanos in which time passes, in nanoseconds: what is rounded to multiples of it is rounded to ticks.
    pub(crate) fn tick_nanos(&self) -> u64 {
        self.nanos_per_tick
    }

    /// The instant in nanoseconds from the origin. Before it is zero, and too far the largest number there is.
    #[inline]
    pub(crate) fn nanos(&self, instant: Instant) -> u64 {
        nanos(instant.saturating_duration_since(self.origin)).unwrap_or(u64::MAX)
    }

    /// The instant so many nanoseconds from the origin; decades from now if there is none.
    pub(crate) fn at(&self, nanos: u64) -> Instant {
        self.instant(Timestamp::at(nanos))
    }

    /// The tick at which a timer with this deadline may fire: rounded up.
    #[inline]
    pub(crate) fn deadline(&self, deadline: Instant) -> u64 {
        match DEADLINE.with(|last| last.result.get()) {
            Some(last) if last.holds(self.id, deadline) => last.tick,
            _ => self.round_up(deadline, &DEADLINE).0,
        }
    }

    /// The begin of the tick that the instant is rounded up to, in nanoseconds from the origin.
    #[inline]
    pub(crate) fn touch(&self, instant: Instant) -> u64 {
        match TOUCH.with(|last| last.result.get()) {
            Some(last) if last.holds(self.id, instant) => last.nanos,
            _ => self.round_up(instant, &TOUCH).1,
        }
    }

    /// Rounds up to a tick, which is returned with the nanoseconds from the origin to its begin.
    #[cold]
    fn round_up(&self, instant: Instant, last: &'static LocalKey<Last>) -> (u64, u64) {
        let Some(nanos) = nanos(instant.saturating_duration_since(self.origin)) else {
            return (NEVER, u64::MAX);
        };
        let tick = nanos.div_ceil(self.nanos_per_tick);
        let begin = tick.saturating_mul(self.nanos_per_tick);
        last.with(|last| {
            if last.missed.replace((self.id, tick)) == (self.id, tick) {
                last.result.set(self.rounded_up(instant, nanos, tick));
            }
        });
        (tick, begin)
    }

    /// The result for all instants that are rounded up to the same tick as this one. None for the first tick, whose
    /// instants may lie before the origin.
    fn rounded_up(&self, instant: Instant, nanos: u64, tick: u64) -> Option<RoundedUp> {
        let before = tick.checked_sub(1)?.checked_mul(self.nanos_per_tick)?;
        let after = instant.checked_sub(Duration::from_nanos(nanos - before))?;
        Some(RoundedUp {
            id: self.id,
            after,
            begin: after.checked_add(Duration::from_nanos(self.nanos_per_tick))?,
            tick,
            nanos: before.checked_add(self.nanos_per_tick)?,
        })
    }

    /// The tick that has begun: rounded down. Always before [`NEVER`].
    pub(crate) fn now(&self, now: Instant) -> u64 {
        match nanos(now.saturating_duration_since(self.origin)) {
            Some(nanos) => (nanos / self.nanos_per_tick).min(NEVER - 1),
            None => NEVER - 1,
        }
    }

    /// When the tick begins; `None` when no `Instant` reaches that far.
    pub(crate) fn begin(&self, tick: u64) -> Option<Instant> {
        if let Some(nanos) = tick.checked_mul(self.nanos_per_tick) {
            return self.origin.checked_add(Duration::from_nanos(nanos));
        }
        let nanos = u128::from(tick) * u128::from(self.nanos_per_tick);
        let secs = u64::try_from(nanos / u128::from(NANOS_PER_SEC)).ok()?;
        // A remainder by 10^9 fits.
        #[allow(clippy::cast_possible_truncation)]
        let subsec = (nanos % u128::from(NANOS_PER_SEC)) as u32;
        self.origin.checked_add(Duration::new(secs, subsec))
    }

    /// The instant as a stamp, exactly; too far is `NEVER`, too long ago the oldest stamp there is.
    pub(crate) fn timestamp(&self, instant: Instant) -> Timestamp {
        if let Some(after) = instant.checked_duration_since(self.origin) {
            let nanos = nanos(after).and_then(|nanos| i64::try_from(nanos).ok());
            return nanos.map_or(Timestamp::NEVER, Timestamp);
        }
        let before = nanos(self.origin.saturating_duration_since(instant));
        let before = before.and_then(|nanos| i64::try_from(nanos).ok());
        Timestamp(-before.unwrap_or(i64::MAX))
    }

    /// The stamp as an instant. `NEVER`, and what no `Instant` can hold, is shown as some decades from now.
    pub(crate) fn instant(&self, stamp: Timestamp) -> Instant {
        let distance = Duration::from_nanos(stamp.0.unsigned_abs());
        let instant = if stamp == Timestamp::NEVER {
            None
        } else if stamp.0 >= 0 {
            self.origin.checked_add(distance)
        } else {
            self.origin.checked_sub(distance)
        };
        instant.unwrap_or_else(far_future)
    }

    /// The tick of a deadline given as a stamp: rounded up, as [`deadline`](Self::deadline) does.
    pub(crate) fn deadline_of(&self, stamp: Timestamp) -> u64 {
        if stamp == Timestamp::NEVER {
            return NEVER;
        }
        u64::try_from(stamp.0).map_or(0, |nanos| nanos.div_ceil(self.nanos_per_tick))
    }
}

/// Rounds nanoseconds from the origin up to the beginning of a tick: how activity is recorded. At most
/// [`LATEST_NANOS`].
pub(crate) fn round_up_to_tick(nanos: u64, tick_nanos: u64) -> u64 {
    let ticks = nanos.min(LATEST_NANOS).div_ceil(tick_nanos);
    ticks.saturating_mul(tick_nanos).min(LATEST_NANOS)
}

/// `now + delay`, or `None` when that is too far to be an `Instant`.
pub(crate) fn after(delay: Duration) -> Option<Instant> {
    Instant::now().checked_add(delay)
}

/// An instant that stands for "never" where one has to be shown.
pub(crate) fn far_future() -> Instant {
    let now = Instant::now();
    now.checked_add(FAR_FUTURE).unwrap_or(now)
}

/// Whether this thread's Tokio clock is not the real one: it is paused, or has been.
pub(crate) fn clock_is_virtual() -> bool {
    let before = Instant::now().into_std();
    let real = std::time::Instant::now();
    let after = Instant::now().into_std();
    // A clock that runs with the real one cannot miss what is read in between.
    !(before <= real && real <= after)
}

/// The whole duration in nanoseconds, if it is under 584 years.
fn nanos(duration: Duration) -> Option<u64> {
    duration
        .as_secs()
        .checked_mul(NANOS_PER_SEC)?
        .checked_add(u64::from(duration.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ticks(tick: Duration) -> Ticks {
        Ticks::new(Instant::now(), tick).expect("not zero")
    }

    #[test]
    fn a_deadline_rounds_up_and_now_rounds_down() {
        let ticks = ticks(Duration::from_millis(10));
        let at = |micros| ticks.origin + Duration::from_micros(micros);
        assert_eq!(ticks.deadline(at(0)), 0);
        assert_eq!(ticks.deadline(at(1)), 1);
        assert_eq!(ticks.deadline(at(10_000)), 1);
        assert_eq!(ticks.deadline(at(10_001)), 2);
        assert_eq!(ticks.now(at(0)), 0);
        assert_eq!(ticks.now(at(9_999)), 0);
        assert_eq!(ticks.now(at(10_000)), 1);
        assert_eq!(ticks.begin(2), Some(at(20_000)));
    }

    #[test]
    fn far_ticks_begin_where_nanoseconds_no_longer_reach() {
        let tick = Duration::new(7, 300_000_011);
        let ticks = ticks(tick);
        // The first is the last whose begin is a 64-bit number of nanoseconds.
        let last = u64::MAX / ticks.tick_nanos();
        for n in [last, last + 1, 3 * last + 5, 1 << 33] {
            let parts = u32::try_from(n % 1_000_000).expect("less than a million");
            let millions = u32::try_from(n / 1_000_000).expect("few");
            let begin = ticks.origin + tick * 1_000_000 * millions + tick * parts;
            assert_eq!(ticks.begin(n), Some(begin), "tick {n}");
        }
        assert_eq!(ticks.begin(u64::MAX), None);
    }

    #[test]
    fn what_is_remembered_of_a_tick_holds_for_this_tick_alone() {
        let tick = Duration::from_millis(10);
        let (one, other) = (ticks(tick), ticks(tick));
        let at = |ticks: &Ticks, micros| ticks.origin + Duration::from_micros(micros);
        for remembered in [1, 2, 7] {
            let end = remembered * 10_000;
            for long_ago in (1..)
                .map(|n| n * 3_000)
                .take_while(|&micros| micros < 2 * end)
            {
                assert_eq!(one.deadline(at(&one, end - 3)), remembered);
                assert_eq!(one.deadline(at(&one, end - 2)), remembered);
                let long_ago = one.origin.checked_sub(Duration::from_micros(long_ago));
                assert!(long_ago.is_none_or(|instant| one.deadline(instant) == 0));
            }
            let expected = [
                (end - 10_000, remembered - 1),
                (end - 9_999, remembered),
                (end - 5_000, remembered),
                (end, remembered),
                (end + 1, remembered + 1),
            ];
            for (micros, tick) in expected {
                // Twice in a row: then it is remembered.
                for _ in 0..2 {
                    assert_eq!(one.deadline(at(&one, end - 3)), remembered);
                    assert_eq!(one.touch(at(&one, end - 3)), end * 1_000);
                }
                assert_eq!(one.deadline(at(&one, micros)), tick, "{micros} after {end}");
                assert_eq!(one.touch(at(&one, micros)), tick * 10_000_000);
                let moved = at(&other, micros);
                assert_eq!(
                    other.deadline(moved),
                    tick,
                    "of others nothing is remembered"
                );
            }
        }
    }

    #[test]
    fn instants_before_the_origin_are_tick_zero() {
        let ticks = ticks(Duration::from_millis(1));
        let Some(past) = ticks.origin.checked_sub(Duration::from_millis(5)) else {
            return; // this machine booted within the last five milliseconds
        };
        assert_eq!(ticks.deadline(past), 0);
        assert_eq!(ticks.now(past), 0);
        assert_eq!(ticks.instant(ticks.timestamp(past)), past);
        assert_eq!(ticks.deadline_of(ticks.timestamp(past)), 0);
    }

    #[test]
    fn what_is_too_far_is_never_and_now_does_not_reach_it() {
        let ticks = ticks(Duration::from_nanos(1));
        let thousand_years = Duration::from_secs(86_400 * 365 * 1000);
        let far = ticks.origin + thousand_years;
        assert_eq!(ticks.deadline(far), NEVER);
        assert_eq!(ticks.timestamp(far), Timestamp::NEVER);
        assert_eq!(ticks.deadline_of(Timestamp::NEVER), NEVER);
        assert!(ticks.now(far) < NEVER);
        assert!(
            ticks.instant(Timestamp::NEVER) > Instant::now() + Duration::from_secs(86_400 * 365)
        );
    }

    #[test]
    fn rounds_activity_up_to_tick_and_no_further_than_latest() {
        for (nanos, rounded) in [(0, 0), (1, 10), (10, 10), (11, 20)] {
            assert_eq!(round_up_to_tick(nanos, 10), rounded);
        }
        assert_eq!(round_up_to_tick(u64::MAX, 1_000), LATEST_NANOS);
        assert_eq!(round_up_to_tick(1, u64::MAX), LATEST_NANOS);
    }

    #[test]
    fn a_tick_of_no_length_is_none() {
        assert!(Ticks::new(Instant::now(), Duration::ZERO).is_none());
        assert!(Ticks::new(Instant::now(), Duration::MAX).is_none());
    }

    #[test]
    fn now_does_not_reach_never_at_the_last_nanosecond_there_is() {
        let ticks = ticks(Duration::from_nanos(1));
        let last = ticks.origin + Duration::from_nanos(u64::MAX);
        assert_eq!(ticks.nanos(last), u64::MAX);
        assert_eq!(ticks.now(last), NEVER - 1);
        assert_eq!(ticks.now(last - Duration::from_nanos(2)), NEVER - 2);
    }

    #[test]
    fn what_is_shown_for_never_is_about_thirty_years_away() {
        let year = Duration::from_secs(86_400 * 365);
        let shown = far_future().saturating_duration_since(Instant::now());
        assert!(shown > 29 * year && shown < 31 * year, "{shown:?}");
    }

    #[test]
    fn a_stamp_is_counted_in_nanoseconds_from_the_origin() {
        let ticks = ticks(Duration::from_millis(2));
        assert_eq!(ticks.tick_nanos(), 2_000_000);
        let early = ticks.timestamp(ticks.origin + Duration::from_nanos(300));
        let late = ticks.timestamp(ticks.origin + Duration::from_micros(1));
        assert_eq!((early.nanos(), early.after_origin()), (300, 300));
        assert_eq!(ticks.nanos(ticks.at(1_000)), 1_000);
        assert_eq!(Timestamp::at(1_000), late);
        assert_eq!(late.since(early), Duration::from_nanos(700));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(late.plus(-700), early);
        assert_eq!(late.plus(-1_007).nanos(), -7);
        assert_eq!(late.plus(-1_007).after_origin(), 0);
        assert_eq!(late.since(late.plus(-1_007)), Duration::from_nanos(1_007));
    }

    #[test]
    fn a_stamp_too_far_is_never() {
        let last = i64::MAX.unsigned_abs();
        assert_eq!(Timestamp::at(last + 1), Timestamp::NEVER);
        assert_eq!(Timestamp::at(last - 1).plus(1), Timestamp::NEVER);
        assert_eq!(Timestamp::at(last - 1).plus(i64::MAX), Timestamp::NEVER);
        assert!(Timestamp::at(last - 1) < Timestamp::NEVER);
    }

    #[tokio::test(start_paused = true)]
    async fn a_delay_ends_so_long_after_now_if_there_is_such_an_instant() {
        let delay = Duration::from_millis(5);
        assert_eq!(after(delay), Some(Instant::now() + delay));
        assert_eq!(after(Duration::MAX), None);
    }

    #[test]
    fn the_real_clock_is_not_virtual() {
        assert!(!clock_is_virtual());
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_paused_or_has_been_is_virtual() {
        assert!(clock_is_virtual(), "it stands behind the real one");
        tokio::time::advance(Duration::from_secs(3_600)).await;
        assert!(clock_is_virtual(), "it stands before the real one");
        tokio::time::resume();
        assert!(clock_is_virtual(), "it runs, but an hour ahead");
    }

    proptest! {
        #[test]
        fn the_tick_of_a_deadline_begins_at_it_or_less_than_a_tick_later(
            nanos in 0..u64::MAX / 4,
            tick in 1..100_000_000_000_u64,
        ) {
            let ticks = ticks(Duration::from_nanos(tick));
            let deadline = ticks.origin + Duration::from_nanos(nanos);
            let begin = ticks.begin(ticks.deadline(deadline)).expect("not so far");
            prop_assert!(begin >= deadline);
            prop_assert!(begin < deadline + ticks.tick());
            prop_assert!(ticks.begin(ticks.now(deadline)).expect("not so far") <= deadline);
            prop_assert_eq!(ticks.deadline_of(ticks.timestamp(deadline)), ticks.deadline(deadline));
        }

        #[test]
        fn a_stamp_gives_back_the_instant_it_was_made_from(nanos in 0..i64::MAX.unsigned_abs()) {
            let ticks = ticks(Duration::from_millis(1));
            let instant = ticks.origin + Duration::from_nanos(nanos);
            prop_assert_eq!(ticks.instant(ticks.timestamp(instant)), instant);
        }
    }
}
