//! A worker process: says which reminders it has got, and acknowledges them.
//!
//! A line goes out before its acknowledgement. So whatever is acknowledged has been told, whenever
//! the worker is killed. An acknowledgement whose answer is lost, because the server of the store
//! went away, is made again.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tickwheel::TimerWheel;
use tickwheel_durable::Claim;
use tokio::io::AsyncReadExt;

use super::{Outcome, store};

/// Runs until its standard input ends.
pub(crate) async fn run(url: &str) -> Outcome<bool> {
    let wheel = TimerWheel::new();
    let (reminders, mut due) = store::start(&wheel, url).await?;
    tokio::spawn(async move {
        // Nothing is ever sent.
        let _ = tokio::io::stdin().read(&mut [0]).await;
        reminders.shutdown().await;
    });
    let mut claims = Vec::new();
    while due.recv_many(&mut claims, 256).await > 0 {
        let mut lines = String::new();
        for claim in &claims {
            let (now, deadline) = (micros(SystemTime::now()), micros(claim.deadline));
            writeln!(lines, "{} {} {deadline} {now} .", claim.key, claim.attempt)?;
        }
        let mut out = std::io::stdout().lock();
        out.write_all(lines.as_bytes())?;
        out.flush()?;
        drop(out);
        futures_util::future::join_all(claims.drain(..).map(acknowledge)).await;
    }
    Ok(true)
}

/// Acknowledges until the store answers.
async fn acknowledge(claim: Claim<u32, String>) {
    while let Err(error) = claim.ack().await {
        if store::may_pass(&error) {
            tokio::time::sleep(store::RETRY).await;
            continue;
        }
        // The lease had ended, or the answer to the last try was lost.
        let _ = writeln!(std::io::stdout(), "{} unacknowledged .", claim.key);
        return;
    }
}

/// Microseconds since the epoch.
pub(crate) fn micros(time: SystemTime) -> u64 {
    in_micros(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

pub(crate) fn in_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
