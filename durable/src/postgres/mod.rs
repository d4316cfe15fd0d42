//! A store in PostgreSQL.
//!
//! ```text
//! calls of instances --> lanes: a connection each for writes, settles, fires, loads, reads and admin --> one round trip a batch
//! hinted             <-- one connection that listens                                                 <-- NOTIFY by the statements
//! ```
//!
//! A batch of acknowledgements, as the server explains it:
//!
//! ```text
//! Delete on tickwheel_timers t
//!   CTE i -> Function Scan on unnest u
//!   -> Nested Loop
//!        -> CTE Scan on i
//!        -> Index Scan using tickwheel_timers_pkey on tickwheel_timers t
//!             Index Cond: (version = i.version)
//! ```
//!
//! A test has the server explain every statement as it runs, on empty and on large tables, and sees
//! that each looks its rows up.
//!
//! `statements` has the SQL of each call, and says why it holds among others that run at the same
//! time; `lanes` says why calls keep their order.

mod charter;
mod connector;
mod dead;
mod dial;
mod fire;
mod hints;
mod hosts;
mod inspect;
mod lanes;
mod load;
mod migrate;
mod migrations;
mod numbers;
mod options;
mod place;
mod pooler;
mod read;
mod schema;
mod session;
mod settle;
mod space;
mod spaces;
mod statements;
mod target;
mod url;
mod write;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio_postgres::Row;

use crate::jitter::jittered;
use crate::store::{
    Answer, BoxFuture, ChangedRows, Charter, Counts, DeadChange, DeadRows, Fire, FireReport,
    Inspect, InstanceId, List, Load, Loaded, Namespace, Opened, Settle, Settled, Store, StoreError,
    Stored, Terms, Version, Write, WriteOutcome,
};
use hints::Hints;
use lanes::{Lane, Lanes};
pub use options::PostgresOptions;
use session::Parameters;
use spaces::Spaces;
use target::Target;

