//! Instances with strings as keys and numbers as values, for the tests that drive them by
//! hand.

use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::store::Store;
use tickwheel_durable::{Builder, Claim, Claims, DurableTimers, builder};
use tokio::time::timeout;

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) type Timers = DurableTimers<String, u32>;
pub(crate) type Instance = (Timers, Claims<String, u32>);

/// Starts an instance on a wheel.
pub(crate) async fn start_on(
    wheel: &TimerWheel,
    store: impl Into<Box<dyn Store>>,
    set: impl FnOnce(Builder<String, u32>) -> Builder<String, u32>,
) -> Instance {
    let started = set(builder("orders")).start(wheel, store).await;
    started.expect("it starts")
}

/// Starts an instance on a new wheel.
pub(crate) async fn start(
    store: impl Into<Box<dyn Store>>,
    set: impl FnOnce(Builder<String, u32>) -> Builder<String, u32>,
) -> Instance {
    start_on(&TimerWheel::new(), store, set).await
}

pub(crate) async fn set(timers: &Timers, key: &str, delay: Duration) {
    let set = timers.set_timer(key, &0, delay).await;
    set.expect("it is set");
}

pub(crate) async fn next(claims: &mut Claims<String, u32>) -> Claim<String, u32> {
    let claim = timeout(HOUR, claims.recv()).await;
    claim.expect("it comes").expect("the stream goes on")
}
