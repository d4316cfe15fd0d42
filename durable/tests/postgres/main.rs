//! The store in PostgreSQL keeps the promises, on a server of the tests' own. The clock is the real
//! one.

mod away;
mod backups;
#[cfg(feature = "cron")]
#[path = "../support/cron.rs"]
mod cron;
mod damaged;
mod encodings;
mod encrypted;
mod explored;
mod failover;
mod faults;
#[path = "../support/heard.rs"]
mod heard;
mod hints;
#[path = "../support/log.rs"]
mod log;
mod looks;
mod migrations;
mod options;
#[path = "../support/outage.rs"]
mod outage;
#[path = "../support/backups.rs"]
mod page;
mod plans;
mod pooler;
mod proxy;
#[path = "../support/raised.rs"]
mod raised;
mod restore;
mod schemas;
mod server;
#[path = "../support/started.rs"]
mod started;
mod stopped;
mod thief;
mod transactions;
mod waiting;

use std::time::Duration;

use tickwheel_durable::Postgres;
use tickwheel_durable_conformance::{Pace, Stores, conformance_tests};

/// A database of the shared server.
struct Database(String);

impl Stores for Database {
    type Store = Postgres;

    /// New connections, as another process has.
    async fn connect(&self) -> Postgres {
        Postgres::connect(&self.0).await.expect("it connects")
    }
}

#[cfg(feature = "cron")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cron_timer_repeats_each_second() {
    let Some(url) = server::shared_url() else {
        return server::missing();
    };
    let database = Database(url.to_owned());
    cron::repeats_each_second([database.connect().await, database.connect().await]).await;
}

conformance_tests! {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    (
        match server::shared_url() {
            Some(url) => Database(url.to_owned()),
            None => return server::missing(),
        },
        // Connecting takes a while on a busy machine.
        Pace { unit: Duration::from_millis(200), ..Pace::default() }
    )
}
