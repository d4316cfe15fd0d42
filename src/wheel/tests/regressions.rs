//! Bugs that other timing wheels have or had. Each test has the shape of one, and names the system.

use super::{CASCADE_LIMIT, Token, Wheel, inspect, levels};

/// Advances to the tick before, then to the tick, and asserts that the only item comes out at the
/// second.
fn fires_exactly_at(mut wheel: Wheel<()>, due: u64) {
    if due > wheel.now() {
        assert_eq!(wheel.advance(due - 1, usize::MAX).count(), 0, "early");
    }
    assert_eq!(wheel.advance(due, usize::MAX).count(), 1, "late");
}

/// Kafka and `RussellLuo/timingwheel` round a deadline down to the start of its bucket: 900 ms on a
/// wheel of seconds fired after 432 ms.
#[test]
fn fires_no_item_at_the_start_of_its_wide_bucket() {
    for slots in [2, 4, 8, 64] {
        for level in 1..levels(slots).min(7) {
            let width = (slots as u64).pow(u32::try_from(level).expect("few"));
            for start in [width, 3 * width] {
                for inside in [0, 1, width / 2, width - 1] {
                    for origin in [0, 1, width - 1] {
                        let mut wheel = Wheel::with_slots(slots, origin);
                        wheel.insert(start + inside, ());
                        fires_exactly_at(wheel, start + inside);
                    }
                }
            }
        }
    }
}

/// Tokio before 1.54, and `DelayQueue` still: an entry 2^36 ticks ahead lies in the *current* slot
/// of the top level, and every nearer entry waits behind it. A timer of 300 ms took 2.2 years.
#[test]
fn hides_no_near_item_behind_a_far_one_in_its_bucket() {
    for slots in [2, 4, 8, 16, 64, 256, 4096] {
        for bits in 1..64 {
            for far in [(1 << bits) - 1, 1 << bits, (1_u64 << bits) + 1] {
                for near in [1, 300] {
                    if near >= far {
                        continue;
                    }
                    for origin in [0, 1, 12_345, (1 << bits) - 1] {
                        let Some(last) = far.checked_add(origin) else {
                            continue;
                        };
                        let mut wheel = Wheel::with_slots(slots, origin);
                        wheel.insert(last, "far");
                        wheel.insert(origin + near, "near");
                        assert!(wheel.next_wake() <= Some(origin + near));
                        assert_eq!(wheel.advance(origin + near - 1, 9).count(), 0);
                        assert!(wheel.advance(origin + near, 9).eq(["near"]));
                        assert_eq!(wheel.advance(last - 1, 9).count(), 0);
                        assert!(wheel.advance(last, 9).eq(["far"]));
                    }
                }
            }
        }
    }
}

/// `DelayQueue` panics on deadlines 2^36 ms away and more; three large projects hit that in
/// production.
#[test]
fn accepts_every_deadline() {
    for slots in [2, 4, 8, 16, 64, 256, 4096] {
        for origin in [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
            let mut wheel = Wheel::with_slots(slots, origin);
            let token = wheel.insert(u64::MAX, ());
            inspect(&wheel);
            assert_eq!(wheel.tick_of(token), Some(u64::MAX));
            fires_exactly_at(wheel, u64::MAX);
        }
    }
}

/// trantor's and netpoll's queues are one off beyond the first: in base 10 a delay of 20 fired at
/// 11.
#[test]
fn fires_delays_around_each_level_end_at_their_tick() {
    for slots in [2_u64, 4, 8, 16] {
        let size = usize::try_from(slots).expect("small");
        for level in 1..5 {
            let span = slots.pow(level);
            for delay in [
                span - 1,
                span,
                span + 1,
                2 * span - 1,
                2 * span,
                2 * span + 1,
            ] {
                for origin in 0..slots * slots {
                    let mut wheel = Wheel::with_slots(size, origin);
                    wheel.insert(origin + delay, ());
                    fires_exactly_at(wheel, origin + delay);
                }
            }
        }
    }
}

/// Wheels that choose the level by the duration and the slot by `tick % slots` disagree with
/// themselves once the window has slid: an item a whole rotation away lands in the current bucket.
#[test]
fn keeps_an_item_one_rotation_away_out_of_the_present() {
    for slots in [2_u64, 4, 16, 64] {
        let size = usize::try_from(slots).expect("small");
        for width in [1, slots, slots * slots] {
            for origin in [0, 1, width - 1, width, 5 * width + width / 2] {
                let mut wheel = Wheel::with_slots(size, 0);
                assert_eq!(wheel.advance(origin, usize::MAX).count(), 0);
                let rotation = width * slots;
                for delay in [rotation - width + 1, rotation - 1, rotation, rotation + 1] {
                    let mut wheel = wheel.clone();
                    wheel.insert(origin + delay, ());
                    assert!(wheel.next_wake() > Some(origin));
                    fires_exactly_at(wheel, origin + delay);
                }
            }
        }
    }
}

