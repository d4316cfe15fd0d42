//! `underway`. Tuned: it polls every 0.1 s instead of every minute, and has 66 connections instead
//! of 10: each of 64 handlers holds one in its transaction, and two listen.
//!
//! A notification comes when a job is set, none when it is due: then only polls find it. Each poll
//! starts one loop, which takes one job after the other until none is due.

use std::time::SystemTime;

use futures_util::{StreamExt, stream};
use jiff::{Span, ToSpan};
use sqlx_0_8::postgres::{PgPool, PgPoolOptions};
use underway::{Job, To};

use crate::measure::{HANDLERS, Queue, handled, micros};

pub(crate) struct Underway {
    job: Job<u64, ()>,
    pool: PgPool,
}

/// From one time to a later one, in microseconds since the epoch.
fn delay(now: u64, deadline: u64) -> Span {
    let delay = deadline.saturating_sub(now);
    Span::new().microseconds(i64::try_from(delay).expect("it is in this age"))
}

impl Underway {
    /// Sets timers in one transaction. A job is due so long after the transaction's beginning.
    async fn set_all(&self, deadlines: Vec<SystemTime>) {
        let mut transaction = self.pool.begin().await.expect("it connects");
        let began = sqlx_0_8::query_scalar("SELECT (extract(epoch FROM now()) * 1e6)::bigint");
        let began: i64 = began.fetch_one(&mut *transaction).await.expect("it is SQL");
        for deadline in deadlines {
            let deadline = micros(deadline);
            let delay = delay(began.cast_unsigned(), deadline);
            let set = self
                .job
                .enqueue_after_using(&mut *transaction, &deadline, delay);
            set.await.expect("it is set");
        }
        transaction.commit().await.expect("they are set");
    }
}

impl Queue for Underway {
    const LEFT: &str = "SELECT count(*) FROM underway.task WHERE state <> 'succeeded'";
    const EMPTY: &str = "DELETE FROM underway.task";

    async fn start(url: &str, is_tuned: bool) -> Self {
        let pool = if is_tuned {
            PgPoolOptions::new().max_connections(66).connect(url).await
        } else {
            PgPool::connect(url).await
        };
        let pool = pool.expect("it connects");
        let migrated = underway::run_migrations(&pool).await;
        migrated.expect("it is set up");
        let job = Job::builder()
            .step(|_, deadline: u64| async move {
                handled(deadline);
                To::done()
            })
            .name("queues")
            .pool(pool.clone())
            .build()
            .await;
        let job = job.expect("it is set up");
        let mut worker = job.worker();
        worker.set_concurrency_limit(HANDLERS);
        tokio::spawn(async move {
            let ran = if is_tuned {
                worker.run_every(100.milliseconds()).await
            } else {
                worker.run().await
            };
            ran.expect("the worker runs");
        });
        Underway { job, pool }
    }

    async fn set(&self, _: u64, deadline: SystemTime) {
        let deadline = micros(deadline);
        let delay = delay(micros(SystemTime::now()), deadline);
        let set = self.job.enqueue_after(&deadline, delay).await;
        set.expect("it is set");
    }

    async fn fill(
        &self,
        numbers: std::ops::Range<u64>,
        deadline: impl Fn(u64) -> SystemTime + Send + Sync,
    ) {
        let deadlines: Vec<_> = numbers.map(deadline).collect();
        let chunks = deadlines.chunks(1_000).map(<[_]>::to_vec);
        let sets = stream::iter(chunks).map(|chunk| self.set_all(chunk));
        sets.buffer_unordered(4).collect::<()>().await;
    }
}
