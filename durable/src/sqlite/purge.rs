//! Deletes everything, in batches that are short enough for other calls.

use std::time::Instant;

use super::reading::number;
use super::rows::Call;
use crate::store::rules::{STEP_ROWS, STEP_TIME};
use crate::store::{ChangedRows, State};

/// How many rows a batch deletes between two looks at the time.
const PURGE_STEP: usize = 16;

/// Deletes a batch.
pub(super) fn purge(call: &mut Call<'_>) -> rusqlite::Result<ChangedRows> {
    let began = Instant::now();
    let mut rows = 0;
    let sql = "DELETE FROM tickwheel_timers WHERE version IN
        (SELECT version FROM tickwheel_timers WHERE namespace = ?1 AND state = ?2 LIMIT ?3)";
    for state in [State::Waiting, State::InFlight, State::Dead] {
        let parameters = (call.namespace, state as i64, number(PURGE_STEP));
        loop {
            let deleted = call.execute(sql, parameters)?;
            call.add_rows(state, -number(deleted));
            rows += deleted as u64;
            if deleted < PURGE_STEP {
                break;
            }
            if rows >= STEP_ROWS as u64 || began.elapsed() >= STEP_TIME {
                return Ok(ChangedRows::new(rows, true));
            }
        }
    }
    Ok(ChangedRows::new(rows, false))
}
