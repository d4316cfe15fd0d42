//! Random scripts, with many ticks at the edges of buckets, of levels and of time.

use proptest::collection::vec;
use proptest::prelude::*;

use super::script::{Move, Op, SLOTS, When, World};
use super::{Wheel, level_of, levels};

/// Distances: small ones, those around every power of two, huge ones, and any.
fn ticks() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![
        6 => 0..20_u64,
        3 => 0..5_000_u64,
        6 => (0..40_u32, 0..3_u64).prop_map(|(bits, more)| (1 << bits) - 1 + more),
        2 => (40..64_u32, 0..3_u64).prop_map(|(bits, more)| (1 << bits) - 1 + more),
        1 => (0..3_u64).prop_map(|less| u64::MAX - less),
        1 => any::<u64>(),
    ]
}

/// Beginnings: anywhere, with weight on both ends of time and on the edges of buckets.
fn origin() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => ticks(),
        2 => ticks().prop_map(|ticks| u64::MAX - ticks),
        3 => (0..64_u32, any::<u64>(), -2..3_i64).prop_map(|(bits, high, near)| {
            (high >> bits << bits).wrapping_add_signed(near)
        }),
        1 => any::<u64>(),
    ]
}

fn slots() -> impl Strategy<Value = usize> {
    proptest::sample::select(SLOTS.to_vec())
}

fn when() -> impl Strategy<Value = When> + Clone {
    prop_oneof![
        12 => ticks().prop_map(When::In),
        1 => ticks().prop_map(When::Ago),
        2 => (0..3_u64).prop_map(When::AfterWake),
        2 => (0..3_u64).prop_map(When::BeforeWake),
        2 => (0..3_u64).prop_map(When::AfterEarliest),
        1 => any::<u64>().prop_map(When::At),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let name = 0..64_usize;
    let some = prop_oneof![1 => Just(0), 4 => 1..4_usize, 6 => Just(usize::MAX)];
    // Most steps are small, because huge ones empty the wheel.
    let to = prop_oneof![
        6 => (0..70_u64).prop_map(When::In),
        3 => (0..3_u64).prop_map(When::AfterWake),
        2 => (0..3_u64).prop_map(When::BeforeWake),
        2 => (0..3_u64).prop_map(When::AfterEarliest),
        2 => when(),
    ];
    let place = prop_oneof![
        4 => when().prop_map(Move::To),
        2 => ticks().prop_map(Move::Later),
        2 => ticks().prop_map(Move::Earlier),
        1 => Just(Move::Same),
    ];
    prop_oneof![
        8 => when().prop_map(Op::Insert),
        2 => name.clone().prop_map(Op::Remove),
        1 => name.clone().prop_map(Op::RemoveTwice),
        5 => (name.clone(), place).prop_map(|(name, place)| Op::Reschedule(name, place)),
        1 => name.prop_map(Op::Touch),
        6 => (to, some.clone(), some)
            .prop_map(|(to, budget, take)| Op::Advance { to, budget, take }),
    ]
}

proptest! {
    #[test]
    fn behaves_like_a_sorted_set(
        slots in slots(),
        origin in origin(),
        ops in vec(op(), 1..60),
    ) {
        let mut world = World::new(slots, origin);
        for op in ops {
            world.play(op);
        }
        world.finish();
    }

    #[test]
    fn advance_cut_into_parts_yields_the_same(
        slots in slots(),
        origin in origin(),
        ops in vec(op(), 1..30),
        to in when(),
        mut parts in vec((when(), prop_oneof![0..4_usize, Just(usize::MAX)]), 0..6),
    ) {
        let mut world = World::new(slots, origin);
        for op in ops {
            world.play(op);
        }
        parts.sort_by_key(|&(part, _)| world.tick(part));
        let parts: Vec<_> = parts.into_iter().map(|(part, n)| (world.tick(part), n)).collect();
        world.cut(world.tick(to), &parts);
        world.cut(u64::MAX, &parts);
        // The parts are also taken in the worst order, back and forth.
        let zigzag: Vec<_> = parts.iter().rev().chain(&parts).copied().collect();
        world.cut(world.tick(to), &zigzag);
    }

    #[test]
    fn an_item_goes_to_the_lowest_level_that_reaches_it(
        slots in slots(),
        origin in origin(),
        ticks in ticks(),
    ) {
        let mut wheel = Wheel::with_slots(slots, origin);
        let tick = origin.saturating_add(ticks);
        let token = wheel.insert(tick, ());
        let bits = slots.trailing_zeros() as usize;
        let reaches = |level: usize| {
            (tick >> (level * bits)) - (origin >> (level * bits)) < slots as u64
        };
        let lowest = (0..levels(slots)).find(|&level| reaches(level));
        prop_assert_eq!(Some(level_of(&wheel, token)), lowest);
    }

    #[test]
    fn p13_an_item_costs_at_most_one_stop_a_level(
        slots in slots(),
        origin in origin(),
        ticks in vec(ticks(), 1..6),
    ) {
        let mut wheel = Wheel::with_slots(slots, origin);
        let mut stops = 0;
        for ticks in &ticks {
            let token = wheel.insert(origin.saturating_add(*ticks), ());
            stops += 1 + level_of(&wheel, token);
        }
        let mut out = 0;
        while let Some(wake) = wheel.next_wake() {
            prop_assert!(stops > 0, "one stop too many at {}", wake);
            stops -= 1;
            out += wheel.advance(wake, usize::MAX).count();
        }
        prop_assert_eq!(out, ticks.len());
    }

    #[test]
    fn p9_a_step_back_changes_nothing(
        slots in slots(),
        origin in origin(),
        ticks in vec(ticks(), 0..6),
        back in ticks(),
    ) {
        prop_assume!(origin < u64::MAX);
        let mut wheel = Wheel::with_slots(slots, origin);
        for &ticks in &ticks {
            wheel.insert(origin.saturating_add(ticks).max(origin + 1), ());
        }
        let wake = wheel.next_wake();
        let out = wheel.advance(origin.saturating_sub(back), usize::MAX).count();
        prop_assert_eq!(out, 0);
        prop_assert_eq!(wheel.now(), origin);
        prop_assert_eq!(wheel.next_wake(), wake);
    }
}
