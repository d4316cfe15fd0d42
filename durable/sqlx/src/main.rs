//! A shop that uses `sqlx`: an order and its reminder in one transaction.
//!
//! ```sh
//! cargo run --manifest-path durable/sqlx/Cargo.toml -- postgres://me@localhost/shop
//! cargo test --manifest-path durable/sqlx/Cargo.toml
//! ```

use std::error::Error;
use std::time::Duration;

use sqlx::postgres::PgPoolOptions;
use sqlx::{Postgres, Transaction};
use tickwheel::TimerWheel;
use tickwheel_durable::builder;
use tokio::time::timeout;

type Outcome<T> = Result<T, Box<dyn Error>>;

const REMIND_AFTER_SECONDS: f64 = 0.3;

#[tokio::main]
async fn main() -> Outcome<()> {
    let url = std::env::args()
        .nth(1)
        .ok_or("usage: <URL of a PostgreSQL server>")?;
    for order in reminded(&url).await? {
        println!("reminder of order {order}");
    }
    Ok(())
}

/// Writes an order and sets its reminder. Returns what `tickwheel_set` says.
async fn order(shop: &mut Transaction<'_, Postgres>, id: i64) -> sqlx::Result<String> {
    let insert = sqlx::query("INSERT INTO orders (id) VALUES ($1)").bind(id);
    insert.execute(&mut **shop).await?;
    let set =
        "SELECT tickwheel_set('orders', $1, to_jsonb($2), clock_timestamp() + $3 * interval '1 s')";
    let set = sqlx::query_scalar(set).bind(format!("order {id}"));
    let set = set.bind(id).bind(REMIND_AFTER_SECONDS);
    set.fetch_one(&mut **shop).await
}

/// Writes ten orders, and rolls every other one back. Returns those that it is reminded of.
async fn reminded(url: &str) -> Outcome<Vec<i64>> {
    let store = tickwheel_durable::Postgres::connect(url).await?;
    let wheel = TimerWheel::new();
    let (_timers, mut claims) = builder::<String, i64>("orders")
        .start(&wheel, store)
        .await?;

    let pool = PgPoolOptions::new().max_connections(2).connect(url).await?;
    let table = "CREATE TABLE IF NOT EXISTS orders (id bigint PRIMARY KEY)";
    sqlx::query(table).execute(&pool).await?;
    sqlx::query("DELETE FROM orders").execute(&pool).await?;
    for id in 0..10 {
        let mut shop = pool.begin().await?;
        assert_eq!(order(&mut shop, id).await?, "set");
        if id % 2 == 0 {
            shop.commit().await?;
        } else {
            shop.rollback().await?;
        }
    }

    let mut reminded = Vec::new();
    // A while longer than it takes, in case there are more.
    while let Ok(Some(claim)) = timeout(Duration::from_secs(3), claims.recv()).await {
        reminded.push(claim.value);
        claim.ack().await?;
    }
    reminded.sort_unstable();
    Ok(reminded)
}

#[cfg(test)]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "it is shared with the tests of the store"
)]
#[path = "../../tests/postgres/server.rs"]
mod server;

#[cfg(test)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_of_sqlx_and_their_reminders_are_one() {
    let Some(url) = server::database("sqlx").await else {
        return server::missing();
    };
    let reminded = reminded(&url).await.expect("it works");
    assert_eq!(reminded, [0, 2, 4, 6, 8]);
}

/// This package enables no feature for TLS.
#[cfg(test)]
#[tokio::test]
async fn missing_feature_for_tls_is_named() {
    let url = "postgres://me:s3cret@127.0.0.1:1/shop?sslmode=require";
    let refused = tickwheel_durable::Postgres::connect(url).await;
    let text = format!("{:#}", refused.expect_err("it cannot encrypt"));
    assert!(
        text.contains("`tls-ring`") && text.contains("`tls-aws-lc-rs`"),
        "{text}"
    );
    assert!(!text.contains("s3cret"), "{text}");
}
