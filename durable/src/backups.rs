//! Backing up and restoring: which copies are whole, and how restored timers are held back.
//! Documentation only.
//!
//! 1. [After a restore](#after-a-restore)
//! 2. [SQLite](#sqlite)
//! 3. [PostgreSQL](#postgresql)
//! 4. [Redis](#redis)
//!
//! Tests of this crate run the commands of this page as they stand here.
//!
//! # After a restore
//!
//! A backup is the state of one instant. Once an instance runs on it, the store goes on from there:
//!
//! | timer | after the restore |
//! |---|---|
//! | set, moved or removed since the backup | as it was at the backup |
//! | delivered and acknowledged since the backup | delivered once more |
//! | due since the backup | delivered at once, the earliest first; a [repeating](crate::Builder::missed) one by the rule for missed occurrences |
//! | in flight at the backup | delivered again, since its lease has ended |
//!
//! Tokens and versions go by the clock, so they are greater than all that were given before.
//!
//! **Restored timers run.** A copy of production in another place sends the same reminders, as soon
//! as a program with its namespace starts there. Decide before that:
//!
//! * *Delete them*: `tickwheel-admin --namespace orders purge --yes`.
//! * *Hold them*: give the namespace another name, by the commands below. No program knows that
//!   name, so nothing loads or fires its timers, and a program that starts makes a new namespace.
//!   [`tickwheel-admin`](https://docs.rs/tickwheel-admin) shows what is held under the new name, and
//!   changes it. Later, purge it, or stop the programs and release it: it gets its old name back,
//!   and what programs have made under that name meanwhile is called `unused`.
//!
//! Both come before the first program starts.
//!
//! # SQLite
//!
//! The file has everything after [`shutdown`](crate::DurableTimers::shutdown) of its last instance
//! has returned, in all processes: then it can be copied like any other. Until then, and after a
//! process was killed, a part lies in the file beside it that ends with `-wal`:
//!
//! | copy, while a process has the file open | |
//! |---|---|
//! | `sqlite3 .backup`, `VACUUM INTO`, the backup of a library of SQLite | whole. Calls go on meanwhile |
//! | a snapshot of the file system, with both files in it | whole, like after a loss of power |
//! | `cp orders.db backup.db` | lacks what lies in `-wal`, which may be every timer, and the tables |
//! | `cp` of both files | may be damaged: they are copied one after the other |
//! | `std::fs::copy` in the process itself | as `cp`, and the process loses its locks on the file, so other processes may damage it |
//!
//! ```sh
//! # Back up: either of them.
//! sqlite3 orders.db ".backup 'backup.db'"
//! sqlite3 orders.db "VACUUM INTO 'compact.db'"
//! ```
//!
//! ```sh
//! # Restore: no process has the file open.
//! rm -f orders.db-wal orders.db-shm
//! cp backup.db orders.db
//! ```
//!
//! The `-wal` has to go. It belongs to the file that was there, and SQLite writes it into the file
//! that it finds: then nothing is restored, or the file is damaged. A store refuses a file that lies
//! beside the `-wal` of a later one, but cannot tell for backups of the last minute before the
//! process ended.
//!
//! ```sh
//! # Hold.
//! sqlite3 orders.db "UPDATE tickwheel_namespaces SET name = 'held' WHERE name = 'orders'"
//! ```
//!
//! ```sh
//! # Release.
//! sqlite3 orders.db "UPDATE tickwheel_namespaces SET name = 'unused' WHERE name = 'orders';
//!     UPDATE tickwheel_namespaces SET name = 'orders' WHERE name = 'held'"
//! ```
//!
//! # PostgreSQL
//!
//! `pg_dump` sees one instant, and calls go on meanwhile. With the timers in a schema of their own,
//! here `timers`, a dump of that schema is enough. A dump of the whole database has them too, with
//! the rest of the application at the same instant. Where the tables lie in a schema with others,
//! dump all of it: `--table` leaves the functions out.
//!
//! ```sh
//! # Back up.
//! pg_dump --format=custom --schema=timers --file=timers.dump "$DATABASE_URL"
//! ```
//!
//! ```sh
//! # Restore, into a database without that schema.
//! pg_restore --exit-on-error --dbname="$OTHER_URL" timers.dump
//! ```
//!
//! Restore under the same name of the schema, because the functions have it in their bodies. Roles
//! are not in a dump: make them first, or add `--no-owner --no-privileges`.
//!
//! Recovery to a point in time, a snapshot of the disk and a standby that takes over bring all of
//! the database to an earlier state. [Failover](crate::Postgres#failover) says what that means for
//! instances that are running.
//!
//! ```sh
//! # Hold.
//! psql "$OTHER_URL" -c "UPDATE timers.tickwheel_namespaces SET name = 'held' WHERE name = 'orders'"
//! ```
//!
//! ```sh
//! # Release.
//! psql "$OTHER_URL" -c "UPDATE timers.tickwheel_namespaces SET name = 'unused' WHERE name = 'orders';
//!     UPDATE timers.tickwheel_namespaces SET name = 'orders' WHERE name = 'held'"
//! ```
//!
//! # Redis
//!
//! A snapshot has all keys of one instant. `redis-cli --rdb` fetches one as a replica does, and
//! returns when it is whole; `BGSAVE` makes one on the server. The append-only file is for crashes
//! of the server: copy its folder only while the server is stopped.
//!
//! ```sh
//! # Back up.
//! redis-cli -u "$REDIS_URL" --rdb backup.rdb
//! ```
//!
//! A server that starts with `appendonly yes` reads the append-only file and ignores the snapshot,
//! so it begins empty in a new folder. Put the snapshot there, start the server with
//! `appendonly no`, then turn the file on:
//!
//! ```sh
//! # Restore: the server is stopped, and this is its folder.
//! rm -rf "$OTHER_FOLDER/appendonlydir"
//! cp backup.rdb "$OTHER_FOLDER/dump.rdb"
//! ```
//!
//! ```sh
//! # Go on: the server runs again, with --appendonly no.
//! redis-cli -u "$OTHER_URL" CONFIG SET appendonly yes
//! redis-cli -u "$OTHER_URL" CONFIG REWRITE || echo "set appendonly in the configuration"
//! ```
//!
//! All keys of a namespace begin with its name in braces, and those of the other parts of a
//! [spread](crate::Redis::spread) one with `{orders/1}`, `{orders/2}` and so on. A cluster cannot
//! rename them, because they belong to other slots: restore into a single server, or delete them.
//!
//! ```sh
//! # Hold.
//! rename() {
//!     redis-cli -u "$OTHER_URL" --scan --pattern "tickwheel:{$1}*" | while read -r key; do
//!         redis-cli -u "$OTHER_URL" RENAME "$key" "tickwheel:{$2}${key#"tickwheel:{$1}"}"
//!     done
//! }
//! rename orders held
//! ```
//!
//! ```sh
//! # Release.
//! rename() {
//!     redis-cli -u "$OTHER_URL" --scan --pattern "tickwheel:{$1}*" | while read -r key; do
//!         redis-cli -u "$OTHER_URL" RENAME "$key" "tickwheel:{$2}${key#"tickwheel:{$1}"}"
//!     done
//! }
//! rename orders unused
//! rename held orders
//! ```
