//! The changes that each call makes to the rows.

use std::ops::Range;

use rusqlite::{OptionalExtension, ToSql, params};

use super::charter::{self, Found};
use super::reading::{COLUMNS, damage, now, number, of_key, read, text, time};
use super::thread::Batch;
use crate::store::rules::{Rows, STEP_ROWS};
use crate::store::{
    DeadRows, InstanceId, Namespace, Scheduled, Schedules, State, StoreError, StoreTime, Stored,
    Terms, Version, micros,
};

type Result<T> = rusqlite::Result<T>;

/// A call unloads what so many ids have left that count as living no more.
const ENDED_AT_ONCE: usize = 128;

/// The period of a row as it is stored.
fn period_of(row: &Stored) -> Option<i64> {
    row.period.map(|period| micros(period).max(1))
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
    /// How many rows more the namespace has than before the call, by their state.
    more_rows: [i64; 3],
    /// Whether the call has left near rows that no instance has loaded.
    pub(super) hints: bool,
}

impl<'a> Call<'a> {
    /// A call on a namespace that was opened before. With terms it does new work: it may change the
    /// namespace only if the schema is for this version, under the charter, and until the time of
    /// `near`.
    pub(super) fn new(
        batch: &'a Batch<'a>,
        namespace: &Namespace,
        near: Option<Terms>,
    ) -> Result<std::result::Result<Self, StoreError>> {
        let (found, now) = (charter::namespace(batch.connection, namespace)?, now());
        let check = |found: Found| {
            let Some(near) = near else {
                return Ok(found);
            };
            let found = found.check_schema()?;
            near.check(namespace, found.edition, now).map(|()| found)
        };
        Ok(found.and_then(check).map(|found| Call {
            batch,
            namespace: found.id,
            dead: found.dead,
            now,
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
        self.more_rows[state as usize] += rows;
    }

    /// Whether the namespace has dead rows. While it has none, no write looks for those of its key.
    fn has_dead(&self) -> bool {
        self.dead + self.more_rows[2] > 0
    }

    pub(super) fn execute(&self, sql: &str, params: impl rusqlite::Params) -> Result<usize> {
        self.batch.connection.prepare_cached(sql)?.execute(params)
    }
}

impl Call<'_> {
    /// Unloads what an instance has loaded, or the first of it: loads and fires unload the rest.
    /// Returns the id under which it goes on.
    pub(super) fn unload(&mut self, instance: InstanceId) -> Result<InstanceId> {
        self.end(instance, STEP_ROWS)?;
        let Version(fresh) = self.next_version()?;
        Ok(InstanceId(fresh))
    }

    /// Takes the mark of an instance off rows. SQLite locks no single row, so none stays marked.
    pub(super) fn unmark(
        &mut self,
        instance: InstanceId,
        versions: &[Version],
    ) -> Result<Vec<Version>> {
        for version in versions {
            let sql = "UPDATE tickwheel_timers SET loaded_by = NULL WHERE version = ?1 AND loaded_by = ?2";
            self.hints |= self.execute(sql, (version.0, instance.0))? > 0;
        }
        if self.hints {
            // So that a file in which they are marked is known to be older.
            self.next_version()?;
            let sql = "UPDATE tickwheel_instances SET lacks = 0 WHERE namespace = ?1 AND lacks > 0";
            self.execute(sql, [self.namespace])?;
        }
        Ok(Vec::new())
    }

    /// Ends the life of an id, and takes some of its marks away, earliest first. The id is
    /// forgotten with the last of them. Returns how many it has taken away.
    fn end(&mut self, instance: InstanceId, at_most: usize) -> Result<usize> {
        let mut taken = 0;
        for state in [State::Waiting, State::InFlight] {
            let sql = "UPDATE tickwheel_timers SET loaded_by = NULL WHERE version IN (
                SELECT version FROM tickwheel_timers
                WHERE namespace = ?1 AND state = ?2 AND loaded_by = ?3 ORDER BY due LIMIT ?4)";
            let rest = number(at_most - taken);
            taken += self.execute(sql, (self.namespace, state as i64, instance.0, rest))?;
        }
        self.hints |= taken > 0;
        let sql = if taken < at_most {
            "DELETE FROM tickwheel_instances WHERE id = ?1"
        } else {
            "UPDATE tickwheel_instances SET alive_until = -1, lacks = 0 WHERE id = ?1"
        };
        self.execute(sql, [instance.0])?;
        Ok(taken)
    }
}

impl Rows for Call<'_> {
    type Error = rusqlite::Error;

    fn now(&self) -> StoreTime {
        self.now
    }

    /// Takes versions from the sequence in one step. Those that are not used are left out.
    fn reserve(&mut self, count: usize) -> Result<()> {
        let Version(first) = self.batch.versions(count)?;
        self.reserved = first..first + number(count);
        Ok(())
    }

    fn next_version(&mut self) -> Result<Version> {
        match self.reserved.next() {
            Some(version) => Ok(Version(version)),
            None => self.batch.versions(1),
        }
    }

