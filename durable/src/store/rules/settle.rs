//! How claims are settled.

use std::time::Duration;

use super::{Rows, die, living, put_back};
use crate::store::{LeftRow, Settle, Settled, Settlement, State, Stored, Terms};

/// Settles rows in flight, in order.
pub(crate) fn settle<R: Rows>(
    rows: &mut R,
    settles: Vec<Settle>,
    near: Terms,
) -> Result<Vec<Settled>, R::Error> {
    let near = living(rows, near)?;
    rows.reserve(settles.len())?;
    let each = settles.into_iter();
    each.map(|settle| settle_one(rows, settle, near)).collect()
}

fn settle_one<R: Rows>(rows: &mut R, settle: Settle, near: Terms) -> Result<Settled, R::Error> {
    let Settle {
        token,
        settlement,
        error,
    } = settle;
    if settlement == Settlement::Ack {
        let acked = rows.ack(token)?;
        return Ok(if acked { Settled::Done } else { Settled::Lost });
    }
    let row = rows.row(token)?;
    let Some((mut row, _)) = row.filter(|(row, _)| row.state == State::InFlight) else {
        return Ok(Settled::Lost);
    };
    row.error = error.or(row.error);
    if matches!(settlement, Settlement::Unfire | Settlement::Leave(_)) {
        row.attempt = row.attempt.saturating_sub(1);
    }
    let old = (token, State::InFlight);
    let now = rows.now();
    let delay = match settlement {
        Settlement::Dead => {
            die(rows, row)?;
            return Ok(Settled::Done);
        }
        Settlement::Leave(left) => return leave(rows, row, left, near),
        Settlement::Extend(lease) => {
            row.due = now.after(lease);
            rows.update(old, &row)?;
            return Ok(Settled::Done);
        }
        Settlement::RetryAfter(delay) => delay,
        Settlement::Ack | Settlement::Release | Settlement::Unfire => Duration::ZERO,
    };
    row.due = now.after(delay);
    let armed = put_back(rows, &mut row, near)?;
    match (armed, settlement) {
        (Some(_), Settlement::RetryAfter(_)) => row.deadline = row.due,
        (None, _) if delay.is_zero() => rows.hint(),
        _ => {}
    }
    rows.update(old, &row)?;
    Ok(armed.map_or(Settled::Done, Settled::Armed))
}

/// Puts a row back for other instances.
fn leave<R: Rows>(
    rows: &mut R,
    mut row: Stored,
    left: LeftRow,
    near: Terms,
) -> Result<Settled, R::Error> {
    let id = left.by.left();
    if !rows.lives(id)? {
        rows.keep_alive(id, rows.now().after(left.alive), None)?;
    }
    let old = (row.version, row.state);
    row.due = rows.now().after(left.pause);
    let armed = put_back(rows, &mut row, Terms::new(near.window, None))?;
    row.loaded_by = Some(id);
    rows.hint();
    rows.update(old, &row)?;
    Ok(armed.map_or(Settled::Done, Settled::Armed))
}
