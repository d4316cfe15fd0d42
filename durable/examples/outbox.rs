//! A shop that writes an order and its reminder in one transaction.
//!
//! Half of the orders are rolled back, as if the payment had failed. Each order that was committed
//! is reminded of, and no other. Exits with code 1 if that is not so.
//!
//! ```sh
//! cargo run -p tickwheel-durable --example outbox
//! cargo run -p tickwheel-durable --features postgres --example outbox -- postgres://me@localhost/shop
//! ```

use std::collections::BTreeSet;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::rusqlite::{Connection, TransactionBehavior::Immediate};
use tickwheel_durable::{Claims, Sqlite, SqliteTransaction, Store, builder};
use tokio::time::timeout;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The key is the order's name, the value its number.
type Reminders = Claims<String, u32>;

const ORDERS: u32 = 20;

const REMIND_AFTER: Duration = Duration::from_millis(300);

/// The orders with a payment that succeeds.
fn is_paid(order: u32) -> bool {
    order % 2 == 0
}

#[tokio::main]
async fn main() -> ExitCode {
    let run = match std::env::args().nth(1) {
        None => with_sqlite().await,
        #[cfg(feature = "postgres")]
        Some(url) if url.starts_with("postgres") => with_postgres(&url).await,
        Some(other) => Err(format!("outbox: not the URL of a PostgreSQL server: {other}").into()),
    };
    match run {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("outbox: {error}");
            ExitCode::from(2)
        }
    }
}

/// Starts the worker. It may run in any process.
async fn worker(store: impl Store) -> Outcome<Reminders> {
    let wheel = TimerWheel::new();
    let (_timers, claims) = builder("orders").start(&wheel, store).await?;
    Ok(claims)
}

async fn with_sqlite() -> Outcome<bool> {
    let folder = std::env::temp_dir().join(format!("outbox-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let path = folder.join("shop.db");
    let store = Sqlite::open(&path)?;
    let mut reminders = worker(store.clone()).await?;

    let mut shop = Connection::open(&path)?;
    shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)", ())?;
    for order in 0..ORDERS {
        let transaction = shop.transaction_with_behavior(Immediate)?;
        transaction.execute("INSERT INTO orders VALUES (?1)", [order])?;
        SqliteTransaction::<String, u32>::new(&transaction, "orders")?.set_timer(
            &format!("order {order}"),
            &order,
            REMIND_AFTER,
        )?;
        if is_paid(order) {
            transaction.commit()?;
        } else {
            transaction.rollback()?;
        }
    }
    // Without this, the worker finds them with its next poll.
    store.hint("orders")?;

    let mut select = shop.prepare("SELECT id FROM orders")?;
    let orders = select.query_map((), |row| row.get(0))?;
    let orders = orders.collect::<Result<_, _>>()?;
    drop(select);
    let right = receive(&mut reminders, &orders).await?;
    std::fs::remove_dir_all(folder)?;
    Ok(right)
}

#[cfg(feature = "postgres")]
async fn with_postgres(url: &str) -> Outcome<bool> {
    let store = tickwheel_durable::Postgres::connect(url).await?;
    let mut reminders = worker(store).await?;

    let (mut shop, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    shop.batch_execute("DROP TABLE IF EXISTS orders; CREATE TABLE orders (id bigint PRIMARY KEY)")
        .await?;
    for order in 0..ORDERS {
        let transaction = shop.transaction().await?;
        let insert = "INSERT INTO orders VALUES ($1)";
        transaction.execute(insert, &[&i64::from(order)]).await?;
        let set = "SELECT tickwheel_set('orders', $1, to_jsonb($2::bigint), clock_timestamp() + $3 * interval '1 s')";
        let (key, delay) = (format!("order {order}"), REMIND_AFTER.as_secs_f64());
        transaction
            .query_one(set, &[&key, &i64::from(order), &delay])
            .await?;
        if is_paid(order) {
            transaction.commit().await?;
        } else {
            transaction.rollback().await?;
        }
    }
    let orders = shop.query("SELECT id FROM orders", &[]).await?;
    let orders: Result<_, _> = orders
        .iter()
        .map(|row| u32::try_from(row.get::<_, i64>(0)))
        .collect();
    receive(&mut reminders, &orders?).await
}

/// Whether a reminder of each order comes, and no other.
async fn receive(reminders: &mut Reminders, orders: &BTreeSet<u32>) -> Outcome<bool> {
    let mut reminded = BTreeSet::new();
    loop {
        // A while longer than it takes, in case there are more.
        let seconds = if reminded.len() < orders.len() { 60 } else { 1 };
        let next = timeout(Duration::from_secs(seconds), reminders.recv()).await;
        let Ok(Some(claim)) = next else { break };
        println!("reminder of {}", claim.key);
        reminded.insert(claim.value);
        claim.ack().await?;
    }
    println!(
        "{ORDERS} orders, {} committed, {} reminders",
        orders.len(),
        reminded.len()
    );
    Ok(reminded == *orders)
}
