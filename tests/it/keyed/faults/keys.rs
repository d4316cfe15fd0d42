//! Keys that panic in `Hash`, `Eq` or `Drop`.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use tickwheel::{Expirations, KeyedTimers, TimerWheel};
use tokio::time::Instant;

use super::{Fuse, unwinds};
use crate::support::{advance, assert_balanced, ms};

#[derive(Debug, Clone)]
struct Key {
    number: u64,
    hash: Fuse,
    eq: Fuse,
    drop: Fuse,
}

impl Key {
    fn new(number: u64) -> Self {
        Key {
            number,
            hash: Fuse::default(),
            eq: Fuse::default(),
            drop: Fuse::default(),
        }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.check("Hash");
        // There are few hashes, so that keys are compared.
        (self.number % 4).hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.eq.check("Eq");
        other.eq.check("Eq");
        self.number == other.number
    }
}

impl Eq for Key {}

impl Drop for Key {
    fn drop(&mut self) {
        self.drop.check("Drop of a key");
    }
}

/// Receives everything in the stream. Returns numbers and values.
fn received<V: Send + 'static>(stream: &mut Expirations<Key, V>) -> Vec<(u64, V)> {
    std::iter::from_fn(|| stream.try_recv().ok())
        .map(|expired| (expired.key.number, expired.value))
        .collect()
}

/// Sets the timers below `count`, all for the same deadline. `bad` is one of the keys.
fn set_with(timers: &KeyedTimers<Key, u64>, bad: &Key, count: u64) {
    for number in 0..count {
        let key = if number == bad.number {
            bad.clone()
        } else {
            Key::new(number)
        };
        timers.set_timer(key, number, ms(10)).unwrap();
    }
}

/// Asserts that every call with this key unwinds and changes nothing.
fn assert_calls_unwind(wheel: &TimerWheel, timers: &KeyedTimers<Key, u64>, bad: &Key) {
    let (before, len) = (wheel.metrics(), timers.len());
    assert!(unwinds(|| timers.set_timer(bad.clone(), 8, ms(50))));
    assert!(unwinds(|| timers.set_interval(bad.clone(), 8, ms(50))));
    assert!(unwinds(|| timers.move_timer(bad, ms(50))));
    assert!(unwinds(|| timers.remove_timer(bad)));
    assert!(unwinds(|| timers.deadline(bad)));
    assert!(unwinds(|| timers.contains(bad)));
    let after = wheel.metrics();
    assert_eq!(after.keyed_set, before.keyed_set);
    assert_eq!((after.keyed_moved, after.keyed_removed), (0, 0));
    assert_eq!(timers.len(), len);
}

#[tokio::test(start_paused = true)]
async fn p12_panic_of_hash_unwinds_into_the_caller() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let start = Instant::now();
    let bad = Key::new(7);
    timers.set_timer(bad.clone(), 7, ms(10)).unwrap();
    for number in 100..110 {
        timers.set_timer(Key::new(number), number, ms(10)).unwrap();
    }
    bad.hash.light();
    let value = Arc::new(());
    let (arcs, _arc_stream) = wheel.keyed();
    assert!(unwinds(|| arcs.set_timer(
        bad.clone(),
        Arc::clone(&value),
        ms(10)
    )));
    assert!(unwinds(|| arcs.set_interval(
        bad.clone(),
        Arc::clone(&value),
        ms(10)
    )));
    assert_eq!(Arc::strong_count(&value), 1, "it was not set");
    assert!(arcs.is_empty());
    assert_calls_unwind(&wheel, &timers, &bad);
    // The table grows without hashing a key again.
    for number in 110..1000 {
        timers.set_timer(Key::new(number), number, ms(10)).unwrap();
    }
    for number in 100..1000 {
        assert!(timers.contains(&Key::new(number)), "{number}");
    }
    assert_eq!(timers.len(), 901);
    bad.hash.quench();
    assert_eq!(timers.deadline(&bad), Some(start + ms(10)));
    bad.hash.light();
    advance(&wheel, ms(10)).await;
    let fired = received(&mut stream);
    assert_eq!(fired[0], (7, 7), "it fires all the same");
    assert_eq!(fired.len(), 901);
    assert_eq!(timers.len(), 0);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p12_drains_a_key_whose_hash_panics() {
    let wheel = TimerWheel::new();
    let (timers, _stream) = wheel.keyed();
    let bad = Key::new(7);
    set_with(&timers, &bad, 20);
    bad.hash.light();
    let drained = timers.drain().unwrap();
    assert_eq!(drained.len(), 20);
    assert_eq!(timers.len(), 0);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p12_panic_of_eq_unwinds_into_the_caller() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let start = Instant::now();
    let bad = Key::new(5);
    set_with(&timers, &bad, 40);
    bad.eq.light();
    assert_calls_unwind(&wheel, &timers, &bad);
    assert_eq!(timers.len(), 40);
    bad.eq.quench();
    assert_eq!(timers.deadline(&bad), Some(start + ms(10)));

    for number in (0..40).filter(|&n| n != 5) {
        timers.move_timer(&Key::new(number), ms(20)).unwrap();
    }
    assert_eq!(timers.remove_timer(&Key::new(9)), Ok(Some(9)));
    // No key is compared when a timer fires.
    bad.eq.light();
    advance(&wheel, ms(10)).await;
    assert_eq!(received(&mut stream), [(5, 5)]);
    advance(&wheel, ms(10)).await;
    assert_eq!(received(&mut stream).len(), 38);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p12_survives_keys_whose_drop_panics() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let bad = Key::new(1);
    for _ in 0..3 {
        timers.set_timer(bad.clone(), 1, ms(10)).unwrap();
    }
    timers.set_timer(Key::new(2), 2, ms(10)).unwrap();
    let again = bad.clone();
    bad.drop.light();
    let replaced = timers.set_timer(again, 3, ms(20));
    let removed = timers.remove_timer(&bad);
    bad.drop.quench();
    assert_eq!(replaced, Ok(Some(1)), "the answer is not lost");
    assert_eq!(removed, Ok(Some(3)));
    advance(&wheel, ms(20)).await;
    assert_eq!(received(&mut stream), [(2, 2)]);
    assert_balanced(&wheel);
}
