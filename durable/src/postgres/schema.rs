//! The tables and functions, and how they come to be.
//!
//! The files in the folder `migrations/postgres` lead from each version of the schema to the next,
//! the first, and so far only one, from nothing, and [back](crate::Migration). The first connection
//! of a store runs those that a database lacks, and another role does where this one may not create
//! anything. The last file has
//! the functions for users, which have the version of the tables. They take the locks of their keys
//! and make the changes of [`statements`](super::statements), so a change there is one to them:
//! tests of `statements` compare the two.
//!
//! # Names
//!
//! A role that may create functions in a schema could make one that fits our arguments better than
//! the built-in, and the server would run it for us. So:
//!
//! 1. The role's `search_path` says where the tables are, and nothing else. [`PLACE`] asks for
//!    that, before anything else, by names that are all qualified.
//! 2. From then on the path of a connection, of a function and of a migration is
//!    `pg_catalog, pg_temp`. Functions and operators are never looked up in `pg_temp`, so all are
//!    built-in.
//! 3. Our tables, sequences and functions have their schema before them: `@.` in the text of a
//!    statement. A call of one of our functions by another has arguments of exactly its types.

use std::time::Duration;

use futures_util::future::try_join3;
use tokio::time::sleep;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, Row};

use super::migrations::{MIGRATIONS, SCHEMA};
use super::target::Target;
use crate::jitter::jittered;
use crate::migrations::{Migration, SchemaVersion};
use crate::store::StoreError;

/// For how long a step waits for the locks of tables, and how often it is tried. Statements that
/// come later wait behind it, so it leaves them a second in between.
const LOCK_TIMEOUT: &str = "SELECT pg_catalog.set_config('lock_timeout', '1s', true);";
const TRIES: usize = 30;
const LOCK_PAUSE: Duration = Duration::from_secs(1);

/// Instances that make the tables at the same time take turns by this advisory lock, as the files
/// do. Any number will do.
const LOCK: i64 = 0x7469_636b_7768_6565;

/// The quoted name of the schema in which the role's path finds the tables, if it does.
const PLACE: &str = "
    SELECT pg_catalog.quote_ident(n.nspname::pg_catalog.text) FROM pg_catalog.pg_class c, pg_catalog.pg_namespace n
    WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('tickwheel_schema')
        AND n.oid OPERATOR(pg_catalog.=) c.relnamespace";

/// The path of a connection from then on.
const PATH: &str = "SET search_path = pg_catalog, pg_temp";

/// The version of the schema that is there, and which tables they are.
const VERSION: &str = "SELECT version, readable_by, identity::text FROM @.tickwheel_schema";

/// Which roles may create in the schema beside its owner, that of the tables and this one, if any;
/// the owner of the tables, and whether that is this role or acts for the owner of the schema, as
/// superusers do; and the owner of the schema, unless it acts for that of the tables.
const RIGHTS: &str = "
    SELECT (
        SELECT string_agg(CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(a.grantee) END, ', ')
        FROM aclexplode(n.nspacl) a
        WHERE a.privilege_type = 'CREATE' AND a.grantee <> t.relowner AND a.grantee <> me.oid
            AND CASE a.grantee WHEN 0 THEN true ELSE NOT pg_has_role(a.grantee, n.nspowner, 'USAGE') END
    ), pg_get_userbyid(t.relowner)::text, t.relowner = me.oid OR pg_has_role(t.relowner, n.nspowner, 'USAGE'),
        CASE WHEN NOT pg_has_role(s.owner, t.relowner, 'MEMBER') THEN pg_get_userbyid(s.owner)::text END
    FROM pg_class t, pg_namespace n, pg_roles me, pg_database d, LATERAL (
        SELECT CASE n.nspowner WHEN 'pg_database_owner'::regrole THEN d.datdba ELSE n.nspowner END AS owner
    ) s
    WHERE t.oid = '@.tickwheel_timers'::regclass AND n.oid = t.relnamespace AND me.rolname = current_user
        AND d.datname = current_database()";