/// An instance that waits for the hints of a namespace that is not found looks again after this.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A store in a PostgreSQL database, from version 14 on. With the feature `postgres`.
///
/// Any number of processes on any hosts may share the database. Clones share their connections: two
/// from the start, up to four more that are made when they are first used, and one that listens
/// once an instance claims. [`PostgresOptions::connections`] makes them fewer. A connection that is
/// lost, or on which nothing responds, is replaced by the next call.
///
/// # Durability
///
/// Every call commits before it returns. What a commit survives is a matter of the server:
///
/// | setting | a crash of this process | of the server | of its host, or power |
/// |---|---|---|---|
/// | `synchronous_commit = on`, the default, and `fsync = on` | survives | survives | survives, as far as the disk does what it says |
/// | `synchronous_commit = remote_apply` with `synchronous_standby_names` | survives | survives | survives, also the loss of the disk |
/// | `synchronous_commit = off` | survives | what was committed in the last moments is lost | likewise |
/// | `fsync = off` | survives | survives | the database may be damaged |
///
/// The role has the setting (`ALTER ROLE .. SET synchronous_commit`), or the URL
/// (`?options=-c%20synchronous_commit%3Doff`). [Failover](#failover) says what a standby keeps.
///
/// The store's clock is the server's, read once in a call.
///
/// # Permissions
///
/// The first connection makes the tables `tickwheel_*`, the sequence `tickwheel_versions` and
/// functions in the first schema of the role's `search_path`; for that it needs `CREATE` on the
/// schema. Give them a separate schema, in which no other role may create:
///
/// ```sql
/// CREATE SCHEMA timers AUTHORIZATION worker;
/// ALTER ROLE worker SET search_path = timers; -- or ?options=-csearch_path%3Dtimers in the URL
/// ```
///
/// Do not rename the schema: its functions have its name in their bodies.
///
/// No tables are made where another role may create, as all may in the schema `public` of
/// PostgreSQL 14 and of databases that come from it. If that right is given later, connecting logs
/// a warning; if the tables then belong to a role that does not own the schema, it is refused,
/// since any role may have made them. Tables of an earlier version of this crate are upgraded by
/// the first connection, whose role has to own them; instances of that version can then not connect
/// any more.
///
/// Where the role may not do that, another one applies the files in the folder
/// `migrations/postgres` of this package, each in its turn: `psql -1 -v ON_ERROR_STOP=1 -f 1.sql`.
/// [`MIGRATIONS`](Self::MIGRATIONS) has their text. With
/// [`create_tables(false)`](PostgresOptions::create_tables) a store never tries, and its error
/// names the files that are missing. Then it is enough to have
///
/// ```sql
/// GRANT USAGE ON SCHEMA timers TO worker;
/// GRANT SELECT ON tickwheel_schema TO worker;
/// GRANT SELECT, INSERT, UPDATE, DELETE ON tickwheel_namespaces, tickwheel_instances, tickwheel_timers, tickwheel_dead TO worker;
/// GRANT USAGE, UPDATE ON SEQUENCE tickwheel_versions TO worker;
/// ```
///
/// Leave row level security off on these tables: where a policy would hide rows from the role,
/// calls fail with [`StoreError::Refused`], since timers that are hidden would not be delivered.
///
/// What each role can do to the timers of a schema:
///
/// | role | can | cannot |
/// |---|---|---|
/// | with these rights on the tables | read and change the timers of all namespaces | change the tables and functions |
/// | with `EXECUTE` on [the functions](#in-your-own-transaction) | set, move and remove timers of all namespaces, read a value by removing it, and delay calls on the keys that its transaction holds | read a table; run its own code with the rights of the owner |
/// | with `CREATE` on the schema | mislead those that call the functions, by functions of the same name with other parameters, which then run as the caller | run its own code as the owner, as a store or as a caller that casts its arguments and names the schema |
/// | the owner of the schema | replace tables and functions, so it has to be their owner, a superuser or a role that acts for that: else nothing is made there, and connecting is refused | |
/// | any that may connect to the database | delay calls, by taking the same advisory locks; `LISTEN` to hints, which hold no data, and send them, which costs each instance a query | read or change a timer |
///
/// Several schemas in one database have nothing in common: tenants that shall not reach each
/// other's timers get a schema each.
///
/// # In your own transaction
///
/// Functions of the schema set, move and remove timers in a transaction of your own, from any
/// client, language or trigger:
///
/// ```sql
/// BEGIN;
/// INSERT INTO orders (id, price) VALUES (17, 30);
/// SELECT tickwheel_set('orders', 'order 17', '{"price": 30}', now() + interval '3 days');
/// COMMIT;
/// ```
///
/// The timer is set when the transaction commits. If it is rolled back, or the connection is lost
/// before, nothing was set.
///
/// | function | returns |
/// |---|---|
/// | `tickwheel_set(namespace text, key, value jsonb, due timestamptz)` | `set`, `replaced` |
/// | `tickwheel_set_if_absent(namespace text, key, value jsonb, due timestamptz)` | `set`, `present`, `in_flight` |
/// | `tickwheel_move(namespace text, key, due timestamptz)` | `moved`, `absent`, `in_flight` |
/// | `tickwheel_remove(namespace text, key)` | a row `(result text, value json)` with `removed`, `absent` or `in_flight`, and the value that was removed |
///
/// They do what the calls of [`DurableTimers`](crate::DurableTimers) do. `in_flight` means that the
/// timer has fired and is not settled; nothing was changed.
///
/// * The key is a `text` for keys that are strings, or `jsonb` for others: `to_jsonb(17)`,
///   `jsonb_build_array('user', 5)`. An object is refused. The namespace has the codec
///   [`Json`](crate::Json), and an instance has opened it before.
/// * A client that binds the value as text casts it: `tickwheel_set('orders', $1, $2::jsonb, $3)`.
/// * A `due` in the past is due at once, and `infinity` is never. `now()` is when the transaction
///   began.
/// * At the commit a hint goes out for what is due within two polls of the instances, so a timer
///   that is due by then is delivered as soon as one that a call has set. Instances find what is
///   further away by their poll. What was due in more than an hour when it was set, and is due at
///   the commit all the same, comes with the next poll, too.
/// * After `SET LOCAL tickwheel.hints = off` the transaction sends no hint, and instances find what
///   was set by their [poll](crate::Builder::poll). Without `LOCAL` the setting stays in the
///   session, which a pooler gives to others.
/// * Arguments that are null or too long, and a namespace that was not opened, are errors that say
///   so.
///
/// The functions run with the rights of the role that made the tables. No other role may call them
/// until it is allowed to, and needs no right on a table. `EXECUTE` is for the timers of all
/// namespaces; for fewer, let the role call a function of yours that calls these:
///
/// ```sql
/// GRANT USAGE ON SCHEMA timers TO shop;
/// GRANT EXECUTE ON FUNCTION
///     tickwheel_set(text, text, jsonb, timestamptz), tickwheel_set_if_absent(text, text, jsonb, timestamptz),
///     tickwheel_move(text, text, timestamptz), tickwheel_remove(text, text) TO shop;
/// ```
///
/// A transaction keeps its keys until it ends:
///
/// * Calls of instances on these keys are made again every 10 ms, until the [call
///   timeout](crate::Builder::call_timeout). They take effect after the transaction. Other keys are
///   not delayed.
/// * What is due under these keys meanwhile fires within a poll of the end of the transaction.
///   Instances ask for it less and less often, down to once a second.
/// * Two transactions that take the same keys in opposite orders can deadlock, as with rows: the
///   server ends one of them.
/// * Each key takes a lock of the server, which has room for some thousands by default
///   (`max_locks_per_transaction`): set very many timers in several transactions, or by
///   [`set_many`](crate::DurableTimers::set_many).
///
/// | transactions with | |
/// |---|---|
/// | `REPEATABLE READ`, `SERIALIZABLE` | A key that was changed since the snapshot is a serialization failure (SQLSTATE 40001): run the transaction again. One case is not noticed: a timer that was set since, and has fired or died since, counts as absent, and `tickwheel_set_if_absent` sets another. |
/// | `PREPARE TRANSACTION` | The server cannot prepare a transaction that has sent a hint: turn hints off in it, by `SET LOCAL tickwheel.hints = off`. Until it is committed or rolled back, it keeps its keys. |
///
/// # Sizing
///
/// * Seven connections for each process at most, counted against `max_connections`, or
///   [fewer](PostgresOptions::connections).
/// * The work of a call does not grow with the number of timers: each row is looked up in an index,
///   whatever the statistics say. [`counts`](crate::DurableTimers::counts) counts up to 10,000 rows
///   in each state; more it estimates by counting those on some 500 pages of the table, which is a
///   few percent off, or more for a small part of a table that several namespaces share. Counts,
///   lists and purges have another connection, so that nothing else waits for them.
/// * Timers come and go, and so do dead rows. The table is set to be vacuumed early; a transaction
///   that stays open for hours keeps vacuum from it, here as everywhere. Loads do not become slower
///   by that, since each begins where the last one has ended, and once a minute at the beginning;
///   table and indices grow. [Operating](crate::operating#old-transactions-in-postgresql) has more.
/// * A transaction that sets a timer which is due within two polls, and which its own instance does
///   not load, sends `NOTIFY`. The server has such transactions of all its databases commit one
///   after the other. So one of a namespace does that at a time, and its hint is for those that
///   commit beside it. A hint names an instance that waits for timers, and the others load a
///   quarter of a poll later at most. While the server's `NOTIFY` queue is nearly full there are no
///   hints.
/// * Sets, moves, removes and put-backs of one key take turns by an advisory lock, until they are
///   committed, and so do batches of more than 32 keys of a namespace. In the server's table of
///   locks (`max_locks_per_transaction`) a large batch takes four places, a smaller one 67 at most,
///   and beside [transactions of yours](#in-your-own-transaction) either takes up to 131.
/// * A server that waits for the rest of a batch for a second undoes it. Over a link on which the
///   values of a batch take longer, the call fails with [`StoreError::Unavailable`].
/// * Manual row locks delay moves and removes of these keys and settles of these claims, until
///   their time limit, and what takes turns with these. Everything else goes on without the rows.
///   Timers that are due meanwhile come within a poll of the end of the lock.
///
/// # Poolers
///
/// Connect directly, or through a pooler of sessions, such as pgbouncer with `pool_mode = session`,
/// which has room for all connections and resets what it gives back
/// (`server_reset_query = DISCARD ALL`, the default). A pooler of transactions or statements is
/// refused at connect. Callers of [the functions](#in-your-own-transaction) may use any pooler.
///
/// # Failover
///
/// The URL may name several hosts: `postgres://worker@db-1.example,db-2.example/orders`.
/// Connections lead to the one that accepts writes, as with `target_session_attrs=read-write`,
/// which may be left out. A host that does not respond delays the others by a quarter of a second.
/// While none accepts writes, calls fail with [`StoreError::Unavailable`].
///
/// | the standby | after a failover |
/// |---|---|
/// | synchronous (`synchronous_standby_names`) | nothing is lost that a call has returned |
/// | asynchronous | the last commits may be lost: timers are missing that were set, are there again that were removed or acknowledged, or have their old deadline |
///
/// Versions and tokens grow in every case, also from what the former server has given: each
/// connection first sets the sequence to the server's clock, in microseconds, if it is behind. So a
/// logical replica, a part of a dump, or an older state can take over without further steps, as
/// long as its clock is not behind by more than the failover took.
///
/// Instances that run notice when the database has returned to an earlier state or has lost its
/// data: see [the page on operating](crate::operating). Tables that were dropped are not made again
/// by a store that is connected, but by the next one that connects or by the migrations, and then
/// used by all.
///
/// # Encryption
///
/// Connections are encrypted if the URL has `sslmode=require` or `sslmode=verify-full`. Both check
/// the certificate, by the file that `sslrootcert=` names or else by what the system trusts.
/// Without, they are not encrypted. It takes the feature `tls-ring` or `tls-aws-lc-rs`, or a
/// default provider of `rustls` that the program has installed; [`PostgresOptions::tls`] takes any
/// connector.
///
/// # Examples
///
/// ```no_run
/// use tickwheel_durable::{Postgres, builder};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let wheel = tickwheel::TimerWheel::new();
/// let store = Postgres::connect("postgres://worker:secret@db.example/orders?sslmode=verify-full").await?;
/// let (timers, claims) = builder::<String, u32>("orders").start(&wheel, store).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Postgres {
    inner: Arc<Inner>,
}

