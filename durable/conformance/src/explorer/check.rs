//! The invariants: each step is compared with the rows before and after it.

use std::collections::{BTreeMap, BTreeSet};

use tickwheel_durable::store::{Fired, Settled, State, StoreTime, Stored, Version, WriteOutcome};

use super::run::{Outcome, Rows, Run};
use super::step::{Call, How, Step};

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
}

/// The rows and the time before a step or after it.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) rows: Rows,
    pub(super) now: StoreTime,
}

impl View {
    pub(super) async fn of(run: &Run) -> View {
        let (rows, now) = run.rows().await;
        View { rows, now }
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
        self.count(|row| row.state != State::Dead)
    }

    fn count(&self, counts: impl Fn(&Stored) -> bool) -> BTreeMap<Vec<u8>, usize> {
        let mut values = BTreeMap::new();
        for row in self.rows.values().filter(|row| counts(row)) {
            *values.entry(row.value.clone()).or_default() += 1;
        }
        values
    }
}

/// Says what is wrong.
pub(super) type Verdict = Result<(), String>;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}

impl History {
    /// Holds a step to the promises.
    pub(super) fn check(
        &mut self,
        step: Step,
        outcome: &Outcome,
        before: &View,
        after: &View,
        run: &Run,
    ) -> Verdict {
        nothing_is_lost(step, outcome, before, after, run.sets)?;
        match outcome {
            Outcome::Written(written) => answer_fits(step, written, before)?,
            Outcome::Fired(fired) => self.fired(fired, before, after)?,
            Outcome::Settled(token, how, settled) => {
                self.settled(*token, *how, *settled, before, after)?;
            }
            Outcome::Loaded(_) => near_rows_are_loaded(after, run)?,
            Outcome::Tick | Outcome::Crash | Outcome::Unloaded | Outcome::Unmarked(_) => {}
        }
        let repeating = after.rows.values().filter(|row| row.repeats());
        self.repeating
            .extend(repeating.map(|row| row.value.clone()));
        self.versions_grow(before, after)?;
        self.attempts_add_up(after)?;
        loaded_rows_are_on_a_wheel(after, run)?;
        one_claim_at_a_time(after.now, run)
    }

    /// D2, D3, D7: what fired was due and is in flight under a greater version.
    fn fired(&mut self, fired: &[Fired], before: &View, after: &View) -> Verdict {
        for row in fired {
            ensure(row.deadline <= before.now, || {
                format!("D3: {row:?} fired at {}", before.now)
            })?;
            let latest = self.versions.get(&row.key);
            ensure(latest < Some(&row.token), || {
                format!("D7: {row:?} fired after {latest:?}")
            })?;
            let stored = after.rows.get(&row.token);
            ensure(
                stored.is_some_and(|row| row.state == State::InFlight && row.due > after.now),
                || format!("D2, D6: {row:?} is {stored:?}"),
            )?;
            if !self.repeating.contains(&row.value) {
                *self.attempts.entry(row.value.clone()).or_default() += 1;
            }
        }
        for (version, row) in &before.rows {
            let holds = row.state == State::InFlight && row.due > before.now;
            ensure(!holds || after.rows.get(version) == Some(row), || {
                format!("D5: a fire changed a claim that is held, {row:?}")
            })?;
        }
        Ok(())
    }

    fn settled(
        &mut self,
        token: Version,
        how: How,
        settled: Settled,
        before: &View,
        after: &View,
    ) -> Verdict {
        let claim = before.rows.get(&token);
        let claim = claim.filter(|row| row.state == State::InFlight);
        ensure(claim.is_none() == (settled == Settled::Lost), || {
            format!("D7: {settled:?} for {claim:?}")
        })?;
        let Some(claim) = claim else {
            return ensure(before.rows == after.rows, || {
                "D7: a lost claim changed something".to_owned()
            });
        };
        if matches!(how, How::Unfire | How::Leave) {
            if let Some(attempts) = self.attempts.get_mut(&claim.value) {
                ensure(*attempts > 0, || {
                    format!("D15: a firing is taken back twice, {claim:?}")
                })?;
                *attempts -= 1;
            }
        }
        let dead = after.rows.get(&token).map(|row| row.state) == Some(State::Dead);
        ensure(dead == (how == How::Dead), || format!("D15: {claim:?}"))
    }

