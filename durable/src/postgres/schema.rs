//! The tables, and how they come to be.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use crate::store::StoreError;

/// The latest version of the schema that is known.
const SCHEMA: u32 = 1;

/// What leads from each version of the schema to the next. Version 0 has no tables.
///
/// | column | |
/// |---|---|
/// | `due`, `deadline`, `alive_until` | microseconds since the epoch |
/// | `period` | microseconds, or null |
/// | `loaded_by` | the id of an instance, or null |
/// | `replaces` | the version that a waiting row had before it was last set or moved |
///
/// | index | finds |
/// |---|---|
/// | `tickwheel_timers_pkey` | what is fired or settled |
/// | `tickwheel_waiting` | the one waiting row of a key |
/// | `tickwheel_in_flight` | the latest claim of a key |
/// | `tickwheel_due` | what nobody has loaded, by when it is due |
/// | `tickwheel_loaded` | who has loaded rows, and which |
///
/// Rows come and go all the time, so the table is vacuumed early.
const MIGRATIONS: [&str; SCHEMA as usize] = ["
    CREATE SEQUENCE tickwheel_versions MAXVALUE 9007199254740991;
    CREATE TABLE tickwheel_namespaces (
        id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
        name text NOT NULL UNIQUE,
        codec text NOT NULL
    );
    CREATE TABLE tickwheel_instances (
        id bigint PRIMARY KEY,
        alive_until bigint NOT NULL,
        namespace int NOT NULL
    );
    CREATE TABLE tickwheel_timers (
        version bigint PRIMARY KEY,
        due bigint NOT NULL,
        deadline bigint NOT NULL,
        period bigint,
        loaded_by bigint,
        replaces bigint,
        namespace int NOT NULL,
        attempt int NOT NULL,
        in_flight boolean NOT NULL,
        key bytea NOT NULL,
        value bytea NOT NULL
    ) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
    CREATE UNIQUE INDEX tickwheel_waiting ON tickwheel_timers (namespace, key) WHERE NOT in_flight;
    CREATE INDEX tickwheel_in_flight ON tickwheel_timers (namespace, key, version) WHERE in_flight;
    CREATE INDEX tickwheel_due ON tickwheel_timers (namespace, in_flight, due, version) WHERE loaded_by IS NULL;
    CREATE INDEX tickwheel_loaded ON tickwheel_timers (namespace, loaded_by) WHERE loaded_by IS NOT NULL;
"];

/// Instances that make or migrate the tables at the same time take turns by this advisory lock. Any number will do.
const LOCK: i64 = 0x7469_636b_7768_6565;

/// Why the schema is not ready.
#[derive(Debug)]
pub(super) enum Unready {
    Postgres(Error),
    Store(StoreError),
}

impl From<Error> for Unready {
    fn from(error: Error) -> Self {
        Unready::Postgres(error)
    }
}

/// Makes the tables, or brings them up to date. Changes nothing if they are, and then needs no right to.
pub(super) async fn prepare(client: &mut Client, found: Result<u32, Error>) -> Result<(), Unready> {
    if found? == SCHEMA {
        return Ok(());
    }
    // The lock first: a transaction that waits for it would not see what another one makes meanwhile.
    client
        .batch_execute(&format!("SELECT pg_advisory_lock({LOCK})"))
        .await?;
    let migrated = migrate(client).await;
    client
        .batch_execute(&format!("SELECT pg_advisory_unlock({LOCK})"))
        .await?;
    migrated
}

async fn migrate(client: &mut Client) -> Result<(), Unready> {
    let found = found(&*client).await?;
    let Some(missing) = MIGRATIONS.get(found as usize..) else {
        return Err(Unready::Store(StoreError::Schema {
            found,
            supported: SCHEMA,
        }));
    };
    let transaction = client.transaction().await?;
    if found == 0 {
        let meta = "CREATE TABLE tickwheel_schema (version int NOT NULL); INSERT INTO tickwheel_schema VALUES (0)";
        transaction.batch_execute(meta).await?;
    }
    for migration in missing {
        transaction.batch_execute(migration).await?;
    }
    let done = format!("UPDATE tickwheel_schema SET version = {SCHEMA}");
    transaction.batch_execute(&done).await?;
    transaction.commit().await?;
    Ok(())
}

/// The version of the schema that is there; 0 without one.
pub(super) async fn found(client: &Client) -> Result<u32, Error> {
    let version = "SELECT version FROM tickwheel_schema";
    match client.query_typed(version, &[]).await {
        Ok(rows) => {
            let version = rows.first().map_or(0, |row| row.get::<_, i32>(0));
            Ok(u32::try_from(version).unwrap_or(u32::MAX))
        }
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Ok(0),
        Err(error) => Err(error),
    }
}
