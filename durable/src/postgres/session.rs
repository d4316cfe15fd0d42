//! One connection, and the statements that are prepared on it.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::TryFutureExt;
use futures_util::future::{try_join, try_join_all};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};

use super::migrations::SCHEMA;
use super::schema::{self, Tables};
use super::target::Target;
use crate::lock::lock;
use crate::silence::{Silence, Waiting};
use crate::store::StoreError;

/// The settings of every connection, once it is known to be the only one on its process: see
/// `pooler`.
///
/// Statements look rows up by indices that fit. The planner has to use these whatever its
/// statistics say, because they are out of date most of the time: a table is full now and empty a
/// minute later. A plan is made once for a connection.
///
/// A process that is stopped in the middle of sending a batch holds the locks of its keys, for a
/// second at most.
///
/// Row level security would hide rows without a word. With `row_security` off the server refuses
/// the statement instead.
const SETTINGS: &str = "
    SET default_transaction_isolation = 'read committed';
    SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
    SET plan_cache_mode = force_generic_plan; SET jit = off; SET max_parallel_workers_per_gather = 0;
    SET idle_in_transaction_session_timeout = '1s'; SET client_min_messages = warning;
    SET row_security = off;";

/// Takes an advisory lock with a number of its own, until the connection ends or a pooler resets
/// it. By then the process may serve another client. Statements find the number in a setting.
const BACKEND: &str = "
    WITH random AS MATERIALIZED (SELECT hashtextextended(gen_random_uuid()::text, 0) AS number)
    SELECT number, pg_advisory_lock(number), set_config('tickwheel.backend', number::text, false) FROM random";

/// Ends the processes of the server that hold these locks, and waits until they are gone. Returns
/// how many are left.
///
/// The planner may ask for the end of a process before it looks at which one it is, were it not for
/// the `MATERIALIZED`.
const TERMINATE: &str = "
    WITH old AS MATERIALIZED (
        SELECT l.pid FROM unnest($1::bigint[]) AS o(number), pg_locks l
        WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
            AND (l.classid::bigint << 32) | l.objid::bigint = o.number
    )
    SELECT count(*) FROM old WHERE NOT pg_terminate_backend(old.pid, 5000)";

/// A server that has not responded for so long may hang. A caller that drops a read sooner has
/// changed its mind, unless others did so too and none had a response.
const SILENT: Duration = Duration::from_millis(100);

/// A process of the server, by the number of the lock that it holds while it serves a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Backend(i64);

impl Backend {
    /// The number of the lock, by which connections differ.
    pub(super) fn number(self) -> i64 {
        self.0
    }
}

/// A connection.
pub(super) struct Session {
    client: Client,
    backend: Backend,
    tables: Tables,
    silence: Silence,
    statements: Mutex<HashMap<&'static str, Statement>>,
}

pub(super) type Parameters<'a> = [&'a (dyn ToSql + Sync)];

impl Session {
    /// Sets the first connection of a store up, and makes or upgrades the tables.
    pub(super) async fn first(client: Client, target: &Target) -> Result<Self, StoreError> {
        let (backend, tables) = set_up(&client, target).await?;
        // Another process may be upgrading them.
        let tables = match tables.filter(|tables| !tables.are_older()) {
            Some(tables) => tables,
            None if target.creates_tables => {
                let made = schema::migrate(&client, SCHEMA).await;
                made.map_err(|error| schema::not_made(target, error))?;
                let found = schema::find(&client).await;
                let found = found.map_err(|error| target.describe(error))?;
                found.ok_or_else(|| gone(target))?
            }
            None => return Err(schema::not_there(&client, target).await),
        };
        tables.check()?;
        tables.check_rights(&client, target).await?;
        Session::new(client, target, backend, tables).await
    }

    /// Sets another connection up. If it leads to other tables than the `known` ones, which were
    /// dropped then, they have to be such as a first connection takes. Whether it
    /// may load, fire and write is for its statements to find out: others need it to settle.
    pub(super) async fn on(
        client: Client,
        target: &Target,
        known: &Tables,
    ) -> Result<Self, StoreError> {
        let (backend, tables) = set_up(&client, target).await?;
        let tables = tables.ok_or_else(|| gone(target))?;
        if !tables.are(known) {
            tables.check_rights(&client, target).await?;
        }
        Session::new(client, target, backend, tables).await
    }

