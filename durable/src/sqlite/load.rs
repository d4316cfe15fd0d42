//! Which instance has loaded which rows.

use super::reading::{IN_FLIGHT, WAITING, number, text, time};
use super::rows::Call;
use crate::store::{InstanceId, Load, Loaded, Scheduled, Schedules, StoreTime, Version};

type Result<T> = rusqlite::Result<T>;

impl Call<'_> {
    pub(super) fn load(&mut self, request: Load) -> Result<Loaded> {
        let Load {
            instance,
            window,
            limit,
            wanted,
            alive,
            schedules,
            charter: _,
        } = request;
        let now = self.now;
        let sql = "INSERT INTO tickwheel_instances (id, namespace, alive_until, lacks) VALUES (?1, ?2, ?3, 0)
            ON CONFLICT (id) DO UPDATE SET alive_until = excluded.alive_until";
        let until = now.after(alive).as_micros();
        self.execute(sql, (instance.0, self.namespace, until))?;
        self.unload_dead()?;

        let mut rows = self.unloaded(now.after(window), limit, &schedules)?;
        rows.extend(self.left_by_others(instance, limit)?);
        rows.sort_by_key(|&(version, due)| (due, version));
        let more = rows.len() > limit;
        rows.truncate(limit);
        let mut scheduled = Vec::new();
        for &(version, _) in &rows {
            scheduled.extend(self.mark(version, instance)?);
        }
        let due = rows.iter().filter(|(_, due)| *due <= now).count();
        let sql = "UPDATE tickwheel_instances SET lacks = ?2 WHERE id = ?1 AND lacks <> ?2";
        self.execute(sql, (instance.0, number(wanted.saturating_sub(due))))?;
        let sql = "SELECT coalesce(sum(lacks), 0) FROM tickwheel_instances WHERE namespace = ?1 AND id <> ?2";
        let mut select = self.batch.connection.prepare_cached(sql)?;
        let others_lack: i64 = select.query_row((self.namespace, instance.0), |row| row.get(0))?;
        Ok(Loaded {
            now,
            rows,
            more,
            others_lack: usize::try_from(others_lack).unwrap_or(0),
            scheduled,
        })
    }

    /// Marks a row as loaded. Returns what the instance has to know of it, if it has a schedule.
    pub(super) fn mark(&self, version: Version, instance: InstanceId) -> Result<Option<Scheduled>> {
        let sql = "UPDATE tickwheel_timers SET loaded_by = ?2 WHERE version = ?1 RETURNING schedule, deadline";
        let mut update = self.batch.connection.prepare_cached(sql)?;
        update.query_row((version.0, instance.0), |row| {
            let schedule = text(row, 0)?;
            let deadline = time(row, 1)?;
            Ok(schedule.map(|schedule| Scheduled::new(version, deadline, schedule)))
        })
    }

    /// The rows that no instance has loaded: those that wait and are due by `until`, and those
    /// whose lease has ended, earliest first. If there are more than `at_most`, some of the rest
    /// follow.
    pub(super) fn unloaded(
        &self,
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
        for (state, until) in [(WAITING, until), (IN_FLIGHT, self.now)] {
            let mut found = select.query((self.namespace, state, until.as_micros(), limit))?;
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

    /// The due rows that other instances have left, one more than `at_most` if there are as many.
    pub(super) fn left_by_others(
        &self,
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

    /// Unloads the rows of instances that have not loaded for too long.
    fn unload_dead(&mut self) -> Result<()> {
        let sql = "SELECT id FROM tickwheel_instances WHERE namespace = ?1 AND alive_until < ?2";
        let mut select = self.batch.connection.prepare_cached(sql)?;
        let dead = select.query_map((self.namespace, self.now.as_micros()), |row| row.get(0))?;
        for instance in dead.collect::<Result<Vec<_>>>()? {
            self.end(InstanceId(instance))?;
        }
        Ok(())
    }

    /// Unloads what an instance has loaded. Returns the id under which it goes on.
    pub(super) fn unload(&mut self, instance: InstanceId) -> Result<InstanceId> {
        self.end(instance)?;
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
            let sql = "UPDATE tickwheel_instances SET lacks = 0 WHERE namespace = ?1 AND lacks > 0";
            self.execute(sql, [self.namespace])?;
        }
        Ok(Vec::new())
    }

    fn end(&mut self, instance: InstanceId) -> Result<()> {
        let sql = "DELETE FROM tickwheel_instances WHERE id = ?1";
        self.execute(sql, [instance.0])?;
        for state in [WAITING, IN_FLIGHT] {
            let sql = "UPDATE tickwheel_timers SET loaded_by = NULL
                WHERE namespace = ?1 AND state = ?2 AND loaded_by = ?3";
            self.hints |= self.execute(sql, (self.namespace, state, instance.0))? > 0;
        }
        Ok(())
    }
}