/// akka: a wheel with a stale time after idling fired a burst of fresh timers early. go-zero,
/// which counts ticks, stayed late.
#[test]
fn fires_fresh_items_on_time_after_a_long_silence() {
    let mut wheel = Wheel::with_slots(64, 0);
    for silence in [1, 63, 64, 1 << 20, 1 << 36, 1 << 50] {
        let now = wheel.now() + silence;
        assert_eq!(wheel.advance(now, usize::MAX).count(), 0);
        assert_eq!(wheel.now(), now, "an empty wheel goes with time");
        for delay in 1..=130 {
            wheel.insert(now + delay, delay);
        }
        for delay in 1..=130 {
            assert!(wheel.advance(now + delay, usize::MAX).eq([delay]));
        }
    }
}

/// go-zero before 2020: the remains of a removed entry deleted the new entry of the same key.
#[test]
fn protects_a_later_item_from_an_earlier_token() {
    let mut wheel = Wheel::with_slots(64, 0);
    let old = wheel.insert(10, "old");
    assert_eq!(wheel.remove(old), Some("old"));
    let new = wheel.insert(10, "new");
    assert_eq!(wheel.get_mut(old), None);
    assert_eq!(wheel.get(old), None);
    assert_eq!(wheel.tick_of(old), None);
    assert!(!wheel.reschedule(old, 3));
    assert_eq!(wheel.remove(old), None);
    assert_eq!(wheel.tick_of(new), Some(10));
    assert!(wheel.advance(10, usize::MAX).eq(["new"]));
}

/// `DelayQueue`: its keys have no generation, so a key that had fired removed another item.
#[test]
fn makes_a_token_stale_when_its_item_is_handed_out() {
    let mut wheel = Wheel::with_slots(64, 0);
    let old = wheel.insert(1, "old");
    assert!(wheel.advance(1, usize::MAX).eq(["old"]));
    let new = wheel.insert(10, "new");
    assert_ne!(old, new);
    assert_eq!(wheel.remove(old), None);
    assert_eq!(wheel.remove(new), Some("new"));
}

/// A slab that returns its memory begins to count again, and an old key names a new item.
#[test]
fn keeps_tokens_stale_when_memory_is_returned() {
    let mut wheel = Wheel::with_slots(64, 0);
    let mut stale: Vec<Token> = Vec::new();
    for round in 0..3 {
        let tokens: Vec<Token> = (0..1_500).map(|n| wheel.insert(round, n)).collect();
        assert!(stale.iter().all(|&old| wheel.get(old).is_none()));
        assert!(stale.iter().all(|&old| wheel.remove(old).is_none()));
        assert_eq!(wheel.advance(round, usize::MAX).count(), 1_500);
        assert_eq!(wheel.bare.arena.capacity(), 0, "memory is returned");
        stale.extend(tokens);
    }
    let different: std::collections::HashSet<Token> = stale.iter().copied().collect();
    assert_eq!(different.len(), stale.len(), "a token was given out twice");
}

/// A token of another wheel, of which this one has no such index, panics in a slab.
#[test]
fn survives_a_token_of_another_wheel() {
    let mut one = Wheel::with_slots(64, 0);
    let mut two = Wheel::with_slots(64, 0);
    let far = (0..10).map(|n| one.insert(n, ())).last().expect("ten");
    assert_eq!(two.get(far), None);
    assert_eq!(two.remove(far), None);
    two.insert(0, ());
    assert_eq!(two.tick_of(far), None);
    inspect(&two);
}

/// Netty counted a cancelled timeout twice, and Dubbo's copy of it still does.
#[test]
fn counts_a_double_removal_once() {
    let mut wheel = Wheel::with_slots(64, 0);
    let tokens = [
        wheel.insert(5, ()),
        wheel.insert(5, ()),
        wheel.insert(500, ()),
    ];
    for (gone, token) in tokens.into_iter().enumerate() {
        assert_eq!(wheel.len(), 3 - gone);
        assert_eq!(wheel.remove(token), Some(()));
        assert_eq!(wheel.remove(token), None);
        assert_eq!(wheel.len(), 2 - gone);
    }
    assert!(wheel.is_empty());
    assert_eq!(wheel.next_wake(), None);
}