    fn hint(&mut self) {
        self.hints = true;
    }

    fn latest(&mut self, state: State, key: &[u8]) -> Result<Option<Stored>> {
        if state == State::Dead && !self.has_dead() {
            return Ok(None);
        }
        let mut select = self.batch.connection.prepare_cached(&of_key(state))?;
        select.query_row((self.namespace, key, 1), read).optional()
    }

    fn row(&mut self, version: Version) -> Result<Option<(Stored, Option<String>)>> {
        let sql = format!("SELECT {COLUMNS} WHERE version = ?1 AND namespace = ?2");
        let mut select = self.batch.connection.prepare_cached(&sql)?;
        let row = select.query_row((version.0, self.namespace), |row| {
            Ok((read(row)?, damage(row)?))
        });
        row.optional()
    }

    fn insert(&mut self, row: &Stored) -> Result<()> {
        let sql = "INSERT INTO tickwheel_timers
            (version, namespace, state, key, value, due, deadline, attempt, period, loaded_by, schedule, claimed_by, error)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
        let period = period_of(row);
        self.execute(
            sql,
            params![
                row.version.0,
                self.namespace,
                row.state as i64,
                row.key,
                row.value,
                row.due.as_micros(),
                row.deadline.as_micros(),
                row.attempt,
                period,
                row.loaded_by.map(|instance| instance.0),
                row.schedule,
                row.claimed_by.map(|instance| instance.0),
                row.error,
            ],
        )?;
        self.add_rows(row.state, 1);
        #[cfg(tickwheel_next_schema)]
        self.execute(
            "UPDATE tickwheel_timers SET origin = 'next' WHERE version = ?1",
            [row.version.0],
        )?;
        Ok(())
    }

    fn update(&mut self, (version, state): (Version, State), row: &Stored) -> Result<()> {
        let sql = "UPDATE tickwheel_timers SET version = ?2, state = ?3, due = ?4, deadline = ?5, attempt = ?6,
            period = ?7, loaded_by = ?8, schedule = ?9, claimed_by = ?10, error = ?11 WHERE version = ?1";
        let period = period_of(row);
        self.execute(
            sql,
            params![
                version.0,
                row.version.0,
                row.state as i64,
                row.due.as_micros(),
                row.deadline.as_micros(),
                row.attempt,
                period,
                row.loaded_by.map(|instance| instance.0),
                row.schedule,
                row.claimed_by.map(|instance| instance.0),
                row.error,
            ],
        )?;
        self.add_rows(state, -1);
        self.add_rows(row.state, 1);
        Ok(())
    }

    fn delete(&mut self, (version, state): (Version, State)) -> Result<()> {
        let sql = "DELETE FROM tickwheel_timers WHERE version = ?1";
        self.execute(sql, [version.0])?;
        self.add_rows(state, -1);
        Ok(())
    }

    fn ack(&mut self, token: Version) -> Result<bool> {
        let sql =
            "DELETE FROM tickwheel_timers WHERE version = ?1 AND namespace = ?2 AND state = 1";
        let acked = self.execute(sql, (token.0, self.namespace))? > 0;
        self.add_rows(State::InFlight, -i64::from(acked));
        Ok(acked)
    }

    fn some_dead(&mut self, which: &DeadRows, at_most: usize) -> Result<Vec<Version>> {
        let until;
        let (chosen, by): (&dyn ToSql, _) = match which {
            DeadRows::Token(Version(token)) => (token, "version = ?2"),
            DeadRows::Key(key) => (key, "key = ?2 ORDER BY version"),
            DeadRows::Until(time) => {
                until = time.as_micros();
                (
                    &until,
                    "loaded_by IS NULL AND due <= ?2 ORDER BY due, version",
                )
            }
        };
        let sql = format!(
            "SELECT version FROM tickwheel_timers WHERE namespace = ?1 AND state = 2 AND {by} LIMIT ?3"
        );
        let mut select = self.batch.connection.prepare_cached(&sql)?;
        let parameters = params![self.namespace, chosen, number(at_most)];
        let rows = select.query_map(parameters, |row| Ok(Version(row.get(0)?)))?;
        rows.collect()
    }

