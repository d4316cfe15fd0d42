use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use sqlx::postgres::PgPoolOptions;
use tickwheel::TimerWheel;
use tickwheel_durable::{Memory, Postgres, Removed, builder};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tower::ServiceExt;

use crate::{shop, worker};

#[allow(
    dead_code,
    unreachable_pub,
    reason = "it is shared with the tests of the store"
)]
#[path = "../../tests/postgres/server.rs"]
mod server;

const DAY: Duration = Duration::from_secs(86_400);

async fn post(service: &Router, path: &str) -> StatusCode {
    let request = Request::post(path).body(Body::empty());
    let request = request.expect("it is a request");
    let response = service.clone().oneshot(request).await;
    response.expect("the service does not fail").status()
}

/// Three days pass at once, exact to the millisecond. With fewer polls there is less to run
/// meanwhile.
#[tokio::test(start_paused = true)]
async fn unpaid_orders_are_reminded_of_after_three_days() {
    let (timers, mut claims) = builder(shop::REMINDERS)
        .poll(DAY / 24)
        .window(DAY)
        .start(&TimerWheel::new(), Memory::new())
        .await
        .expect("it starts");
    for order in [17, 18] {
        let set = timers.set_timer(&shop::key(order), &order, DAY * 3).await;
        set.expect("it is set");
    }
    let paid = timers.remove_timer("order 18").await;
    assert_eq!(paid, Ok(Removed::Done(18)));

    let (sender, mut sent) = mpsc::unbounded_channel();
    let began = Instant::now();
    let send = move |order| {
        let _ = sender.send((order, began.elapsed()));
        std::future::ready(())
    };
    let worker = tokio::spawn(async move { worker::remind(&mut claims, send).await });
    let (order, after) = sent.recv().await.expect("it is sent");
    assert_eq!(order, 17);
    assert!(
        after >= DAY * 3 && after < DAY * 3 + Duration::from_millis(10),
        "{after:?}"
    );
    assert!(
        timeout(DAY * 10, sent.recv()).await.is_err(),
        "order 18 is paid"
    );
    timers.shutdown().await;
    worker.await.expect("it ends");
}

/// The order, its reminder and the end of both, on a server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_and_reminder_are_written_together() {
    let Some(url) = server::database("sqlx").await else {
        return server::missing();
    };
    let store = Postgres::connect(&url).await.expect("it connects");
    let (timers, _claims) = builder::<String, i64>(shop::REMINDERS)
        .start(&TimerWheel::new(), store)
        .await
        .expect("it starts");
    let pool = PgPoolOptions::new().connect(&url).await;
    let pool = pool.expect("it connects");
    shop::create_tables(&pool).await.expect("they are made");
    let service = shop::router(pool.clone());

    assert_eq!(post(&service, "/orders/17").await, StatusCode::CREATED);
    let deadline = timers.deadline("order 17").await.expect("it reads");
    let deadline = deadline.expect("it is set");
    let left = deadline.duration_since(std::time::SystemTime::now());
    assert!(left.expect("it is ahead") > DAY * 2);
    assert_eq!(post(&service, "/orders/17").await, StatusCode::CONFLICT);

    // An order that is rolled back has no reminder.
    let mut transaction = pool.begin().await.expect("it begins");
    sqlx::query("SELECT tickwheel_set($1, 'order 18', '18', now())")
        .bind(shop::REMINDERS)
        .execute(&mut *transaction)
        .await
        .expect("it is set");
    transaction.rollback().await.expect("it rolls back");
    assert_eq!(timers.deadline("order 18").await, Ok(None));

    assert_eq!(post(&service, "/orders/17/pay").await, StatusCode::OK);
    assert_eq!(timers.deadline("order 17").await, Ok(None));
    assert_eq!(
        post(&service, "/orders/17/pay").await,
        StatusCode::NOT_FOUND
    );
}

/// This package enables no feature for TLS.
#[tokio::test]
async fn missing_feature_for_tls_is_named() {
    let url = "postgres://me:s3cret@127.0.0.1:1/shop?sslmode=require";
    let refused = Postgres::connect(url).await;
    let text = format!("{:#}", refused.expect_err("it cannot encrypt"));
    assert!(
        text.contains("`tls-ring`") && text.contains("`tls-aws-lc-rs`"),
        "{text}"
    );
    assert!(!text.contains("s3cret"), "{text}");
}
