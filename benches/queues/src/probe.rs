//! What a server does meanwhile: its CPU time and the statements that it runs.

use std::fs;
use std::time::Duration;

use tokio_postgres::Client;

use crate::server::{Server, client};

pub(crate) struct Probe {
    client: Client,
    postmaster: u32,
}

impl Probe {
    pub(crate) async fn connect(server: &Server) -> Self {
        let file = server.folder().join("data/postmaster.pid");
        let file = fs::read_to_string(file).expect("the server runs");
        let process = file
            .lines()
            .next()
            .and_then(|line| line.trim().parse().ok());
        let client = client(&server.url()).await;
        let extension = client.batch_execute("CREATE EXTENSION pg_stat_statements");
        extension.await.expect("the server has loaded it");
        Probe {
            client,
            postmaster: process.expect("it begins with the number of the process"),
        }
    }

    /// The CPU time that all processes of the server have used, with those that have ended.
    pub(crate) fn cpu(&self) -> Duration {
        let processes = fs::read_dir("/proc")
            .expect("processes can be listed")
            .flatten();
        let ticks = processes.filter_map(|process| {
            let number: u32 = process.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(process.path().join("stat")).ok()?;
            // The name, which may have spaces, stands in parentheses.
            let (_, rest) = stat.rsplit_once(')')?;
            let fields: Vec<u64> = (rest.split_whitespace())
                .map(|field| field.parse().unwrap_or(0))
                .collect();
            // From the state on, which is the third field of all: the parent, then user and system
            // time, then the same of children that have ended.
            let own = fields[11] + fields[12];
            if number == self.postmaster {
                Some(own + fields[13] + fields[14])
            } else {
                (fields[1] == u64::from(self.postmaster)).then_some(own)
            }
        });
        Duration::from_millis(ticks.sum::<u64>() * 10)
    }

    /// The statements that clients have run, without those of this connection.
    pub(crate) async fn statements(&self) -> i64 {
        self.count(
            "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements
             WHERE query NOT LIKE '%pg_stat_statements%'",
        )
        .await
    }

    pub(crate) async fn transactions(&self) -> i64 {
        self.count("SELECT sum(xact_commit)::bigint FROM pg_stat_database")
            .await
    }

    pub(crate) async fn count(&self, sql: &str) -> i64 {
        let row = self.client.query_one(sql, &[]).await;
        row.expect("it is SQL").get(0)
    }

    pub(crate) async fn execute(&self, sql: &str) {
        self.client.batch_execute(sql).await.expect("it is SQL");
    }
}
