//! Tests of ticks: rounding, and deadlines too far away.

use super::*;
use proptest::prelude::*;

fn ticks(tick: Duration) -> Ticks {
    Ticks::new(Instant::now(), tick).expect("not zero")
}

#[test]
fn rounds_deadlines_up_and_now_down() {
    let ticks = ticks(Duration::from_millis(10));
    let at = |micros| ticks.origin + Duration::from_micros(micros);
    assert_eq!(ticks.round_up(at(0)), 0);
    assert_eq!(ticks.round_up(at(1)), 1);
    assert_eq!(ticks.round_up(at(10_000)), 1);
    assert_eq!(ticks.round_up(at(10_001)), 2);
    assert_eq!(ticks.tick_at(ticks.timestamp(at(0))), 0);
    assert_eq!(ticks.tick_at(ticks.timestamp(at(9_999))), 0);
    assert_eq!(ticks.tick_at(ticks.timestamp(at(10_000))), 1);
    assert_eq!(ticks.begin(2), Some(at(20_000)));
}

/// The ticks and the timestamp of these milliseconds from the origin.
fn coarse() -> (Ticks, impl Fn(i64) -> Timestamp) {
    let ticks = ticks(Duration::from_millis(100));
    (ticks, |ms| Timestamp(ms * 1_000_000))
}

// The rounding of the wheel counted as missed, so every other period of a tick's length did.
#[test]
fn period_is_missed_once_its_own_tick_has_passed() {
    let (ticks, at) = coarse();
    let missed = |deadline, period: i64, now| {
        let period = period * 1_000_000;
        ticks.missed_periods(at(deadline), period, at(now))
    };
    // At 200 both fire, as they can, and up to 5 ms after that as Tokio's would.
    for deadline in [101, 137, 200] {
        for now in [200, 201, 205] {
            assert_eq!(missed(deadline, 10, now), 0, "{deadline}, {now}");
        }
    }
    // At 206 the next one of a tick's length is not missed: it can fire at 300.
    assert_eq!(missed(101, 100, 206), 0);
    assert_eq!(missed(101, 100, 299), 0);
    assert_eq!(missed(101, 100, 301), 1, "the one at 201 could fire at 300");
    assert_eq!(missed(101, 10, 206), 9, "191 could fire at 200, 201 at 300");
    assert_eq!(missed(101, 150, 399), 1, "251 could fire at 300");
    assert_eq!(missed(101, 150, 400), 1, "401 could not fire before 500");
    assert_eq!(missed(-50, 100, 250), 2, "before the origin");
}

#[test]
fn missed_periods_of_short_ticks_are_those_of_the_clock() {
    let ticks = ticks(Duration::from_micros(1));
    let at = |us: i64| Timestamp(us * 1_000);
    let missed = |period: i64, now| ticks.missed_periods(at(0), period * 1_000, at(now));
    assert_eq!(missed(10_000, 9_999), 0);
    assert_eq!(missed(10_000, 10_000), 1);
    assert_eq!(missed(10_000, 95_000), 9);
    assert_eq!(
        missed(1_000, 5_000),
        0,
        "Tokio waits for whole milliseconds"
    );
    assert_eq!(missed(1_000, 5_001), 5);
    let far = Timestamp::NEVER;
    assert_eq!(ticks.missed_periods(Timestamp::MIN, 1, far), i64::MAX);
    assert_eq!(ticks.missed_periods(far, 1, far), 0);
}

#[test]
fn knows_the_begin_of_ticks_up_to_64_bit_nanoseconds() {
    let ticks = ticks(Duration::new(7, 300_000_011));
    let last = u64::MAX / ticks.tick_nanos();
    let begin = ticks.origin + Duration::from_nanos(last * ticks.tick_nanos());
    assert_eq!(ticks.begin(last), Some(begin));
    assert_eq!(ticks.begin(last + 1), None);
}