/// Sets the sequence to the clock, or to the greatest number in use if that is greater. So tokens
/// grow also when the server has lost commits, or a dump was restored without the latest number.
///
/// One connection after the other does that. Those that draw numbers meanwhile do not wait for it,
/// so it leaves a sequence alone that is behind by less than a second: no program draws a million
/// numbers between the look and the change.
///
/// The number of the advisory lock is [`LOCK`] and one.
const CATCH_UP: &str = "
    BEGIN;
    SELECT pg_advisory_xact_lock(8388345094170240358);
    SELECT setval('@.tickwheel_versions', n.number)
    FROM (
        SELECT greatest(
            (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
            (SELECT version FROM @.tickwheel_timers ORDER BY version DESC LIMIT 1),
            (SELECT version FROM @.tickwheel_dead ORDER BY version DESC LIMIT 1),
            (SELECT id FROM @.tickwheel_instances ORDER BY id DESC LIMIT 1)
        ) AS number
    ) n
    WHERE n.number > coalesce(pg_sequence_last_value('@.tickwheel_versions'), 0) + 1000000;
    COMMIT";

/// Tables that were found.
#[derive(Debug, Clone)]
pub(super) struct Tables {
    /// Their schema and a dot, as it stands before their names.
    place: String,
    version: SchemaVersion,
    /// A number that was made with them: tables that are dropped and made again have another one.
    identity: String,
}

impl Tables {
    /// A statement that names these tables.
    pub(super) fn name_in(&self, sql: &str) -> String {
        sql.replace("@.", &self.place)
    }

    /// Whether they are the same tables.
    pub(super) fn are(&self, other: &Tables) -> bool {
        self.identity == other.identity
    }

    /// Whether they are to be upgraded.
    pub(super) fn are_older(&self) -> bool {
        self.version.version < SCHEMA
    }

    /// Refuses tables in the schema of a role that could replace the functions beside them, and so
    /// act as their owner; and tables that a role may have made which has no business to: its
    /// triggers would run as this role. Warns where other roles may create in the schema. Nothing
    /// of theirs is run by the store, but they can mislead the callers of the functions for users,
    /// who look these up by name.
    pub(super) async fn check_rights(
        &self,
        client: &Client,
        target: &Target,
    ) -> Result<(), StoreError> {
        let rights = self.name_in(RIGHTS);
        let rights = client.query_typed(&rights, &[]).await;
        let rights = &rights.map_err(|error| target.describe(error))?[0];
        let (creators, replacer): (Option<&str>, Option<&str>) = (rights.get(0), rights.get(3));
        let (owner, is_owner_trusted): (&str, bool) = (rights.get(1), rights.get(2));
        let schema = self.place.trim_end_matches('.');
        if let Some(replacer) = replacer {
            return Err(target.refused(format_args!(
                "schema {schema} belongs to {replacer}, who could replace the functions in it, and so act as {owner}, to \
                 whom the tables belong: give schema and tables the same owner"
            )));
        }
        let Some(creators) = creators else {
            return Ok(());
        };
        if is_owner_trusted {
            tracing::warn!(
                store = %target, schema, %creators,
                "other roles may create in the schema of the timers, and so mislead callers of its functions: revoke that, \
                 or move the tables to a separate schema"
            );
            return Ok(());
        }
        Err(target.refused(format_args!(
            "the tables in schema {schema} belong to {owner}, who does not own the schema, and other roles may create in it \
             ({creators}), so any of them may have made the tables: REVOKE CREATE ON SCHEMA {schema} from these, if {owner} \
             is to be trusted"
        )))
    }

    /// Whether they can be used.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.version.check(SCHEMA)
    }

    /// Has the sequence [catch up](CATCH_UP) with the clock.
    pub(super) async fn catch_up(&self, client: &Client) -> Result<(), Error> {
        client.batch_execute(&self.name_in(CATCH_UP)).await
    }
}

