//! The quick start: keyed timers and a timeout on one wheel.

use std::time::Duration;

use tickwheel::TimerWheel;

#[path = "support/say.rs"]
#[macro_use]
mod say;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    say::takes_no_arguments("The quick start");
    let wheel = TimerWheel::new();

    // Timers with keys.
    let (timers, mut expirations) = wheel.keyed::<&str, u32>();
    timers.set_timer("alice", 17, Duration::from_secs(60))?;
    timers.set_timer("bob", 18, Duration::from_secs(60))?;
    assert!(timers.move_timer("alice", Duration::from_millis(20))?);
    assert_eq!(timers.remove_timer("bob")?, Some(18));

    let expired = expirations.recv().await.ok_or("closed")?;
    say!("{} has expired, with {}", expired.key, expired.value);
    assert_eq!((expired.key, expired.value), ("alice", 17));
    assert!(timers.is_empty());

    // As in `tokio::time`.
    let stuck = std::future::pending::<()>();
    let outcome = wheel.timeout(Duration::from_millis(20), stuck).await;
    say!("{outcome:?}");
    assert!(outcome.is_err());
    Ok(())
}
