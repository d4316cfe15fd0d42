//! A timer as an operator sees it.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::error::Error;
use crate::store::{InstanceId, StoreTime, Version};
use crate::token::Token;

/// A timer as it lies in the store.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Entry<K, V> {
    /// Its key, if it decodes.
    pub key: Result<K, Error>,
    /// Its value, if it decodes.
    pub value: Result<V, Error>,
    /// Its deadline, by the store's clock.
    pub deadline: SystemTime,
    /// How often it has been delivered.
    pub attempt: u32,
    /// The period of a repeating timer. `None` for an occurrence in flight.
    pub period: Option<Duration>,
    /// The cron expression and the zone of a timer that repeats [by one](crate::calendars). `None`
    /// for an occurrence in flight.
    pub schedule: Option<String>,
    /// Whether an instance has loaded it onto its wheel.
    pub loaded: bool,
    /// Its claim, if it has fired and is not settled.
    pub in_flight: Option<InFlight>,
    /// Its death, if it has failed for good.
    pub dead: Option<Dead>,
    /// The error of its last attempt that failed with one.
    pub error: Option<String>,
    pub(super) position: Position,
}

/// A claim, as the store sees it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InFlight {
    /// Its token.
    pub token: Token,
    /// When its lease ends; `None` if it was extended to the end of time.
    pub lease_until: Option<SystemTime>,
    /// The [instance](crate::Member) that has claimed it, by the id that it had then.
    pub by: Option<InstanceId>,
}

/// The death of a timer.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dead {
    /// The token of its last claim.
    pub token: Token,
    /// When it died, by the store's clock.
    pub since: SystemTime,
}

/// A position in a list, to continue after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position(pub(super) StoreTime, pub(super) Version, pub(super) usize);

impl<K, V> Entry<K, V> {
    /// Its position in the list, to continue after it.
    pub fn position(&self) -> Position {
        self.position.clone()
    }
}

// Times print as times: `SystemTime { tv_sec: 1795442128, .. }` tells an operator nothing.

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Entry<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry {
            key,
            value,
            deadline,
            attempt,
            period,
            schedule,
            loaded,
            in_flight,
            dead,
            error,
            position: _,
        } = self;
        f.debug_struct("Entry")
            .field("key", key)
            .field("value", value)
            .field("deadline", &StoreTime::from(*deadline))
            .field("attempt", attempt)
            .field("period", period)
            .field("schedule", schedule)
            .field("loaded", loaded)
            .field("in_flight", in_flight)
            .field("dead", dead)
            .field("error", error)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight")
            .field("token", &self.token)
            .field("lease_until", &self.lease_until.map(StoreTime::from))
            .field("by", &self.by)
            .finish()
    }
}

impl fmt::Debug for Dead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dead")
            .field("token", &self.token)
            .field("since", &StoreTime::from(self.since))
            .finish()
    }
}
