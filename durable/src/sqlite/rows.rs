//! The changes that each call makes to the rows.

use std::ops::Range;
use std::time::Duration;

use rusqlite::{OptionalExtension, params};

use super::charter;
use super::reading::{COLUMNS, damage, now, number, read, state_number};
use super::thread::Batch;
use crate::store::{
    Action, Armed, Due, Edition, InstanceId, LeftRow, LoadWindow, Namespace, Settle, Settled,
    Settlement, State, StoreError, StoreTime, Stored, Version, Write, WriteOutcome, micros,
};

type Result<T> = rusqlite::Result<T>;

/// The period of a row as it is stored.
fn period_of(row: &Stored) -> Option<i64> {
    let never = StoreTime::NEVER.as_micros();
    row.period.map(|period| micros(period).clamp(1, never))
}

/// One call on a namespace: the time is read once, when nothing else can write any more.
pub(super) struct Call<'a> {
    pub(super) batch: &'a Batch<'a>,
    pub(super) namespace: i64,
    /// How many dead rows it had before the call.
    dead: i64,
    pub(super) now: StoreTime,
    /// Versions that were taken from the sequence for this call.
    reserved: Range<i64>,
    /// How many rows more the namespace has than before the call, by the number of their state.
    more_rows: [i64; 3],
    /// Whether the call has left near rows that no instance has loaded.
    pub(super) hints: bool,
}

impl<'a> Call<'a> {
    /// A call on a namespace that was opened before, which may change it only under that charter
    /// and until then.
    pub(super) fn new(
        batch: &'a Batch<'a>,
        namespace: &Namespace,
        charter: Option<Edition>,
        until: StoreTime,
    ) -> Result<std::result::Result<Self, StoreError>> {
        let found = charter::namespace(batch.connection, namespace)?;
        let found = found.and_then(|found| found.check(namespace, charter, until).map(|()| found));
        Ok(found.map(|found| Call {
            batch,
            namespace: found.id,
            dead: found.dead,
            now: now(),
            reserved: 0..0,
            more_rows: [0; 3],
            hints: false,
        }))
    }

    /// Keeps the counts of the namespace, and sends the hint, if there is one to send.
    pub(super) fn finish(self, namespace: &Namespace) -> Result<()> {
        if self.more_rows != [0; 3] {
            let [waiting, in_flight, dead] = self.more_rows;
            let sql = "UPDATE tickwheel_namespaces SET waiting = waiting + ?2, in_flight = in_flight + ?3,
                dead = dead + ?4 WHERE id = ?1";
            self.execute(sql, (self.namespace, waiting, in_flight, dead))?;
        }
        if self.hints {
            self.batch.hint(namespace);
        }
        Ok(())
    }

    /// Notes that the namespace has so many rows more in a state.
    pub(super) fn add_rows(&mut self, state: State, rows: i64) {
        let state = match state {
            State::Waiting => 0,
            State::InFlight => 1,
            State::Dead => 2,
        };
        self.more_rows[state] += rows;
    }

    /// Whether the namespace has dead rows.
    pub(super) fn has_dead(&self) -> bool {
        self.dead + self.more_rows[2] > 0
    }

    /// The same, without a loader that does not count as living.
    pub(super) fn near(&self, near: LoadWindow) -> Result<LoadWindow> {
        let Some(InstanceId(instance)) = near.loader else {
            return Ok(near);
        };
        let select = "SELECT 1 FROM tickwheel_instances WHERE id = ?1 AND alive_until >= ?2";
        let mut select = self.batch.connection.prepare_cached(select)?;
        let lives = select.exists((instance, self.now.as_micros()))?;
        let loader = near.loader.filter(|_| lives);
        Ok(LoadWindow { loader, ..near })
    }

    /// Takes so many versions from the sequence in one step. Those that are not used are left out.
    pub(super) fn reserve(&mut self, count: usize) -> Result<()> {
        let Version(first) = self.batch.versions(count)?;
        self.reserved = first..first + number(count);
        Ok(())
    }

    pub(super) fn next_version(&mut self) -> Result<Version> {
        match self.reserved.next() {
            Some(version) => Ok(Version(version)),
            None => self.batch.versions(1),
        }
    }

    pub(super) fn execute(&self, sql: &str, params: impl rusqlite::Params) -> Result<usize> {
        self.batch.connection.prepare_cached(sql)?.execute(params)
    }

    fn select(&self, rest: &str, params: impl rusqlite::Params) -> Result<Option<Stored>> {
        let sql = format!("SELECT {COLUMNS} {rest}");
        let mut select = self.batch.connection.prepare_cached(&sql)?;
        select.query_row(params, read).optional()
    }