    async fn new(
        client: Client,
        target: &Target,
        backend: Backend,
        tables: Tables,
    ) -> Result<Self, StoreError> {
        let caught_up = tables.catch_up(&client).await;
        caught_up.map_err(|error| target.describe(error))?;
        Ok(Session {
            client,
            backend,
            tables,
            silence: Silence::default(),
            statements: Mutex::default(),
        })
    }

    /// The tables as they were found.
    pub(super) fn tables(&self) -> &Tables {
        &self.tables
    }

    pub(super) fn backend(&self) -> Backend {
        self.backend
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed() || self.silence.is_given_up()
    }

    /// A read is sent.
    pub(super) fn read(&self) -> Waiting<'_> {
        self.silence.call(SILENT)
    }

    /// A prepared statement: the first time it takes a round trip.
    pub(super) async fn statement(&self, sql: &'static str) -> Result<Statement, Error> {
        let statements = || lock(&self.statements);
        let known = statements().get(sql).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = self.client.prepare(&self.tables.name_in(sql)).await?;
        statements().insert(sql, statement.clone());
        Ok(statement)
    }

    /// Runs one statement.
    pub(super) async fn query(
        &self,
        sql: &'static str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, Error> {
        let statement = self.statement(sql).await?;
        self.client.query(&statement, parameters).await
    }

    /// Runs statements in one transaction and one round trip: the server has all of them before it
    /// takes the first lock, unless there are too many bytes for the network to hold. Returns their
    /// rows.
    pub(super) async fn transaction(
        &self,
        queries: &[(&'static str, &Parameters<'_>)],
    ) -> Result<Vec<Vec<Row>>, Error> {
        if let [(sql, parameters)] = queries {
            return Ok(vec![self.query(sql, parameters).await?]);
        }
        self.between("BEGIN", queries).await
    }

    /// Runs statements that give no hints, in one transaction.
    pub(super) async fn transaction_without_hints(
        &self,
        queries: &[(&'static str, &Parameters<'_>)],
    ) -> Result<Vec<Vec<Row>>, Error> {
        let begin = "BEGIN; SET LOCAL tickwheel.hints = off";
        self.between(begin, queries).await
    }

    /// Runs statements between the beginning of a transaction and its end.
    async fn between(
        &self,
        begin: &'static str,
        queries: &[(&'static str, &Parameters<'_>)],
    ) -> Result<Vec<Vec<Row>>, Error> {
        let statements = try_join_all(queries.iter().map(|(sql, _)| self.statement(sql))).await?;
        // Requests leave in the order in which they are first polled. After one that fails the
        // server skips the others, and COMMIT rolls back.
        let plain = |sql: &'static str| -> Request<'_> {
            Box::pin(self.client.batch_execute(sql).map_ok(|()| Vec::new()))
        };
        let mut requests: Vec<Request<'_>> = Vec::with_capacity(queries.len() + 2);
        requests.push(plain(begin));
        for ((_, parameters), statement) in queries.iter().zip(&statements) {
            requests.push(Box::pin(self.client.query(statement, parameters)));
        }
        requests.push(plain("COMMIT"));
        let answers = futures_util::future::join_all(requests).await;
        let answers = answers.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(answers.into_iter().skip(1).take(queries.len()).collect())
    }

    /// Ends processes after their connections were given up, so that no statement of theirs takes
    /// effect later.
    pub(super) async fn terminate(&self, backends: &[Backend]) -> Result<bool, Error> {
        let numbers: Vec<_> = backends.iter().map(|&Backend(number)| number).collect();
        let left = self.query(TERMINATE, &[&numbers]).await?;
        Ok(left[0].get::<_, i64>(0) == 0)
    }
}

type Request<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, Error>> + Send + 'a>>;

/// Sets a connection up. Returns the server's process, and the tables if they exist.
async fn set_up(client: &Client, target: &Target) -> Result<(Backend, Option<Tables>), StoreError> {
    let set_up = async {
        // Before the path is set, no function is to be looked up.
        let ((), tables) = try_join(client.batch_execute(SETTINGS), schema::find(client)).await?;
        Ok((client.query_typed(BACKEND, &[]).await?, tables))
    };
    let (rows, tables) = set_up.await.map_err(|error| target.describe(error))?;
    Ok((Backend(rows[0].get(0)), tables))
}

fn gone(target: &Target) -> StoreError {
    target.refused(
        "there are no tables any more: they were dropped, and no instance has started since",
    )
}