#[test]
fn applies_a_remembered_rounding_to_its_own_tick_only() {
    let tick = Duration::from_millis(10);
    let (one, other) = (ticks(tick), ticks(tick));
    let mut rounded = Rounded::new(&one);
    let mut round = |instant| rounded.round_up(&one, instant);
    let at = |ticks: &Ticks, micros| ticks.origin + Duration::from_micros(micros);
    for remembered in [1, 2, 7] {
        let end = remembered * 10_000;
        for long_ago in (1..)
            .map(|n| n * 3_000)
            .take_while(|&micros| micros < 2 * end)
        {
            assert_eq!(round(at(&one, end - 3)), remembered);
            assert_eq!(round(at(&one, end - 2)), remembered);
            let long_ago = one.origin.checked_sub(Duration::from_micros(long_ago));
            assert!(long_ago.is_none_or(|instant| round(instant) == 0));
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
                assert_eq!(round(at(&one, end - 3)), remembered);
            }
            assert_eq!(round(at(&one, micros)), tick, "{micros} after {end}");
            let moved = at(&other, micros);
            assert_eq!(
                other.round_up(moved),
                tick,
                "nothing is remembered of other ticks"
            );
        }
    }
}

#[test]
fn counts_instants_before_the_origin_as_tick_zero() {
    let ticks = ticks(Duration::from_millis(1));
    let Some(past) = ticks.origin.checked_sub(Duration::from_millis(5)) else {
        return; // the clock began less than five milliseconds ago
    };
    assert_eq!(ticks.round_up(past), 0);
    assert_eq!(ticks.tick_at(ticks.timestamp(past)), 0);
    assert_eq!(ticks.instant(ticks.timestamp(past)), past);
    assert_eq!(ticks.round_up_timestamp(ticks.timestamp(past)), 0);
}

