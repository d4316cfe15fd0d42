//! A timer that has expired.

use tokio::time::Instant;

/// A keyed timer that has expired, or was drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Expired<K, V> {
    /// The key it was set under.
    pub key: K,
    /// The value it was set with.
    pub value: V,
    /// When it was due: the instant it was last set or moved to.
    pub deadline: Instant,
    /// How many periods of a [repeating timer](crate::KeyedTimers::set_interval) had passed unnoticed when this one was
    /// delivered. They are not made up for. Zero for every other timer.
    pub missed: u64,
}