struct Inner {
    target: Target,
    lanes: Lanes,
    hints: Arc<Hints>,
    spaces: Mutex<Spaces>,
    listener: AbortHandle,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl Postgres {
    /// Connects to a database, and makes the tables if they are not there.
    ///
    /// The URL is one of libpq: `postgres://user:password@host:port/database?option=value`, or a
    /// list of `option=value`. It may name [several hosts](#failover).
    ///
    /// # Errors
    ///
    /// [`StoreError::Refused`] when the URL cannot be parsed, the server refuses the role, the
    /// database or the tables, or there is a pooler of transactions between;
    /// [`StoreError::Unavailable`] when it does not respond;
    /// [`StoreError::Schema`] when a later version of this crate has written the tables. Each says
    /// where and as whom, and never with which password.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::connect_with(PostgresOptions::new(url)?).await
    }

    /// Connects to a database as [`connect`](Self::connect) does, with other settings: how
    /// connections are made, how many there are, and whether tables are made.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), and [`StoreError::Refused`] when a setting is out of its
    /// range, or tables are missing and not to be made.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn connect_with(options: PostgresOptions) -> Result<Self, StoreError> {
        options.check_connections()?;
        let connections = options.connections;
        let target = Target::new(options)?;
        let hints = Arc::<Hints>::default();
        let lanes = Lanes::connect(target.clone(), connections, Arc::clone(&hints)).await?;
        let listener = tokio::spawn(dial::listen(target.clone(), Arc::clone(&hints)));
        Ok(Postgres {
            inner: Arc::new(Inner {
                target,
                lanes,
                hints,
                spaces: Mutex::default(),
                listener: listener.abort_handle(),
            }),
        })
    }

    fn lanes(&self) -> &Lanes {
        &self.inner.lanes
    }

    /// Runs a statement that may read many rows.
    async fn look(
        &self,
        sql: &'static str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        self.lanes().query(Lane::Admin, sql, parameters).await
    }

    /// Makes a call under the charter of a namespace.
    fn call<'a, T>(
        &'a self,
        namespace: &Namespace,
        call: impl Future<Output = Result<T, StoreError>> + Send + 'a,
    ) -> Answer<'a, T> {
        let namespace = namespace.clone();
        Box::pin(async move {
            let answer = call.await;
            let amended = matches!(answer, Err(StoreError::Amended { .. }));
            if amended || matches!(answer, Err(StoreError::NotOpened { .. })) {
                // Its number may be another one's by now: the server may have lost the namespace.
                let lost = self.spaces().opened.remove(&namespace);
                if let Some(lost) = lost {
                    self.forget_place(lost.id);
                    // Listeners wake, and look for the channel of the new one.
                    self.inner.hints.notify(&lost.channel, None);
                }
                return Err(if amended {
                    StoreError::amended(&namespace)
                } else {
                    StoreError::not_opened(&namespace)
                });
            }
            answer
        })
    }
}

