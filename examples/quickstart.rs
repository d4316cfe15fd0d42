//! The quick start: a sleep, a timeout and a keyed timer on one wheel.

use std::time::Duration;

use tickwheel::TimerWheel;

#[path = "support/say.rs"]
#[macro_use]
mod say;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let wheel = TimerWheel::new();

    wheel.sleep(Duration::from_millis(20)).await;
    say!("slept");

    let answer = wheel.timeout(Duration::from_secs(5), async { 42 }).await?;
    say!("in time: {answer}");

    let stuck = std::future::pending::<()>();
    let error = wheel.timeout(Duration::from_millis(20), stuck).await;
    say!("not in time: {error:?}");

    // Timers with keys: set, move and remove them from any task or thread.
    let (timers, mut expirations) = wheel.keyed::<&str, u32>();
    timers.set_timer("session", 7, Duration::from_secs(30))?;
    timers.set_timer("upload", 8, Duration::from_secs(60))?;
    timers.move_timer("session", Duration::from_millis(20))?;
    say!("cancelled: {:?}", timers.remove_timer("upload")?);

    if let Some(expired) = expirations.recv().await {
        say!("expired: {} with {}", expired.key, expired.value);
    }
    wheel.shutdown().await;
    Ok(())
}
