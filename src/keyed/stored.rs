//! What a set keeps under a key: a value, or a value that is watched for activity.

use crate::tick::Timestamp;

/// A value in a set, and what decides when it is really due.
pub(crate) trait Stored: Send + 'static {
    /// What comes out of the stream.
    type Value: Send + 'static;
    /// What the values of a set have in common.
    type Rules: Send + Sync + 'static;
    /// Whether it is only when an expiration is handed out that it is decided to be one. Until then the value stays in
    /// the set.
    const CLAIMED: bool;

    /// When it is due as far as is known now; not before that does it have to be looked at.
    fn due(&self, deadline: Timestamp, now: Timestamp, rules: &Self::Rules) -> Timestamp;

    /// The last word: whether it expires, now that its expiration is handed out.
    fn claim(&self, deadline: Timestamp, now: Timestamp, rules: &Self::Rules) -> Claim;

    /// It is not going to expire any more. Returns when it would have, if it had not ended before.
    fn end(&self, deadline: Timestamp, now: Timestamp, rules: &Self::Rules) -> Option<Timestamp>;

    fn into_value(self) -> Self::Value;
}

/// Whether something expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It does; it has been due since then.
    Expired(Timestamp),
    /// It does not any more, and is to be looked at again.
    Later,
}

/// A value whose deadline is all there is to know.
pub(crate) struct Plain<V>(pub(crate) V);

impl<V: Send + 'static> Stored for Plain<V> {
    type Value = V;
    type Rules = ();
    const CLAIMED: bool = false;

    fn due(&self, deadline: Timestamp, _: Timestamp, (): &()) -> Timestamp {
        deadline
    }

    fn claim(&self, deadline: Timestamp, _: Timestamp, (): &()) -> Claim {
        Claim::Expired(deadline)
    }

    fn end(&self, deadline: Timestamp, _: Timestamp, (): &()) -> Option<Timestamp> {
        Some(deadline)
    }

    fn into_value(self) -> V {
        self.0
    }
}
