//! Helpers of the scripts.

use std::time::Duration;

use tokio::time::Instant;

/// How many random scripts a test runs.
pub const SCRIPTS: u64 = 50;

/// How many steps a random script has.
pub const STEPS: usize = 200;

pub fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// The random choices of a script. Steps happen at even milliseconds and deadlines are odd ones, so
/// which of the two comes first does not depend on the side.
pub struct Choices(fastrand::Rng);

impl Choices {
    pub fn new(seed: u64) -> Self {
        Choices(fastrand::Rng::with_seed(seed))
    }

    pub fn key(&mut self) -> String {
        format!("order {}", self.0.u32(..8))
    }

    pub fn value(&mut self) -> u32 {
        self.0.u32(..)
    }

    pub fn delay(&mut self) -> Duration {
        ms(2 * self.0.u64(..200) + 1)
    }

    pub fn pause(&mut self) -> Duration {
        ms(2 * self.0.u64(..20))
    }

    pub fn one_of(&mut self, choices: u32) -> u32 {
        self.0.u32(..choices)
    }
}

/// Lets the other tasks run for so long, under the paused clock.
pub async fn pause(length: Duration) {
    // Messages of this instant are processed before time goes on.
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(length).await;
}

/// Milliseconds since the start of the script.
pub fn at(start: Instant) -> u128 {
    start.elapsed().as_millis()
}
