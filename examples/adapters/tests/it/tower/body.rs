//! Bodies that stall.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{Request, Response, StatusCode};
use axum::{Router, body::Body, routing::post};
use http_body_util::{BodyExt, Full, channel::Channel};
use hyper::body::{Body as _, Bytes};
use tickwheel::adapters::tower::{RequestBodyTimeoutLayer, ResponseBodyTimeoutLayer, TimeoutBody};
use tickwheel::{Elapsed, TimerWheel};
use tokio::time::{Instant, sleep};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use super::{JUST_BEFORE, LIMIT, assert_nothing_pending};

/// A body that gives a piece after each of these pauses.
fn pieces(pauses: &[Duration]) -> Channel<Bytes, Infallible> {
    let pauses = pauses.to_vec();
    let (mut sender, body) = Channel::new(1);
    tokio::spawn(async move {
        for pause in pauses {
            sleep(pause).await;
            if sender
                .send_data(Bytes::from_static(b"piece"))
                .await
                .is_err()
            {
                return;
            }
        }
    });
    body
}

#[tokio::test(start_paused = true)]
async fn fails_a_body_that_stalls() {
    let wheel = TimerWheel::new();
    let mut body = TimeoutBody::new(
        &wheel,
        LIMIT,
        pieces(&[JUST_BEFORE, Duration::from_secs(60)]),
    );
    assert!(body.frame().await.unwrap().is_ok());
    let start = Instant::now();
    let error = body.frame().await.unwrap().unwrap_err();
    assert!(error.is::<Elapsed>(), "{error}");
    assert_eq!(start.elapsed(), LIMIT);
    drop(body);
    assert_nothing_pending(&wheel).await;
}

#[tokio::test(start_paused = true)]
async fn passes_a_body_that_is_slow_but_steady() {
    let wheel = TimerWheel::new();
    let body = TimeoutBody::new(&wheel, LIMIT, pieces(&[JUST_BEFORE; 20]));
    let whole = body.collect().await.unwrap().to_bytes();
    assert_eq!(whole.len(), 20 * "piece".len());
    assert_nothing_pending(&wheel).await;
}

#[tokio::test(start_paused = true)]
async fn counts_no_time_in_which_nobody_asks() {
    let wheel = TimerWheel::new();
    let mut body = TimeoutBody::new(&wheel, LIMIT, pieces(&[JUST_BEFORE; 3]));
    for _ in 0..3 {
        sleep(LIMIT * 3).await;
        assert!(body.frame().await.unwrap().is_ok());
    }
    assert!(body.frame().await.is_none());
}

/// One sleep serves a whole body: it is moved for each frame, not made.
#[tokio::test(start_paused = true)]
async fn uses_one_sleep_for_all_frames() {
    let wheel = TimerWheel::new();
    let body = TimeoutBody::new(&wheel, LIMIT, pieces(&[Duration::from_secs(1); 20]));
    body.collect().await.unwrap();
    let metrics = wheel.metrics();
    // The first wait arms it.
    assert_eq!((metrics.sleeps_made, metrics.sleeps_moved), (1, 19));
}

#[tokio::test(start_paused = true)]
async fn takes_any_limit_on_frames() {
    let wheel = TimerWheel::new();
    let year = Duration::from_secs(365 * 86_400);
    let body = TimeoutBody::new(&wheel, Duration::MAX, pieces(&[year]));
    assert!(body.collect().await.is_ok());
    let start = Instant::now();
    let body = TimeoutBody::new(&wheel, Duration::ZERO, pieces(&[Duration::from_secs(1)]));
    assert!(body.collect().await.is_err());
    assert_eq!(start.elapsed(), Duration::ZERO);
}

/// Fails at once.
struct Broken;

impl hyper::body::Body for Broken {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, std::io::Error>>> {
        Poll::Ready(Some(Err(std::io::ErrorKind::ConnectionReset.into())))
    }
}

#[tokio::test(start_paused = true)]
async fn passes_errors_ends_and_sizes_through() {
    let wheel = TimerWheel::new();
    let error = TimeoutBody::new(&wheel, LIMIT, Broken).collect().await;
    assert!(error.unwrap_err().is::<std::io::Error>());
    let mut body = TimeoutBody::new(&wheel, LIMIT, Full::<Bytes>::from("hello"));
    assert_eq!(body.size_hint().exact(), Some(5));
    assert!(!body.is_end_stream());
    assert!(body.frame().await.unwrap().is_ok());
    assert!(body.is_end_stream());
}

#[tokio::test(start_paused = true)]
async fn limits_the_body_of_a_request_in_axum() {
    let wheel = TimerWheel::new();
    let read = |body: Body| async move {
        match body.collect().await {
            Ok(_) => StatusCode::OK,
            Err(_) => StatusCode::REQUEST_TIMEOUT,
        }
    };
    let application = Router::new()
        .route("/", post(read))
        .layer(RequestBodyTimeoutLayer::new(&wheel, LIMIT));
    let ask = async |pauses| {
        let request = Request::post("/").body(Body::new(pieces(pauses))).unwrap();
        application.clone().oneshot(request).await.unwrap().status()
    };
    assert_eq!(ask(&[JUST_BEFORE; 2]).await, StatusCode::OK);
    assert_eq!(ask(&[LIMIT * 2]).await, StatusCode::REQUEST_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn limits_the_body_of_a_response() {
    let wheel = TimerWheel::new();
    let respond = async |pauses: &[Duration]| Ok::<_, Infallible>(Response::new(pieces(pauses)));
    let service = ServiceBuilder::new()
        .layer(ResponseBodyTimeoutLayer::new(&wheel, LIMIT))
        .service(service_fn(respond));
    let steady = service.clone().oneshot(&[JUST_BEFORE; 2]).await.unwrap();
    assert!(steady.into_body().collect().await.is_ok());
    let stalled = service.oneshot(&[Duration::MAX]).await.unwrap();
    assert!(stalled.into_body().collect().await.is_err());
}
