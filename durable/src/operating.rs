//! Running it: sizes, failures, monitoring, and when to use a job queue instead. Documentation
//! only.
//!
//! 1. [Sizing](#sizing)
//! 2. [What happens when](#what-happens-when)
//! 3. [What to watch](#what-to-watch)
//! 4. [Looking into the store](#looking-into-the-store)
//! 5. [Starting and stopping](#starting-and-stopping)
//! 6. [Rolling upgrades](#rolling-upgrades)
//! 7. [Writing handlers](#writing-handlers)
//! 8. [Timers that fail](#timers-that-fail)
//! 9. [How much a server holds](#how-much-a-server-holds)
//! 10. [More than one server](#more-than-one-server)
//! 11. [Old transactions in PostgreSQL](#old-transactions-in-postgresql)
//! 12. [When to use a job queue](#when-to-use-a-job-queue)
//!
//! # Sizing
//!
//! The defaults suit services with up to some thousand timers a second. The one number to choose is
//! how many handlers [`dispatch`](crate::Claims::dispatch) runs at once. How many timers are
//! claimed and loaded [follows](crate::protocol#demand). What the settings trade:
//!
//! | setting | default | larger | smaller |
//! |---|---|---|---|
//! | [`lease`](crate::Builder::lease) | 60 s | a process may stand still for longer, half a lease, before others take its timers; fewer renewals | after a crash of the claimant its timers come again sooner |
//! | [`window`](crate::Builder::window) | 30 s | an outage of the store that is no longer than the window delays only timers that are due during it; more memory | less on the wheel |
//! | [`poll`](crate::Builder::poll) | 1 s | fewer calls | after a crash others take the loaded timers sooner, within four polls |
//! | [`capacity`](crate::Builder::capacity) | 1024 | a program may hold more unsettled claims | a bound for programs that receive without waiting for their handlers |
//! | [`handler_timeout`](crate::Builder::handler_timeout) | none | handlers may take longer | a handler that hangs frees its place sooner |
//! | [`call_timeout`](crate::Builder::call_timeout) | 5 s | rides out a slow store | callers learn of an outage sooner |
//!
//! * **Lease**: at least two round trips to the store, as measured at start. It does not depend on
//!   how long handlers take, because `dispatch` renews it. Keep the call timeout below half of it:
//!   a renewal that hangs for longer lets leases end.
//! * **Handler timeout**: set it, far above what a handler takes.
//! * **Memory**: an instance loads at most 16 times its capacity, or 1,024 timers if that is more.
//!   A loaded timer takes about 100 bytes; keys and values come when it fires.
//! * **The wheel**: share one between instances and the rest of the program. If its `max_keyed` is
//!   too small, the instance loads less and logs that once. It loads more again, little by little.
//! * **Many short timers**: use the wheel itself for timers that are nearly always removed, such as
//!   request timeouts.
//!
//! # What happens when
//!
//! | event | effect |
//! |---|---|
//! | an instance is killed | other instances load its timers within four polls; its claims are delivered again within a poll after their lease has ended |
//! | an instance is shut down | its timers are unloaded, and claims that were not received are released, at once |
//! | the store is unreachable | calls fail with [`Error::Store`](crate::Error::Store) or, after the call timeout, [`Error::Timeout`](crate::Error::Timeout); nothing is delivered; the instance tries again each poll. Handlers of `dispatch` that end meanwhile do not run again if the store is back before their leases end; for claims from `recv`, [`ack_in_background`](crate::Claim::ack_in_background) does the same |
//! | the store is slow | lateness grows by the round trip; batches grow with it, so throughput does not fall |
//! | the disk of an SQLite file is full, the file is read-only, or it was deleted or replaced while open | calls fail with [`StoreError::Refused`](crate::store::StoreError::Refused), which names the file, until there is room or the file is opened again |
//! | another process has locked an SQLite file, or is stopped (`SIGSTOP`, a debugger) while it holds the lock | calls of all processes wait, and fail with [`Error::Timeout`](crate::Error::Timeout) after their call timeout; after a second a warning names the file. SQLite cannot take a lock away: let the process go on, or end it. Looks go on |
//! | a primary of PostgreSQL fails, and its standby takes over | instances whose URL names both [find the new one](crate::Postgres#failover) within their call timeout and two seconds |
//! | a Redis server hangs, and another one takes over its address | the instance drops the connection after the call timeout, and its next call connects to the other server |
//! | a Redis primary is replaced by Sentinels or in a cluster | calls fail until then; [what it loses](crate::Redis#failovers) |
//! | the store returns to an earlier state: a standby takes over that lacks the last writes, a file is restored in place, a server crashes that does not wait for its disk | each instance notices with its next load, logs one error and raises [`store_returned`](crate::DurableMetrics::store_returned). What the store has now is delivered: timers set in the lost time are missing, and those removed or acknowledged in it come again. Tokens grow. If less than a poll was lost, the instance goes on in the same way, and may not be certain enough to say so |
//! | the store loses its data: `FLUSHALL`, `TRUNCATE`, tables dropped and made again, a Redis server that restarts without persistence | instances open the namespace again, log one error and raise [`store_emptied`](crate::DurableMetrics::store_emptied). Nothing has to be restarted. A call between the loss and the next load may fail with [`StoreError::NotOpened`](crate::store::StoreError::NotOpened) |
//! | another session has locked rows in PostgreSQL | moves, removes and acknowledgements of these timers fail with [`Error::Timeout`](crate::Error::Timeout); the timers are delivered when the lock has ended. Other timers are not delayed |
//! | a transaction of yours has [set a timer](crate::Postgres#in-your-own-transaction) in PostgreSQL and stays open | calls on its key wait for it, and fail with [`Error::Timeout`](crate::Error::Timeout) after their call timeout; other keys are not delayed |
//! | a transaction of yours stays open in an SQLite file | calls of all instances on the file wait, as above |
//! | an instance cannot decode a value, as in the middle of a roll-out | it leaves the timer to others, which deliver it; if none can, it is [dead](#timers-that-fail) after a lease; a repeating timer goes on |
//! | another program has written a row that no store writes, such as a period of zero, or a row is damaged | the timer is [dead](#timers-that-fail) when it is due, with the reason as its error; other timers are not delayed. The tables of SQLite and PostgreSQL have checks that refuse most such rows |
//! | a handler fails, panics, or exceeds its [time limit](crate::Builder::handler_timeout) | in [`dispatch`](crate::Claims::dispatch) the timer comes again after the [backoff](crate::Builder::backoff), and is [dead](#timers-that-fail) after its last attempt |
//! | a handler kills the process each time | the timer comes again with each lease, and after [`max_attempts`](crate::Builder::max_attempts) it is [dead](#timers-that-fail) |
//! | more is due than the program takes | the rest waits; other instances get what they ask for within a poll and a half |
//! | a handler takes longer than its lease | the lease is renewed; the key is logged once |
//! | the store's clock steps forward while handlers run | leases end sooner by as much. A handler of [`dispatch`](crate::Claims::dispatch) has half of its lease left at any time, so a step of less ends none: 30 s by default. After a longer one its timer is delivered once more, beside it, and settling the former claim returns [`Error::Lost`](crate::Error::Lost). Have the clock slewed, as NTP does, and not set |
//! | the program does not receive claims it has asked for | the claims are released once half of their lease is over, and do not count as attempts |
//! | clocks of hosts differ | nothing: the store's clock decides |
//! | the store's clock steps | timers come sooner by as much when it steps forward. They and the ends of leases are late by as much when it steps back |
//! | a newer version of the crate [upgrades the store](#rolling-upgrades) | nothing: programs of both versions go on |
//! | a much newer version takes away what an older one needs | the older one does not start, and one that runs stops new work within a poll: loads, fires and writes fail with [`StoreError::Schema`](crate::store::StoreError::Schema), one error is logged, and the metric [`differs`](crate::DurableMetrics::differs) is set. Its handlers settle what they hold, and others deliver the rest. It goes on when the schema is taken back |
//! | an instance has another codec, `no_overlap` or `at_most_once` than the [charter](crate::Charter) of the namespace | it does not start: [`StoreError::Charter`](crate::store::StoreError::Charter) names the setting and both values |
//! | the charter is [amended](crate::Admin::amend) while instances run | those that differ stop loading, firing and writing within a poll, log one warning, and their metric [`differs`](crate::DurableMetrics::differs) is set. What they have loaded goes to others, and their handlers can settle. They go on when the charter is what they have |
//! | a call fails with [`Error::Timeout`](crate::Error::Timeout), and its server goes on later | a set, move or remove is refused then |
//! | a synchronous standby of PostgreSQL is away | calls fail with [`Error::Timeout`](crate::Error::Timeout). The primary has a write already and waits for the standby, so the write appears later: when the standby is back, or the next call ends the wait |
//! | the `NOTIFY` queue of a PostgreSQL server is full, since a listener in some database is stuck in a transaction | one warning; there are no hints, so a near timer that another process sets is found by the poll. No call fails. `pg_notification_queue_usage()` tells how full it is, and a warning in the log of the server names the process |
//! | a transaction stays open for hours in PostgreSQL | [table and indices grow](#old-transactions-in-postgresql); no call becomes slow |
//! | a policy of row level security hides rows from the role of a store | calls are refused with the server's words, since connections set `row_security = off`. Give the role `BYPASSRLS`, or let it own the tables |
//! | the role has a `lock_timeout` | a call that waits for longer is made again, until its call timeout |
//!
//! # What to watch
//!
//! [`metrics`](crate::DurableTimers::metrics) reads the counters of this instance. With the feature
//! `metrics`, `Reporter` publishes them through the facade of that name.
//! [`counts`](crate::DurableTimers::counts) queries the store, which takes milliseconds and delays
//! no other call.
//!
//! | figure | a sign of trouble when |
//! |---|---|
//! | `counts().earliest` | it is seconds before `counts().now`: no instance fires, none has capacity, or the store is unreachable |
//! | `lateness.max()` | it is far above the store's round trip |
//! | `redelivered` | it grows without crashes: handlers fail or panic, or claims are dropped |
//! | `lost` | it grows: a process stood still, or could not reach the store, for half a lease; or claims from `recv` are held for longer than a lease without [`auto_renew`](crate::Claim::auto_renew) |
//! | `lapsed` | it grows: the program asks for claims and does not receive them |
//! | `slow_handlers` | it grows: handlers take longer than a lease |
//! | `timed_out` | it grows: handlers hang |
//! | `due`, or `left_to_others` on all instances | it stays high, or grows: handlers are slow, or too few, or the [wheel](tickwheel::Builder::max_keyed) is too small |
//! | `store_returned`, `store_emptied` | they grow: the store has lost writes, or everything |
//! | `failing` | one of its fields stays set |
//! | `oldest_snapshot` | it is hours: a transaction in the database [keeps what is gone](#old-transactions-in-postgresql) |
//! | `dead`, `counts().dead` | they grow: handlers fail for good, or a deployment has changed a type that old timers still have |
//! | `store_errors`, `store_latency.mean()` | they grow |
//!
//! Every call of the store is a `tracing` span, `store`, of level `DEBUG`. Every handler of
//! `dispatch` runs in one, `handle`, of level `INFO`. The instance logs one warning when loads,
//! fires, writes or settles begin to fail, with the store's message, and one line when they work
//! again. An error prints its causes with `{:#}`.
//!
//! `docs/on-call` in the repository has alerts for Prometheus, a dashboard for Grafana and a
//! runbook.
//!
//! # Looking into the store
//!
//! [`Admin`](crate::Admin) lists timers that wait, are in flight or dead, whichever instance has
//! them, shows one key, releases or discards a claim, retries or discards dead timers, removes,
//! moves or runs those that wait by key or by prefix, and purges a namespace:
//!
//! ```
//! use std::time::Duration;
//! use tickwheel_durable::{Memory, StoreTime, builder};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let wheel = tickwheel::TimerWheel::new();
//! let (timers, _claims) = builder::<String, u32>("orders").start(&wheel, Memory::new()).await?;
//! timers.set_timer("order 1", &30, Duration::from_secs(3_600)).await?;
//!
//! let admin = timers.admin();
//! for entry in admin.pending(None, 100).await? {
//!     println!("{:?} is due at {}, attempt {}", entry.key, StoreTime::from(entry.deadline),
//!     entry.attempt);
//! }
//! for entry in admin.dead(None, 100).await? {
//!     println!("{:?} failed {} times: {:?}", entry.key, entry.attempt, entry.error);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`tickwheel-admin`](https://docs.rs/tickwheel-admin) does the same in a terminal, for scripts,
//! and as a page, whatever the types of keys and values.
//!
//! With JSON, the default, keys and values can also be read in the store's own shell.
//!
//! # Starting and stopping
//!
//! [Backups](crate::backups) says how stores are copied and restored, and how restored timers are
//! held back.
//!
//! Run one instance for a namespace in each process that handles its timers. A process that only
//! sets timers drops its [`Claims`](crate::Claims) and keeps the handle.
//!
//! [`shutdown`](crate::DurableTimers::shutdown) ends the stream of claims, and other instances go
//! on without delay. Handlers can still settle their claims: wait for them, then let the process
//! end. An SQLite file is one whole file then, without a log beside it. A process that just ends
//! loses nothing either, but is treated like one that was killed.
//!
//! # Rolling upgrades
//!
//! A release of this crate may add to the tables and keys of a store. It does that so that programs
//! of the release before go on beside it. `docs/stability.md` in the repository promises that.
//!
//! 1. **Before.** `tickwheel-admin migrate status`, of the new release, shows the version of the
//!    schema, the oldest version that can read it, and what this release knows. Most releases know
//!    the same version: there is nothing to do.
//! 2. **The step.** The first process of the new release that starts takes it: on an SQLite file
//!    and in PostgreSQL for the whole store, in Redis for its namespace. In PostgreSQL it waits for
//!    a second at most for the locks of the tables, and tries again, so that no call waits longer.
//!    Where the role may not change tables, or
//!    [`create_tables(false)`](crate::PostgresOptions::create_tables) is set, run
//!    `tickwheel-admin migrate up` as the role that may, or give what
//!    `tickwheel-admin migrate up --print` prints to your tool for migrations. It has neither
//!    `BEGIN` nor `COMMIT`, and belongs in one transaction: `psql -1 -v ON_ERROR_STOP=1`.
//! 3. **Beside each other.** Replace the processes one by one, as in any deployment. Handlers of
//!    the old ones end, and acknowledge. Both releases fire what the other has set.
//! 4. **Back.** If the new release has a fault, start the old one again: it uses the store as it
//!    is. `tickwheel-admin migrate down --to 3` of the *new* release also takes the store back, and
//!    loses what was added to it: end all processes of the new release before.
//! 5. **Later** another release takes away what the old one needed. A process that is still of the
//!    old release then does no new work, logs one error, and settles what its handlers have. So
//!    replace the last one before that. It is also how a forgotten process is found: its metric
//!    [`differs`](crate::DurableMetrics::differs) is set.
//!
//! # Writing handlers
//!
//! * Work first, then acknowledge. The other way round is
//!   [`at_most_once`](crate::Builder::at_most_once).
//! * Expect to run twice. Make the work idempotent, or let it check the [token](crate::Token): it
//!   remembers the greatest one it has seen for the key, and refuses smaller ones.
//! * If a key is set again while its handler runs, the handler has the old value, and its
//!   acknowledgement leaves the new timer alone.
//! * When [`lease_remaining`](crate::Claim::lease_remaining) is zero, or a call returns
//!   [`Error::Lost`](crate::Error::Lost), another instance may have the timer: stop.
//! * Do not block a thread of the runtime: run what blocks in
//!   [`spawn_blocking`](tokio::task::spawn_blocking), and await it. Renewals of leases, loads and
//!   the connections to PostgreSQL and Redis need these threads. While handlers block all of them,
//!   nothing is renewed, and timers run again although their handlers have not ended.
//!   [`dispatch_spawned`](crate::Claims::dispatch_spawned) is no help: it lets handlers use, and
//!   so block, every thread.
//!
//!   ```
//!   # use tickwheel_durable::{Claims, Retry};
//!   # fn render(_: &str) -> Result<(), std::io::Error> { Ok(()) }
//!   # async fn handle(mut claims: Claims<String, String>) {
//!   claims
//!       .dispatch(16, |claim| async move {
//!           let rendering = tokio::task::spawn_blocking(move || render(&claim.value));
//!           rendering.await?.map_err(Retry::from)
//!       })
//!       .await;
//!   # }
//!   ```
//! * A timer that fails is dead after 25 attempts: [`max_attempts`](crate::Builder::max_attempts).
//!   `None` means forever.
//!
//! # Timers that fail
//!
//! A handler of [`dispatch`](crate::Claims::dispatch) fails when it returns an error, panics, or
//! takes longer than its time limit; a claim from [`recv`](crate::Claims::recv) fails by
//! [`fail`](crate::Claim::fail). The timer comes again after the
//! [backoff](crate::Builder::backoff), with the text of the error kept beside it.
//!
//! After the last of [`max_attempts`](crate::Builder::max_attempts), or at once with
//! [`Retry::never`](crate::Retry::never), the timer is *dead*: a dead letter, as message queues
//! say. So is a timer that [no instance decodes](crate::Claims#timers-that-do-not-decode). The
//! instance logs one warning for each, and counts it. A dead timer is not delivered, and costs the
//! others nothing. [`Admin`](crate::Admin#dead-timers) lists, retries and discards dead timers, and
//! after [`keep_dead`](crate::Builder::keep_dead), 7 days by default, they are discarded.
//!
//! Every delivery counts that a program has received, whether its process crashed, the claim was
//! dropped or put back. When the last one has ended without a result, the timer is found to be dead
//! when it comes again, and [`attempt`](crate::Entry::attempt) counts that time too.
//!
//! | on the key of a dead timer | |
//! |---|---|
//! | all that set a timer | set it, and discard the dead one |
//! | `move_timer` | returns `Absent`, and it stays dead |
//! | `remove_timer` | discards it, and returns its value |
//! | `deadline` | returns `None` |
//!
//! A write to a key that has another timer in flight or waiting does the same about dead ones,
//! unless it returns `InFlight` or `Present`.
//!
//! When a repeating timer fails, only the occurrence dies, and the timer goes on. Each occurrence
//! that fails for good is another dead timer. Of one key the
//! [latest hundred](crate::store::MAX_DEAD_OF_KEY) are kept; `counts().dead` grows no more then,
//! and the metric `dead` does. Setting the timer again discards them.
//!
//! `cargo run -p tickwheel-durable --example retries` shows all of this.
//!
//! # How much a server holds
//!
//! Figures with a star were measured, rates on two quiet cores that the server shared, sizes with
//! keys of up to 7 bytes and values of 50; the others follow from them. Tables were filled in one
//! go: where timers come and go, the pages of PostgreSQL and SQLite are less full.
//!
//! | | SQLite | PostgreSQL | Redis | cluster of `N` primaries, [spread](crate::Redis::spread) |
//! |---|---|---|---|---|
//! | sets a second, 4,096 tasks | 218,000* | 90,000* | 96,000* | up to `N` times as many |
//! | deliveries a second | 81,000* | 50,000 to 63,000* | 61,000 to 78,000* | up to `N` times as many |
//! | bytes for each timer | 151* on disk | 243* on disk, 108 of them indexes | 400* of memory | 400 of memory |
//! | 10^6 pending | 0.15 GB | 0.24 GB | 0.4 GB* | 0.4 GB / `N` |
//! | 10^7 | 1.5 GB* | 2.4 GB* | 3.9 GB* | 4 GB / `N` |
//! | 10^8 | 15 GB | 24 GB | 40 GB | 40 GB / `N` |
//! | 10^9 | 151 GB | 243 GB | 400 GB | 33 GB each with 12 |
//! | reads of a load, a set, a move | | 3, 19 and 21 pages* at 10^7; some more at 10^9 | O(log n) | O(log n) |
//!
//! The number of pending timers costs room, and hardly any work. An instance that has nothing due
//! asks once a second, and has a window of timers in memory, at most 16 times its capacity: 1.6 MB
//! by default, at 10^9 as at 10^3. The work follows the rate, which is the number that are pending
//! divided by how long one waits: with 10^9 that wait a day, 11,600 sets and as many deliveries a
//! second; with 10^9 that wait a month, 390.
//!
//! With 10^7 pending, a start, 470 timers one after the other, a burst of 20,000, and a purge:
//!
//! | | SQLite | PostgreSQL | Redis |
//! |---|---|---|---|
//! | ready to write, and first delivery | 16 ms, 19 ms | 51 ms, 97 ms | 1 ms, 7 ms |
//! | lateness, median and 99th percentile | 3.0 ms, 25 ms | 6.3 ms, 27 to 670 ms | 2.1 ms, 15 ms |
//! | fired and acknowledged a second | 18,200 | 22,700 | 16,900 |
//! | rows loaded by then | 238 | 322 | 261 |
//! | purge | 218 s | 275 s | 2 ms |
//!
//! Each of them had just been filled, by eight tasks of 2,000 timers a call: at 87,000, 45,000 and
//! 56,000 a second. PostgreSQL was started four times, and stood still for 0.7 s in the first run
//! after it was filled. With 2 x 10^5 pending, Redis fires and acknowledges 28,600 a second. A
//! purge goes in steps beside the timers of other namespaces. Redis unlinks the keys, and frees
//! their memory in the background.
//!
//! In a cluster, [a part](crate::Redis::spread) has up to 20 million timers, so that its keys can
//! be moved to another node within two to three seconds each: 48 parts for 10^9 with 12 primaries.
//!
//! Whatever the numbers, no call, look or sweep does more than a bounded step: a load takes up to
//! 1,024 timers, a purge, a retry or a discard some hundred at a time, and a set discards at most
//! the hundred dead timers of its key. Ends of many instances, as after a roll-out, cost the next
//! loads no more.
//!
//! # More than one server
//!
//! Replicas serve failure, not size. Where one server is too small, run an instance on each of
//! several, and choose one by a hash of the key that never changes:
//!
//! ```
//! # use std::time::Duration;
//! # use tickwheel_durable::{DurableTimers, Error};
//! // FNV-1a: the hashes of the standard library change between versions.
//! fn of_key<'a>(
//!     servers: &'a [DurableTimers<String, u32>],
//!     key: &str,
//! ) -> &'a DurableTimers<String, u32> {
//!     let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
//!         (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
//!     });
//!     &servers[(hash >> 32) as usize % servers.len()]
//! }
//!
//! # async fn example(servers: Vec<DurableTimers<String, u32>>) -> Result<(), Error> {
//! of_key(&servers, "order 17").set_timer("order 17", &30, Duration::from_secs(60)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Each server has its own stream of claims, tokens and [`Admin`](crate::Admin). The number of
//! servers cannot change while timers wait: begin with more databases than servers, and move a
//! whole database when one server becomes too small.
//!
//! # Old transactions in PostgreSQL
//!
//! While any transaction in the database lasts, such as a report or a dump, the server keeps what
//! was deleted since, in the table and in its indices. So does a replica with
//! `hot_standby_feedback`, and a prepared transaction. An idle load begins where the last one has
//! ended, so it looks at as few pages as in a fresh table; once a minute a load begins at the
//! beginning.
//!
//! The metric [`oldest_snapshot`](crate::DurableMetrics::oldest_snapshot) tells how old the oldest
//! transaction is. The role sees those of others with the right `pg_read_all_stats`. To find it:
//!
//! ```sql
//! SELECT pid, usename, application_name, xact_start, query FROM pg_stat_activity
//! WHERE backend_xmin IS NOT NULL ORDER BY xact_start LIMIT 3;
//! SELECT gid, prepared FROM pg_prepared_xacts;
//! SELECT application_name, backend_xmin FROM pg_stat_replication WHERE backend_xmin IS NOT NULL;
//! ```
//!
//! Vacuum frees the room when it has ended, for timers to come. The files stay as large as they
//! were. `REINDEX INDEX CONCURRENTLY` makes those of the indices small again, beside all calls:
//!
//! ```sql
//! SELECT indexrelname, pg_size_pretty(pg_relation_size(indexrelid)) FROM pg_stat_user_indexes WHERE relname = 'tickwheel_timers';
//! REINDEX TABLE CONCURRENTLY tickwheel_timers;
//! ```
//!
//! # When to use a job queue
//!
//! This crate is for timers with keys that are moved and removed, and must be on time. Use a job
//! queue when
//!
//! * most jobs are due at once: a queue has priorities, per-queue limits and a dashboard, and a
//!   second of lateness does not matter;
//! * jobs form a workflow with steps: use a workflow engine;
//! * a minute more or less does not matter: a cron job that selects what is due is less to run.
//!
//! When timers need not survive the process, use the wheel alone.
