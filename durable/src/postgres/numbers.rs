//! Numbers and times, from the server and for it.

use crate::store::StoreTime;

pub(super) fn time(micros: i64) -> StoreTime {
    StoreTime::from_micros(micros)
}

/// A count for the server, small enough to add one.
pub(super) fn limit(limit: usize) -> i64 {
    i64::from(u32::try_from(limit).unwrap_or(u32::MAX))
}

/// A count from the server.
pub(super) fn unsigned(number: i64) -> u64 {
    number.unsigned_abs()
}