#[test]
fn deadline_too_far_away_is_never_and_now_is_before_it() {
    let ticks = ticks(Duration::from_nanos(1));
    let thousand_years = Duration::from_secs(86_400 * 365 * 1000);
    let far = ticks.origin + thousand_years;
    assert_eq!(ticks.round_up(far), NEVER);
    assert_eq!(ticks.timestamp(far), Timestamp::NEVER);
    assert_eq!(ticks.round_up_timestamp(Timestamp::NEVER), NEVER);
    assert!(ticks.tick_at(ticks.timestamp(far)) < NEVER);
    assert!(ticks.instant(Timestamp::NEVER) > Instant::now() + Duration::from_secs(86_400 * 365));
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
fn refuses_a_tick_of_no_length() {
    assert!(Ticks::new(Instant::now(), Duration::ZERO).is_none());
    assert!(Ticks::new(Instant::now(), Duration::MAX).is_none());
}

#[test]
fn does_not_reach_never_at_the_last_nanosecond() {
    let ticks = ticks(Duration::from_nanos(1));
    let last = ticks.origin + Duration::from_nanos(u64::MAX);
    assert_eq!(ticks.nanos(last), u64::MAX);
    assert_eq!(ticks.tick_at(ticks.timestamp(last)), NEVER - 1);
}

#[test]
fn never_begins_where_timestamps_end() {
    for length in [Duration::from_nanos(1), Duration::from_millis(100)] {
        let ticks = ticks(length);
        let never = ticks.never();
        let last = never - Duration::from_nanos(1);
        assert_eq!(ticks.round_up(never), NEVER);
        assert_eq!(
            ticks.round_up(last),
            ticks.round_up_timestamp(ticks.timestamp(last))
        );
        assert!(ticks.round_up(last) < NEVER);
        assert_eq!(ticks.timestamp(never), Timestamp::NEVER);
        // A tick that is remembered has no instant that is never.
        let mut rounded = Rounded::new(&ticks);
        for deadline in [last, last, never, last, never] {
            assert_eq!(rounded.round_up(&ticks, deadline), ticks.round_up(deadline));
        }
    }
}

#[test]
fn puts_the_far_future_about_thirty_years_away() {
    let year = Duration::from_secs(86_400 * 365);
    let shown = far_future().saturating_duration_since(Instant::now());
    assert!(shown > 29 * year && shown < 31 * year, "{shown:?}");
}

#[test]
fn counts_a_timestamp_in_nanoseconds_from_the_origin() {
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
fn timestamp_too_far_away_is_never() {
    let last = i64::MAX.unsigned_abs();
    assert_eq!(Timestamp::at(last + 1), Timestamp::NEVER);
    assert_eq!(Timestamp::at(last - 1).plus(1), Timestamp::NEVER);
    assert_eq!(Timestamp::at(last - 1).plus(i64::MAX), Timestamp::NEVER);
    assert!(Timestamp::at(last - 1) < Timestamp::NEVER);
}

#[tokio::test(start_paused = true)]
async fn adds_a_delay_to_now_if_there_is_such_an_instant() {
    let delay = Duration::from_millis(5);
    assert_eq!(after(delay), Some(Instant::now() + delay));
    assert_eq!(after(Duration::MAX), None);
}

#[test]
fn real_clock_is_not_virtual() {
    assert!(!clock::is_virtual());
}

#[tokio::test(start_paused = true)]
async fn clock_that_is_or_was_paused_is_virtual() {
    assert!(clock::is_virtual(), "it stands behind the real one");
    tokio::time::advance(Duration::from_secs(3_600)).await;
    assert!(clock::is_virtual(), "it stands before the real one");
    tokio::time::resume();
    assert!(clock::is_virtual(), "it runs, but an hour ahead");
}

/// An instant near the start of one of the first ticks: before it, at it or after it.
fn near_a_begin() -> impl Strategy<Value = (u64, i64)> {
    let nanos = prop_oneof![3 => -2..=2_i64, 1 => -15_i64..15];
    (0..4_u64, nanos)
}

proptest! {
    #[test]
    fn rounds_the_same_whatever_was_rounded_before(
        instants in proptest::collection::vec((any::<bool>(), near_a_begin(), 1..3_usize), 1..40),
    ) {
        let one = ticks(Duration::from_nanos(10));
        // Its ticks begin elsewhere.
        let other = Ticks::new(one.origin + Duration::from_nanos(3), Duration::from_nanos(10));
        let other = other.expect("not zero");
        let mut rounded = [Rounded::new(&one), Rounded::new(&other)];
        for (which, (tick, nanos), times) in instants {
            let ticks = if which { &one } else { &other };
            let begin = ticks.begin(tick).expect("not so far");
            let by = Duration::from_nanos(nanos.unsigned_abs());
            let instant = if nanos < 0 { begin.checked_sub(by) } else { Some(begin + by) };
            let Some(instant) = instant else { continue };
            // Twice in a row: then it is remembered.
            for _ in 0..times {
                let expected = ticks.round_up(instant);
                let tick = rounded[usize::from(!which)].round_up(ticks, instant);
                prop_assert_eq!(tick, expected);
            }
        }
    }

    #[test]
    fn starts_the_tick_less_than_a_tick_after_its_deadline(
        nanos in 0..u64::MAX / 4,
        tick in 1..100_000_000_000_u64,
    ) {
        let ticks = ticks(Duration::from_nanos(tick));
        let deadline = ticks.origin + Duration::from_nanos(nanos);
        let begin = ticks.begin(ticks.round_up(deadline)).expect("not so far");
        prop_assert!(begin >= deadline);
        prop_assert!(begin < deadline + ticks.tick_duration());
        prop_assert!(ticks.begin(ticks.tick_at(ticks.timestamp(deadline))).expect("not so far") <= deadline);
        prop_assert_eq!(ticks.round_up_timestamp(ticks.timestamp(deadline)), ticks.round_up(deadline));
    }

    #[test]
    fn gives_back_the_instant_of_a_timestamp(nanos in 0..i64::MAX.unsigned_abs()) {
        let ticks = ticks(Duration::from_millis(1));
        let instant = ticks.origin + Duration::from_nanos(nanos);
        prop_assert_eq!(ticks.instant(ticks.timestamp(instant)), instant);
    }
}
