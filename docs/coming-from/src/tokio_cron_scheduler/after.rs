use std::error::Error;
use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::{DurableTimers, Store, builder};
use tokio::sync::mpsc;
type Ran = mpsc::UnboundedSender<&'static str>;

/// The store is `Sqlite::open("jobs.db")?` or one on a server, and `Memory::new()` in a test.
pub async fn start(
    wheel: &TimerWheel,
    store: Box<dyn Store>,
    ran: Ran,
) -> Result<DurableTimers<String, ()>, Box<dyn Error>> {
    let (timers, mut claims) = builder::<String, ()>("jobs").start(wheel, store).await?;
    timers
        .set_interval("report", &(), Duration::from_secs(1))
        .await?;
    timers
        .set_timer("welcome", &(), Duration::from_secs(1))
        .await?;
    tokio::spawn(async move {
        // The code of a job is chosen by its key, or by what its value says.
        let run = |job: &str| match job {
            "report" => ran.send("report"),
            _ => ran.send("welcome"),
        };
        claims
            .dispatch(16, |claim| {
                let _ = run(&claim.key);
                async { Ok(()) }
            })
            .await;
    });
    Ok(timers)
}
