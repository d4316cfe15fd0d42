//! Dead rows lie in another table, so that they cost the others nothing.
//!
//! `tickwheel_namespaces` says how many there are. While there are none, a write does not look for
//! dead rows of its key.

use std::time::Instant;

use rusqlite::Connection;

use super::purge::{PURGE_TIME, PURGED_AT_ONCE};
use super::reading::{DEAD_COLUMNS, number, read};
use super::rows::Call;
use crate::store::{
    AnswerSize, ChangedRows, DeadChange, DeadRows, List, State, StoreTime, Stored, Version, rules,
};

type Result<T> = rusqlite::Result<T>;

/// A page of dead rows.
pub(super) fn list(connection: &Connection, namespace: i64, request: List) -> Result<Vec<Stored>> {
    let (died, Version(version)) = request.after.unwrap_or((StoreTime::default(), Version(-1)));
    let sql = format!(
        "SELECT {DEAD_COLUMNS} WHERE namespace = ?1 AND (died, version) > (?2, ?3) ORDER BY died, version LIMIT ?4"
    );
    let mut select = connection.prepare_cached(&sql)?;
    let rows = select.query_map(
        (namespace, died.as_micros(), version, number(request.limit)),
        read,
    )?;
    AnswerSize::page(rows)
}

impl Call<'_> {
    /// Changes the first of the chosen rows.
    pub(super) fn change_dead(
        &mut self,
        which: &DeadRows,
        change: DeadChange,
    ) -> Result<ChangedRows> {
        let began = Instant::now();
        let mut rows = 0;
        for version in self.some_dead(which)? {
            let is_over = rows > 0 && began.elapsed() >= PURGE_TIME;
            if is_over || rows == PURGED_AT_ONCE {
                return Ok(ChangedRows::new(rows, true));
            }
            match change {
                DeadChange::Retry => self.retry(version)?,
                DeadChange::Discard => self.delete_dead(version)?,
            }
            rows += 1;
        }
        Ok(ChangedRows::new(rows, false))
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
        let sql = format!("SELECT {DEAD_COLUMNS} WHERE version = ?1");
        let mut select = self.batch.connection.prepare_cached(&sql)?;
        let row = select.query_row([version.0], read)?;
        self.delete_dead(version)?;
        rules::revive(self, row)
    }
}
