//! Random scripts on a set, with notes that arrive late, a wheel that goes in parts of a tick, and
//! a reader that is late, against a sorted map.

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

/// A timer as it should be.
#[derive(Debug, Clone, Copy)]
struct Timer {
    tick: u64,
    /// The order of arming.
    number: u64,
}

struct World {
    random: Random,
    shared: Arc<Shared>,
    set: Keyed,
    actor: Actor,
    oracle: BTreeMap<u64, Timer>,
    armed: u64,
    now: u64,
    seed: u64,
}

impl World {
    fn timer(&mut self) -> Timer {
        self.armed += 1;
        Timer {
            tick: self.now + self.random.below(40),
            number: self.armed,
        }
    }

    fn step(&mut self) {
        let key = self.random.below(KEYS);
        match self.random.below(16) {
            0..4 => {
                let new = self.timer();
                let replaced = self.set.set(hash(key), key, (), tick(new.tick), None);
                let expected = self.oracle.insert(key, new);
                assert_eq!(replaced.expect("it is open").is_some(), expected.is_some());
            }
            4..6 => {
                let new = self.timer();
                let is_there = self.oracle.get_mut(&key).map(|timer| *timer = new);
                let moved = self.set.move_to(hash(key), &key, tick(new.tick));
                assert_eq!(moved, Ok(is_there.is_some()));
            }
            6..10 => {
                let removed = self.set.remove(hash(key), &key).expect("it is open");
                assert_eq!(removed.is_some(), self.oracle.remove(&key).is_some());
            }
            // Some notes arrive.
            10 | 11 => {
                self.actor.take(&self.shared);
                for _ in 0..self.random.below(5) {
                    self.actor.apply_next();
                }
            }
            // The wheel goes on. What is needed by then has arrived.
            12 | 13 => {
                self.now += self.random.below(8);
                self.actor.take(&self.shared);
                let needed = |command: &Command| !matches!(command, Command::Note { tick, .. } if *tick > self.now);
                if let Some(last) = self.actor.queued.iter().rposition(needed) {
                    (0..=last).for_each(|_| self.actor.apply_next());
                }
                // Sometimes it comes to a part of the last tick.
                let turns = self.random.below(4);
                for _ in 0..turns {
                    (self.actor.wheel).fire(
                        self.now,
                        2,
                        Timestamp::MIN,
                        &self.shared.told_before.0,
                    );
                }
                if turns == 0 {
                    self.complete();
                }
            }
            14 => {
                for _ in 0..self.random.below(4) {
                    if let Ok(key) = self.set.try_recv() {
                        self.check(key);
                    }
                }
            }
            _ if self.random.below(20) == 0 => {
                let mut all: Vec<_> = std::mem::take(&mut self.oracle).into_iter().collect();
                all.sort_unstable_by_key(|(_, timer)| (timer.tick, timer.number));
                let keys = all.into_iter().map(|(key, _)| key);
                assert!(
                    self.set.drained().into_iter().eq(keys),
                    "seed {}",
                    self.seed
                );
            }
            _ => (self.actor.wheel).dismantle(3, &self.shared.set_keys),
        }
        assert_eq!(self.set.len(), self.oracle.len());
    }

    /// The wheel comes to the end of this tick: everything that is due is received, in order.
    fn complete(&mut self) {
        self.actor.take(&self.shared);
        while self
            .actor
            .wheel
            .fire(self.now, 3, Timestamp::MIN, &self.shared.told_before.0)
            .0
            <= self.now
        {}
        if self.random.below(2) == 0 {
            return;
        }
        // Notes for overdue timers are on their way, and those do not count.
        if !self.actor.queued.is_empty() {
            return;
        }
        let received = self.set.received();
        let mut due: Vec<_> = (self.oracle.iter())
            .filter(|(_, timer)| timer.tick <= self.now)
            .map(|(key, timer)| (timer.tick, timer.number, *key))
            .collect();
        due.sort_unstable();
        let due: Vec<_> = due.into_iter().map(|(.., key)| key).collect();
        assert_eq!(received, due, "seed {} at {}", self.seed, self.now);
        self.oracle.retain(|_, timer| timer.tick > self.now);
    }

    fn check(&mut self, key: u64) {
        let due = self.oracle.remove(&key);
        let is_due = due.is_some_and(|due| due.tick <= self.now);
        assert!(is_due, "seed {}: {key} at {}: {due:?}", self.seed, self.now);
    }
}

fn play(seed: u64) {
    let (shared, set) = set();
    let mut world = World {
        random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
        shared,
        set,
        actor: Actor::new(),
        oracle: BTreeMap::new(),
        armed: 0,
        now: 0,
        seed,
    };
    for _ in 0..300 {
        world.step();
    }
    // In the end everything comes, and nothing stays on the wheel.
    for _ in 0..60 {
        world.now += 1;
        world.actor.reach(&world.shared, world.now);
        for key in world.set.received() {
            world.check(key);
        }
        let late = (world.oracle.values()).find(|timer| timer.tick <= world.now);
        assert!(late.is_none(), "seed {seed}: {late:?} at {}", world.now);
    }
    assert!(world.oracle.is_empty());
    world.actor.reach(&world.shared, world.now + 1);
    assert_eq!(
        (world.actor.scheduled(), world.set.kept()),
        (0, 0),
        "seed {seed}"
    );
}

#[test]
fn p4_p5_p6_late_notes_and_readers_lose_no_timer() {
    for seed in 1..3_000 {
        play(seed);
    }
}
