//! The bugs that can be tested on the wheel alone, without actor and clock.

use tickwheel::wheel::Wheel;

// RussellLuo: `Stop` leaves entries behind in the buckets.
#[test]
fn b08_removed_items_leave_nothing_behind() {
    let mut wheel = Wheel::with_slots(8, 0);
    let tokens: Vec<_> = (0..1000)
        .map(|tick| wheel.insert(tick * tick, tick))
        .collect();
    for token in tokens {
        assert!(wheel.remove(token).is_some());
    }
    assert!(wheel.is_empty());
    assert_eq!(wheel.next_wake(), None);
    assert_eq!(wheel.advance(2_000_000, usize::MAX).count(), 0);
}

// RussellLuo: advancing and flushing a bucket lock each other out while items cascade.
#[test]
fn b08_items_inserted_while_advancing_are_yielded() {
    let mut wheel = Wheel::with_slots(4, 0);
    wheel.insert(100, 0_u64);
    let mut seen = Vec::new();
    let mut tick = 0;
    while seen.len() < 50 {
        tick += 1;
        let due: Vec<_> = wheel.advance(tick, 1).collect();
        for item in due {
            seen.push(tick);
            wheel.insert(tick + item % 9, item + 1);
        }
    }
    assert!(seen[0] == 100 && seen.is_sorted() && seen[49] < 400);
}

// Tokio before 1.54 and `DelayQueue`: an entry 2^36 ms ahead lies in the current slot of the top
// level and hides every nearer timer: one of 300 ms took 2.2 years.
#[test]
fn b11_hides_nothing_behind_a_far_item_in_the_bucket() {
    for slots in [2, 4, 64, 4096] {
        for bit in 1..63 {
            for more in [-1_i64, 0, 1] {
                let mut wheel = Wheel::with_slots(slots, 0);
                // The current tick lies within the window, as in a wheel that has run for a while.
                assert_eq!(wheel.advance(70, usize::MAX).count(), 0);
                let far = (1_u64 << bit).saturating_add_signed(more) + 70;
                wheel.insert(far, "far");
                wheel.insert(370, "near");
                let mut out = Vec::new();
                while let Some(next) = wheel.next_wake().filter(|&next| next <= 370.max(far)) {
                    out.extend(wheel.advance(next, usize::MAX).map(|item| (item, next)));
                }
                out.sort_unstable();
                assert_eq!(
                    out,
                    [("far", far), ("near", 370)],
                    "{slots} slots, far {far}"
                );
            }
        }
    }
}

// `DelayQueue`: removing with a stale key removed another item.
#[test]
fn b12_finds_nothing_by_a_stale_token() {
    let mut wheel = Wheel::with_slots(64, 0);
    let mut stale = Vec::new();
    for round in 0..100 {
        let token = wheel.insert(round, round);
        assert!(stale.iter().all(|&old| old != token));
        for &old in &stale {
            assert_eq!(wheel.remove(old), None);
            assert_eq!(wheel.get(old), None);
            assert!(!wheel.reschedule(old, 5));
        }
        assert_eq!(wheel.len(), 1);
        if round % 2 == 0 {
            assert_eq!(wheel.remove(token), Some(round));
        } else {
            assert_eq!(
                wheel.advance(round, usize::MAX).collect::<Vec<_>>(),
                [round]
            );
        }
        stale.push(token);
    }
}

// Many: the level is computed from the duration and the slot from the tick; once the window has
// slid they disagree, and an item lands in the current bucket, due a rotation early, or late.
#[test]
fn b14_every_distance_is_exact_at_every_window() {
    for slots in [2_usize, 4, 8] {
        let n = slots as u64;
        for now in 0..n * n * 2 {
            for distance in 0..n * n * n + 2 {
                let mut wheel = Wheel::with_slots(slots, now);
                wheel.insert(now + distance, ());
                assert_eq!(
                    wheel
                        .advance((now + distance).saturating_sub(1).max(now), 9)
                        .count(),
                    usize::from(distance == 0)
                );
                assert_eq!(
                    wheel.advance(now + distance, 9).count(),
                    usize::from(distance > 0)
                );
            }
        }
    }
}