    pub(super) fn waiting(&self, key: &[u8]) -> Result<Option<Stored>> {
        let rest = "WHERE namespace = ?1 AND key = ?2 AND state = 0";
        self.select(rest, (self.namespace, key))
    }

    pub(super) fn in_flight(&self, key: &[u8]) -> Result<Option<Stored>> {
        let rest = "WHERE namespace = ?1 AND key = ?2 AND state = 1 ORDER BY version DESC LIMIT 1";
        self.select(rest, (self.namespace, key))
    }

    /// A row, and what is [wrong](damage) with it.
    pub(super) fn row(&self, version: Version) -> Result<Option<(Stored, Option<String>)>> {
        let sql = format!("SELECT {COLUMNS} WHERE version = ?1 AND namespace = ?2");
        let mut select = self.batch.connection.prepare_cached(&sql)?;
        let row = select.query_row((version.0, self.namespace), |row| {
            Ok((read(row)?, damage(row)?))
        });
        row.optional()
    }

    pub(super) fn insert(&mut self, row: &Stored) -> Result<()> {
        let sql = "INSERT INTO tickwheel_timers
            (version, namespace, state, key, value, due, deadline, attempt, period, loaded_by, schedule, claimed_by)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
        let period = period_of(row);
        self.execute(
            sql,
            params![
                row.version.0,
                self.namespace,
                state_number(row.state),
                row.key,
                row.value,
                row.due.as_micros(),
                row.deadline.as_micros(),
                row.attempt,
                period,
                row.loaded_by.map(|instance| instance.0),
                row.schedule,
                row.claimed_by.map(|instance| instance.0),
            ],
        )?;
        self.add_rows(row.state, 1);
        Ok(())
    }

    /// Writes all of a row but key and value over what it was, under a new version.
    pub(super) fn update(
        &mut self,
        (version, state): (Version, State),
        row: &Stored,
    ) -> Result<()> {
        let sql = "UPDATE tickwheel_timers SET version = ?2, state = ?3, due = ?4, deadline = ?5, attempt = ?6,
            period = ?7, loaded_by = ?8, schedule = ?9, claimed_by = ?10 WHERE version = ?1";
        let period = period_of(row);
        self.execute(
            sql,
            params![
                version.0,
                row.version.0,
                state_number(row.state),
                row.due.as_micros(),
                row.deadline.as_micros(),
                row.attempt,
                period,
                row.loaded_by.map(|instance| instance.0),
                row.schedule,
                row.claimed_by.map(|instance| instance.0),
            ],
        )?;
        self.add_rows(state, -1);
        self.add_rows(row.state, 1);
        Ok(())
    }

    pub(super) fn delete(&mut self, (version, state): (Version, State)) -> Result<()> {
        let sql = "DELETE FROM tickwheel_timers WHERE version = ?1";
        self.execute(sql, [version.0])?;
        self.add_rows(state, -1);
        Ok(())
    }

    /// Makes a row a waiting one with a new version, loaded if it is near.
    pub(super) fn arm(&mut self, row: &mut Stored, near: LoadWindow) -> Result<Armed> {
        let is_near = row.due <= self.now.after(near.window);
        row.version = self.next_version()?;
        row.state = State::Waiting;
        row.loaded_by = near.loader.filter(|_| is_near);
        row.claimed_by = None;
        self.hints |= is_near && row.loaded_by.is_none();
        Ok(Armed {
            version: row.version,
            due: row.due,
            loaded: row.loaded_by.is_some(),
        })
    }

