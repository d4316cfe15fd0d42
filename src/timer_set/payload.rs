//! The values of a set: plain ones, and those that are watched for activity.

use super::Cause;
use crate::tick::Timestamp;

/// A value in a set. It decides when its timer expires.
pub(crate) trait Payload {
    /// The value that is delivered.
    type Value;
    /// Data that all values of a set share.
    type Rules;
    /// Whether timers are found by their key.
    const KEYED: bool;

    /// The deadline as far as it is known now. The timer need not be processed before that.
    fn due(&self, deadline: Timestamp, now: Timestamp, rules: &Self::Rules) -> Timestamp;

    /// Decides, once, whether the timer expires; the actor calls it at delivery. Returns the deadline that was reached.
    /// `None` if the timer does not expire yet: then [`due`](Self::due) is later than before.
    fn expire(
        &self,
        deadline: Timestamp,
        now: Timestamp,
        rules: &Self::Rules,
    ) -> Option<(Timestamp, Cause)>;

    /// Ends the value of a timer that does not expire. Returns the deadline it would have reached. The timer keeps that
    /// deadline, so a second call returns the same.
    fn end(
        &mut self,
        deadline: Timestamp,
        now: Timestamp,
        rules: &Self::Rules,
    ) -> (Timestamp, Cause);

    fn into_value(self) -> Self::Value;
}

/// A value whose timer expires at its deadline.
pub(crate) struct Plain<V>(pub(crate) V);

impl<V> Payload for Plain<V> {
    type Value = V;
    type Rules = ();
    const KEYED: bool = true;

    fn due(&self, deadline: Timestamp, _: Timestamp, (): &()) -> Timestamp {
        deadline
    }

    fn expire(&self, deadline: Timestamp, _: Timestamp, (): &()) -> Option<(Timestamp, Cause)> {
        Some((deadline, Cause::Deadline))
    }

    fn end(&mut self, deadline: Timestamp, _: Timestamp, (): &()) -> (Timestamp, Cause) {
        (deadline, Cause::Deadline)
    }

    fn into_value(self) -> V {
        self.0
    }
}
