//! The promises that a step and the rows before and after it show alone.

use std::collections::{BTreeMap, BTreeSet};

use tickwheel_durable::store::{
    Armed, FireReport, Fired, InstanceId, Loaded, Missed, Settled, State, StoreTime, Stored,
    Version, WriteOutcome,
};

use super::instance::{Instance, Outcome};
use super::run::Run;
use super::state::View;
use super::step::{Call, Fault, Settling, Step};
use super::taken::{Taken, Verdict, ensure};

/// The error that a row keeps: the last one.
pub(super) fn error_after(how: Settling, claim: &Stored) -> Option<String> {
    how.error().or_else(|| claim.error.clone())
}

/// D8, D9: the next occurrence of a timer that has fired waits, at the time that the rule says.
pub(super) fn next_occurrence_waits(
    row: &Fired,
    was: Option<&Stored>,
    taken: &Taken<'_>,
) -> Verdict {
    let (before, after, unit) = (taken.before, taken.after, taken.run.unit);
    let mut of_key = before.of_key(&row.key, State::InFlight);
    let beside = of_key.next();
    ensure(
        beside.is_none() || !taken.run.bounds.charter.no_overlap,
        || format!("no_overlap: {row:?} fires beside {beside:?}"),
    )?;
    let next = after.of_key(&row.key, State::Waiting).next();
    let fits = |next: &&Stored| {
        let periods = next.due.since(row.deadline).as_micros() / unit.as_micros();
        let missed = u128::from(row.missed);
        let in_time = next.due > before.now && next.due <= after.now.after(unit);
        let by_rule = match taken.run.bounds.missed {
            Missed::FireAll => periods == 1 && missed == 0,
            Missed::FireOnce => in_time && periods == missed + 1,
            _ => in_time && periods == 1 && missed == 0,
        };
        let same = was.is_some_and(|was| {
            (&was.value, was.period, &was.schedule) == (&next.value, next.period, &next.schedule)
        });
        let on_time = row
            .deadline
            .after(unit * u32::try_from(periods).unwrap_or(0));
        by_rule && same && next.attempt == 0 && next.deadline == next.due && next.due == on_time
    };
    ensure(next.as_ref().is_some_and(fits), || {
        format!("D8, D9: {next:?} follows {row:?}")
    })
}

/// D8: an occurrence that does not fire waits for the next time, if the rule says so or another
/// one of its key is in flight.
pub(super) fn skipped_occurrences_wait(report: &FireReport, taken: &Taken<'_>) -> Verdict {
    let (before, after, unit) = (taken.before, taken.after, taken.run.unit);
    let (no_overlap, missed) = (taken.run.bounds.charter.no_overlap, taken.run.bounds.missed);
    let again = report
        .later
        .iter()
        .filter(|row| !before.rows.contains_key(&row.version));
    for armed in again {
        let now = after.rows.get(&armed.version);
        let fits = |now: &Stored| {
            let mut was = before.of_key(&now.key, State::Waiting);
            let Some(was) = was.next().filter(|was| was.value == now.value) else {
                return false;
            };
            let is_beside = before.of_key(&now.key, State::InFlight).next().is_some();
            let waits = no_overlap && is_beside;
            let skipped = missed == Missed::Skip && was.deadline.after(unit) <= after.now;
            let deadline = if missed == Missed::Skip {
                now.due
            } else {
                was.deadline
            };
            let cadence = now.due.since(was.deadline).as_micros() % unit.as_micros();
            let in_time = now.due > before.now && now.due <= after.now.after(unit);
            (waits || skipped) && now.deadline == deadline && cadence == 0 && in_time
        };
        ensure(now.is_some_and(fits), || {
            format!("D8: {now:?} waits instead of firing")
        })?;
    }
    Ok(())
}

