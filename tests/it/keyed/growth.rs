//! Sets that grow and shrink by hundreds of timers, whatever the hashes of their keys, against a
//! sorted map.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use tickwheel::{Expirations, KeyedTimers, TimerWheel};
use tokio::time::Instant;

use crate::support::{Numbers, advance, assert_balanced, ms};

#[derive(Debug)]
struct Key {
    number: u64,
    hash: u64,
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Key {}

/// A set of timers, and what it should hold: deadlines and values by key.
struct Run {
    wheel: TimerWheel,
    timers: KeyedTimers<Key, u64>,
    stream: Expirations<Key, u64>,
    pending: BTreeMap<u64, (Instant, u64)>,
    numbers: Numbers,
    hash: fn(u64) -> u64,
    /// One more than the highest number of a key.
    keys: u64,
    values: u64,
}

impl Run {
    fn new(hash: fn(u64) -> u64) -> Self {
        let wheel = TimerWheel::new();
        let (timers, stream) = wheel.keyed();
        Run {
            wheel,
            timers,
            stream,
            pending: BTreeMap::new(),
            numbers: Numbers(7),
            hash,
            keys: 0,
            values: 0,
        }
    }

    fn key(&self, number: u64) -> Key {
        let hash = (self.hash)(number);
        Key { number, hash }
    }

    /// One of the keys that have a timer.
    fn some_pending(&mut self) -> u64 {
        let from = self.numbers.below(self.keys);
        let mut later = self.pending.range(from..);
        let first = || self.pending.first_key_value();
        *later.next().or_else(first).expect("there is a timer").0
    }

    fn some_deadline(&mut self) -> Instant {
        Instant::now() + ms(1 + self.numbers.below(1_000))
    }

    fn set(&mut self, number: u64) {
        let (deadline, value) = (self.some_deadline(), self.values);
        self.values += 1;
        let replaced = self.timers.set_timer_at(self.key(number), value, deadline);
        let expected = self.pending.insert(number, (deadline, value));
        assert_eq!(replaced, Ok(expected.map(|(_, value)| value)));
    }

    fn remove(&mut self, number: u64) {
        let removed = self.timers.remove_timer(&self.key(number));
        let expected = self.pending.remove(&number);
        assert_eq!(removed, Ok(expected.map(|(_, value)| value)));
    }

    /// Sets new timers, or removes some, until there are this many; replaces and moves others
    /// meanwhile.
    fn resize(&mut self, size: usize) {
        while self.pending.len() != size {
            if self.pending.len() < size {
                self.set(self.keys);
                self.keys += 1;
            } else {
                let number = self.some_pending();
                self.remove(number);
            }
            if self.pending.is_empty() {
                continue;
            }
            let number = self.some_pending();
            match self.numbers.below(8) {
                0 => self.remove(number),
                1 => self.set(number),
                2 => {
                    let deadline = self.some_deadline();
                    let moved = self.timers.move_timer_at(&self.key(number), deadline);
                    assert_eq!(moved, Ok(true));
                    self.pending.entry(number).and_modify(|at| at.0 = deadline);
                }
                _ => {}
            }
        }
    }

    fn check(&self) {
        assert_eq!(self.timers.len(), self.pending.len());
        for number in 0..self.keys {
            let deadline = self.timers.deadline(&self.key(number));
            let expected = self.pending.get(&number).map(|&(deadline, _)| deadline);
            assert_eq!(deadline, expected, "key {number}");
        }
        assert_balanced(&self.wheel);
    }

    /// Receives what expires by then.
    async fn advance(&mut self, by: u64) {
        advance(&self.wheel, ms(by)).await;
        while let Ok(expired) = self.stream.try_recv() {
            let expected = self.pending.remove(&expired.key.number);
            assert_eq!(expected, Some((expired.deadline, expired.value)));
            assert!(expired.deadline <= Instant::now());
        }
        let mut left = self.pending.values();
        assert!(left.all(|&(deadline, _)| deadline > Instant::now()));
    }

    fn drain(&mut self) {
        let drained = self.timers.drain().expect("it is open");
        assert!(drained.is_sorted_by_key(|timer| timer.deadline));
        assert_eq!(drained.len(), self.pending.len());
        for timer in drained {
            let expected = self.pending.remove(&timer.key.number);
            assert_eq!(expected, Some((timer.deadline, timer.value)));
        }
    }
}

async fn grows_and_shrinks(hash: fn(u64) -> u64, unit: usize) {
    let mut run = Run::new(hash);
    for wave in [8, 1, 16, 3, 20, 0, 9] {
        run.resize(wave * unit);
        run.check();
        run.advance(250).await;
        run.check();
    }
    run.resize(15 * unit);
    run.drain();
    run.check();
    run.resize(6 * unit);
    run.advance(1_000).await;
    assert!(run.pending.is_empty());
    run.check();
}

#[tokio::test(start_paused = true)]
async fn keeps_every_timer_of_a_set_that_grows_and_shrinks() {
    grows_and_shrinks(|number| number, 100).await;
}

#[tokio::test(start_paused = true)]
async fn keeps_every_timer_of_keys_that_hash_alike() {
    grows_and_shrinks(|number| number % 5, 25).await;
    grows_and_shrinks(|_| 0, 15).await;
}
