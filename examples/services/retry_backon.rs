//! Retries with `backon`, which waits on the wheel: it takes any function from a duration to a
//! future.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use tickwheel::TimerWheel;

#[path = "../support/say.rs"]
#[macro_use]
mod say;

#[tokio::main]
async fn main() -> io::Result<()> {
    say::takes_no_arguments("Retries with backon on a wheel");
    let wheel = TimerWheel::new();
    let sleeping = wheel.clone();
    let attempts = AtomicU32::new(0);
    let ask = async || match attempts.fetch_add(1, Ordering::Relaxed) {
        attempt @ 0..3 => Err(io::Error::new(
            ErrorKind::ConnectionRefused,
            format!("{attempt}"),
        )),
        _ => Ok("an answer"),
    };

    let backoff = ExponentialBuilder::default().with_min_delay(Duration::from_millis(20));
    let answer = ask
        .retry(backoff)
        .sleep(move |delay| sleeping.sleep(delay))
        .notify(|error, delay| say!("attempt {error} failed; the next one in {delay:?}"))
        .await?;

    say!(
        "{answer} after {} sleeps of the wheel",
        wheel.metrics().sleeps_fired
    );
    assert_eq!(wheel.metrics().sleeps_fired, 3);
    Ok(())
}
