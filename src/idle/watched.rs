//! The value that a reaper's set stores for each watch, and the decision whether the watch has
//! ended.

use std::sync::Arc;

use crate::clock;
use crate::keyed::{Cause, Payload, Silence};
use crate::shared::activity::{Activity, Reap, latest_counted};
use crate::tick::Timestamp;

/// A value and its activity.
pub(crate) struct Watched<V> {
    pub(super) value: V,
    pub(super) activity: Arc<Activity>,
    /// Why the watch ended, if that was before its timer is taken out: it expires now.
    pub(super) ended: Option<Cause>,
}

impl<V> Payload for Watched<V> {
    type Value = V;
    const KEYED: bool = false;

    /// `oldest` is the instant of the maximum age, or the instant at which it ended.
    fn due(&self, oldest: Timestamp, now: Timestamp, silence: &Silence<'_>) -> Timestamp {
        let now = now.after_origin();
        // One that is busy is looked at again after an idle duration.
        let read_now = || silence.shared.ticks.nanos(clock::now());
        let last = (self.activity).last_counted(now, silence.idle, read_now);
        // The activity is gone only if the watch has ended.
        last.map_or(oldest, |last| silence.idle_at(last).min(oldest))
    }

    fn expire(
        &self,
        oldest: Timestamp,
        now: Timestamp,
        silence: &Silence<'_>,
    ) -> Option<(Timestamp, Cause)> {
        if let Some(cause) = self.ended {
            return Some((oldest, cause));
        }
        if oldest <= now {
            let was_busy = self.activity.is_busy();
            let idle_at = silence.idle_at(self.activity.end()?);
            return Some(if was_busy {
                (oldest, Cause::MaxAge)
            } else {
                earlier(idle_at, oldest)
            });
        }
        match (self.activity).reap_if(|last| silence.idle_at(last) <= now) {
            Reap::Reaped(last) => Some((silence.idle_at(last), Cause::Idle)),
            Reap::Active(_) | Reap::Busy | Reap::Gone => None,
        }
    }

    fn end(&self, oldest: Timestamp, now: Timestamp, silence: &Silence<'_>) -> (Timestamp, Cause) {
        if let Some(cause) = self.ended {
            return (oldest, cause);
        }
        // It may be gone: a call found that this drain has taken the timer out.
        let last = self.activity.end().unwrap_or(self.activity.last());
        let last = last.min(latest_counted(now.after_origin(), silence.idle));
        earlier(silence.idle_at(last), oldest)
    }

    fn into_value(self) -> V {
        self.value
    }

    fn again(_: V) -> Option<Self> {
        None
    }
}

/// When and why a watch ends that is idle at one instant and reaches its maximum age at the other.
fn earlier(idle_at: Timestamp, oldest: Timestamp) -> (Timestamp, Cause) {
    if oldest < idle_at {
        (oldest, Cause::MaxAge)
    } else {
        (idle_at, Cause::Idle)
    }
}
