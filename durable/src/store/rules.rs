//! The rules of writes, loads, fires and settles, for stores that are called row by row.
//!
//! `Memory` and `Sqlite` have them: each call holds the store, reads the clock once, and runs a
//! function of this module over the small calls of [`Rows`]. PostgreSQL and Redis run the same
//! rules in statements and scripts, since a call there is one round trip.

mod fire;
mod settle;

use std::time::{Duration, Instant};
use std::vec;

use super::answers::{Armed, ChangedRows, Loaded, Stored, WriteOutcome};
use super::ids::{InstanceId, Version};
use super::requests::{Action, DeadChange, DeadRows, Load, MAX_DEAD_OF_KEY, State, Terms, Write};
use super::schedule::{Scheduled, Schedules};
use super::time::StoreTime;

pub(crate) use fire::fire;
pub(crate) use settle::settle;

/// The most rows that one step purges, retries, discards or unloads.
pub(crate) const STEP_ROWS: usize = 512;

/// A step ends after this time. In a large file each row lies on other pages.
pub(crate) const STEP_TIME: Duration = Duration::from_millis(5);

/// The rows of a namespace in one call, which no other call meets meanwhile.
pub(crate) trait Rows {
    type Error;

    /// The store's time, which a call reads once.
    fn now(&self) -> StoreTime;

    /// Has so many versions ready.
    fn reserve(&mut self, _count: usize) -> Result<(), Self::Error> {
        Ok(())
    }

    fn next_version(&mut self) -> Result<Version, Self::Error>;

    /// Notifies the instances of near rows that none has loaded, once the call has happened.
    fn hint(&mut self);

    /// The latest row of a key in a state.
    fn latest(&mut self, state: State, key: &[u8]) -> Result<Option<Stored>, Self::Error>;

    /// The row with a version, and what it holds that no store writes.
    fn row(&mut self, version: Version) -> Result<Option<(Stored, Option<String>)>, Self::Error>;

    fn insert(&mut self, row: &Stored) -> Result<(), Self::Error>;

    /// Writes all of a row but key and value over the one that was in that state.
    fn update(&mut self, old: (Version, State), row: &Stored) -> Result<(), Self::Error>;

    fn delete(&mut self, old: (Version, State)) -> Result<(), Self::Error>;

    /// Deletes a row in flight. `false` if there is none.
    fn ack(&mut self, token: Version) -> Result<bool, Self::Error>;

    /// The chosen dead rows, at most so many: those that died first before others, and of a key
    /// those with the least versions.
    fn some_dead(&mut self, which: &DeadRows, at_most: usize) -> Result<Vec<Version>, Self::Error>;

    /// Deletes the dead rows of a key, but for so many with the greatest versions. Returns how many
    /// it has deleted.
    fn keep_dead(&mut self, key: &[u8], most: usize) -> Result<usize, Self::Error>;

    /// Whether an id counts as living.
    fn lives(&mut self, instance: InstanceId) -> Result<bool, Self::Error>;

    /// Has an id count as living until then. A new one has this name from then on.
    fn keep_alive(
        &mut self,
        instance: InstanceId,
        until: StoreTime,
        name: Option<&str>,
    ) -> Result<(), Self::Error>;

    /// Unloads rows of ids that count as living no more, at most [`STEP_ROWS`]. Returns whether
    /// there are more.
    fn unload_dead(&mut self) -> Result<bool, Self::Error>;

    /// The unloaded rows with such schedules, earliest first: those that wait and are due by
    /// `until`, and those whose lease has ended. At least one more than `at_most`, if there are as
    /// many.
    fn unloaded(
        &mut self,
        until: StoreTime,
        at_most: usize,
        schedules: &Schedules,
    ) -> Result<Vec<(Version, StoreTime)>, Self::Error>;

    /// Due rows that other instances have left, any of them: one more than `at_most` if there are
    /// as many.
    fn left_by_others(
        &mut self,
        instance: InstanceId,
        at_most: usize,
    ) -> Result<Vec<(Version, StoreTime)>, Self::Error>;

