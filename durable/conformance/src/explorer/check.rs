//! The invariants: each step is compared with the rows before and after it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tickwheel_durable::store::{
    FireReport, InstanceId, Settled, State, StoreTime, Stored, Version, WriteOutcome,
};

use super::run::{Instance, Outcome, Rows, Run};
use super::step::{Call, Fault, How, Step};

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

/// What a store has before a step or after it.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) rows: Rows,
    pub(super) alive: BTreeMap<InstanceId, StoreTime>,
    pub(super) now: StoreTime,
    window: Duration,
}

impl View {
    pub(super) async fn of(run: &Run) -> View {
        View {
            rows: run.rows().await,
            alive: run.alive().await,
            now: run.now().await,
            window: run.unit,
        }
    }

    /// The rows in an order in which every store has them: which of two rows that one call makes
    /// has the greater version is the store's affair.
    pub(super) fn in_order(&self) -> Vec<&Stored> {
        let mut rows: Vec<&Stored> = self.rows.values().collect();
        rows.sort_by_key(|row| (row.state, &row.key, &row.value, row.due, row.version));
        rows
    }

    fn of_key(&self, key: &[u8], state: State) -> impl Iterator<Item = &Stored> {
        let rows = self.rows.values();
        rows.filter(move |row| row.key == key && row.state == state)
    }

    /// How many rows that are not dead have each value.
    fn living(&self) -> BTreeMap<Vec<u8>, usize> {
        let mut values = BTreeMap::new();
        for row in self.rows.values().filter(|row| row.state != State::Dead) {
            *values.entry(row.value.clone()).or_default() += 1;
        }
        values
    }

    pub(super) fn is_alive(&self, id: InstanceId) -> bool {
        self.alive.get(&id).is_some_and(|&until| until >= self.now)
    }

    /// Whether any instance may load the row now.
    fn is_free(&self, row: &Stored) -> bool {
        let is_near = match row.state {
            State::Waiting => row.due <= self.now.after(self.window),
            State::InFlight => row.due <= self.now,
            _ => false,
        };
        is_near && !row.loaded_by.is_some_and(|by| self.is_alive(by))
    }
}

