//! A few random bits, to spread what instances do at once.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

/// A duration up to a tenth longer, at random.
pub(crate) fn jittered(duration: Duration) -> Duration {
    // The keys of a hasher are random, and those of the next one differ.
    let random = RandomState::new().hash_one(0_u8) % 1024;
    duration + duration / 10 * u32::try_from(random).unwrap_or(0) / 1024
}
