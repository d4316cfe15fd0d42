//! A server that returns to an earlier state, or loses its data, under instances that run.

use std::time::Duration;

use tickwheel_durable::Redis;
use tickwheel_durable::store::Store as _;
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::returned_support::{is_survived, loss_is_survived};
use crate::server::{Server, until};

const SECOND: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(200);
const LONG_POLL: Duration = Duration::from_secs(5);

/// A server that writes a snapshot when it is told to, and nothing else.
const SNAPSHOTS: [&str; 4] = ["--appendonly", "no", "--save", ""];

async fn two_stores(server: &Server) -> [Redis; 2] {
    [server.connect().await, server.connect().await]
}

async fn answers(server: &Server) {
    until("a server that answers", async || {
        server.try_command(&["PING"]).await.is_ok()
    })
    .await;
}

/// The server returns to its snapshot.
async fn return_is_survived(poll: Duration) {
    let Some(server) = Server::start(&SNAPSHOTS) else {
        return;
    };
    let stores = two_stores(&server).await;
    let server = Mutex::new(server);
    let keep = async || drop(server.lock().await.command(&["SAVE"]).await);
    let go_back = async || {
        let mut server = server.lock().await;
        server.kill();
        server.run();
    };
    is_survived(stores, poll, keep, go_back).await;
}

/// As a replica that takes over and lacks the last writes.
#[tokio::test]
async fn server_that_returns_to_a_snapshot_strands_no_timer() {
    return_is_survived(POLL).await;
}

/// No call fails: the connections are cut and the state is an earlier one between two loads.
#[tokio::test]
async fn server_that_returns_within_a_poll_strands_no_timer() {
    return_is_survived(LONG_POLL).await;
}

#[tokio::test]
async fn flushed_server_is_used_again() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let stores = two_stores(&server).await;
    let flush = async || drop(server.command(&["FLUSHALL"]).await);
    loss_is_survived(stores, flush).await;
}

#[tokio::test]
async fn server_that_restarts_without_its_data_is_used_again() {
    let Some(mut server) = Server::start(&SNAPSHOTS) else {
        return;
    };
    let stores = two_stores(&server).await;
    let restart = async || {
        server.kill();
        server.run();
    };
    loss_is_survived(stores, restart).await;
}

/// The first call after a pause failed with "broken pipe", and each page of an operator did.
#[tokio::test]
async fn first_call_after_an_idle_connection_was_closed_works() {
    let Some(mut server) = Server::start(&[]) else {
        return;
    };
    let (store, space) = server.open("idle").await;
    let clone = store.clone();
    for round in 0..3 {
        if round < 2 {
            let cut = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
            server.command(&cut).await;
        } else {
            server.kill();
            server.run();
            answers(&server).await;
        }
        sleep(SECOND / 2).await;
        let counted = if round == 0 {
            store.inspect().namespaces().await.map(drop)
        } else {
            clone.count(&space).await.map(drop)
        };
        counted.unwrap_or_else(|error| panic!("round {round}: {error:#}"));
        store.count(&space).await.expect("it counts");
    }
}
