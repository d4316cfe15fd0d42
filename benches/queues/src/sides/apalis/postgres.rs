//! `apalis-postgres`: by notifications, in batches of 10, with results and locks. Tuned: it polls
//! every 0.1 s, in batches of 500, without locks, with 20 connections and a heartbeat each second.

use apalis::prelude::*;
use apalis_postgres::{Config, PostgresStorage};
use sqlx::postgres::{PgPool, PgPoolOptions};

use super::{BATCH, HEARTBEAT, POLL, Storage, work_on};

impl Storage for PostgresStorage<u64> {
    const LEFT: &str = "SELECT count(*) FROM apalis.jobs WHERE status <> 'Done'";
    const EMPTY: &str = "DELETE FROM apalis.jobs";

    async fn start(url: &str, is_tuned: bool) -> Self {
        let pool = if is_tuned {
            PgPoolOptions::new().max_connections(20).connect(url).await
        } else {
            PgPool::connect(url).await
        };
        let pool = pool.expect("it connects");
        PostgresStorage::setup(&pool).await.expect("it is set up");
        let mut config = Config::default().queue("queues");
        if is_tuned {
            config = config
                .batch_size(BATCH)
                .lock_tasks(false)
                .heartbeat_interval(HEARTBEAT);
        }
        let storage = PostgresStorage::new(&pool).with_config(config);
        let worker = storage.clone();
        if is_tuned {
            work_on!(worker.clone().poll_with_interval(POLL));
        } else {
            work_on!(worker.clone().with_pubsub());
        }
        storage
    }
}
