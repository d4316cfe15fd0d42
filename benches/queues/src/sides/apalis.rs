//! `apalis-postgres`: by notifications, in batches of 10, with results and locks. Tuned: it polls
//! every 0.1 s, in batches of 500, without locks, with 20 connections and a heartbeat each second.
//! Without the heartbeat it stops polling after some seconds, until the next one of every 30 s.
//!
//! It knows only whole seconds: what is due within one may run from its beginning on.

use std::time::{Duration, SystemTime};

use apalis::prelude::*;
use apalis_postgres::{Config, PostgresStorage};
use futures_util::stream;
use sqlx::postgres::{PgPool, PgPoolOptions};

use crate::measure::{HANDLERS, Queue, handled, micros};

pub(crate) struct Apalis(PostgresStorage<u64>);

async fn handle(deadline: u64) -> Result<(), BoxDynError> {
    handled(deadline);
    Ok(())
}

impl Queue for Apalis {
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
        let config = Config::default().queue("queues");
        if is_tuned {
            let config = config
                .batch_size(500)
                .lock_tasks(false)
                .heartbeat_interval(Duration::from_secs(1));
            let storage = PostgresStorage::new(&pool).with_config(config);
            let polled = storage
                .clone()
                .poll_with_interval(Duration::from_millis(100));
            let worker = WorkerBuilder::new("queues")
                .backend(polled)
                .concurrency(HANDLERS);
            let worker = worker.build(handle).run();
            tokio::spawn(async { worker.await.expect("the worker runs") });
            return Apalis(storage);
        }
        let storage = PostgresStorage::new(&pool).with_config(config);
        let notified = storage.clone().with_pubsub();
        let worker = WorkerBuilder::new("queues")
            .backend(notified)
            .concurrency(HANDLERS);
        let worker = worker.build(handle).run();
        tokio::spawn(async { worker.await.expect("the worker runs") });
        Apalis(storage)
    }

    async fn set(&self, _: u64, deadline: SystemTime) {
        let task = TaskBuilder::new(micros(deadline))
            .run_at_time(deadline)
            .build();
        self.0.clone().push_task(task).await.expect("it is set");
    }

    async fn fill(
        &self,
        numbers: std::ops::Range<u64>,
        deadline: impl Fn(u64) -> SystemTime + Send + Sync,
    ) {
        let tasks: Vec<_> = numbers
            .map(|number| {
                let deadline = deadline(number);
                TaskBuilder::new(micros(deadline))
                    .run_at_time(deadline)
                    .build()
            })
            .collect();
        let pushed = self.0.clone().push_all(stream::iter(tasks)).await;
        pushed.expect("they are set");
    }
}
