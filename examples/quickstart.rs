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

    // Timers with keys: set, move and remove them from any task or thread.
    let (timers, mut expirations) = wheel.keyed::<&str, u32>();
    timers.set_timer("alice", 17, Duration::from_secs(60))?;
    timers.set_timer("bob", 18, Duration::from_secs(60))?;
    // Alice is moved, later or earlier; her value stays.
    assert!(timers.move_timer("alice", Duration::from_millis(20))?);
    // Bob is removed. `Some` means that his timer will never expire.
    assert_eq!(timers.remove_timer("bob")?, Some(18));
    if let Some(expired) = expirations.recv().await {
        say!("{} has expired, with {}", expired.key, expired.value);
    }

    // As in `tokio::time`: a future has until a deadline to complete.
    let stuck = std::future::pending::<()>();
    let outcome = wheel.timeout(Duration::from_millis(20), stuck).await;
    say!("{outcome:?}");
    Ok(())
}
