//! A `PostgreSQL` server with its usual settings: every commit waits for the disk.

use std::fs;

use tokio_postgres::Client;

use super::Place;
use server::{Server, client};

#[allow(
    dead_code,
    unreachable_pub,
    clippy::duplicate_mod,
    clippy::pedantic,
    reason = "it is shared with the tests"
)]
#[path = "../../../../durable/tests/postgres/server.rs"]
mod server;

pub(crate) struct OnPostgres {
    client: Client,
    postmaster: u32,
    server: Server,
}

impl Place for OnPostgres {
    // Statistics of transactions reach the view with a delay.
    const OWN: [i64; 2] = [0, 1];

    async fn start(_: &str) -> Self {
        let server = Server::start(&[
            "shared_buffers=512MB",
            "max_wal_size=4GB",
            "shared_preload_libraries=pg_stat_statements",
        ]);
        let server = server.expect("PostgreSQL is installed");
        let file = server.folder().join("data/postmaster.pid");
        let file = fs::read_to_string(file).expect("the server runs");
        let process = file
            .lines()
            .next()
            .and_then(|line| line.trim().parse().ok());
        let client = client(&server.url()).await;
        let extension = client.batch_execute("CREATE EXTENSION pg_stat_statements");
        extension.await.expect("the server has loaded it");
        OnPostgres {
            client,
            postmaster: process.expect("it begins with the number of the process"),
            server,
        }
    }

    fn url(&self) -> String {
        self.server.url()
    }

    fn process(&self) -> u32 {
        self.postmaster
    }

    async fn work(&self) -> Option<[i64; 2]> {
        let statements = self.count(
            "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements
             WHERE query NOT LIKE '%pg_stat_statements%'",
        );
        let statements = statements.await;
        let transactions = self.count("SELECT sum(xact_commit)::bigint FROM pg_stat_database");
        Some([statements, transactions.await])
    }

    async fn count(&self, query: &str) -> i64 {
        let row = self.client.query_one(query, &[]).await;
        row.expect("it is SQL").get(0)
    }

    async fn empty(&self, query: &str) {
        for query in [query, "VACUUM ANALYZE", "CHECKPOINT"] {
            let executed = self.client.batch_execute(query).await;
            executed.expect("it is SQL");
        }
    }
}