    /// Marks a row as loaded. Returns its schedule, if it has one.
    fn mark(
        &mut self,
        version: Version,
        instance: InstanceId,
    ) -> Result<Option<Scheduled>, Self::Error>;

    /// Writes how many due rows an instance lacks. Returns how many the others do.
    fn lack(&mut self, instance: InstanceId, rows: usize) -> Result<usize, Self::Error>;
}

/// The window of a call, without a loader that does not count as living.
fn living<R: Rows>(rows: &mut R, near: Terms) -> Result<Terms, R::Error> {
    let loader = match near.loader {
        Some(loader) if rows.lives(loader)? => Some(loader),
        _ => None,
    };
    Ok(Terms { loader, ..near })
}

/// Makes a row a waiting one with a new version, loaded if it is near.
fn arm<R: Rows>(rows: &mut R, row: &mut Stored, near: Terms) -> Result<Armed, R::Error> {
    let is_near = row.due <= rows.now().after(near.window);
    row.version = rows.next_version()?;
    row.state = State::Waiting;
    row.loaded_by = near.loader.filter(|_| is_near);
    row.claimed_by = None;
    if is_near && row.loaded_by.is_none() {
        rows.hint();
    }
    Ok(row.armed())
}

/// Makes a row the waiting one of its key. Beside a newer one it stays in flight, and no claim
/// holds it: `None`.
fn put_back<R: Rows>(
    rows: &mut R,
    row: &mut Stored,
    near: Terms,
) -> Result<Option<Armed>, R::Error> {
    if rows.latest(State::Waiting, &row.key)?.is_none() {
        return arm(rows, row, near).map(Some);
    }
    row.version = rows.next_version()?;
    row.state = State::InFlight;
    (row.loaded_by, row.claimed_by) = (None, None);
    Ok(None)
}

/// Sets, moves and removes, in order, until that has discarded [`STEP_ROWS`] dead rows. What is left
/// of the batch is for another step.
pub(crate) fn write<R: Rows>(
    rows: &mut R,
    writes: &mut vec::IntoIter<Write>,
    near: Terms,
) -> Result<Vec<WriteOutcome>, R::Error> {
    let near = living(rows, near)?;
    rows.reserve(writes.len())?;
    let (mut written, mut discarded) = (Vec::with_capacity(writes.len()), 0);
    while discarded < STEP_ROWS {
        let Some(write) = writes.next() else { break };
        written.push(write_one(rows, write, near, &mut discarded)?);
    }
    Ok(written)
}

/// Adds how many dead rows it has discarded.
fn write_one<R: Rows>(
    rows: &mut R,
    Write { key, action }: Write,
    near: Terms,
    discarded: &mut usize,
) -> Result<WriteOutcome, R::Error> {
    let waiting = rows.latest(State::Waiting, &key)?;
    match action {
        Action::Set {
            value,
            due,
            period,
            schedule,
            if_absent,
        } => {
            if if_absent && waiting.is_some() {
                return Ok(WriteOutcome::Present);
            }
            if if_absent {
                if let Some(row) = rows.latest(State::InFlight, &key)? {
                    return Ok(WriteOutcome::InFlight(row.version));
                }
            }
            // `arm` gives it its version.
            let due = due.at(rows.now());
            let mut row = Stored::new(Version(0), State::Waiting, key, value, due);
            (row.period, row.schedule) = (period, schedule);
            *discarded += rows.keep_dead(&row.key, 0)?;
            set(rows, row, waiting, near)
        }
        Action::Move { due } => match waiting {
            Some(mut row) => {
                let old = row.version;
                row.due = due.at(rows.now());
                row.deadline = row.due;
                let armed = arm(rows, &mut row, near)?;
                rows.update((old, State::Waiting), &row)?;
                Ok(WriteOutcome::Armed {
                    row: armed,
                    replaced: Some(old),
                })
            }
            None => Ok(match rows.latest(State::InFlight, &key)? {
                Some(row) => WriteOutcome::InFlight(row.version),
                None => WriteOutcome::Absent,
            }),
        },
        Action::Remove => {
            if let Some(row) = &waiting {
                rows.delete((row.version, State::Waiting))?;
            } else if let Some(row) = rows.latest(State::InFlight, &key)? {
                return Ok(WriteOutcome::InFlight(row.version));
            }
            let removed = match waiting {
                Some(row) => Some(row),
                None => rows.latest(State::Dead, &key)?,
            };
            let Some(row) = removed else {
                return Ok(WriteOutcome::Absent);
            };
            *discarded += rows.keep_dead(&key, 0)?;
            Ok(WriteOutcome::Removed {
                version: row.version,
                value: row.value,
            })
        }
    }
}

