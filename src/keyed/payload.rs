//! What a set stores for each timer, and how its reader decides about it.

use super::expired::Cause;
use crate::shared::Shared;
use crate::shared::stalls::Gap;
use crate::tick::Timestamp;

/// What counts as silence in a set of watches.
pub(crate) struct Silence<'a> {
    pub(crate) shared: &'a Shared,
    /// How long the reader was kept from deciding.
    pub(crate) gap: Gap,
}

impl Silence<'_> {
    /// When something is idle that was last active at `last`, and may be silent for `idle`
    /// nanoseconds.
    pub(crate) fn idle_at(&self, last: u64, idle: u64) -> Timestamp {
        let due = last.saturating_add(idle);
        let falls = self.shared.stalls.put_off(due, idle);
        Timestamp::at(falls.max(self.gap.put_off(due, idle)))
    }
}

/// Whether a timer with this value may expire for this reason. The receiver may keep it.
pub(crate) type MayExpire<'a, V> = dyn FnMut(&mut V, Cause) -> bool + 'a;

/// A value in a set. It decides when its timer expires.
pub(crate) trait Payload {
    /// The value that the reader receives.
    type Value;
    /// Whether timers are found by their key.
    const KEYED: bool;

    /// The deadline as far as it is known now. Nobody need look at the timer before that.
    fn due(&self, deadline: Timestamp, now: Timestamp, silence: &Silence<'_>) -> Timestamp;

    /// Decides, once, whether the timer expires as it is received. Returns the deadline that was
    /// reached. `None` if the timer does not expire yet: then [`due`](Self::due) is later than
    /// `now`, or the next call decides. Nothing has changed if `may_expire` unwinds.
    fn expire(
        &mut self,
        deadline: &mut Timestamp,
        now: Timestamp,
        silence: &Silence<'_>,
        may_expire: &mut MayExpire<'_, Self::Value>,
    ) -> Option<(Timestamp, Cause)>;

    /// Ends the value of a timer that is taken out otherwise. Returns the deadline it would have
    /// reached.
    fn end(&self, deadline: Timestamp, now: Timestamp, silence: &Silence<'_>) -> Timestamp;

    fn into_value(self) -> Self::Value;

    /// The payload of a timer that its handler sets again. `None`: it has ended.
    fn again(value: Self::Value) -> Option<Self>
    where
        Self: Sized;
}

/// The value of a timer that expires at its deadline.
pub(crate) struct Plain<V>(pub(crate) V);

impl<V> Payload for Plain<V> {
    type Value = V;
    const KEYED: bool = true;

    fn due(&self, deadline: Timestamp, _: Timestamp, _: &Silence<'_>) -> Timestamp {
        deadline
    }

    fn expire(
        &mut self,
        deadline: &mut Timestamp,
        _: Timestamp,
        _: &Silence<'_>,
        _: &mut MayExpire<'_, V>,
    ) -> Option<(Timestamp, Cause)> {
        Some((*deadline, Cause::Deadline))
    }

    fn end(&self, deadline: Timestamp, _: Timestamp, _: &Silence<'_>) -> Timestamp {
        deadline
    }

    fn into_value(self) -> V {
        self.0
    }

    fn again(value: V) -> Option<Self> {
        Some(Plain(value))
    }
}
