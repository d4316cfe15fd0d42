//! How rows fire.

use super::{Rows, arm, die, living};
use crate::store::{
    AnswerSize, Damaged, Fire, FireReport, MAX_ATTEMPT, Occurrence, State, Stored, Terms,
};

/// Fires rows that are due, until the answer has enough bytes.
pub(crate) fn fire<R: Rows>(rows: &mut R, request: &Fire) -> Result<FireReport, R::Error> {
    let near = living(rows, request.near)?;
    // A token each, and as many again for the next occurrences.
    rows.reserve(2 * (request.versions.len() + request.unloaded))?;
    let mut report = FireReport::at(rows.now());
    let mut size = AnswerSize::default();
    let mut unloaded = Vec::new();
    if request.unloaded > 0 {
        let is_unloading = rows.unload_dead()?;
        unloaded = rows.unloaded(rows.now(), request.unloaded, &request.schedules)?;
        report.more = unloaded.len() > request.unloaded || is_unloading;
        unloaded.truncate(request.unloaded);
    }
    let besides = unloaded.iter().map(|(version, _)| version);
    for (number, &version) in request.versions.iter().chain(besides).enumerate() {
        if size.is_enough() {
            report.rest = request.versions.len().saturating_sub(number);
            report.more |= !unloaded.is_empty();
            break;
        }
        let row = rows.row(version)?;
        let Some((row, damage)) = row.filter(|(row, _)| row.state != State::Dead) else {
            continue;
        };
        let fired = report.fired.len();
        if let Some(reason) = damage {
            set_aside(rows, row, reason, &mut report)?;
        } else if row.due > rows.now() {
            report.add_later(&row);
        } else {
            fire_due(rows, row, request, near, &mut report)?;
        }
        size.add(&report.fired[fired..]);
    }
    Ok(report)
}

/// Makes a row dead that holds what no store writes. What is kept of it is sound.
fn set_aside<R: Rows>(
    rows: &mut R,
    mut row: Stored,
    reason: String,
    report: &mut FireReport,
) -> Result<(), R::Error> {
    report.damaged.push(Damaged {
        version: row.version,
        key: row.key.clone(),
        reason: reason.clone(),
    });
    row.error = Some(reason);
    die(rows, row)
}

fn fire_due<R: Rows>(
    rows: &mut R,
    mut row: Stored,
    request: &Fire,
    near: Terms,
    report: &mut FireReport,
) -> Result<(), R::Error> {
    let old = (row.version, row.state);
    let waits =
        request.no_overlap && row.repeats() && rows.latest(State::InFlight, &row.key)?.is_some();
    let next = match request.occurrence(&row, waits, rows.now()) {
        Occurrence::Fires(next) => next,
        Occurrence::Unplanned => {
            if let Some(loader) = near.loader.filter(|_| row.loaded_by.is_none()) {
                rows.mark(row.version, loader)?;
                row.loaded_by = Some(loader);
            }
            report.add_later(&row);
            return Ok(());
        }
        Occurrence::Waits { due, deadline } => {
            (row.due, row.deadline, row.attempt) = (due, deadline, 0);
            arm(rows, &mut row, near)?;
            report.add_later(&row);
            return rows.update(old, &row);
        }
    };
    let repeats = (row.period.take(), row.schedule.take());
    row.version = rows.next_version()?;
    row.attempt = (row.attempt + 1).min(MAX_ATTEMPT);
    let missed = next.map_or(0, |next| next.missed);
    report.fired.push(row.fired(missed, next.is_some()));
    match request.lease {
        Some(lease) => {
            row.state = State::InFlight;
            row.due = rows.now().after(lease);
            (row.loaded_by, row.claimed_by) = (None, request.by);
            rows.update(old, &row)?;
        }
        None => rows.delete(old)?,
    }
    if let Some(next) = next {
        (row.period, row.schedule) = repeats;
        row.attempt = 0;
        (row.due, row.deadline) = (next.due, next.due);
        arm(rows, &mut row, near)?;
        report.add_next(&row);
        rows.insert(&row)?;
    }
    Ok(())
}
