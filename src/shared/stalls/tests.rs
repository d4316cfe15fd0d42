use super::{Gap, KEPT, Stalls};

/// A millisecond, in nanoseconds.
const MS: u64 = 1_000_000;

/// The actor could have run at the first of two milliseconds, and did at the second one.
fn stalls(of: &[(u64, u64)]) -> Stalls {
    let stalls = Stalls::default();
    for &(from, to) in of {
        stalls.record(gap(from, to));
    }
    stalls
}

fn gap(from: u64, to: u64) -> Gap {
    Gap::between(from * MS, to * MS, || false).expect("it is long enough")
}

/// When a verdict falls that is due at the millisecond `due`, after `idle` milliseconds of silence.
fn falls(stalls: &Stalls, due: u64, idle: u64) -> u64 {
    stalls.put_off(due * MS, idle * MS) / MS
}

#[test]
fn p18_verdict_due_in_a_stall_or_its_respite_falls_at_its_end() {
    let stalls = stalls(&[(1000, 1300)]);
    for (due, falls_at) in [
        (999, 999),   // silent before the stall
        (1000, 1600), // in it
        (1299, 1600),
        (1300, 1600), // as long again
        (1599, 1600),
        (1600, 1600),
        (1601, 1601),
        (5000, 5000),
    ] {
        assert_eq!(falls(&stalls, due, 10_000), falls_at, "due at {due}");
    }
}

#[test]
fn p18_respite_is_no_longer_than_the_idle_duration() {
    let stalls = stalls(&[(1000, 3000)]);
    assert_eq!(falls(&stalls, 1500, 400), 3400);
    assert_eq!(falls(&stalls, 3399, 400), 3400);
    assert_eq!(falls(&stalls, 3401, 400), 3401);
    assert_eq!(falls(&stalls, 3401, 500), 3500);
}

#[test]
fn p18_verdict_is_put_off_once() {
    let mut now = 1000;
    let stalls = stalls(&[(now, now + 100)]);
    let due = now + 50;
    assert_eq!(falls(&stalls, due, 10_000), 1200);
    // Other stalls follow, and the verdict falls in the middle of one of them.
    while now < 5000 {
        now += 110;
        stalls.record(gap(now, now + 100));
        assert!(falls(&stalls, due, 10_000) <= 1200, "at {now}");
    }
}

#[test]
fn verdict_in_several_stalls_falls_after_the_last() {
    // The respite of the first one contains the second one.
    let stalls = stalls(&[(1000, 2000), (2100, 2200)]);
    assert_eq!(falls(&stalls, 1500, 10_000), 3000);
    assert_eq!(falls(&stalls, 2150, 10_000), 3000);
    assert_eq!(falls(&stalls, 2150, 50), 2250);
}

#[test]
fn long_stall_is_kept_among_many_short_ones() {
    let stalls = stalls(&[(1000, 4000)]);
    for n in 0..3 * KEPT as u64 {
        let from = 4001 + n * 40;
        stalls.record(gap(from, from + 30));
    }
    assert_eq!(falls(&stalls, 1000, 10_000), 7000);
    assert_eq!(falls(&stalls, 6900, 10_000), 7000);
}

#[test]
fn short_pauses_and_jumps_of_a_virtual_clock_are_no_stalls() {
    let between = |from, to| Gap::between(from * MS, to * MS, || unreachable!("it is not asked"));
    assert_eq!(between(1000, 1020), None);
    assert_eq!(between(1000, 900), None, "the clock steps back");
    assert_eq!(Gap::between(1000 * MS, 9000 * MS, || true), None);
    let stalls = Stalls::default();
    assert_eq!(falls(&stalls, 1010, 500), 1010);
    stalls.record(gap(1000, 1021));
    assert_eq!(falls(&stalls, 1010, 500), 1042);
}

#[test]
fn no_gap_puts_nothing_off() {
    for due in [0, 1, u64::MAX] {
        assert_eq!(Gap::default().put_off(due, u64::MAX), due);
    }
}

#[test]
fn times_at_the_end_of_time_are_no_overflow() {
    let stalls = Stalls::default();
    let endless = Gap::between(0, u64::MAX - 1, || false);
    stalls.record(endless.expect("it is long"));
    assert_eq!(stalls.put_off(7, 1000 * MS), u64::MAX);
    assert_eq!(stalls.put_off(u64::MAX, 1000 * MS), u64::MAX);
}
