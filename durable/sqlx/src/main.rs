//! A shop on axum and sqlx: an order and its reminder are written in one transaction, and a worker
//! beside the service sends what is due.
//!
//! ```sh
//! DATABASE_URL=postgres://me@localhost/shop cargo run --manifest-path durable/sqlx/Cargo.toml
//! curl -X POST localhost:3000/orders/17      # reminded of in three days
//! curl -X POST localhost:3000/orders/17/pay  # unless it is paid before
//! cargo test --manifest-path durable/sqlx/Cargo.toml
//! ```

mod shop;
#[cfg(test)]
mod tests;
mod worker;

use std::error::Error;

use sqlx::postgres::PgPoolOptions;
use tickwheel::TimerWheel;
use tickwheel_durable::{Postgres, builder};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "DATABASE_URL is not set")?;
    // The worker may run in this process or in any other, and so may several.
    let store = Postgres::connect(&url).await?;
    let (timers, mut claims) = builder(shop::REMINDERS)
        .start(&TimerWheel::new(), store)
        .await?;
    let sent = |order| async move { println!("order {order} is not paid: a reminder") };
    let worker = tokio::spawn(async move { worker::remind(&mut claims, sent).await });

    let pool = PgPoolOptions::new().connect(&url).await?;
    shop::create_tables(&pool).await?;
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, shop::router(pool))
        .with_graceful_shutdown(stop)
        .await?;
    // Handlers that run are waited for. What is loaded is left to other processes.
    timers.shutdown().await;
    worker.await?;
    Ok(())
}
