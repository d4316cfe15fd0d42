//! Each step is compared with the rows before and after it, and with the steps before it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tickwheel_durable::store::{
    FireReport, InstanceId, Settled, State, StoreTime, Stored, Version,
};

use super::instance::Outcome;
use super::invariants::{
    answer_fits, charter_is_compared, error_after, free_rows_are_hinted,
    loaded_rows_are_on_a_wheel, lost_fires_are_undone, marks_are_told, near_rows_are_loaded,
    next_occurrence_waits, nothing_is_lost, one_claim_at_a_time, skipped_occurrences_wait,
};
use super::state::View;
use super::step::{Settling, Step};
use super::taken::{Taken, Verdict, ensure};

/// What the steps so far have shown of each value and key.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    /// How often each value has fired, without the firings that were taken back. Values of
    /// repeating timers are left out.
    attempts: BTreeMap<Vec<u8>, u32>,
    /// The values of repeating timers.
    repeating: BTreeSet<Vec<u8>>,
    /// The greatest version seen under each key.
    versions: BTreeMap<Vec<u8>, Version>,
    /// The values that an instance has tried to acknowledge, and when its lease ends.
    handled: BTreeMap<Vec<u8>, StoreTime>,
    /// The latest time seen: the clock may step back.
    latest: StoreTime,
}

impl History {
    /// Of each row, whether its timer was handled under a lease that lasts. A state that differs in
    /// this is another one.
    pub(super) fn handled(&self, view: &View) -> Vec<bool> {
        let until = |row: &&Stored| self.handled.get(&row.value).copied().unwrap_or_default();
        let rows = view.in_order();
        rows.iter().map(|row| until(row) > view.now).collect()
    }

    /// The store has returned to the state that it had at the end of the steps with the history
    /// `then`. Versions grow all the same.
    pub(super) fn return_to(&mut self, then: &History) {
        *self = History {
            versions: std::mem::take(&mut self.versions),
            latest: self.latest,
            ..then.clone()
        };
    }

    /// Holds a step to the promises.
    pub(super) fn check(&mut self, taken: &Taken<'_>) -> Verdict {
        let Taken {
            step,
            outcome,
            after,
            run,
            ..
        } = taken;
        if let Step::Failover(_) | Step::Restore(_) = step {
            return Ok(());
        }
        match outcome {
            Outcome::Written(written) => answer_fits(taken, &written[0])?,
            Outcome::Fired(report) => self.fired(report, taken)?,
            Outcome::Settled(settled) => {
                for settled in settled {
                    self.settled(settled, taken)?;
                }
                let is_about = |row: &Stored| {
                    let of = |(token, ..): &(Version, Settling, Settled)| {
                        let claim = taken.before.rows.get(token);
                        claim.is_some_and(|claim| claim.value == row.value)
                    };
                    settled.iter().any(of)
                };
                taken.changes_only(is_about)?;
            }
            Outcome::Loaded(loaded) => {
                taken.changes_marks_only()?;
                let knows = match step {
                    Step::Call { by, .. } => run.bounds.has_calendar(usize::from(*by)),
                    _ => true,
                };
                near_rows_are_loaded(after, loaded, knows)?;
            }
            Outcome::Unloaded(_) | Outcome::Unmarked(_) => taken.changes_marks_only()?,
            Outcome::Changed(count) => self.changed(*count, taken)?,
            Outcome::Refused | Outcome::Unsent | Outcome::Amended(_) | Outcome::Happened => {
                taken.changes_only(|_| false)?;
            }
        }
        self.latest = self.latest.max(after.now);
        charter_is_compared(taken)?;
        lost_fires_are_undone(taken)?;
        marks_are_told(taken)?;
        nothing_is_lost(taken)?;
        self.versions_grow(taken)?;
        let repeating = after.rows.values().filter(|row| row.repeats());
        self.repeating
            .extend(repeating.map(|row| row.value.clone()));
        let claims = run.instances.iter().flat_map(|instance| &instance.claims);
        let handled = claims.filter(|claim| {
            claim.unanswered == Some(Settling::Ack) && !self.repeating.contains(&claim.value)
        });
        self.handled
            .extend(handled.map(|claim| (claim.value.clone(), claim.until)));
        self.attempts_add_up(after)?;
        loaded_rows_are_on_a_wheel(after, run)?;
        one_claim_at_a_time(after.now, run, &self.repeating)?;
        match step {
            Step::Call { .. } | Step::RetryDead(_) => free_rows_are_hinted(taken),
            _ => Ok(()),
        }
    }