/// D1, D2: no value goes but by a removal, a replacement, an acknowledgement or a death, and none
/// comes but by a set or a retry.
pub(super) fn nothing_is_lost(taken: &Taken<'_>) -> Verdict {
    let before = taken.before;
    let mut expected = before.living();
    let mut leave = |value: &Vec<u8>| {
        if let Some(count) = expected.get_mut(value) {
            *count = count.saturating_sub(1);
        }
    };
    let key = taken.step.key().unwrap_or_default();
    match taken.outcome {
        Outcome::Written(written) => {
            let sets = taken.step.sets() && matches!(written[..], [WriteOutcome::Armed { .. }]);
            if sets || matches!(written[..], [WriteOutcome::Removed { .. }]) {
                let waiting = before.of_key(&key, State::Waiting);
                waiting.for_each(|row| leave(&row.value));
            }
            if sets {
                *expected.entry(taken.run.last_value()).or_default() += 1;
            }
        }
        Outcome::Fired(report) => {
            for fired in &report.fired {
                // The next occurrence, and one that is delivered at most once.
                let count = expected.entry(fired.value.clone()).or_default();
                *count += usize::from(fired.repeats);
                let ends = usize::from(taken.run.bounds.charter.at_most_once);
                *count = count.saturating_sub(ends);
            }
        }
        Outcome::Settled(settled) => {
            for (token, how, settled) in settled {
                let ends =
                    matches!(how, Settling::Ack | Settling::Dead) && *settled == Settled::Done;
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
pub(super) fn answer_fits(taken: &Taken<'_>, written: &WriteOutcome) -> Verdict {
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
            armed_fits(taken, &key, row, *replaced)?;
            true
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

/// D4, D15: a row that a write has armed stands alone under its key, is due in time, and has
/// replaced what waited there.
fn armed_fits(taken: &Taken<'_>, key: &[u8], row: &Armed, replaced: Option<Version>) -> Verdict {
    let (before, after) = (taken.before, taken.after);
    let call = match taken.step {
        Step::Call { call, .. } => Some(call),
        _ => None,
    };
    let is_move = matches!(call, Some(Call::Move(..)));
    let waits = before.of_key(key, State::Waiting).next();
    let in_flight = before.of_key(key, State::InFlight).next();
    let stored = after.rows.get(&row.version);
    ensure(replaced == waits.map(|row| row.version), || {
        format!("D4: {replaced:?} is replaced, where {waits:?} waited")
    })?;
    ensure(!before.rows.contains_key(&row.version), || {
        format!("D7: {row:?} has a version that was there before")
    })?;
    let waiting = after.of_key(key, State::Waiting).count();
    ensure(waiting == 1, || {
        format!("D4: {waiting} rows wait under the key of {row:?}")
    })?;
    // The same schedule again keeps its time.
    let kept =
        waits.filter(|was| was.schedule.is_some() && matches!(call, Some(Call::SetCron(..))));
    let delay = call.and_then(Call::due_in);
    let in_time = stored.is_some_and(|stored| {
        if let Some(kept) = kept {
            return (kept.due, kept.deadline) == (stored.due, stored.deadline);
        }
        let fits = |delay| taken.is_due_in(stored.due, delay);
        stored.due == stored.deadline && delay.is_some_and(fits)
    });
    ensure(in_time, || {
        format!("D3, D4: {stored:?} is not due when {call:?} says")
    })?;
    ensure(stored.is_some_and(|stored| stored.due == row.due), || {
        format!("D4: {row:?} is {stored:?}")
    })?;
    let error = stored.and_then(|stored| stored.error.as_ref());
    let kept = waits.filter(|_| is_move).and_then(|was| was.error.as_ref());
    ensure(error == kept, || {
        format!("D15: {stored:?} has the error {error:?} instead of {kept:?}")
    })?;
    let is_absent = waits.is_none() && in_flight.is_none();
    let only_if_absent = matches!(call, Some(Call::SetIfAbsent(..)));
    ensure(is_absent || !only_if_absent, || {
        format!("D4: {row:?} is set, though {waits:?} waited and {in_flight:?} was in flight")
    })?;
    ensure(waits.is_some() || !is_move, || {
        format!("D4: {row:?} is moved, and nothing waited")
    })?;
    let dead = after.of_key(key, State::Dead).next();
    ensure(is_move || dead.is_none(), || {
        format!("D15: {dead:?} stays dead under the key of {row:?}")
    })
}

/// A load takes rows that are near, and leaves no row that is due within its window to no instance,
/// unless it says so.
pub(super) fn near_rows_are_loaded(after: &View, loaded: &Loaded, knows: bool) -> Verdict {
    // One that an instance has left to others is free for them alone.
    let is_left = |row: &&Stored| {
        let is_known = knows || row.schedule.is_none();
        after.is_free(row) && row.loaded_by.is_none() && is_known
    };
    let mut left = after.rows.values().filter(is_left).peekable();
    let is_cut = left.peek().is_some();
    let near = |&(version, _): &(Version, _)| {
        let row = after.rows.get(&version);
        row.is_some_and(|row| after.is_near(row))
    };
    ensure(loaded.rows.iter().all(near), || {
        format!("D6: {loaded:?} has rows that may not be loaded yet")
    })?;
    let last = loaded.rows.iter().map(|&(_, due)| due).max();
    ensure(
        is_cut == loaded.more && left.all(|row| Some(row.due) >= last),
        || format!("D2: a load leaves rows that are due earlier, or more than {loaded:?} says"),
    )
}

/// D2: a fire without an answer holds no timer for longer than until the instance has looked.
pub(super) fn lost_fires_are_undone(taken: &Taken<'_>) -> Verdict {
    let Step::Call {
        by,
        call,
        fault: Fault::None,
    } = taken.step
    else {
        return Ok(());
    };
    if !call.fires() || matches!(taken.outcome, Outcome::Refused) {
        return Ok(());
    }
    let Instance { id, claims, .. } = &taken.run.instances[usize::from(by)];
    let mut rows = taken.after.rows.values();
    let held = rows.find(|row| {
        let has_returned = taken.run.returned.contains(&row.version);
        let is_held = claims.iter().any(|claim| claim.token == row.version);
        row.state == State::InFlight && row.claimed_by == Some(*id) && !is_held && !has_returned
    });
    ensure(held.is_none(), || {
        format!("D2: {held:?} is claimed by an instance that does not know")
    })
}

/// An answer says of each row that is armed whether it is marked.
pub(super) fn marks_are_told(taken: &Taken<'_>) -> Verdict {
    let armed: Vec<Armed> = match taken.outcome {
        Outcome::Written(written) => {
            let armed = written.iter().filter_map(|written| match written {
                WriteOutcome::Armed { row, .. } => Some(*row),
                _ => None,
            });
            armed.collect()
        }
        Outcome::Fired(report) => report.later.iter().chain(&report.next).copied().collect(),
        Outcome::Settled(settled) => {
            let armed = settled.iter().filter_map(|(.., settled)| match settled {
                Settled::Armed(row) => Some(*row),
                _ => None,
            });
            armed.collect()
        }
        _ => Vec::new(),
    };
    for row in armed {
        let stored = taken.after.rows.get(&row.version);
        let marked = stored.and_then(|stored| stored.loaded_by);
        // One that an instance has left to others is marked for it.
        let fits = marked.is_some() == row.loaded || marked.is_some_and(InstanceId::is_left);
        ensure(fits, || format!("{row:?} is {stored:?}"))?;
    }
    Ok(())
}

/// D16: an instance that differs from the charter loads, fires and writes nothing, and none starts.
pub(super) fn charter_is_compared(taken: &Taken<'_>) -> Verdict {
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
pub(super) fn free_rows_are_hinted(taken: &Taken<'_>) -> Verdict {
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

/// D11, the loader's invariant: a row that a living instance has marked is on its wheel, or the
/// instance is about to unload it. If the store has returned to an earlier state, the next load
/// finds out.
pub(super) fn loaded_rows_are_on_a_wheel(after: &View, run: &Run) -> Verdict {
    for row in after.rows.values() {
        let mut instances = run.instances.iter();
        let loader = instances.find(|instance| Some(instance.id) == row.loaded_by);
        let forgotten = loader.is_some_and(|loader| {
            let looks = loader.must_unload || loader.is_unaware;
            !looks && !loader.wheel.contains_key(&row.version)
        });
        ensure(!forgotten, || {
            format!("D11: {row:?} is marked by an instance that has it on no wheel")
        })?;
    }
    Ok(())
}

/// D5: while a lease lasts no other instance has a claim of the same timer, also after an
/// acknowledgement without an answer.
pub(super) fn one_claim_at_a_time(
    now: StoreTime,
    run: &Run,
    repeating: &BTreeSet<Vec<u8>>,
) -> Verdict {
    let claims = run.instances.iter().flat_map(|instance| &instance.claims);
    let mut held = BTreeMap::new();
    for claim in claims.filter(|claim| claim.until > now && !repeating.contains(&claim.value)) {
        // Once it was put back or is dead, its timer may be another's.
        if claim.unanswered.is_none_or(|how| how == Settling::Ack) {
            let other = held.insert(&claim.value, claim);
            ensure(other.is_none(), || {
                format!("D5: {claim:?} beside {other:?}")
            })?;
        }
    }
    Ok(())
}