/// go-zero: a move to less than a tick fired at once and left the entry, which fired again.
#[test]
fn fires_an_item_moved_to_the_past_once() {
    for to in [0, 99, 100] {
        let mut wheel = Wheel::with_slots(64, 100);
        let token = wheel.insert(200, ());
        assert!(wheel.reschedule(token, to));
        assert_eq!(wheel.next_wake(), Some(100));
        assert_eq!(wheel.advance(100, usize::MAX).count(), 1);
        assert_eq!(wheel.advance(1_000, usize::MAX).count(), 0);
    }
}

/// Netty keeps cancelled timeouts, and the objects they refer to, until its wheel reaches their
/// bucket.
#[test]
fn drops_removed_items_at_once() {
    let item = std::rc::Rc::new(());
    let mut wheel = Wheel::with_slots(64, 0);
    let far = wheel.insert(1 << 40, item.clone());
    wheel.insert(3, item.clone());
    wheel.insert(4, item.clone());
    assert_eq!(std::rc::Rc::strong_count(&item), 4);
    drop(wheel.remove(far));
    assert_eq!(std::rc::Rc::strong_count(&item), 3);
    assert_eq!(wheel.advance(3, usize::MAX).count(), 1);
    assert_eq!(std::rc::Rc::strong_count(&item), 2);
    drop(wheel);
    assert_eq!(std::rc::Rc::strong_count(&item), 1);
}

// --- what its documentation says ---

#[test]
fn follows_the_worked_example() {
    let mut wheel = Wheel::with_slots(4, 0);
    let first = wheel.insert(9, "first");
    let place = |wheel: &Wheel<_>, token| (super::level_of(wheel, token), wheel.next_wake());
    assert_eq!(place(&wheel, first), (1, Some(8)));
    assert_eq!(wheel.advance(6, usize::MAX).next(), None);
    let second = wheel.insert(9, "second");
    assert_eq!(place(&wheel, second), (0, Some(8)));
    assert_eq!(wheel.advance(8, usize::MAX).next(), None);
    assert_eq!(place(&wheel, first), (0, Some(9)));
    assert_eq!(wheel.advance(9, usize::MAX).count(), 2);
}

#[test]
fn p9_time_does_not_go_backwards() {
    let mut wheel = Wheel::with_slots(64, 100);
    wheel.insert(150, ());
    assert_eq!(wheel.advance(120, usize::MAX).count(), 0);
    assert_eq!(wheel.advance(50, usize::MAX).count(), 0);
    assert_eq!(wheel.now(), 120);
    assert_eq!(wheel.advance(150, usize::MAX).count(), 1);
}

#[test]
fn moves_time_as_the_iterator_is_consumed() {
    let mut wheel = Wheel::with_slots(64, 0);
    for tick in [10, 20, 30] {
        wheel.insert(tick, tick);
    }
    let _unused = wheel.advance(100, usize::MAX);
    assert_eq!(wheel.now(), 0);
    let mut advance = wheel.advance(100, usize::MAX);
    assert_eq!(advance.next(), Some(10));
    assert_eq!(advance.next(), Some(20));
    assert_eq!((wheel.now(), wheel.len()), (20, 1));
    assert!(wheel.advance(100, usize::MAX).eq([30]));
    assert_eq!(wheel.now(), 100);
}

#[test]
fn stops_once_a_level_for_a_far_item() {
    let mut wheel = Wheel::with_slots(64, 0);
    let hour = 3_600_001;
    wheel.insert(hour, ());
    let mut stops = Vec::new();
    while let Some(wake) = wheel.next_wake() {
        stops.push(wake);
        let _ = wheel.advance(wake, usize::MAX).count();
    }
    let on_the_way = [18, 12, 6, 0].map(|bits| hour >> bits << bits);
    assert_eq!(stops, on_the_way);
}

/// An item that cascades at its own tick is not overtaken by one that was scheduled at level 0
/// later.
#[test]
fn empties_a_bucket_that_starts_now_before_level_0() {
    let mut wheel = Wheel::with_slots(4, 0);
    wheel.insert(16, "from level 2");
    assert_eq!(wheel.advance(15, usize::MAX).next(), None);
    wheel.insert(16, "from level 0");
    let (start, level, _) = wheel.bare.next_bucket().expect("two items");
    assert_eq!((start, level), (16, 2));
    assert_eq!(wheel.advance(16, usize::MAX).count(), 2);
}