    /// D2, D3, D6, D7, D9: what fired was due, and is in flight under a greater version for a lease
    /// from now.
    fn fired(&mut self, report: &FireReport, taken: &Taken<'_>) -> Verdict {
        let (before, after) = (taken.before, taken.after);
        for row in &report.fired {
            ensure(row.deadline <= before.now.max(self.latest), || {
                format!("D3: {row:?} fired at {}", before.now)
            })?;
            let mut was = before.rows.values();
            let was = was.find(|was| {
                (&was.value, was.deadline) == (&row.value, row.deadline)
                    && !after.rows.contains_key(&was.version)
            });
            let may_fire =
                |was: &Stored| taken.run.named.contains(&was.version) || taken.before.is_free(was);
            ensure(was.is_some_and(may_fire), || {
                format!("D4: {was:?} fires and was not named")
            })?;
            let handled = self.handled.get(&row.value);
            ensure(handled.is_none_or(|&until| until <= after.now), || {
                format!("D5: {row:?} was handled, and its lease lasts")
            })?;
            let latest = self.versions.get(&row.key);
            ensure(latest < Some(&row.token), || {
                format!("D7: {row:?} fired after {latest:?}")
            })?;
            let stored = after.rows.get(&row.token);
            let lease = taken.run.lease();
            let is_in_flight = |row: &Stored| {
                let held = row.state == State::InFlight && row.loaded_by.is_none();
                let kept = was.is_some_and(|was| was.error == row.error);
                let known = row.claimed_by == taken.caller();
                held && kept && known && taken.is_in(row.due, lease)
            };
            if taken.run.bounds.charter.at_most_once {
                let again = self.attempts.get(&row.value);
                ensure(stored.is_none() && again.is_none(), || {
                    format!("at_most_once: {row:?} is {stored:?}, and fired {again:?} times before")
                })?;
            } else {
                ensure(stored.is_some_and(is_in_flight), || {
                    format!("D2, D6: {row:?} is {stored:?}")
                })?;
            }
            if row.repeats {
                next_occurrence_waits(row, was, taken)?;
            }
            if !self.repeating.contains(&row.value) {
                *self.attempts.entry(row.value.clone()).or_default() += 1;
            }
        }
        skipped_occurrences_wait(report, taken)?;
        let due = before.rows.values().filter(|row| row.due <= after.now);
        let due: BTreeSet<_> = due.map(|row| &row.key).collect();
        taken.changes_only(|row| {
            let is_held = row.state == State::InFlight && row.due > before.now;
            let is_claim = report.fired.iter().any(|fired| fired.token == row.version);
            due.contains(&row.key) && row.state != State::Dead && (!is_held || is_claim)
        })
    }