    fn keep_dead(&mut self, key: &[u8], most: usize) -> Result<usize> {
        if !self.has_dead() {
            return Ok(0);
        }
        let sql = "DELETE FROM tickwheel_timers WHERE version IN (
            SELECT version FROM tickwheel_timers
            WHERE namespace = ?1 AND key = ?2 AND state = 2 ORDER BY version DESC LIMIT -1 OFFSET ?3)";
        let discarded = self.execute(sql, (self.namespace, key, number(most)))?;
        self.add_rows(State::Dead, -number(discarded));
        Ok(discarded)
    }

    fn lives(&mut self, InstanceId(instance): InstanceId) -> Result<bool> {
        let sql = "SELECT 1 FROM tickwheel_instances WHERE id = ?1 AND alive_until >= ?2";
        let mut select = self.batch.connection.prepare_cached(sql)?;
        select.exists((instance, self.now.as_micros()))
    }

    fn keep_alive(
        &mut self,
        instance: InstanceId,
        until: StoreTime,
        name: Option<&str>,
    ) -> Result<Option<StoreTime>> {
        let sql = "SELECT alive_until FROM tickwheel_instances WHERE id = ?1";
        let mut select = self.batch.connection.prepare_cached(sql)?;
        let stored = select
            .query_row([instance.0], |row| time(row, 0))
            .optional()?;
        let sql = "INSERT INTO tickwheel_instances (id, namespace, alive_until, lacks, name)
            VALUES (?1, ?2, ?3, 0, ?4) ON CONFLICT (id) DO UPDATE SET alive_until = excluded.alive_until";
        let parameters = (instance.0, self.namespace, until.as_micros(), name);
        self.execute(sql, parameters)?;
        Ok(stored)
    }

    fn returns(&self) -> i64 {
        self.batch.returns()
    }

    fn unload_dead(&mut self) -> Result<bool> {
        let sql =
            "SELECT id FROM tickwheel_instances WHERE namespace = ?1 AND alive_until < ?2 LIMIT ?3";
        let mut select = self.batch.connection.prepare_cached(sql)?;
        let parameters = (self.namespace, self.now.as_micros(), number(ENDED_AT_ONCE));
        let dead = select.query_map(parameters, |row| row.get(0))?;
        let dead: Vec<_> = dead.collect::<Result<_>>()?;
        let mut more = dead.len() == ENDED_AT_ONCE;
        // Each may have rows that are due.
        let share = STEP_ROWS / dead.len().max(1);
        for &instance in &dead {
            more |= self.end(InstanceId(instance), share)? == share;
        }
        Ok(more)
    }

    fn unloaded(
        &mut self,
        until: StoreTime,
        at_most: usize,
        schedules: &Schedules,
    ) -> Result<Vec<(Version, StoreTime)>> {
        // Without the schedule the index has all columns.
        let (schedule, limit) = if *schedules == Schedules::ALL {
            ("NULL", number(at_most).saturating_add(1))
        } else {
            ("schedule", -1)
        };
        let sql = format!(
            "SELECT version, due, {schedule} FROM tickwheel_timers
            WHERE namespace = ?1 AND state = ?2 AND loaded_by IS NULL AND due <= ?3 ORDER BY due, version LIMIT ?4"
        );
        let mut select = self.batch.connection.prepare_cached(&sql)?;
        let mut rows = Vec::new();
        for (state, until) in [(State::Waiting, until), (State::InFlight, self.now)] {
            let mut found =
                select.query((self.namespace, state as i64, until.as_micros(), limit))?;
            let full = rows.len().saturating_add(at_most);
            while let Some(row) = found.next()?.filter(|_| rows.len() <= full) {
                let schedule = text(row, 2)?;
                if schedules.include(schedule.as_deref()) {
                    rows.push((Version(row.get(0)?), time(row, 1)?));
                }
            }
        }
        rows.sort_by_key(|&(version, due)| (due, version));
        Ok(rows)
    }

    fn left_by_others(
        &mut self,
        InstanceId(instance): InstanceId,
        at_most: usize,
    ) -> Result<Vec<(Version, StoreTime)>> {
        let sql = "SELECT version, due FROM tickwheel_timers
            WHERE namespace = ?1 AND state IN (0, 1) AND loaded_by < 0 AND loaded_by <> -?2 AND due <= ?3 LIMIT ?4";
        let mut select = self.batch.connection.prepare_cached(sql)?;
        let limit = number(at_most).saturating_add(1);
        let parameters = (self.namespace, instance, self.now.as_micros(), limit);
        let rows = select.query_map(parameters, |row| Ok((Version(row.get(0)?), time(row, 1)?)))?;
        rows.collect()
    }

    fn mark(&mut self, version: Version, instance: InstanceId) -> Result<Option<Scheduled>> {
        let sql = "UPDATE tickwheel_timers SET loaded_by = ?2 WHERE version = ?1 RETURNING schedule, deadline";
        let mut update = self.batch.connection.prepare_cached(sql)?;
        update.query_row((version.0, instance.0), |row| {
            let deadline = time(row, 1)?;
            Ok(text(row, 0)?.map(|schedule| Scheduled {
                version,
                deadline,
                schedule,
            }))
        })
    }

    fn lack(&mut self, InstanceId(instance): InstanceId, rows: usize) -> Result<usize> {
        let sql = "UPDATE tickwheel_instances SET lacks = ?2 WHERE id = ?1 AND lacks <> ?2";
        self.execute(sql, (instance, number(rows)))?;
        let sql = "SELECT coalesce(sum(lacks), 0) FROM tickwheel_instances WHERE namespace = ?1 AND id <> ?2";
        let mut select = self.batch.connection.prepare_cached(sql)?;
        let lacks: i64 = select.query_row((self.namespace, instance), |row| row.get(0))?;
        Ok(usize::try_from(lacks).unwrap_or(0))
    }
}
