//! Deletes everything, in batches that are short enough for other calls.

use std::time::{Duration, Instant};

use super::reading::{number, state_number};
use super::rows::Call;
use crate::store::{ChangedRows, State};

/// The most rows that a batch of a purge deletes.
pub(super) const PURGED_AT_ONCE: u64 = 512;

/// A batch ends after this time. In a large file each row lies on other pages.
pub(super) const PURGE_TIME: Duration = Duration::from_millis(5);

/// How many rows a batch deletes between two looks at the time.
const PURGE_STEP: usize = 16;

/// Deletes a batch.
pub(super) fn purge(call: &mut Call<'_>) -> rusqlite::Result<ChangedRows> {
    let began = Instant::now();
    let mut rows = 0;
    let timers = "DELETE FROM tickwheel_timers WHERE version IN
        (SELECT version FROM tickwheel_timers WHERE namespace = ?1 AND state = ?2 LIMIT ?3)";
    let dead = "DELETE FROM tickwheel_dead WHERE version IN
        (SELECT version FROM tickwheel_dead WHERE namespace = ?1 AND ?2 IS NOT NULL LIMIT ?3)";
    for (state, sql) in [
        (State::Waiting, timers),
        (State::InFlight, timers),
        (State::Dead, dead),
    ] {
        let parameters = (call.namespace, state_number(state), number(PURGE_STEP));
        loop {
            let deleted = call.execute(sql, parameters)?;
            call.add_rows(state, -number(deleted));
            rows += deleted as u64;
            if deleted < PURGE_STEP {
                break;
            }
            if rows >= PURGED_AT_ONCE || began.elapsed() >= PURGE_TIME {
                return Ok(ChangedRows::new(rows, true));
            }
        }
    }
    Ok(ChangedRows::new(rows, false))
}
