//! The expiration of a timer.

use tokio::time::Instant;

/// A keyed timer or a watch that has expired, was drained, or had not expired at the shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Expired<K, V> {
    /// The key it was set under.
    pub key: K,
    /// The value it was set with.
    pub value: V,
    /// When it was due: the instant that a timer was last set or moved to, that a repeating one had reached, or at which a
    /// watch was idle or reached its maximum age. For a timer that had not expired, the instant at which it would have
    /// been due.
    pub deadline: Instant,
    /// How many further periods of a [repeating timer](crate::KeyedTimers::set_interval) had passed when this expiration
    /// was delivered. They get no expirations of their own. Zero for every other timer.
    pub missed: u64,
}
