//! Which instance has loaded which rows.

use super::reading::{IN_FLIGHT, WAITING};
use super::rows::Call;
use crate::store::rules::Rows;
use crate::store::{InstanceId, Version};

type Result<T> = rusqlite::Result<T>;

impl Call<'_> {
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

    pub(super) fn end(&mut self, instance: InstanceId) -> Result<()> {
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
