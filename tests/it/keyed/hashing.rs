//! How keys are hashed: by random seeds, or by the hasher that was given.

use std::cell::Cell;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use tickwheel::TimerWheel;

use crate::support::ms;

thread_local! {
    static COMPARED: Cell<u64> = const { Cell::new(0) };
}

/// Counts comparisons with other keys.
struct Key(u64);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        COMPARED.set(COMPARED.get() + u64::from(self.0 != other.0));
        self.0 == other.0
    }
}

impl Eq for Key {}

/// Makes all keys collide.
#[derive(Default)]
struct Constant;

impl Hasher for Constant {
    fn finish(&self) -> u64 {
        0
    }
    fn write(&mut self, _: &[u8]) {}
}

/// Sees the whole key, in the upper half of the hash alone.
#[derive(Default)]
struct UpperHalf(u64);

impl Hasher for UpperHalf {
    fn finish(&self) -> u64 {
        self.0 << 32
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0 << 8 | u64::from(*byte);
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

const KEYS: u64 = 1000;

macro_rules! comparisons {
    ($timers:expr) => {{
        let timers = $timers;
        COMPARED.set(0);
        for key in 0..KEYS {
            timers.set_timer(Key(key), key, ms(1000)).unwrap();
        }
        for key in 0..KEYS {
            assert_eq!(timers.remove_timer(&Key(key)).unwrap(), Some(key));
        }
        COMPARED.get()
    }};
}

#[tokio::test(start_paused = true)]
async fn hashes_with_random_seeds_by_default() {
    let wheel = TimerWheel::new();
    let (timers, _stream) = wheel.keyed::<Key, u64>();
    let _: &tickwheel::KeyedTimers<Key, u64, std::hash::RandomState> = &timers;
    let compared = comparisons!(timers);
    assert!(compared < 10, "{compared} of 2,000 calls found other keys");
}

#[tokio::test(start_paused = true)]
async fn hashes_with_the_hasher_that_was_given() {
    let wheel = TimerWheel::new();
    let hasher = BuildHasherDefault::<Constant>::default();
    let (timers, _stream) = wheel.keyed_with_hasher::<Key, u64, _>(hasher);
    assert!(comparisons!(&timers) > KEYS * KEYS / 4, "all keys collide");
    timers.set_timer(Key(1), 1, ms(1)).unwrap();
    let weak = timers.downgrade();
    assert!(
        weak.upgrade()
            .is_some_and(|timers| timers.contains(&Key(1)))
    );
}

#[tokio::test(start_paused = true)]
async fn tells_keys_apart_by_either_half_of_their_hash() {
    let wheel = TimerWheel::new();
    let hasher = BuildHasherDefault::<UpperHalf>::default();
    let (timers, _stream) = wheel.keyed_with_hasher::<Key, u64, _>(hasher);
    let compared = comparisons!(timers);
    assert!(compared < 10, "{compared} of 2,000 calls found other keys");
}
