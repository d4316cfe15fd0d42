//! Deadlines that clients name in headers.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::{Request, Response, StatusCode};
use axum::{Router, body::Body, routing::get};
use http_body_util::BodyExt;
use tickwheel::{Elapsed, TimerWheel};
use tickwheel_adapters::tower::DeadlineLayer;
use tokio::time::{Instant, sleep};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use super::body::pieces;
use super::{JUST_BEFORE, LIMIT, assert_nothing_pending};
use crate::start_wheel;

const SECOND: Duration = Duration::from_secs(1);

/// Responds after a minute, to a request with these headers. Returns the status and the gRPC
/// status, and how long that took.
async fn ask(wheel: &TimerWheel, headers: &[(&str, &str)]) -> (u16, Option<String>, Duration) {
    let service = ServiceBuilder::new()
        .layer(DeadlineLayer::new(
            wheel,
            LIMIT,
            StatusCode::GATEWAY_TIMEOUT,
        ))
        .service(service_fn(|_: Request<()>| async {
            sleep(Duration::from_secs(60)).await;
            Ok::<_, Infallible>(Response::new(String::new()))
        }));
    let mut request = Request::builder();
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let start = Instant::now();
    let response = service.oneshot(request.body(()).unwrap()).await.unwrap();
    let grpc = response.headers().get("grpc-status");
    let grpc = grpc.map(|status| status.to_str().unwrap().to_owned());
    (response.status().as_u16(), grpc, start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn shortest_of_headers_and_longest_time_counts() {
    let wheel = start_wheel();
    for (headers, expected) in [
        (&[][..], LIMIT),
        (&[("x-request-timeout", "1")], SECOND),
        (&[("x-request-timeout", "0.25")], SECOND / 4),
        (&[("grpc-timeout", "1S")], SECOND),
        (
            &[("grpc-timeout", "2S"), ("x-request-timeout", "1")],
            SECOND,
        ),
        (&[("grpc-timeout", "99999999H")], LIMIT),
        (&[("x-request-timeout", "0")], Duration::ZERO),
        (
            &[("x-request-timeout", "soon"), ("grpc-timeout", "5")],
            LIMIT,
        ),
    ] {
        let (status, grpc, took) = ask(&wheel, headers).await;
        assert_eq!((status, grpc, took), (504, None, expected), "{headers:?}");
    }
    assert_nothing_pending(&wheel).await;
}

#[tokio::test(start_paused = true)]
async fn grpc_request_gets_deadline_exceeded() {
    let headers = [
        ("content-type", "application/grpc+proto"),
        ("grpc-timeout", "1000m"),
    ];
    let exceeded = ask(&start_wheel(), &headers).await;
    assert_eq!(exceeded, (200, Some("4".to_owned()), SECOND));
}

#[tokio::test(start_paused = true)]
async fn body_that_has_begun_ends_at_the_deadline() {
    let wheel = start_wheel();
    let service = ServiceBuilder::new()
        .layer(DeadlineLayer::new(
            &wheel,
            LIMIT * 2,
            StatusCode::GATEWAY_TIMEOUT,
        ))
        .service(service_fn(|_: Request<()>| async {
            sleep(SECOND).await;
            Ok::<_, Infallible>(Response::new(Body::new(pieces(&[JUST_BEFORE; 20]))))
        }));
    let start = Instant::now();
    let response = service.oneshot(Request::new(())).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let error = response.into_body().collect().await.unwrap_err();
    assert!(error.is::<Elapsed>(), "{error}");
    assert_eq!(start.elapsed(), LIMIT * 2, "from the call on");
    assert_nothing_pending(&wheel).await;
}

#[tokio::test(start_paused = true)]
async fn fits_into_a_router_of_axum() {
    let wheel = start_wheel();
    let layer = DeadlineLayer::new(&wheel, LIMIT, StatusCode::GATEWAY_TIMEOUT);
    let app = Router::new().route("/", get(async || "hello")).layer(layer);
    let response = app.oneshot(Request::new(Body::empty())).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(&body[..], b"hello");
    assert_nothing_pending(&wheel).await;
}
