//! The server goes away for a moment while handlers end.

use std::time::Duration;

use tokio::time::sleep;

use crate::outage::is_survived;
use crate::server::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_handlers_that_end_during_a_restart_run_once() {
    let Some(mut server) = Server::start(&[]) else {
        return;
    };
    let store = server.connect().await;
    is_survived("restart", store, async || {
        server.kill();
        sleep(Duration::from_secs(1)).await;
        server.run();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_handlers_that_end_during_a_freeze_run_once() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let store = server.connect().await;
    is_survived("freeze", store, async || {
        server.signal("STOP");
        sleep(Duration::from_secs(2)).await;
        server.signal("CONT");
    })
    .await;
}
