//! Faults around an instance, and its errors: settings, keys, clocks, a store that is slow, away,
//! or another's.

mod blocking;
mod clocks;
mod dispatch;
mod ends;
mod limits;
mod outages;
mod refusals;

use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::{Builder, Claims, DurableTimers, Error, builder};

const HOUR: Duration = Duration::from_secs(3_600);
const SECOND: Duration = Duration::from_secs(1);

type Instance = (DurableTimers<String, String>, Claims<String, String>);

fn orders() -> Builder<String, String> {
    builder("orders")
}

async fn start(store: impl tickwheel_durable::store::Store) -> Instance {
    let started = orders().start(&TimerWheel::new(), store).await;
    started.expect("it starts")
}

async fn set(
    timers: &DurableTimers<String, String>,
    key: &str,
    delay: Duration,
) -> Result<(), Error> {
    timers
        .set_timer(&key.to_owned(), &String::new(), delay)
        .await
}