/// Says what is wrong.
pub(super) type Verdict = Result<(), String>;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Verdict {
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
    fn changes_only(&self, may: impl Fn(&Stored) -> bool) -> Verdict {
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
    fn changes_marks_only(&self) -> Verdict {
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

    /// Whether a time is so long after now.
    fn is_in(&self, time: StoreTime, span: Duration) -> bool {
        let slack = self.run.halves(1) / 4;
        time >= self.before.now.after(span) && time <= self.after.now.after(span + slack)
    }
}

impl History {
    /// Of each row, whether its timer was handled under a lease that lasts. A state that differs in
    /// this is another one.
    pub(super) fn handled(&self, view: &View) -> Vec<bool> {
        let until = |row: &&Stored| self.handled.get(&row.value).copied().unwrap_or_default();
        let rows = view.in_order();
        rows.iter().map(|row| until(row) > view.now).collect()
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
        match outcome {
            Outcome::Written(written) => answer_fits(taken, written)?,
            Outcome::Fired(report) => self.fired(report, taken)?,
            Outcome::Settled(settled) => {
                for settled in settled {
                    self.settled(settled, taken)?;
                }
                let is_about = |row: &Stored| {
                    let of = |(token, ..): &(Version, How, Settled)| {
                        let claim = taken.before.rows.get(token);
                        claim.is_some_and(|claim| claim.value == row.value)
                    };
                    settled.iter().any(of)
                };
                taken.changes_only(is_about)?;
            }
            Outcome::Loaded(_) => {
                taken.changes_marks_only()?;
                near_rows_are_loaded(after)?;
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
        nothing_is_lost(taken)?;
        self.versions_grow(taken)?;
        let claims = run.instances.iter().flat_map(|instance| &instance.claims);
        let handled = claims.filter(|claim| claim.unanswered == Some(How::Ack) && !claim.repeats);
        self.handled
            .extend(handled.map(|claim| (claim.value.clone(), claim.until)));
        let repeating = after.rows.values().filter(|row| row.repeats());
        self.repeating
            .extend(repeating.map(|row| row.value.clone()));
        self.attempts_add_up(after)?;
        loaded_rows_are_on_a_wheel(after, run)?;
        one_claim_at_a_time(after.now, run)?;
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
            let was =
                was.find(|was| was.value == row.value && !after.rows.contains_key(&was.version));
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
                held && taken.is_in(row.due, lease)
            };
            ensure(stored.is_some_and(is_in_flight), || {
                format!("D2, D6: {row:?} is {stored:?}")
            })?;
            if row.repeats {
                let next = after.of_key(&row.key, State::Waiting).next();
                let in_time = |next: &Stored| {
                    let (due, unit) = (next.due, taken.run.unit);
                    let after_this = due.since(row.deadline).as_micros();
                    next.period == Some(unit)
                        && due > before.now
                        && due <= after.now.after(unit)
                        && after_this % unit.as_micros() == 0
                };
                ensure(next.is_some_and(in_time), || {
                    format!("D9: {next:?} follows {row:?}")
                })?;
                let beside = before.of_key(&row.key, State::InFlight).next();
                ensure(beside.is_none() || !taken.run.no_overlap(), || {
                    format!("no_overlap: {row:?} fires beside {beside:?}")
                })?;
            }
            if !self.repeating.contains(&row.value) {
                *self.attempts.entry(row.value.clone()).or_default() += 1;
            }
        }
        let due = before.rows.values().filter(|row| row.due <= after.now);
        let due: BTreeSet<_> = due.map(|row| &row.key).collect();
        taken.changes_only(|row| {
            let is_held = row.state == State::InFlight && row.due > before.now;
            let is_claim = report.fired.iter().any(|fired| fired.token == row.version);
            due.contains(&row.key) && row.state != State::Dead && (!is_held || is_claim)
        })
    }

    /// D7, D15: a settle names a claim that exists, or changes nothing.
    fn settled(&mut self, settled: &(Version, How, Settled), taken: &Taken<'_>) -> Verdict {
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
        if matches!(how, How::Unfire | How::Leave) {
            if let Some(attempts) = self.attempts.get_mut(&claim.value) {
                ensure(*attempts > 0, || {
                    format!("D15: a firing is taken back twice, {claim:?}")
                })?;
                *attempts -= 1;
            }
        }
        let stays = after.rows.get(&token);
        let expected = match how {
            How::Extend => Some(State::InFlight),
            How::Dead => Some(State::Dead),
            _ => None,
        };
        ensure(stays.map(|row| row.state) == expected, || {
            format!("D7, D15: {claim:?} is {stays:?}")
        })?;
        let (row, due) = match how {
            How::Ack | How::Dead => return Ok(()),
            How::Extend => (stays, taken.run.lease()),
            How::Retry | How::Release | How::Unfire | How::Leave => {
                let is_new = |row: &&Stored| {
                    row.value == claim.value && !before.rows.contains_key(&row.version)
                };
                let delay = taken.run.halves(u32::from(how == How::Retry));
                (after.rows.values().find(is_new), delay)
            }
        };
        ensure(row.is_some_and(|row| taken.is_in(row.due, due)), || {
            format!("D2: {claim:?} has become {row:?}")
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
            let latest = self.versions.entry(row.key.clone()).or_insert(*version);
            ensure(*latest <= *version, || {
                format!("D7: {row:?} after {latest:?}")
            })?;
            *latest = *version;
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

/// D1, D2: no value goes but by a removal, a replacement, an acknowledgement or a death, and none
/// comes but by a set or a retry.
fn nothing_is_lost(taken: &Taken<'_>) -> Verdict {
    let before = taken.before;
    let mut expected = before.living();
    let mut leave = |value: &Vec<u8>| {
        if let Some(count) = expected.get_mut(value) {
            *count -= 1;
        }
    };
    let key = taken.step.key().unwrap_or_default();
    match taken.outcome {
        Outcome::Written(WriteOutcome::Armed { .. }) if taken.step.sets() => {
            before
                .of_key(&key, State::Waiting)
                .for_each(|row| leave(&row.value));
            *expected.entry(taken.run.last_value()).or_default() += 1;
        }
        Outcome::Written(WriteOutcome::Removed { .. }) => {
            let waiting = before.of_key(&key, State::Waiting);
            waiting.for_each(|row| leave(&row.value));
        }
        Outcome::Fired(report) => {
            for fired in report.fired.iter().filter(|fired| fired.repeats) {
                // The next occurrence.
                *expected.entry(fired.value.clone()).or_default() += 1;
            }
        }
        Outcome::Settled(settled) => {
            for (token, how, settled) in settled {
                let ends = matches!(how, How::Ack | How::Dead) && *settled == Settled::Done;
                let row = before.rows.get(token).filter(|_| ends);
                if let Some(row) = row {
                    leave(&row.value);
                }
            }
        }
        Outcome::Changed(_) if matches!(taken.step, Step::RetryDead(_)) => {
            for dead in before.of_key(&key, State::Dead) {
                *expected.entry(dead.value.clone()).or_default() += 1;
            }
        }
        _ => {}
    }
    expected.retain(|_, count| *count > 0);
    let living = taken.after.living();
    ensure(living == expected, || {
        format!("D1: rows by value are {living:?} instead of {expected:?}")
    })
}

/// D4, D6: the answer to a write says what the key had, and the write changes no other key and no
/// claim.
fn answer_fits(taken: &Taken<'_>, written: &WriteOutcome) -> Verdict {
    let (before, after) = (taken.before, taken.after);
    let is_late = matches!(
        taken.step,
        Step::Call {
            fault: Fault::Late,
            ..
        }
    );
    ensure(!is_late, || {
        format!("D4: {written:?} although the caller had given up")
    })?;
    let key = taken.step.key().unwrap_or_default();
    let waits = before.of_key(&key, State::Waiting).next();
    let in_flight = before.of_key(&key, State::InFlight).last();
    let dead = before.of_key(&key, State::Dead).last();
    let stays = || waits == after.of_key(&key, State::Waiting).next();
    let fits = match written {
        WriteOutcome::Armed { row, replaced, .. } => {
            let call = match taken.step {
                Step::Call { call, .. } => Some(call),
                _ => None,
            };
            let is_absent = waits.is_none() && in_flight.is_none();
            let only_if_absent = matches!(call, Some(Call::SetIfAbsent(..)));
            let is_move = matches!(call, Some(Call::Move(..)));
            *replaced == waits.map(|row| row.version)
                && !before.rows.contains_key(&row.version)
                && after.of_key(&key, State::Waiting).count() == 1
                && (is_absent || !only_if_absent)
                && (waits.is_some() || !is_move)
                && (is_move || after.of_key(&key, State::Dead).next().is_none())
        }
        WriteOutcome::Present => waits.is_some() && stays(),
        WriteOutcome::Removed { value, .. } => {
            waits.or(dead).is_some_and(|row| row.value == *value)
                && after.of_key(&key, State::Dead).next().is_none()
        }
        WriteOutcome::InFlight(token) => {
            waits.is_none() && in_flight.is_some_and(|row| row.version == *token) && stays()
        }
        WriteOutcome::Absent => waits.is_none() && in_flight.is_none() && stays(),
        other @ WriteOutcome::Locked(_) => {
            return Err(format!("no other transaction locks keys: {other:?}"));
        }
    };
    ensure(fits, || {
        format!("D4: {written:?}, where {waits:?} waited and {in_flight:?} was in flight")
    })?;
    taken.changes_only(|row| row.key == key && row.state != State::InFlight)
}

/// A load leaves no row that is due within its window to no instance.
fn near_rows_are_loaded(after: &View) -> Verdict {
    let mut rows = after.rows.values();
    // One that an instance has left to others is free for them alone.
    let left = rows.find(|row| after.is_free(row) && row.loaded_by.is_none());
    ensure(left.is_none(), || format!("D2: a load leaves {left:?}"))
}

/// D2: a fire without an answer holds no timer for longer than until the instance has looked.
fn lost_fires_are_undone(taken: &Taken<'_>) -> Verdict {
    let Step::Call {
        by,
        call: Call::Fire | Call::FireEarly | Call::FireUnloaded,
        fault: Fault::None,
    } = taken.step
    else {
        return Ok(());
    };
    if let Outcome::Refused = taken.outcome {
        return Ok(());
    }
    let Instance { id, claims, .. } = &taken.run.instances[usize::from(by)];
    let mut rows = taken.after.rows.values();
    let held = rows.find(|row| {
        let is_held = claims.iter().any(|claim| claim.token == row.version);
        row.state == State::InFlight && row.claimed_by == Some(*id) && !is_held
    });
    ensure(held.is_none(), || {
        format!("D2: {held:?} is claimed by an instance that does not know")
    })
}

/// D16: an instance that differs from the charter loads, fires and writes nothing, and none starts.
fn charter_is_compared(taken: &Taken<'_>) -> Verdict {
    let differs = taken.run.is_amended;
    let fits = match taken.outcome {
        Outcome::Written(_) | Outcome::Loaded(_) | Outcome::Fired(_) => !differs,
        Outcome::Amended(is_refused) => *is_refused == differs,
        _ => true,
    };
    ensure(fits, || {
        let verb = if differs { "differ" } else { "agree" };
        format!("D16: {:?}, and instances {verb}", taken.outcome)
    })
}

/// A row that a call leaves to no instance, and that may be loaded now, comes with a hint.
fn free_rows_are_hinted(taken: &Taken<'_>) -> Verdict {
    let (before, after) = (taken.before, taken.after);
    let newly_free = |row: &&Stored| {
        let was = before.rows.get(&row.version);
        after.is_free(row) && was.is_none_or(|was| was.loaded_by != row.loaded_by)
    };
    let row = after.rows.values().find(newly_free);
    ensure(row.is_none() || taken.run.is_hinted, || {
        format!("no instance hears of {row:?}")
    })
}

/// The loader's invariant: a row that a living instance has marked is on its wheel, or the instance
/// is about to unload it.
fn loaded_rows_are_on_a_wheel(after: &View, run: &Run) -> Verdict {
    for row in after.rows.values() {
        let mut instances = run.instances.iter();
        let loader = instances.find(|instance| Some(instance.id) == row.loaded_by);
        let forgotten = loader
            .is_some_and(|loader| !loader.must_unload && !loader.wheel.contains_key(&row.version));
        ensure(!forgotten, || {
            format!("{row:?} is marked by an instance that has it on no wheel")
        })?;
    }
    Ok(())
}

/// D5: while a lease lasts no other instance has a claim of the same timer, also after an
/// acknowledgement without an answer.
fn one_claim_at_a_time(now: StoreTime, run: &Run) -> Verdict {
    let claims = run.instances.iter().flat_map(|instance| &instance.claims);
    let mut held = BTreeMap::new();
    for claim in claims.filter(|claim| claim.until > now && !claim.repeats) {
        // Once it was put back or is dead, its timer may be another's.
        if claim.unanswered.is_none_or(|how| how == How::Ack) {
            let other = held.insert(&claim.value, claim);
            ensure(other.is_none(), || {
                format!("D5: {claim:?} beside {other:?}")
            })?;
        }
    }
    Ok(())
}
