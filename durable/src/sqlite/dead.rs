//! Dead rows lie in a table of their own, so that they cost the others nothing.
//!
//! `tickwheel_namespaces` says how many there are. While there are none, a write does not look for
//! dead rows of its key.

use std::time::Instant;

use rusqlite::{Connection, OptionalExtension, params};

use super::purge::{PURGE_TIME, PURGED_AT_ONCE};
use super::reading::{number, read};
use super::rows::Call;
use crate::store::{
    Damaged, DeadRows, FireReport, List, LoadWindow, Purged, Retried, State, StoreTime, Stored,
    Version,
};

type Result<T> = rusqlite::Result<T>;

/// The columns of [`read`], of dead rows.
pub(super) const COLUMNS: &str = "version, 2, key, value, died, deadline, attempt, NULL, NULL, error, NULL, NULL FROM tickwheel_dead";

/// A page of dead rows.
pub(super) fn list(connection: &Connection, namespace: i64, request: List) -> Result<Vec<Stored>> {
    let (died, Version(version)) = request.after.unwrap_or((StoreTime::default(), Version(-1)));
    let sql = format!(
        "SELECT {COLUMNS} WHERE namespace = ?1 AND (died, version) > (?2, ?3) ORDER BY died, version LIMIT ?4"
    );
    let mut select = connection.prepare_cached(&sql)?;
    let rows = select.query_map(
        (namespace, died.as_micros(), version, number(request.limit)),
        read,
    )?;
    super::reading::page(rows)
}

