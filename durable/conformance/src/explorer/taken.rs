//! A step that was taken, and what was there before and after it.

use std::time::Duration;

use tickwheel_durable::store::{InstanceId, StoreTime, Stored};

use super::instance::Outcome;
use super::run::Run;
use super::state::View;
use super::step::{Delay, Step};

/// Says what is wrong.
pub(super) type Verdict = Result<(), String>;

pub(super) fn ensure(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}

/// A step, and what was there before and after it.
pub(super) struct Taken<'a> {
    pub(super) step: Step,
    pub(super) outcome: &'a Outcome,
    pub(super) before: &'a View,
    pub(super) after: &'a View,
    pub(super) run: &'a Run,
}

impl Taken<'_> {
    /// Every row that goes, comes or changes is one of those that the step is about.
    pub(super) fn changes_only(&self, may: impl Fn(&Stored) -> bool) -> Verdict {
        let (before, after) = (&self.before.rows, &self.after.rows);
        let gone = before
            .values()
            .filter(|row| after.get(&row.version) != Some(row));
        let new = after
            .values()
            .filter(|row| before.get(&row.version) != Some(row));
        for row in gone.chain(new) {
            ensure(may(row), || {
                format!("D1: {row:?} is changed by what is not about it")
            })?;
        }
        Ok(())
    }

    /// A load, and what takes marks away, changes nothing but marks.
    pub(super) fn changes_marks_only(&self) -> Verdict {
        let unmarked = |view: &View| -> Vec<Stored> {
            let rows = view.rows.values().cloned();
            let unmarked = rows.map(|mut row| {
                row.loaded_by = None;
                row
            });
            unmarked.collect()
        };
        ensure(unmarked(self.before) == unmarked(self.after), || {
            "D6: a mark changes more than the mark".to_owned()
        })
    }

    /// The id of the instance that makes the call.
    pub(super) fn caller(&self) -> Option<InstanceId> {
        match self.step {
            Step::Call { by, .. } => Some(self.run.instances[usize::from(by)].id),
            _ => None,
        }
    }

    /// Whether a timer was set to this time.
    pub(super) fn is_due_in(&self, due: StoreTime, delay: Delay) -> bool {
        match delay {
            Delay::Past => {
                let due = due.after(self.run.halves(5));
                due >= self.before.now && due <= self.after.now
            }
            Delay::Zero => self.is_in(due, Duration::ZERO),
            Delay::Near => self.is_in(due, self.run.halves(1)),
            Delay::Far => self.is_in(due, self.run.halves(3)),
        }
    }

    /// Whether a time is so long after now.
    pub(super) fn is_in(&self, time: StoreTime, span: Duration) -> bool {
        let slack = self.run.halves(1) / 4;
        time >= self.before.now.after(span) && time <= self.after.now.after(span + slack)
    }
}