opaque!(Postgres, |store| target: store.inner.target);

impl Store for Postgres {
    fn open(&self, namespace: &Namespace, charter: &Charter) -> Answer<'_, Opened> {
        let (namespace, charter) = (namespace.clone(), charter.clone());
        Box::pin(async move {
            let (space, opened) = charter::open(self, &namespace, &charter).await?;
            self.forget_place(space.id);
            let space = Arc::new(space);
            let old = self.spaces().opened.insert(namespace, Arc::clone(&space));
            if let Some(lost) = old.filter(|old| *old != space) {
                self.inner.hints.notify(&lost.channel, None);
            }
            Ok(opened)
        })
    }

    fn amend(&self, namespace: &Namespace, charter: &Charter) -> Answer<'_, ()> {
        Box::pin(charter::amend(self, namespace.clone(), charter.clone()))
    }

    fn write(
        &self,
        namespace: &Namespace,
        writes: Vec<Write>,
        near: Terms,
    ) -> Answer<'_, Vec<WriteOutcome>> {
        self.call(
            namespace,
            write::write(self, namespace.clone(), writes, near),
        )
    }

    fn load(&self, namespace: &Namespace, request: Load) -> Answer<'_, Loaded> {
        self.call(namespace, load::load(self, namespace.clone(), request))
    }

    fn fire(&self, namespace: &Namespace, request: Fire) -> Answer<'_, FireReport> {
        self.call(namespace, fire::fire(self, namespace.clone(), request))
    }

    fn settle(
        &self,
        namespace: &Namespace,
        settles: Vec<Settle>,
        near: Terms,
    ) -> Answer<'_, Vec<Settled>> {
        Box::pin(settle::settle(self, namespace.clone(), settles, near))
    }

    fn unload(&self, namespace: &Namespace, instance: InstanceId) -> Answer<'_, InstanceId> {
        Box::pin(load::unload(self, namespace.clone(), instance))
    }

    fn unmark(
        &self,
        namespace: &Namespace,
        instance: InstanceId,
        versions: Vec<Version>,
    ) -> Answer<'_, Vec<Version>> {
        Box::pin(load::unmark(self, namespace.clone(), instance, versions))
    }

    fn rows_of(
        &self,
        namespace: &Namespace,
        key: Vec<u8>,
        limit: usize,
    ) -> Answer<'_, Vec<Stored>> {
        Box::pin(read::rows_of(self, namespace.clone(), key, limit))
    }

    fn list(&self, namespace: &Namespace, request: List) -> Answer<'_, Vec<Stored>> {
        Box::pin(read::list(self, namespace.clone(), request))
    }

    fn count(&self, namespace: &Namespace) -> Answer<'_, Counts> {
        Box::pin(read::count(self, namespace.clone()))
    }

    fn purge(&self, namespace: &Namespace) -> Answer<'_, ChangedRows> {
        Box::pin(load::purge(self, namespace.clone()))
    }

    fn change_dead(
        &self,
        namespace: &Namespace,
        which: DeadRows,
        change: DeadChange,
    ) -> Answer<'_, ChangedRows> {
        Box::pin(dead::change_dead(self, namespace.clone(), which, change))
    }

    fn inspect(&self) -> &dyn Inspect {
        self
    }

    fn hinted(&self, namespace: &Namespace) -> BoxFuture<'_, Option<InstanceId>> {
        let namespace = namespace.clone();
        Box::pin(async move {
            // It fails while the server is away, or has lost the namespace.
            let space = loop {
                match self.space(&namespace).await {
                    Ok(space) => break space,
                    Err(_) => tokio::time::sleep(jittered(LOOK_AGAIN)).await,
                }
            };
            self.inner.hints.wait(&space.channel).await
        })
    }
}
