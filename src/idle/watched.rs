//! The value that a reaper's set stores for each watch, and the decision whether the watch has
//! ended.

use std::sync::Arc;

use crate::clock;
use crate::keyed::{Cause, MayExpire, Payload, Silence};
use crate::panic::drop_caught;
use crate::shared::activity::{Activity, Reap, latest_counted};
use crate::tick::Timestamp;

/// A value and its activity.
pub(crate) struct Watched<V> {
    pub(super) value: V,
    pub(super) activity: Arc<Activity>,
    /// The idle duration in nanoseconds.
    pub(super) idle: u64,
    /// Why the watch ended, if that was before its timer is taken out: it expires now.
    pub(super) ended: Option<Cause>,
    /// Whether it reaches its maximum age only when no guard is held.
    pub(super) waits_for_guards: bool,
}

impl<V> Watched<V> {
    /// Whether this activity is that of the watch. Another watch may have its index by now.
    pub(super) fn is_of(&self, activity: &Arc<Activity>) -> bool {
        Arc::ptr_eq(&self.activity, activity)
    }

    /// Whether it has reached its maximum age.
    pub(super) fn is_old(&self, oldest: Timestamp, now: Timestamp) -> bool {
        oldest <= now && !(self.waits_for_guards && self.activity.is_busy())
    }
}

impl<V> Payload for Watched<V> {
    type Value = V;
    const KEYED: bool = false;

    /// `oldest` is the instant of the maximum age, or the instant at which it ended.
    fn due(&self, oldest: Timestamp, now: Timestamp, silence: &Silence<'_>) -> Timestamp {
        // One that is busy is looked at again after an idle duration.
        let read_now = || silence.shared.ticks.nanos(clock::now());
        let last = (self.activity).last_counted(now.after_origin(), self.idle, read_now);
        // The activity is gone only if the watch has ended.
        let Some(last) = last else {
            return oldest;
        };
        let idle_at = silence.idle_at(last, self.idle);
        if oldest <= now && !self.is_old(oldest, now) {
            idle_at
        } else {
            idle_at.min(oldest)
        }
    }

    fn expire(
        &mut self,
        oldest: &mut Timestamp,
        now: Timestamp,
        silence: &Silence<'_>,
        may_expire: &mut MayExpire<'_, V>,
    ) -> Option<(Timestamp, Cause)> {
        if let Some(cause) = self.ended {
            return Some((*oldest, cause));
        }
        let is_old = self.is_old(*oldest, now);
        let is_over = |last| is_old || silence.idle_at(last, self.idle) <= now;
        let (last, is_busy) = (self.activity.last(), self.activity.is_busy());
        if !is_old && (is_busy || !is_over(last)) {
            return None;
        }
        let reached = |last, oldest| {
            if is_busy {
                (oldest, Cause::MaxAge)
            } else {
                earlier(silence.idle_at(last, self.idle), oldest)
            }
        };
        if !may_expire(&mut self.value, reached(last, *oldest).1) {
            let ticks = &silence.shared.ticks;
            let now = now.after_origin().max(ticks.nanos(clock::now()));
            self.activity.touch(now, ticks.tick_nanos());
            if is_old {
                *oldest = Timestamp::at(now.saturating_add(self.idle));
            }
            return None;
        }
        if is_old && !self.waits_for_guards {
            return Some(reached(self.activity.end()?, *oldest));
        }
        match self.activity.reap_if(is_over) {
            Reap::Reaped(last) => Some(reached(last, *oldest)),
            Reap::Active(_) | Reap::Busy | Reap::Gone => None,
        }
    }

    fn end(&self, oldest: Timestamp, now: Timestamp, silence: &Silence<'_>) -> Timestamp {
        if self.ended.is_some() {
            return oldest;
        }
        // It may be gone: a call found that this drain has taken the timer out.
        let last = self.activity.end().unwrap_or(self.activity.last());
        let last = last.min(latest_counted(now.after_origin(), self.idle));
        oldest.min(silence.idle_at(last, self.idle))
    }

    fn into_value(self) -> V {
        self.value
    }

    fn again(value: V) -> Option<Self> {
        drop_caught([value]);
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
