//! `graphile_worker`. Tuned: it polls every 0.1 s instead of every second, and fetches 100 jobs at
//! once into its local queue. With 500 a storm takes as long, and with 5,000 longer.

use std::time::{Duration, SystemTime};

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, JobSpecBuilder, LocalQueueConfig, TaskHandler, WorkerContext,
    WorkerOptions, WorkerUtils,
};
use serde::{Deserialize, Serialize};

use crate::measure::{HANDLERS, Queue, handled, micros};

pub(crate) struct Graphile(WorkerUtils);

#[derive(Clone, Serialize, Deserialize)]
struct Handle {
    deadline: u64,
}

impl TaskHandler for Handle {
    const IDENTIFIER: &'static str = "handle";

    async fn run(self, _: WorkerContext) -> impl IntoTaskHandlerResult {
        handled(self.deadline);
        Ok::<(), String>(())
    }
}

fn job(deadline: SystemTime) -> (Handle, JobSpec) {
    let spec = JobSpecBuilder::new().run_at(chrono::DateTime::<chrono::Utc>::from(deadline));
    let deadline = micros(deadline);
    (Handle { deadline }, spec.build())
}

impl Queue for Graphile {
    const LEFT: &str = "SELECT count(*) FROM graphile_worker._private_jobs";
    const EMPTY: &str = "DELETE FROM graphile_worker._private_jobs";

    async fn start(url: &str, is_tuned: bool) -> Self {
        let mut options = WorkerOptions::default()
            .database_url(url)
            .concurrency(HANDLERS)
            .define_job::<Handle>();
        if is_tuned {
            options = options
                .poll_interval(Duration::from_millis(100))
                .local_queue(LocalQueueConfig::default());
        }
        let worker = options.init().await.expect("the worker starts");
        let utils = worker.create_utils();
        tokio::spawn(async move { worker.run().await.expect("the worker runs") });
        Graphile(utils)
    }

    async fn set(&self, _: u64, deadline: SystemTime) {
        let (handle, spec) = job(deadline);
        self.0.add_job(handle, spec).await.expect("it is set");
    }

    async fn fill(
        &self,
        numbers: std::ops::Range<u64>,
        deadline: impl Fn(u64) -> SystemTime + Send + Sync,
    ) {
        let jobs: Vec<_> = numbers.map(|number| job(deadline(number))).collect();
        for batch in jobs.chunks(1_000) {
            let batch: Vec<_> = batch
                .iter()
                .map(|(job, spec)| (job.clone(), spec))
                .collect();
            self.0.add_jobs(&batch).await.expect("they are set");
        }
    }
}
