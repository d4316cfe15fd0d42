//! How rows fire.

use super::Call;
use crate::store::{AnswerSize, Fire, FireReport, Occurrence, State, Stored, Version};

impl Call<'_> {
    pub(super) fn fire(&mut self, request: &Fire) -> FireReport {
        let mut report = FireReport::at(self.now);
        let mut size = AnswerSize::default();
        let mut unloaded = Vec::new();
        if request.unloaded > 0 {
            let rows = &self.space.rows;
            let due = self.space.unloaded.range(..=(self.now, Version(i64::MAX)));
            let mut due = due
                .map(|&(_, version)| version)
                .filter(|version| request.schedules.include(rows[version].schedule.as_deref()));
            unloaded.extend(due.by_ref().take(request.unloaded));
            report.more = due.next().is_some();
        }
        let rows = request.versions.iter().chain(&unloaded);
        for (number, &version) in rows.enumerate() {
            if size.is_enough() {
                report.left = request.versions.len().saturating_sub(number);
                report.more |= !unloaded.is_empty();
                break;
            }
            let fired = report.fired.len();
            self.fire_one(version, request, &mut report);
            size.add(&report.fired[fired..]);
        }
        report
    }

    fn fire_one(&mut self, version: Version, request: &Fire, report: &mut FireReport) {
        let Some(row) = self.space.rows.get(&version) else {
            return;
        };
        if row.due > self.now {
            report.add_later(row.not_due(), row);
            return;
        }
        let waits = request.holds_back(row) && self.space.in_flight.contains_key(&row.key);
        let occurrence = request.occurrence(row, waits, self.now);
        let mut row = self.take(version).expect("it was just there");
        let next = match occurrence {
            Occurrence::Last => None,
            Occurrence::Unplanned => {
                row.loaded_by = row.loaded_by.or_else(|| self.living(request.near));
                report.add_later(row.not_due(), &row);
                return self.put(row);
            }
            Occurrence::Waits { due, deadline } => {
                (row.due, row.deadline) = (due, deadline);
                return self.arm_later(row, request, report);
            }
            Occurrence::Repeats(next) => {
                let mut following = row.clone();
                following.attempt = 0;
                (following.due, following.deadline) = (next.due, next.due);
                if !next.fires {
                    return self.arm_later(following, request, report);
                }
                let armed = self.arm(following, request.near);
                report.add_next(armed, &self.space.rows[&armed.version]);
                (row.period, row.schedule) = (None, None);
                Some(next)
            }
        };
        row.version = self.next_version();
        row.attempt += 1;
        let missed = next.map_or(0, |next| next.missed);
        report.fired.push(row.fired(missed, next.is_some()));
        if let Some(lease) = request.lease {
            row.state = State::InFlight;
            row.due = self.now.after(lease);
            row.loaded_by = None;
            row.claimed_by = request.by;
            self.put(row);
        }
    }

    /// Arms a row that does not fire now.
    fn arm_later(&mut self, row: Stored, request: &Fire, report: &mut FireReport) {
        let armed = self.arm(row, request.near);
        report.add_later(armed, &self.space.rows[&armed.version]);
    }
}
