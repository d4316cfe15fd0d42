//! Random numbers from a seed that can be repeated.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// The environment variable that repeats a seed.
const SEED: &str = "CONFORMANCE_SEED";

/// The seed of this run: from the environment, else a new one. Prints it, which a test shows when
/// it fails.
pub(super) fn seed(check: &str) -> u64 {
    let given = std::env::var(SEED).ok();
    let given = given.and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| RandomState::new().hash_one(0_u8));
    println!("{check}: {SEED}={seed} repeats it");
    seed
}

/// A stream of random numbers: `SplitMix64`.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    /// The stream with this number, of those that a seed gives.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        Random(seed ^ stream.wrapping_mul(0xd605_0f5b_5a1c_6d1f))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below the bound.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("it is below the bound")
    }

    /// True once in so many times.
    pub(super) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of them.
    pub(super) fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }
}
