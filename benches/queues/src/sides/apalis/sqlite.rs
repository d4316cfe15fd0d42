//! `apalis-sqlite`, as its first example: in batches of 10, with results and locks. What becomes
//! due waits for the heartbeat of every 30 s. Tuned: it polls every 0.1 s, in batches of 500,
//! without locks, with a heartbeat each second.
//!
//! Its `setup` turns `synchronous` off, in one connection of the pool. Here all have `FULL`, as the
//! other side.

use apalis::prelude::*;
use apalis_sqlite::{Config, SqliteStorage};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

use super::{BATCH, HEARTBEAT, POLL, Storage, work_on};

impl Storage for SqliteStorage<u64> {
    const LEFT: &str = "SELECT count(*) FROM Jobs WHERE status <> 'Done'";
    const EMPTY: &str = "DELETE FROM Jobs";

    async fn start(url: &str, is_tuned: bool) -> Self {
        let options = SqliteConnectOptions::new()
            .filename(url)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full);
        let pool = SqlitePoolOptions::new().connect_with(options).await;
        let pool = pool.expect("it opens");
        let migrated = SqliteStorage::migrations().run(&pool).await;
        migrated.expect("it is set up");
        let mut config = Config::default().queue("queues");
        if is_tuned {
            config = config
                .batch_size(BATCH)
                .lock_tasks(false)
                .heartbeat_interval(HEARTBEAT);
        }
        let storage = SqliteStorage::new(&pool).with_config(config);
        let worker = storage.clone();
        if is_tuned {
            work_on!(worker.clone().poll_with_interval(POLL));
        } else {
            work_on!(worker.clone());
        }
        storage
    }
}
