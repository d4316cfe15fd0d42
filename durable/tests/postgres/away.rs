//! The server goes away for a moment while handlers end.

use std::time::Duration;

use tickwheel_durable::Postgres;
use tokio::time::sleep;

use crate::outage::is_survived;
use crate::server::{Server, missing};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_handlers_that_end_during_a_restart_run_once() {
    let Some(mut server) = Server::start(&["fsync=off"]) else {
        return missing();
    };
    let store = Postgres::connect(&server.url()).await;
    is_survived("restart", store.expect("it connects"), async || {
        server.stop();
        sleep(Duration::from_secs(1)).await;
        server.start_again();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_handlers_that_end_during_a_freeze_run_once() {
    let Some(mut server) = Server::start(&["fsync=off"]) else {
        return missing();
    };
    let store = Postgres::connect(&server.url()).await;
    is_survived("freeze", store.expect("it connects"), async || {
        server.freeze();
        sleep(Duration::from_secs(2)).await;
        server.thaw();
    })
    .await;
}