    /// D7: a version that is new under a key is greater than all that were seen under it.
    fn versions_grow(&mut self, before: &View, after: &View) -> Verdict {
        for (version, row) in &after.rows {
            if before.rows.contains_key(version) {
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
/// comes but by a set.
fn nothing_is_lost(
    step: Step,
    outcome: &Outcome,
    before: &View,
    after: &View,
    sets: u32,
) -> Verdict {
    let mut expected = before.living();
    let mut leave = |value: &Vec<u8>| {
        if let Some(count) = expected.get_mut(value) {
            *count -= 1;
        }
    };
    match outcome {
        Outcome::Written(written) => {
            let key = key_of(step);
            let waiting = before.of_key(&key, State::Waiting).next();
            let is_set = matches!(step, Step::Call { call, .. } if is_set(call));
            let armed = matches!(written, WriteOutcome::Armed { .. });
            if armed && is_set || matches!(written, WriteOutcome::Removed { .. }) {
                if let Some(row) = waiting {
                    leave(&row.value);
                }
            }
            if armed && is_set {
                *expected.entry(sets.to_be_bytes().to_vec()).or_default() += 1;
            }
        }
        Outcome::Fired(fired) => {
            for fired in fired.iter().filter(|fired| fired.repeats) {
                // The next occurrence.
                *expected.entry(fired.value.clone()).or_default() += 1;
            }
        }
        Outcome::Settled(token, How::Ack | How::Dead, Settled::Done) => {
            if let Some(row) = before.rows.get(token) {
                leave(&row.value);
            }
        }
        _ => {}
    }
    expected.retain(|_, count| *count > 0);
    let living = after.living();
    ensure(living == expected, || {
        format!("D1: rows by value are {living:?} instead of {expected:?}")
    })
}

/// D4, D6: the answer to a write says what the key had.
fn answer_fits(step: Step, written: &WriteOutcome, before: &View) -> Verdict {
    let key = key_of(step);
    let waits = before.of_key(&key, State::Waiting).next();
    let in_flight = before.of_key(&key, State::InFlight).last();
    let fits = match written {
        WriteOutcome::Armed { row, replaced, .. } => {
            let only_if_absent = matches!(
                step,
                Step::Call {
                    call: Call::SetIfAbsent(..),
                    ..
                }
            );
            let is_absent = waits.is_none() && in_flight.is_none();
            *replaced == waits.map(|row| row.version)
                && !before.rows.contains_key(&row.version)
                && (is_absent || !only_if_absent)
        }
        WriteOutcome::Present => waits.is_some(),
        WriteOutcome::Removed { value, .. } => {
            let dead = before.of_key(&key, State::Dead).last();
            waits.or(dead).is_some_and(|row| row.value == *value)
        }
        WriteOutcome::InFlight(token) => {
            waits.is_none() && in_flight.is_some_and(|row| row.version == *token)
        }
        WriteOutcome::Absent => waits.is_none() && in_flight.is_none(),
        other => return Err(format!("no other transaction locks keys: {other:?}")),
    };
    ensure(fits, || {
        format!("D4: {written:?}, where {waits:?} waited and {in_flight:?} was in flight")
    })
}

/// A load leaves no row that is due within its window to no instance.
fn near_rows_are_loaded(after: &View, run: &Run) -> Verdict {
    let until = after.now.after(run.halves(2));
    let mut rows = after.rows.values();
    let left = rows.find(|row| {
        let free = row.state == State::Waiting && row.due <= until
            || row.state == State::InFlight && row.due <= after.now;
        free && row.loaded_by.is_none()
    });
    ensure(left.is_none(), || format!("D2: a load leaves {left:?}"))
}

/// The loader's invariant: a row that a living instance has marked is on its wheel, or the instance
/// is about to unload.
fn loaded_rows_are_on_a_wheel(after: &View, run: &Run) -> Verdict {
    for row in after.rows.values() {
        let loader = run
            .instances
            .iter()
            .find(|instance| Some(instance.id) == row.loaded_by);
        let forgotten = loader
            .is_some_and(|loader| !loader.must_unload && !loader.wheel.contains_key(&row.version));
        ensure(!forgotten, || {
            format!("{row:?} is marked by an instance that has it on no wheel")
        })?;
    }
    Ok(())
}

/// D5: while a lease lasts no other instance has a claim of the same timer.
fn one_claim_at_a_time(now: StoreTime, run: &Run) -> Verdict {
    let claims = run.instances.iter().flat_map(|instance| &instance.claims);
    let mut held = BTreeMap::new();
    for claim in claims.filter(|claim| claim.until > now && !claim.repeats) {
        // Once a settle was made, its claim may be another's.
        if claim.unanswered.is_none_or(|how| how == How::Extend) {
            let other = held.insert(&claim.value, claim);
            ensure(other.is_none(), || {
                format!("D5: {claim:?} beside {other:?}")
            })?;
        }
    }
    Ok(())
}

pub(super) fn is_set(call: Call) -> bool {
    matches!(
        call,
        Call::Set(..) | Call::SetIfAbsent(..) | Call::SetInterval(..)
    )
}

fn key_of(step: Step) -> Vec<u8> {
    let Step::Call { call, .. } = step else {
        return Vec::new();
    };
    match call {
        Call::Set(key, _)
        | Call::SetIfAbsent(key, _)
        | Call::SetInterval(key)
        | Call::Move(key, _)
        | Call::Remove(key) => vec![b'a' + key],
        _ => Vec::new(),
    }
}
