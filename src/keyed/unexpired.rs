//! A timer that was taken out of its set before it expired.

use tokio::time::Instant;

/// A keyed timer or a watch that has not expired: it was drained, or left when the wheel was shut
/// down.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unexpired<K, V> {
    /// The key it was set under.
    pub key: K,
    /// The value it was set with.
    pub value: V,
    /// When it would have expired.
    pub deadline: Instant,
}
