//! Random numbers from a seed that can be repeated.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// The environment variable that repeats a seed: its check makes the same choices.
const SEED: &str = "CONFORMANCE_SEED";

/// The seed of this run: from the environment, else a new one. Prints it, which a test shows when
/// it fails.
pub(super) fn seed(check: &str) -> u64 {
    let given = std::env::var(SEED).ok();
    let given = given.map(|seed| seed.parse().expect("CONFORMANCE_SEED is a number"));
    let seed = given.unwrap_or_else(|| RandomState::new().hash_one(0_u8));
    println!("{check}: {SEED}={seed} repeats it");
    seed
}

/// The stream with this number, of those that a seed gives.
pub(super) fn stream(seed: u64, stream: u64) -> fastrand::Rng {
    fastrand::Rng::with_seed(seed ^ stream.wrapping_mul(0xd605_0f5b_5a1c_6d1f))
}
