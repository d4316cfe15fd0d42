//! The wheel as the sleep of the AWS SDK, for its timeouts and retries:
//! `SdkConfig::builder().sleep_impl(..)` takes it.

use std::time::{Duration, Instant};

use aws_smithy_async::rt::sleep::{AsyncSleep, SharedAsyncSleep, Sleep};
use tickwheel::TimerWheel;

#[path = "../support/say.rs"]
#[macro_use]
mod say;

#[derive(Debug, Clone)]
struct WheelSleep(TimerWheel);

impl AsyncSleep for WheelSleep {
    fn sleep(&self, duration: Duration) -> Sleep {
        Sleep::new(self.0.sleep(duration))
    }
}

#[tokio::main]
async fn main() {
    say::takes_no_arguments("The sleeps of the AWS SDK on a wheel");
    let wheel = TimerWheel::new();
    // The SDK's configuration takes this.
    let shared = SharedAsyncSleep::new(WheelSleep(wheel.clone()));

    let start = Instant::now();
    shared.sleep(Duration::from_millis(50)).await;
    say!(
        "slept {:?} on {:?}",
        start.elapsed(),
        wheel.metrics().lateness
    );
    assert_eq!(wheel.metrics().sleeps_fired, 1);
}
