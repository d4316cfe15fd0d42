use std::time::Duration;

use tokio::sync::mpsc;
use tokio_cron_scheduler::{Job, JobScheduler, JobSchedulerError};
type Ran = mpsc::UnboundedSender<&'static str>;

pub async fn start(ran: Ran) -> Result<JobScheduler, JobSchedulerError> {
    let scheduler = JobScheduler::new().await?;
    let reports = ran.clone();
    let report = Job::new_repeated_async(Duration::from_secs(1), move |_id, _scheduler| {
        let ran = reports.clone();
        Box::pin(async move {
            let _ = ran.send("report");
        })
    })?;
    let welcome = Job::new_one_shot_async(Duration::from_secs(1), move |_id, _scheduler| {
        let ran = ran.clone();
        Box::pin(async move {
            let _ = ran.send("welcome");
        })
    })?;
    scheduler.add(report).await?;
    scheduler.add(welcome).await?;
    scheduler.start().await?;
    Ok(scheduler)
}
