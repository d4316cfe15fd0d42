//! Bugs that other timing wheels have or had. Each test has the shape of one, and names the system.

use super::{Wheel, inspect, levels};

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
                        let mut wheel = Wheel::starting_at(slots, origin);
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
                        let mut wheel = Wheel::starting_at(slots, origin);
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
            let mut wheel = Wheel::starting_at(slots, origin);
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
                    let mut wheel = Wheel::starting_at(size, origin);
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
                let mut wheel = Wheel::starting_at(size, 0);
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

/// akka: a wheel whose time was stale after idling fired a burst of fresh timers early. go-zero,
/// which counts ticks, stayed late.
#[test]
fn fires_fresh_items_on_time_after_a_long_silence() {
    let mut wheel = Wheel::new(64);
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
    let mut wheel = Wheel::new(64);
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
    let mut wheel = Wheel::new(64);
    let old = wheel.insert(1, "old");
    assert!(wheel.advance(1, usize::MAX).eq(["old"]));
    let new = wheel.insert(10, "new");
    assert_ne!(old, new);
    assert_eq!(wheel.remove(old), None);
    assert_eq!(wheel.remove(new), Some("new"));
}

/// Netty counted a cancelled timeout twice, and Dubbo's copy of it still does.
#[test]
fn counts_a_double_removal_once() {
    let mut wheel = Wheel::new(64);
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
        let mut wheel = Wheel::starting_at(64, 100);
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
    let mut wheel = Wheel::new(64);
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

/// `RussellLuo/timingwheel` recurses until the stack is gone when it is given no slots.
#[test]
fn refuses_invalid_numbers_of_slots() {
    for slots in [0, 1, 3, 63, 65, 4095, 8192, usize::MAX] {
        let made = std::panic::catch_unwind(|| Wheel::<()>::new(slots));
        let refusal = made.expect_err("no such wheel");
        let refusal = refusal.downcast_ref::<String>().expect("a message");
        assert!(refusal.contains(&format!("slots is {slots}")), "{refusal}");
    }
    for bits in 1..=12 {
        assert!(Wheel::<()>::new(1 << bits).is_empty());
    }
}