/// Where the tables are. From then on the path of the connection is [`PATH`].
async fn place(client: &Client) -> Result<Option<String>, Error> {
    let places = try_join3(
        client.batch_execute("RESET search_path"),
        client.query_typed(PLACE, &[]),
        client.batch_execute(PATH),
    );
    let ((), rows, ()) = places.await?;
    Ok(rows.first().map(|row| row.get::<_, String>(0) + "."))
}

/// The tables, if they are there. The statement reads one table of ours: another process may be
/// upgrading them, and one that waits for a table while it holds another would deadlock with that.
pub(super) async fn find(client: &Client) -> Result<Option<Tables>, Error> {
    let Some(place) = place(client).await? else {
        return Ok(None);
    };
    let version = VERSION.replace("@.", &place);
    let number = |row: &Row, column| u32::try_from(row.get::<_, i32>(column)).unwrap_or(u32::MAX);
    match client.query_typed(&version, &[]).await {
        Ok(version) => Ok(version.first().map(|row| Tables {
            version: SchemaVersion::new(number(row, 0), number(row, 1)),
            identity: row.get(2),
            place,
        })),
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The version of the tables, or 0 if there are none.
pub(super) async fn version(client: &Client) -> Result<SchemaVersion, Error> {
    let found = find(client).await?;
    Ok(found.map_or(SchemaVersion::new(0, 0), |tables| tables.version))
}

/// The files that lead from this version to the latest.
fn files(from: u32) -> String {
    let files = (from + 1..=SCHEMA).map(|version| format!("migrations/postgres/{version}.sql"));
    let files: Vec<_> = files.collect();
    files.join(", ")
}

/// There are no tables, or older ones, and this store does not make them.
pub(super) async fn not_there(client: &Client, target: &Target) -> StoreError {
    let tables = match find(client).await {
        Ok(tables) => tables,
        Err(error) => return target.describe(error),
    };
    let (found, files) = match tables.map(|tables| tables.version.version) {
        None => ("there are no tables".to_owned(), files(0)),
        Some(version) => (
            format!("the tables have version {version}, and {SCHEMA} is needed"),
            files(version),
        ),
    };
    target.refused(format_args!(
        "{found}: run `tickwheel-admin migrate up`, or apply {files} of tickwheel-durable"
    ))
}

/// The tables could not be made or upgraded.
pub(super) fn not_made(target: &Target, error: Error) -> StoreError {
    if error.code() != Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
        return target.describe(error);
    }
    let why = format!(
        "the role may not make or upgrade the tables: let another one apply what is missing of {} of tickwheel-durable",
        files(0)
    );
    target.refused(why).because_of(error)
}

/// Takes the steps to a version of the schema, if no other process has taken them meanwhile.
pub(super) async fn migrate(client: &Client, to: u32) -> Result<(), Error> {
    let lock = format!("SELECT pg_catalog.pg_advisory_lock({LOCK})");
    client.batch_execute(&lock).await?;
    let SchemaVersion { version, .. } = version(client).await?;
    // The files find the schema by the path of the role.
    client.batch_execute("RESET search_path").await?;
    for file in Migration::steps(MIGRATIONS, version, to) {
        step(client, file).await?;
    }
    let unlock = format!("SELECT pg_catalog.pg_advisory_unlock({LOCK})");
    client.batch_execute(&unlock).await
}

/// Takes a step. The statements that travel together are one transaction.
async fn step(client: &Client, file: &str) -> Result<(), Error> {
    let in_time = format!("{LOCK_TIMEOUT}\n{file}");
    for _ in 1..TRIES {
        match client.batch_execute(&in_time).await {
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                sleep(jittered(LOCK_PAUSE)).await;
            }
            taken => return taken,
        }
    }
    client.batch_execute(&in_time).await
}
