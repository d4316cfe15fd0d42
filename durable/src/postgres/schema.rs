//! The tables and functions, and how they come to be.
//!
//! The first connection of a store brings a database to the latest version of the schema: [`TABLES`] are version 1, and
//! each of [`UPGRADES`] leads to the next. Functions have the version of the tables. They are made again after an upgrade,
//! since their text is that of the statements.
//!
//! For roles that may not create anything the same SQL lies in files, one for each version: [`MIGRATIONS`]. A test writes them
//! with `TICKWHEEL_WRITE_MIGRATIONS=1`, and otherwise compares them.

use futures_util::future::try_join;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use super::functions;
use super::target::Target;
use crate::store::StoreError;

/// The version of the schema that is known: that of [`TABLES`] after all [`UPGRADES`].
#[allow(clippy::cast_possible_truncation, reason = "they are few")]
const SCHEMA: u32 = 1 + UPGRADES.len() as u32;

/// The tables, as they were in version 1.
///
/// | column | |
/// |---|---|
/// | `due`, `deadline`, `alive_until` | microseconds since the epoch |
/// | `period` | microseconds, or null |
/// | `loaded_by` | the id of an instance, or null |
/// | `lacks` | how many due rows an instance lacks |
/// | `load_window` | how far ahead an instance loads, in microseconds |
/// | `replaces` | the version that a waiting row had before it was last set or moved |
///
/// | index | finds |
/// |---|---|
/// | `tickwheel_timers_pkey` | what is fired or settled |
/// | `tickwheel_waiting` | the one waiting row of a key |
/// | `tickwheel_in_flight` | the latest claim of a key |
/// | `tickwheel_due` | rows that no instance has loaded, by when they are due |
/// | `tickwheel_loaded` | rows that are loaded, by the instance |
///
/// Rows come and go all the time, so the table is vacuumed early.
const TABLES: &str = "
    CREATE TABLE tickwheel_schema (version int NOT NULL, identity uuid NOT NULL DEFAULT gen_random_uuid());
    INSERT INTO tickwheel_schema VALUES (1);
    CREATE SEQUENCE tickwheel_versions MAXVALUE 9007199254740991;
    CREATE TABLE tickwheel_namespaces (
        id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
        name text NOT NULL UNIQUE,
        codec text NOT NULL
    );
    CREATE TABLE tickwheel_instances (
        id bigint PRIMARY KEY,
        alive_until bigint NOT NULL,
        lacks bigint NOT NULL,
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
";

/// From each version of the schema to the next, the first from version 1.
///
/// 2. The window that an instance loads, because the functions for users send hints of what lies in it. Dead rows, with
///    `died` and `error`, and the last error of the other rows. `tickwheel_dead_key` finds those of a key,
///    `tickwheel_dead_died` those that died first. The schedule of rows that repeat by one: its text, or null.
///    And the id of the instance that fired a row in flight.
const UPGRADES: [&str; 1] = ["
    ALTER TABLE tickwheel_instances ADD COLUMN load_window bigint NOT NULL DEFAULT 0;
    ALTER TABLE tickwheel_timers ADD COLUMN error text;
    ALTER TABLE tickwheel_timers ADD COLUMN schedule text;
    ALTER TABLE tickwheel_timers ADD COLUMN claimed_by bigint;
    CREATE TABLE tickwheel_dead (
        version bigint PRIMARY KEY,
        died bigint NOT NULL,
        deadline bigint NOT NULL,
        namespace int NOT NULL,
        attempt int NOT NULL,
        key bytea NOT NULL,
        value bytea NOT NULL,
        error text
    );
    CREATE INDEX tickwheel_dead_key ON tickwheel_dead (namespace, key, died, version);
    CREATE INDEX tickwheel_dead_died ON tickwheel_dead (namespace, died, version);
"];

/// The files below `migrations/postgres`, from version 1 on.
pub(super) const MIGRATIONS: [&str; SCHEMA as usize] = [
    include_str!("../../migrations/postgres/1.sql"),
    include_str!("../../migrations/postgres/2.sql"),
];

/// Instances that make the tables at the same time take turns by this advisory lock. Any number will do.
const LOCK: i64 = 0x7469_636b_7768_6565;

/// The version of the schema that is there, and which tables they are.
const VERSION: &str = "SELECT version, identity::text FROM tickwheel_schema";

/// The quoted name of the schema that the tables are in.
const PLACE: &str = "
    SELECT quote_ident(n.nspname) FROM pg_class c, pg_namespace n
    WHERE c.oid = 'tickwheel_timers'::regclass AND n.oid = c.relnamespace";

/// The latest number that the sequence has given, and the greatest in use, if any is greater.
///
/// Numbers in use by the time the statement begins were given before. Rows are looked for beyond the latest number only, where
/// there are none.
const NUMBERS: &str = "
    WITH given AS MATERIALIZED (
        SELECT coalesce(pg_sequence_last_value('tickwheel_versions'), 0) AS number
    )
    SELECT given.number, coalesce(greatest(
        (SELECT version FROM tickwheel_timers WHERE version > given.number ORDER BY version DESC LIMIT 1),
        (SELECT version FROM tickwheel_dead WHERE version > given.number ORDER BY version DESC LIMIT 1),
        (SELECT id FROM tickwheel_instances WHERE id > given.number ORDER BY id DESC LIMIT 1)
    ), 0) FROM given";

/// Tables that were found.
#[derive(Debug, Clone)]
pub(super) struct Tables {
    version: u32,
    /// A number that was made with them: tables that are dropped and made again have another one.
    identity: String,
    /// The latest number that the sequence has given, and the greatest in use, if that is greater.
    given: i64,
    used: i64,
}

impl Tables {
    /// Whether they are the same tables.
    pub(super) fn are(&self, other: &Tables) -> bool {
        self.identity == other.identity
    }

    /// Whether they are to be upgraded.
    pub(super) fn are_older(&self) -> bool {
        self.version < SCHEMA
    }

    /// Whether they can be used. The greatest version that was seen in them is `seen`.
    pub(super) fn check(&self, target: &Target, seen: i64) -> Result<(), StoreError> {
        if self.version != SCHEMA {
            return Err(StoreError::Schema {
                found: self.version,
                supported: SCHEMA,
            });
        }
        if self.given < self.used {
            let message = format!(
                "PostgreSQL {target}: the sequence tickwheel_versions has given {} and version {} is in use: it went back, \
                 as after a failover or a restore that left it behind, and the tokens of claims would not grow. When no \
                 instance runs, set it: SELECT setval('tickwheel_versions', {0}), with the greatest number ever seen or more",
                self.given, self.used
            );
            return Err(StoreError::refused(message));
        }
        if self.given < seen {
            let message = format!(
                "PostgreSQL {target}: the sequence tickwheel_versions has given {}, and this store has seen version {seen}: the \
                 server has lost commits, as after a failover to an asynchronous standby. Versions would be given twice. Stop the \
                 instances, set the sequence, SELECT setval('tickwheel_versions', {seen}), with the greatest number ever seen or \
                 more, and start them again",
                self.given
            );
            return Err(StoreError::refused(message));
        }
        Ok(())
    }
}

/// The tables, if they are there and not from before there were dead rows.
pub(super) async fn find(client: &Client) -> Result<Option<Tables>, Error> {
    let found = try_join(
        client.query_typed(VERSION, &[]),
        client.query_typed(NUMBERS, &[]),
    );
    match found.await {
        Ok((version, numbers)) => Ok(version.first().map(|row| Tables {
            version: u32::try_from(row.get::<_, i32>(0)).unwrap_or(u32::MAX),
            identity: row.get(1),
            given: numbers[0].get(0),
            used: numbers[0].get(1),
        })),
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The files that lead from this version to the latest.
fn files(from: u32) -> String {
    let files = (from + 1..=SCHEMA).map(|version| format!("migrations/postgres/{version}.sql"));
    let files: Vec<_> = files.collect();
    files.join(", ")
}

/// There are no tables, or older ones, and this store does not make them.
pub(super) async fn not_there(client: &Client, target: &Target) -> StoreError {
    let rows = match client.query_typed(VERSION, &[]).await {
        Ok(rows) => rows,
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Vec::new(),
        Err(error) => return target.describe(error),
    };
    let version = rows
        .first()
        .and_then(|row| u32::try_from(row.get::<_, i32>(0)).ok());
    let found = match version {
        None => "there are no tables".to_owned(),
        Some(version) => format!("the tables have version {version}, and {SCHEMA} is needed"),
    };
    StoreError::refused(format!(
        "PostgreSQL {target}: {found}: apply {} of tickwheel-durable",
        files(version.unwrap_or(0))
    ))
}

/// The tables could not be made or upgraded.
pub(super) fn not_made(target: &Target, error: Error) -> StoreError {
    if error.code() != Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
        return target.describe(error);
    }
    let message = format!(
        "PostgreSQL {target}: the role may not make or upgrade the tables: let another one apply what is missing of {} of \
         tickwheel-durable",
        files(0)
    );
    StoreError::refused(message).because_of(error)
}

/// Makes the tables or upgrades them, if no other process has done so meanwhile.
pub(super) async fn make(client: &mut Client) -> Result<(), Error> {
    let transaction = client.transaction().await?;
    // The lock first: a statement that waits for it would not see what another one makes meanwhile.
    let lock = format!("SELECT pg_advisory_xact_lock({LOCK})");
    transaction.batch_execute(&lock).await?;
    let there = "SELECT to_regclass('tickwheel_schema') IS NOT NULL";
    let there = transaction.query_typed(there, &[]).await?;
    if !there[0].get::<_, bool>(0) {
        transaction.batch_execute(TABLES).await?;
    }
    let version = transaction.query_typed(VERSION, &[]).await?;
    let version: i32 = version.first().map_or(i32::MAX, |row| row.get(0));
    let upgrades: Vec<_> = (1..)
        .zip(UPGRADES)
        .filter(|(from, _)| *from >= version)
        .collect();
    if !upgrades.is_empty() {
        // All that is new belongs beside the tables, wherever the path of this role leads.
        let schema = transaction.query_typed(PLACE, &[]).await?;
        let schema: String = schema[0].get(0);
        let path = format!("SET LOCAL search_path = {schema}, pg_temp");
        transaction.batch_execute(&path).await?;
        for (_, upgrade) in upgrades {
            transaction.batch_execute(upgrade).await?;
        }
        let functions = functions::install();
        let made = format!("{functions}; UPDATE tickwheel_schema SET version = {SCHEMA}");
        transaction.batch_execute(&made).await?;
    }
    transaction.commit().await
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::Path;

    use super::*;

    /// The file that leads to a version.
    fn migration(version: u32) -> String {
        let before = version - 1;
        let (sql, found, place) = if before == 0 {
            let found = "to_regclass('tickwheel_schema') IS NOT NULL";
            (
                TABLES,
                found.to_owned(),
                "SELECT quote_ident(current_schema())",
            )
        } else {
            let found = format!("(SELECT version FROM tickwheel_schema) <> {before}");
            (UPGRADES[before as usize - 1], found, PLACE)
        };
        let wrong = match before {
            0 => "there are tables of tickwheel-durable already".to_owned(),
            _ => format!("the tables of tickwheel-durable do not have version {before}"),
        };
        let from = match before {
            0 => "Makes the tables of tickwheel-durable.".to_owned(),
            _ => format!(
                "Upgrades the tables of tickwheel-durable from version {before} to version {version}."
            ),
        };
        let mut text = format!(
            "-- {from}\n--\n\
             -- For a role with CREATE on the schema, which stands first in its search_path:\n\
             --     psql -v ON_ERROR_STOP=1 -f {version}.sql\n\n\
             BEGIN;\nSELECT pg_advisory_xact_lock({LOCK});\n\
             DO $$ BEGIN\n    IF {found} THEN\n        RAISE '{wrong}';\n    END IF;\nEND $$;\n\
             SELECT set_config('search_path', ({}) || ', pg_temp', true);\n",
            place.trim()
        );
        text.push_str(&dedented(sql));
        if version == SCHEMA {
            writeln!(text, "{};", dedented(&functions::install()).trim_end())
                .expect("a string takes it");
        }
        if before > 0 {
            writeln!(text, "UPDATE tickwheel_schema SET version = {version};")
                .expect("a string takes it");
        }
        text.push_str("COMMIT;\n");
        text
    }

    /// Without empty lines and the indent that the code has.
    fn dedented(sql: &str) -> String {
        let lines = sql.lines().filter(|line| !line.trim().is_empty());
        let lines = lines.map(|line| line.strip_prefix("    ").unwrap_or(line).trim_end());
        lines.fold(String::new(), |text, line| text + line + "\n")
    }

    #[test]
    fn migration_files_have_the_sql_of_the_crate() {
        for (file, version) in MIGRATIONS.iter().zip(1..) {
            let text = migration(version);
            if std::env::var_os("TICKWHEEL_WRITE_MIGRATIONS").is_some() {
                let path = format!("migrations/postgres/{version}.sql");
                let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
                std::fs::write(path, text).expect("it is written");
            } else {
                assert!(
                    *file == text,
                    "run this test with TICKWHEEL_WRITE_MIGRATIONS=1, and look at the difference"
                );
            }
        }
    }
}