    /// D7, D15: a settle names a claim that exists, or changes nothing.
    fn settled(&mut self, settled: &(Version, Settling, Settled), taken: &Taken<'_>) -> Verdict {
        let &(token, how, settled) = settled;
        let (before, after) = (taken.before, taken.after);
        let claim = before.rows.get(&token);
        let claim = claim.filter(|row| row.state == State::InFlight);
        ensure(claim.is_none() == (settled == Settled::Lost), || {
            format!("D7: {settled:?} for {claim:?}")
        })?;
        let Some(claim) = claim else {
            return Ok(());
        };
        if matches!(how, Settling::Unfire | Settling::Leave) {
            if let Some(attempts) = self.attempts.get_mut(&claim.value) {
                ensure(*attempts > 0, || {
                    format!("D15: a firing is taken back twice, {claim:?}")
                })?;
                *attempts -= 1;
            }
        }
        let stays = after.rows.get(&token);
        let expected = match how {
            Settling::Extend | Settling::Lapse => Some(State::InFlight),
            Settling::Dead => Some(State::Dead),
            _ => None,
        };
        ensure(stays.map(|row| row.state) == expected, || {
            format!("D7, D15: {claim:?} is {stays:?}")
        })?;
        let (row, due) = match how {
            Settling::Ack => return Ok(()),
            Settling::Dead => {
                let error = stays.and_then(|row| row.error.clone());
                return ensure(error == error_after(how, claim), || {
                    format!("D15: {claim:?} has become {stays:?}")
                });
            }
            Settling::Extend => (stays, taken.run.lease()),
            Settling::Lapse => (stays, Duration::ZERO),
            Settling::Retry | Settling::Release | Settling::Unfire | Settling::Leave => {
                let is_new = |row: &&Stored| {
                    row.value == claim.value && !before.rows.contains_key(&row.version)
                };
                let waits = matches!(how, Settling::Retry | Settling::Leave);
                let delay = taken.run.halves(u32::from(waits));
                (after.rows.values().find(is_new), delay)
            }
        };
        ensure(row.is_some_and(|row| taken.is_in(row.due, due)), || {
            format!("D2: {claim:?} has become {row:?}")
        })?;
        let left = taken
            .caller()
            .map(InstanceId::left)
            .filter(|_| how == Settling::Leave);
        let marked = row.and_then(|row| row.loaded_by);
        ensure(left.is_none() || marked == left, || {
            format!("D9: {row:?} is not left to others")
        })?;
        let error = row.and_then(|row| row.error.clone());
        ensure(error == error_after(how, claim), || {
            format!("D15: {claim:?} has become {row:?}")
        })
    }

    /// Dead rows that are retried are due, with no attempts; those that are discarded are gone.
    fn changed(&mut self, count: u64, taken: &Taken<'_>) -> Verdict {
        let key = taken.step.key().unwrap_or_default();
        let dead: Vec<_> = taken.before.of_key(&key, State::Dead).collect();
        ensure(dead.len() as u64 == count, || {
            format!("D15: {count} of {dead:?} are changed")
        })?;
        if let Step::RetryDead(_) = taken.step {
            for row in &dead {
                if let Some(attempts) = self.attempts.get_mut(&row.value) {
                    *attempts = 0;
                }
            }
        }
        let left = taken.after.of_key(&key, State::Dead).count();
        ensure(left == 0, || format!("D15: {left} rows stay dead"))?;
        taken.changes_only(|row| dead.iter().any(|dead| dead.value == row.value))
    }

    /// D7: a version that is new under a key is greater than all that were seen under it, and one
    /// that stays names the same timer in the same state.
    fn versions_grow(&mut self, taken: &Taken<'_>) -> Verdict {
        for (version, row) in &taken.after.rows {
            if let Some(was) = taken.before.rows.get(version) {
                let dies = was.state == State::InFlight && row.state == State::Dead;
                let same = (&was.key, &was.value) == (&row.key, &row.value);
                ensure(same && (dies || was.state == row.state), || {
                    format!("D7: {was:?} has become {row:?} under the same version")
                })?;
                continue;
            }
            let latest = self.versions.insert(row.key.clone(), *version);
            ensure(latest < Some(*version), || {
                format!("D7: {row:?} after {latest:?}")
            })?;
        }
        Ok(())
    }

    /// D15: a row counts the firings of its value, no more and no fewer.
    fn attempts_add_up(&self, after: &View) -> Verdict {
        for row in after.rows.values() {
            let Some(&attempts) = self.attempts.get(&row.value) else {
                continue;
            };
            ensure(row.attempt == attempts, || {
                format!("D15: {attempts} firings of {row:?}")
            })?;
        }
        Ok(())
    }
}