    pub(super) fn write(&mut self, write: Write, near: LoadWindow) -> Result<WriteOutcome> {
        let Write { key, action } = write;
        let waiting = self.waiting(&key)?;
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
                    if let Some(row) = self.in_flight(&key)? {
                        return Ok(WriteOutcome::InFlight(row.version));
                    }
                }
                let mut row = Stored::set(key, value, due.at(self.now), period, schedule);
                row.keep_time(waiting.as_ref());
                let replaced = waiting.map(|row| row.version);
                if let Some(version) = replaced {
                    self.delete((version, State::Waiting))?;
                }
                self.discard_of_key(&row.key)?;
                let armed = self.arm(&mut row, near)?;
                self.insert(&row)?;
                Ok(WriteOutcome::Armed {
                    row: armed,
                    replaced,
                })
            }
            Action::Move { due } => match waiting {
                Some(row) => Ok(WriteOutcome::Armed {
                    replaced: Some(row.version),
                    row: self.rearm(row, due, near)?,
                }),
                None => self.unarmed(&key),
            },
            Action::Remove => {
                if let Some(row) = &waiting {
                    self.delete((row.version, State::Waiting))?;
                } else if let Some(row) = self.in_flight(&key)? {
                    return Ok(WriteOutcome::InFlight(row.version));
                }
                let Some(row) = waiting.map_or_else(|| self.dead(&key), |row| Ok(Some(row)))?
                else {
                    return Ok(WriteOutcome::Absent);
                };
                self.discard_of_key(&key)?;
                let Stored { version, value, .. } = row;
                Ok(WriteOutcome::Removed { version, value })
            }
        }
    }

    /// The outcome for a key without waiting row.
    fn unarmed(&self, key: &[u8]) -> Result<WriteOutcome> {
        let row = self.in_flight(key)?;
        Ok(row.map_or(WriteOutcome::Absent, |row| {
            WriteOutcome::InFlight(row.version)
        }))
    }

    /// Arms a stored row again with another deadline.
    pub(super) fn rearm(&mut self, mut row: Stored, due: Due, near: LoadWindow) -> Result<Armed> {
        let old = (row.version, row.state);
        row.due = due.at(self.now);
        row.deadline = row.due;
        let armed = self.arm(&mut row, near)?;
        self.update(old, &row)?;
        Ok(armed)
    }

    /// Puts a row back for other instances.
    fn leave(&mut self, mut row: Stored, left: LeftRow, near: LoadWindow) -> Result<Settled> {
        let InstanceId(id) = left.by.left();
        let sql = "INSERT INTO tickwheel_instances (id, namespace, alive_until, lacks) VALUES (?1, ?2, ?3, 0)
            ON CONFLICT DO NOTHING";
        let until = self.now.after(left.alive).as_micros();
        self.execute(sql, (id, self.namespace, until))?;
        let old = (row.version, row.state);
        row.due = self.now.after(left.pause);
        let mut settled = Settled::Done;
        if self.waiting(&row.key)?.is_none() {
            let unloaded = LoadWindow::new(near.window, None);
            settled = Settled::Armed(self.arm(&mut row, unloaded)?);
        } else {
            self.put_beside(&mut row)?;
        }
        row.loaded_by = Some(left.by.left());
        self.hints = true;
        self.update(old, &row)?;
        Ok(settled)
    }

    /// Makes a row one that is put back in flight, beside a newer one of its key. No claim holds it
    /// any more.
    fn put_beside(&mut self, row: &mut Stored) -> Result<()> {
        row.version = self.next_version()?;
        (row.loaded_by, row.claimed_by) = (None, None);
        Ok(())
    }

    pub(super) fn settle(&mut self, settle: Settle, near: LoadWindow) -> Result<Settled> {
        let Settle {
            token,
            settlement,
            error,
        } = settle;
        if settlement == Settlement::Ack {
            let sql =
                "DELETE FROM tickwheel_timers WHERE version = ?1 AND namespace = ?2 AND state = 1";
            if self.execute(sql, (token.0, self.namespace))? == 0 {
                return Ok(Settled::Lost);
            }
            self.add_rows(State::InFlight, -1);
            return Ok(Settled::Done);
        }
        let row = self.row(token)?;
        let Some((mut row, _)) = row.filter(|(row, _)| row.state == State::InFlight) else {
            return Ok(Settled::Lost);
        };
        if settlement == Settlement::Dead {
            self.die(token, error.as_deref())?;
            return Ok(Settled::Done);
        }
        self.keep_error(token, error.as_deref())?;
        if matches!(settlement, Settlement::Unfire | Settlement::Leave(_)) {
            row.attempt = row.attempt.saturating_sub(1);
        }
        if let Settlement::Leave(left) = settlement {
            return self.leave(row, left, near);
        }
        if let Settlement::Extend(lease) = settlement {
            row.due = self.now.after(lease);
            self.update((token, State::InFlight), &row)?;
            return Ok(Settled::Done);
        }
        if self.waiting(&row.key)?.is_none() {
            if let Settlement::RetryAfter(delay) = settlement {
                return self.rearm(row, Due::In(delay), near).map(Settled::Armed);
            }
            row.due = self.now;
            let armed = self.arm(&mut row, near)?;
            self.update((token, State::InFlight), &row)?;
            return Ok(Settled::Armed(armed));
        }
        let delay = match settlement {
            Settlement::RetryAfter(delay) => delay,
            _ => Duration::ZERO,
        };
        row.due = self.now.after(delay);
        self.put_beside(&mut row)?;
        self.hints |= delay.is_zero();
        self.update((token, State::InFlight), &row)?;
        Ok(Settled::Done)
    }

    pub(super) fn get(&mut self, key: &[u8]) -> Result<Option<Stored>> {
        let mut row = self.waiting(key)?;
        if row.is_none() {
            row = self.in_flight(key)?;
        }
        row.map_or_else(|| self.dead(key), |row| Ok(Some(row)))
    }
}
