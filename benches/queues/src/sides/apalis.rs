//! What the backends of `apalis` share: tasks, and workers that are started again after a failure.
//!
//! All know only whole seconds: what is due within one may run from its beginning on. Workers that
//! poll have stopped for good, without an error, in some runs on Redis and `SQLite`.

mod postgres;
mod redis;
mod sqlite;

use std::fmt::Debug;
use std::time::{Duration, SystemTime};

use apalis::prelude::*;
use apalis_core::backend::finalize::Durable;
use futures_util::stream;

use crate::measure::{Queue, handled, micros};

/// How a tuned worker polls, and how many tasks it takes at once.
const POLL: Duration = Duration::from_millis(100);
const BATCH: usize = 500;
/// Without a heartbeat each second a worker stops polling after some seconds, until the next one of
/// every 30 s.
const HEARTBEAT: Duration = Duration::from_secs(1);

pub(crate) struct Apalis<S>(S);

/// A storage of tasks, which is cloned to push.
pub(crate) trait Storage: TaskSink<u64, Durable> + Clone + Send + Sync + 'static {
    const LEFT: &str;
    const EMPTY: &str;

    /// Starts a worker too.
    async fn start(url: &str, is_tuned: bool) -> Self;
}

async fn handle(deadline: u64) -> Result<(), BoxDynError> {
    handled(deadline);
    Ok(())
}

/// Starts a worker on the backend that the expression makes.
macro_rules! work_on {
    ($backend:expr) => {
        super::supervise(move |name| {
            let worker = apalis::prelude::WorkerBuilder::new(name)
                .backend($backend)
                .concurrency(crate::measure::HANDLERS);
            worker.build(super::handle).run()
        })
    };
}
use work_on;

/// Runs a worker, and a new one with another name a second after it has failed, as a supervisor
/// would.
fn supervise<R>(run: impl Fn(String) -> R + Send + 'static)
where
    R: Future<Output = Result<(), WorkerError>> + Send,
{
    tokio::spawn(async move {
        let mut said = String::new();
        for number in 0.. {
            let ended = run(format!("queues {number}")).await;
            let ended = format!("the worker has ended: {ended:?}");
            if ended != said {
                eprintln!("{ended}");
                said = ended;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
}

fn task(deadline: SystemTime) -> Task<u64> {
    TaskBuilder::new(micros(deadline))
        .run_at_time(deadline)
        .build()
}

impl<S: Storage<Error: Debug>> Queue for Apalis<S> {
    const LEFT: &str = S::LEFT;
    const EMPTY: &str = S::EMPTY;

    async fn start(url: &str, is_tuned: bool) -> Self {
        Apalis(S::start(url, is_tuned).await)
    }

    async fn set(&self, _: u64, deadline: SystemTime) {
        let pushed = self.0.clone().push_task(task(deadline)).await;
        pushed.expect("it is set");
    }

    async fn fill(
        &self,
        numbers: std::ops::Range<u64>,
        deadline: impl Fn(u64) -> SystemTime + Send + Sync,
    ) {
        let tasks: Vec<_> = numbers.map(|number| task(deadline(number))).collect();
        // Redis does not answer a push of all in time.
        for batch in tasks.chunks(1_000) {
            let pushed = self.0.clone().push_all(stream::iter(batch.to_vec())).await;
            pushed.expect("they are set");
        }
    }
}