/// Sets a row in place of the waiting one of its key.
fn set<R: Rows>(
    rows: &mut R,
    mut row: Stored,
    waiting: Option<Stored>,
    near: Terms,
) -> Result<WriteOutcome, R::Error> {
    row.keep_time(waiting.as_ref());
    let replaced = waiting.map(|row| row.version);
    if let Some(version) = replaced {
        rows.delete((version, State::Waiting))?;
    }
    let armed = arm(rows, &mut row, near)?;
    rows.insert(&row)?;
    Ok(WriteOutcome::Armed {
        row: armed,
        replaced,
    })
}

/// Hands rows out to an instance.
pub(crate) fn load<R: Rows>(rows: &mut R, request: &Load) -> Result<Loaded, R::Error> {
    let (now, instance, limit) = (rows.now(), request.instance, request.limit);
    rows.keep_alive(instance, now.after(request.alive), request.name.as_deref())?;
    let is_unloading = rows.unload_dead()?;
    let mut found = rows.unloaded(now.after(request.window), limit, &request.schedules)?;
    found.extend(rows.left_by_others(instance, limit)?);
    found.sort_by_key(|&(version, due)| (due, version));
    let more = found.len() > limit || is_unloading;
    found.truncate(limit);
    let mut scheduled = Vec::new();
    for &(version, _) in &found {
        scheduled.extend(rows.mark(version, instance)?);
    }
    let due = found.iter().filter(|(_, due)| *due <= now).count();
    let others_lack = rows.lack(instance, request.wanted.saturating_sub(due))?;
    Ok(Loaded {
        now,
        rows: found,
        more,
        others_lack,
        scheduled,
    })
}

/// Makes a row dead from now on, in place of the oldest dead one of its key if there are many.
fn die<R: Rows>(rows: &mut R, mut row: Stored) -> Result<(), R::Error> {
    rows.keep_dead(&row.key, MAX_DEAD_OF_KEY - 1)?;
    let old = (row.version, row.state);
    (row.state, row.due) = (State::Dead, rows.now());
    (row.period, row.schedule, row.loaded_by, row.claimed_by) = (None, None, None, None);
    rows.update(old, &row)
}

/// Retries or discards the first of the chosen dead rows.
pub(crate) fn change_dead<R: Rows>(
    rows: &mut R,
    which: &DeadRows,
    change: DeadChange,
) -> Result<ChangedRows, R::Error> {
    let began = Instant::now();
    let mut changed = 0;
    for version in rows.some_dead(which, STEP_ROWS + 1)? {
        let is_over = changed > 0 && began.elapsed() >= STEP_TIME;
        if is_over || changed == STEP_ROWS as u64 {
            return Ok(ChangedRows::new(changed, true));
        }
        match change {
            DeadChange::Retry => revive(rows, version)?,
            DeadChange::Discard => rows.delete((version, State::Dead))?,
        }
        changed += 1;
    }
    Ok(ChangedRows::new(changed, false))
}

/// Makes a dead row due again.
fn revive<R: Rows>(rows: &mut R, version: Version) -> Result<(), R::Error> {
    let Some((mut row, _)) = rows.row(version)? else {
        return Ok(());
    };
    row.attempt = 0;
    row.due = rows.now();
    if put_back(rows, &mut row, Terms::NONE)?.is_none() {
        rows.hint();
    }
    rows.update((version, State::Dead), &row)
}
