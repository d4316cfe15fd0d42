//! The functions with which users set, move and remove timers in their own transactions.

mod clients;
mod dead;
mod functions;
mod isolation;
mod locks;
mod races;

use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::{Claims, DurableTimers, Postgres, builder};
use tokio_postgres::{Client, Row};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// An instance on the namespace `orders`.
async fn start(url: &str) -> (DurableTimers<String, u64>, Claims<String, u64>) {
    let store = Postgres::connect(url).await.expect("it connects");
    let builder = builder("orders").call_timeout(20 * SECOND);
    let started = builder.start(&TimerWheel::new(), store).await;
    started.expect("it starts")
}

/// The single row that a query returns.
async fn one(client: &Client, query: &str) -> Row {
    let rows = client.query(query, &[]).await;
    let mut rows = rows.unwrap_or_else(|error| panic!("{query}: {error:?}"));
    assert_eq!(rows.len(), 1, "{query}");
    rows.remove(0)
}

/// The first column of it.
async fn text(client: &Client, query: &str) -> String {
    one(client, query).await.get(0)
}

async fn run(client: &Client, sql: &str) {
    let done = client.batch_execute(sql).await;
    done.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}
