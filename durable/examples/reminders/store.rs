//! Which store the timers lie in.

use std::error::Error as StdError;
use std::time::{Duration, Instant};

use tickwheel::TimerWheel;
use tickwheel_durable::StoreError;
use tickwheel_durable::{Builder, Claims, DurableTimers, Error, Sqlite, builder};

use super::Outcome;

/// The key is the reminder's number, the value its text.
pub(crate) type Reminders = DurableTimers<u32, String>;
pub(crate) type Due = Claims<u32, String>;

/// How long a claim lasts.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// How often an instance asks for timers. One that was silent for three times as long is taken for
/// dead.
pub(crate) const POLL: Duration = Duration::from_millis(200);

/// A poll is up to a tenth longer, so that instances spread.
pub(crate) const LONGEST_POLL: Duration = Duration::from_millis(220);

/// Calls that failed because the store was away are tried again after this,
pub(crate) const RETRY: Duration = Duration::from_millis(100);

/// and for as long as this.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(20);

fn settings() -> Builder<u32, String> {
    builder("reminders")
        .lease(LEASE)
        .poll(POLL)
        .window(Duration::from_secs(2))
        .capacity(512)
}

/// Whether the same call may succeed later.
pub(crate) fn may_pass(error: &(dyn StdError + 'static)) -> bool {
    let errors = std::iter::successors(Some(error), |&error| error.source());
    let mut passing = errors.map(|error| {
        let call = error.downcast_ref().is_some_and(Error::may_pass);
        call || error.downcast_ref().is_some_and(StoreError::may_pass)
    });
    passing.any(|may_pass| may_pass)
}

/// Starts an instance on a store: a file of SQLite, or a URL. Waits for a server that is
/// unreachable.
pub(crate) async fn start(wheel: &TimerWheel, store: &str) -> Outcome<(Reminders, Due)> {
    let began = Instant::now();
    loop {
        match try_to_start(wheel, store).await {
            Err(error) if may_pass(&*error) && began.elapsed() < TIME_LIMIT => {
                tokio::time::sleep(RETRY).await;
            }
            outcome => return outcome,
        }
    }
}

async fn try_to_start(wheel: &TimerWheel, store: &str) -> Outcome<(Reminders, Due)> {
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
        // Servers that replace each other.
        #[cfg(feature = "redis")]
        Some(("redis+sentinel" | "redis+cluster", _)) => {
            let store = tickwheel_durable::Redis::connect(store).await?;
            settings().start(wheel, store.wait_for_replicas(1)).await
        }
        Some((scheme, _)) => {
            return Err(format!("{scheme:?} is no store that this example knows").into());
        }
    };
    Ok(started?)
}
