//! Random scripts on a set, with notes that arrive late and in any order, against a sorted map.

use std::collections::BTreeMap;

use super::*;

/// A small generator of random numbers: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

const KEYS: u64 = 12;

/// One script. The oracle has the deadlines.
fn play(seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (shared, set) = set();
    let (mut actor, mut sent, mut oracle) = (Actor::default(), Vec::new(), BTreeMap::new());
    let mut now = 0;
    for _ in 0..300 {
        let (key, at) = (random.below(KEYS), now + random.below(40));
        match random.below(10) {
            0..3 => {
                let replaced = set.set(key, (), tick(at), None).expect("it is open");
                assert_eq!(replaced.is_some(), oracle.insert(key, at).is_some());
            }
            3..5 => {
                let is_there = oracle.get_mut(&key).map(|deadline| *deadline = at);
                assert_eq!(set.move_to(&key, tick(at)), Ok(is_there.is_some()));
            }
            5..8 => {
                let removed = set.remove(&key).expect("it is open");
                assert_eq!(removed.is_some(), oracle.remove(&key).is_some());
            }
            // Some notes arrive, in any order.
            8 => {
                sent.extend(notes(&shared));
                for _ in 0..random.below(5).min(sent.len() as u64) {
                    let n = usize::try_from(random.below(sent.len() as u64)).expect("it is small");
                    actor.apply(&sent.swap_remove(n));
                }
            }
            // Time passes. A note that is needed by then has arrived.
            _ => {
                let next = now + random.below(8);
                sent.extend(notes(&shared));
                while let Some(n) = sent.iter().position(|note| note.tick <= next) {
                    actor.apply(&sent.swap_remove(n));
                }
                now = next;
                actor.reach(now);
                while actor.visit_once(&set, now + 1, usize::MAX, now) > 0 {}
                for key in delivered(&set) {
                    let due = oracle.remove(&key);
                    assert!(due.is_some_and(|due| due <= now), "seed {seed}: {due:?}");
                }
                let late = oracle.iter().find(|&(_, &deadline)| deadline <= now);
                assert!(late.is_none(), "seed {seed}: {late:?} at {now}");
            }
        }
    }
    sent.extend(notes(&shared));
    while !sent.is_empty() {
        let n = usize::try_from(random.below(sent.len() as u64)).expect("it is small");
        actor.apply(&sent.swap_remove(n));
    }
    // N4 and N5: the wheel follows the number of timers.
    let (scheduled, timers) = (actor.scheduled(), oracle.len());
    assert!(
        (timers..=timers + MAX_KEPT).contains(&scheduled),
        "seed {seed}"
    );
}

#[test]
fn p4_p5_p6_notes_in_any_order_lose_no_timer() {
    for seed in 1..3_000 {
        play(seed);
    }
}