impl Call<'_> {
    /// Makes a row in flight dead.
    pub(super) fn die(&mut self, token: Version, error: Option<&str>) -> Result<()> {
        let sql = "INSERT INTO tickwheel_dead (version, namespace, key, value, died, deadline, attempt, error)
            SELECT version, namespace, key, value, ?2, deadline, attempt, coalesce(?3, error)
            FROM tickwheel_timers WHERE version = ?1";
        self.execute(sql, params![token.0, self.now.as_micros(), error])?;
        self.add_rows(State::Dead, 1);
        self.delete((token, State::InFlight))
    }

    /// Makes a row dead that holds what no store writes. What is kept of it is sound.
    pub(super) fn set_aside(
        &mut self,
        row: Stored,
        reason: String,
        report: &mut FireReport,
    ) -> Result<()> {
        self.delete((row.version, row.state))?;
        let sql = "INSERT INTO tickwheel_dead (version, namespace, key, value, died, deadline, attempt, error)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        let parameters = params![
            row.version.0,
            self.namespace,
            row.key,
            row.value,
            self.now.as_micros(),
            row.deadline.as_micros(),
            row.attempt,
            reason
        ];
        self.execute(sql, parameters)?;
        self.add_rows(State::Dead, 1);
        let damaged = Damaged::new(row.version, row.key, reason);
        report.damaged.push(damaged);
        Ok(())
    }

    /// The row of a key that died last.
    pub(super) fn dead(&self, key: &[u8]) -> Result<Option<Stored>> {
        if !self.has_dead() {
            return Ok(None);
        }
        let sql = format!(
            "SELECT {COLUMNS} WHERE namespace = ?1 AND key = ?2 ORDER BY died DESC, version DESC LIMIT 1"
        );
        let mut select = self.batch.connection.prepare_cached(&sql)?;
        select.query_row((self.namespace, key), read).optional()
    }

    /// Discards the dead rows of a key, which is written.
    pub(super) fn discard_of_key(&mut self, key: &[u8]) -> Result<()> {
        if self.has_dead() {
            let sql = "DELETE FROM tickwheel_dead WHERE namespace = ?1 AND key = ?2";
            let discarded = self.execute(sql, (self.namespace, key))?;
            self.add_rows(State::Dead, -number(discarded));
        }
        Ok(())
    }

    pub(super) fn retry_dead(&mut self, which: &DeadRows) -> Result<Retried> {
        let mut rows = 0;
        let more = self.each_dead(which, |call, version| {
            call.retry(version)?;
            rows += 1;
            Ok(())
        })?;
        Ok(Retried::new(rows, more))
    }

    pub(super) fn discard_dead(&mut self, which: &DeadRows) -> Result<Purged> {
        let mut rows = 0;
        let more = self.each_dead(which, |call, version| {
            call.delete_dead(version)?;
            rows += 1;
            Ok(())
        })?;
        Ok(Purged::new(rows, more))
    }

    /// Calls `change` for the first of the chosen rows. Returns whether there are more.
    fn each_dead(
        &mut self,
        which: &DeadRows,
        mut change: impl FnMut(&mut Self, Version) -> Result<()>,
    ) -> Result<bool> {
        let began = Instant::now();
        let versions = self.some_dead(which)?;
        for (done, &version) in versions.iter().enumerate() {
            let is_over = done > 0 && began.elapsed() >= PURGE_TIME;
            if is_over || done as u64 == PURGED_AT_ONCE {
                return Ok(true);
            }
            change(self, version)?;
        }
        Ok(false)
    }

    /// The first of the chosen rows, and one more than a step changes if there are as many.
    fn some_dead(&self, which: &DeadRows) -> Result<Vec<Version>> {
        let at_most = i64::try_from(PURGED_AT_ONCE).unwrap_or(i64::MAX) + 1;
        let read = |row: &rusqlite::Row<'_>| Ok(Version(row.get(0)?));
        let connection = self.batch.connection;
        match which {
            DeadRows::Token(token) => {
                let sql =
                    "SELECT version FROM tickwheel_dead WHERE namespace = ?1 AND version = ?2";
                let mut select = connection.prepare_cached(sql)?;
                select.query_map((self.namespace, token.0), read)?.collect()
            }
            DeadRows::Key(key) => {
                let sql = "SELECT version FROM tickwheel_dead WHERE namespace = ?1 AND key = ?2
                    ORDER BY died, version LIMIT ?3";
                let mut select = connection.prepare_cached(sql)?;
                let rows = select.query_map((self.namespace, key, at_most), read)?;
                rows.collect()
            }
            DeadRows::OlderThan(age) => {
                let sql = "SELECT version FROM tickwheel_dead WHERE namespace = ?1 AND died <= ?2
                    ORDER BY died, version LIMIT ?3";
                let until = self.now.before(*age).as_micros();
                let mut select = connection.prepare_cached(sql)?;
                let rows = select.query_map((self.namespace, until, at_most), read)?;
                rows.collect()
            }
        }
    }

    fn delete_dead(&mut self, version: Version) -> Result<()> {
        let sql = "DELETE FROM tickwheel_dead WHERE version = ?1";
        self.execute(sql, [version.0])?;
        self.add_rows(State::Dead, -1);
        Ok(())
    }

    /// Makes a dead row due again.
    fn retry(&mut self, version: Version) -> Result<()> {
        let sql = format!("SELECT {COLUMNS} WHERE version = ?1");
        let mut select = self.batch.connection.prepare_cached(&sql)?;
        let mut row = select.query_row([version.0], read)?;
        self.delete_dead(version)?;
        row.attempt = 0;
        row.due = self.now;
        if self.waiting(&row.key)?.is_none() {
            self.arm(&mut row, LoadWindow::NONE)?;
        } else {
            // Beside the newer one.
            row.version = self.next_version()?;
            row.state = State::InFlight;
            self.hints = true;
        }
        self.insert(&row)?;
        self.keep_error(row.version, row.error.as_deref())
    }

    /// Keeps the error with a row, if there is one.
    pub(super) fn keep_error(&mut self, version: Version, error: Option<&str>) -> Result<()> {
        if let Some(error) = error {
            let sql = "UPDATE tickwheel_timers SET error = ?2 WHERE version = ?1";
            self.execute(sql, (version.0, error))?;
        }
        Ok(())
    }
}
