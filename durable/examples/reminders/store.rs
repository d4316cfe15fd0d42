//! Which store the timers lie in.

use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::{Builder, Claims, DurableTimers, Sqlite, builder};

use super::Outcome;

/// The key is the reminder's number, the value its text.
pub(crate) type Reminders = DurableTimers<u32, String>;
pub(crate) type Due = Claims<u32, String>;

/// How long a claim lasts.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// How often an instance asks for timers. One that was silent for three times as long is taken for dead.
const POLL: Duration = Duration::from_millis(200);

fn settings() -> Builder<u32, String> {
    builder("reminders")
        .lease(LEASE)
        .poll(POLL)
        .window(Duration::from_secs(2))
        .capacity(512)
}

/// Starts an instance on a store: a file of SQLite, or a URL.
pub(crate) async fn start(wheel: &TimerWheel, store: &str) -> Outcome<(Reminders, Due)> {
    let started = match store.split_once("://") {
        None => settings().start(wheel, Sqlite::open(store)?).await,
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => {
            let store = tickwheel_durable::Postgres::connect(store).await?;
            settings().start(wheel, store).await
        }
        #[cfg(feature = "redis")]
        Some(("redis" | "rediss" | "unix", _)) => {
            let store = tickwheel_durable::Redis::connect(store).await?;
            settings().start(wheel, store).await
        }
        Some((scheme, _)) => {
            return Err(format!("{scheme:?} is no store that this example knows").into());
        }
    };
    Ok(started?)
}
