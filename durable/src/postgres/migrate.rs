//! The schema without a store: its version, and the steps between versions.

use super::dial::dial;
use super::migrations::MIGRATIONS;
use super::target::Target;
use super::{Postgres, PostgresOptions, schema};
use crate::migrations::{Migration, SchemaVersion};
use crate::store::StoreError;

impl Postgres {
    /// The files in the folder `migrations/postgres` of this package: SQL that makes the tables and
    /// functions, and changes them, and the ways back. Each is for one transaction, and has neither
    /// `BEGIN` nor `COMMIT`: see [`Migration`].
    pub const MIGRATIONS: &'static [Migration] = MIGRATIONS;

    /// The version of the tables of a database, which need not be for this version of the crate.
    /// Makes no tables.
    ///
    /// # Errors
    ///
    /// As [`connect_with`](Self::connect_with), but for [`StoreError::Schema`].
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn schema_version(options: PostgresOptions) -> Result<SchemaVersion, StoreError> {
        let target = Target::new(options)?;
        let client = dial(&target).await?;
        let version = schema::version(&client).await;
        version.map_err(|error| target.describe(error))
    }

    /// Takes the [steps](Self::MIGRATIONS) to a version of the schema, up or down, each in a
    /// transaction. A step waits a second at most for the locks of tables, in which calls wait
    /// behind it, and is tried again.
    ///
    /// # Errors
    ///
    /// As [`connect_with`](Self::connect_with), but for [`StoreError::Schema`]. The steps before
    /// the one that has failed are taken.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn migrate(options: PostgresOptions, to: u32) -> Result<SchemaVersion, StoreError> {
        let target = Target::new(options)?;
        let client = dial(&target).await?;
        let migrated = schema::migrate(&client, to).await;
        migrated.map_err(|error| schema::not_made(&target, error))?;
        let version = schema::version(&client).await;
        version.map_err(|error| target.describe(error))
    }
}
