//! The tables, and how they come to be.

use tokio_postgres::Client;

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
    Postgres(tokio_postgres::Error),
    Store(StoreError),
}

impl From<tokio_postgres::Error> for Unready {
    fn from(error: tokio_postgres::Error) -> Self {
        Unready::Postgres(error)
    }
}

/// Makes the tables, or brings them up to date. Changes nothing if they are, and then needs no right to.
pub(super) async fn prepare(client: &mut Client) -> Result<(), Unready> {
    if found(&*client).await? == SCHEMA {
        return Ok(());
    }
    let transaction = client.transaction().await?;
    let lock = format!("SELECT pg_advisory_xact_lock({LOCK})");
    transaction.batch_execute(&lock).await?;
    // Another one may have been first.
    let found = found(&transaction).await?;
    let Some(missing) = MIGRATIONS.get(found as usize..) else {
        return Err(Unready::Store(StoreError::Schema {
            found,
            supported: SCHEMA,
        }));
    };
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
async fn found(client: &impl tokio_postgres::GenericClient) -> Result<u32, tokio_postgres::Error> {
    // `to_regclass` would answer from a cache that knows nothing of what was made while this session waited for the lock.
    let exists = "SELECT EXISTS (
        SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relname = 'tickwheel_schema' AND n.nspname = ANY (current_schemas(false)))";
    if !client.query_one(exists, &[]).await?.get::<_, bool>(0) {
        return Ok(0);
    }
    let version = client
        .query_one("SELECT version FROM tickwheel_schema", &[])
        .await?;
    Ok(u32::try_from(version.get::<_, i32>(0)).unwrap_or(u32::MAX))
}
