//! The store in Redis keeps the promises, and says clearly what is wrong when something is.

mod away;
mod backups;
mod cluster;
#[cfg(feature = "cron")]
#[path = "../support/cron.rs"]
mod cron;
mod damaged;
mod encrypted;
mod failover;
mod faults;
#[path = "../support/heard.rs"]
mod heard;
mod hung;
mod language;
mod leftovers;
#[path = "../support/log.rs"]
mod log;
mod looks;
#[path = "../support/outage.rs"]
mod outage;
#[path = "../support/backups.rs"]
mod page;
#[macro_use]
#[path = "../support/parts.rs"]
mod parts;
mod proxy;
#[path = "../support/raised.rs"]
mod raised;
mod refusals;
mod sentinel;
mod server;
mod spread;
#[path = "../support/started.rs"]
mod started;

use tickwheel_durable::Redis;
use tickwheel_durable_conformance::{Pace, Stores, conformance_tests};

/// The server that these tests share.
struct Shared(String);

impl Stores for Shared {
    type Store = Redis;

    /// A new connection, as another process has.
    async fn connect(&self) -> Redis {
        server::connect(&self.0).await
    }
}

#[cfg(feature = "cron")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cron_timer_repeats_each_second() {
    let Some(url) = server::shared() else { return };
    let stores = [server::connect(&url).await, server::connect(&url).await];
    cron::repeats_each_second(stores).await;
}

conformance_tests! {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    (match server::shared() {
        Some(url) => Shared(url),
        None => return,
    }, Pace::default())
}
