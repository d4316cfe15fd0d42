//! How rows fire.

use super::rows::Call;
use crate::store::{AnswerSize, Fire, FireReport, LoadWindow, Occurrence, State, Stored};

type Result<T> = rusqlite::Result<T>;

impl Call<'_> {
    pub(super) fn fire(&mut self, request: &Fire) -> Result<FireReport> {
        let near = self.near(request.near)?;
        // A token each, and as many again for the next occurrences.
        self.reserve(2 * (request.versions.len() + request.unloaded))?;
        let mut report = FireReport::at(self.now);
        let mut size = AnswerSize::default();
        let mut unloaded = Vec::new();
        if request.unloaded > 0 {
            let rows = self.unloaded(self.now, request.unloaded, &request.schedules)?;
            report.more = rows.len() > request.unloaded;
            let rows = rows.into_iter().take(request.unloaded);
            unloaded.extend(rows.map(|(version, _)| version));
        }
        for (number, &version) in request.versions.iter().chain(&unloaded).enumerate() {
            if size.is_enough() {
                report.left = request.versions.len().saturating_sub(number);
                report.more |= !unloaded.is_empty();
                break;
            }
            let Some((row, damage)) = self.row(version)? else {
                continue;
            };
            if let Some(reason) = damage {
                self.set_aside(row, reason, &mut report)?;
                continue;
            }
            if row.due > self.now {
                report.add_later(row.not_due(), &row);
                continue;
            }
            let fired = report.fired.len();
            self.fire_due(row, request, near, &mut report)?;
            size.add(&report.fired[fired..]);
        }
        Ok(report)
    }

    fn fire_due(
        &mut self,
        mut row: Stored,
        request: &Fire,
        near: LoadWindow,
        report: &mut FireReport,
    ) -> Result<()> {
        let waits = request.holds_back(&row) && self.in_flight(&row.key)?.is_some();
        let next = match request.occurrence(&row, waits, self.now) {
            Occurrence::Last => None,
            Occurrence::Unplanned => {
                if let Some(loader) = near.loader.filter(|_| row.loaded_by.is_none()) {
                    self.mark(row.version, loader)?;
                    row.loaded_by = Some(loader);
                }
                report.add_later(row.not_due(), &row);
                return Ok(());
            }
            Occurrence::Waits { due, deadline } => {
                (row.due, row.deadline) = (due, deadline);
                return self.arm_later(row, near, report);
            }
            Occurrence::Repeats(next) => Some(next),
        };
        if let Some(next) = next.filter(|next| !next.fires) {
            row.attempt = 0;
            (row.due, row.deadline) = (next.due, next.due);
            return self.arm_later(row, near, report);
        }
        let old = (row.version, row.state);
        let repeats = (row.period.take(), row.schedule.take());
        row.version = self.next_version()?;
        row.attempt += 1;
        match request.lease {
            Some(lease) => {
                row.state = State::InFlight;
                row.due = self.now.after(lease);
                (row.loaded_by, row.claimed_by) = (None, request.by);
                self.update(old, &row)?;
            }
            None => self.delete(old)?,
        }
        let missed = next.map_or(0, |next| next.missed);
        report.fired.push(row.fired(missed, next.is_some()));
        if let Some(next) = next {
            (row.period, row.schedule) = repeats;
            row.attempt = 0;
            (row.due, row.deadline) = (next.due, next.due);
            let armed = self.arm(&mut row, near)?;
            report.add_next(armed, &row);
            self.insert(&row)?;
        }
        Ok(())
    }

    /// Arms a stored row that does not fire now.
    fn arm_later(
        &mut self,
        mut row: Stored,
        near: LoadWindow,
        report: &mut FireReport,
    ) -> Result<()> {
        let old = (row.version, row.state);
        let armed = self.arm(&mut row, near)?;
        report.add_later(armed, &row);
        self.update(old, &row)
    }
}