#[test]
fn shows_its_state_but_not_its_items() {
    let mut wheel = Wheel::with_slots(64, 7);
    let token = wheel.insert(100, "secret");
    assert_eq!(
        format!("{wheel:?}"),
        "Wheel { now: 7, slots: 64, levels: 2, len: 1, next_wake: Some(64), .. }",
    );
    assert_eq!(format!("{token:?}"), "Token(0v1)");
    assert_eq!(
        format!("{:?}", wheel.advance(9, 3)),
        "Advance { wheel: Wheel { now: 7, slots: 64, levels: 2, len: 1, next_wake: Some(64), .. }, \
         target: 9, budget: 3, .. }",
    );
}

// --- one call cascades a bounded number of items ---

const MANY: u64 = 2 * CASCADE_LIMIT as u64 + 100;

/// A wheel of 64 slots with `MANY` items in the bucket `[4096, 8192)` of its level 2, due at the
/// ticks given by `due`.
fn crowded(due: impl Fn(u64) -> u64) -> (Wheel<u64>, Vec<Token>) {
    let mut wheel = Wheel::with_slots(64, 0);
    let tokens = (0..MANY).map(|n| wheel.insert(due(n), n)).collect();
    assert_eq!(wheel.next_wake(), Some(4096));
    (wheel, tokens)
}

#[test]
fn each_call_cascades_exactly_the_limit() {
    let (mut wheel, tokens) = crowded(|_| 5000);
    let moved = |wheel: &Wheel<u64>| super::on_level(wheel, 1).count();
    for calls in 1..=2 {
        assert_eq!(wheel.advance(4999, usize::MAX).count(), 0);
        assert_eq!(moved(&wheel), calls * CASCADE_LIMIT);
    }
    // The third call has some of its budget left, with which items reach level 0.
    assert_eq!(wheel.advance(4999, usize::MAX).count(), 0);
    assert_eq!(moved(&wheel), tokens.len() - (CASCADE_LIMIT - 100));
    assert_eq!(wheel.now(), 4992);
}

#[test]
fn ends_the_iterator_at_the_cascade_limit() {
    let (mut wheel, _) = crowded(|_| 4096);
    let mut advance = wheel.advance(5000, usize::MAX);
    for _ in 0..3 {
        assert_eq!(advance.next(), None);
    }
    assert_eq!(wheel.next_wake(), Some(wheel.now()));
    assert_eq!(wheel.advance(5000, usize::MAX).count(), 0);
    assert_eq!(wheel.advance(5000, usize::MAX).count() as u64, MANY);
}

#[test]
fn allows_every_change_to_a_half_cascaded_bucket() {
    let (mut wheel, tokens) = crowded(|n| 4096 + n / 3);
    assert_eq!(wheel.advance(4096, usize::MAX).next(), None);
    // Both halves: the rescheduled items at the front, and those still in the old bucket.
    let mut due: Vec<(u64, u64)> = Vec::new();
    for (n, &token) in tokens.iter().enumerate() {
        let n = n as u64;
        match n % 4 {
            0 => assert_eq!(wheel.remove(token), Some(n)),
            1 => {
                assert!(wheel.reschedule(token, 4096 + n / 2));
                due.push((4096 + n / 2, n));
            }
            2 => {
                assert!(wheel.reschedule(token, 10_000 + n));
                due.push((10_000 + n, n));
            }
            _ => due.push((4096 + n / 3, n)),
        }
        if n % 512 == 0 {
            inspect(&wheel);
        }
    }
    for n in MANY..MANY + 64 {
        wheel.insert(n - MANY + 4090, n);
        due.push(((n - MANY + 4090).max(4096), n));
    }
    inspect(&wheel);
    due.sort_unstable();
    let mut out = Vec::new();
    while let Some(wake) = wheel.next_wake() {
        let before = wheel.now();
        let items: Vec<u64> = wheel.advance(wake, usize::MAX).collect();
        assert!(before <= wake);
        out.extend(items.into_iter().map(|n| (wheel.now(), n)));
    }
    out.sort_unstable();
    assert_eq!(out, due);
}

/// With one cascade in each call, every partial state occurs.
#[test]
fn hands_out_the_same_on_the_smallest_budget() {
    for slots in [2, 4, 64] {
        let mut wheel = Wheel::with_slots(slots, 5);
        let mut ticks: Vec<u64> = (0..40).map(|n| 5 + n * n * n % 301).collect();
        for &tick in &ticks {
            wheel.insert(tick, tick);
        }
        ticks.sort_unstable();
        let mut out = Vec::new();
        while !wheel.is_empty() {
            let before = out.len();
            out.extend(super::advance(&mut wheel, 400, usize::MAX, 1));
            assert!(out[before..].iter().all(|&tick| tick <= wheel.now()));
            inspect(&wheel);
        }
        assert_eq!(out, ticks);
    }
}
