//! Bodies that stall.

use std::convert::Infallible;
use std::error::Error;
use std::iter::successors;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::start_wheel;
use axum::extract::rejection::BytesRejection;
use axum::http::{Request, Response, StatusCode};
use axum::{Router, body::Body, routing::post};
use http_body_util::{BodyExt, Full, channel::Channel};
use hyper::body::{Body as _, Bytes};
use tickwheel::Elapsed;
use tickwheel_adapters::tower::{
    BoxError, RequestBodyTimeoutLayer, ResponseBodyTimeoutLayer, StatusTimeoutLayer, TimeoutBody,
    TimeoutLayer,
};
use tokio::time::{Instant, sleep};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use super::{JUST_BEFORE, LIMIT, assert_nothing_pending};

/// A body that gives a piece after each of these pauses.
pub(super) fn pieces(pauses: &[Duration]) -> Channel<Bytes, Infallible> {
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
    let wheel = start_wheel();
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
    let wheel = start_wheel();
    let body = TimeoutBody::new(&wheel, LIMIT, pieces(&[JUST_BEFORE; 20]));
    let whole = body.collect().await.unwrap().to_bytes();
    assert_eq!(whole.len(), 20 * "piece".len());
    assert_nothing_pending(&wheel).await;
}

// A body of 200 ms a frame took seconds, and had no limit that ended it.
#[tokio::test(start_paused = true)]
async fn total_ends_a_body_that_trickles() {
    let wheel = start_wheel();
    let start = Instant::now();
    let body = TimeoutBody::new(&wheel, LIMIT, pieces(&[JUST_BEFORE; 20]));
    let mut body = body.with_total(&wheel, LIMIT * 3);
    for _ in 0..3 {
        assert!(body.frame().await.unwrap().is_ok());
    }
    let error = body.frame().await.unwrap().unwrap_err();
    assert!(error.is::<Elapsed>(), "{error}");
    assert_eq!(start.elapsed(), LIMIT * 3);
    assert!(body.frame().await.unwrap().is_err(), "it stays so");
    drop(body);
    assert_nothing_pending(&wheel).await;
}

#[tokio::test(start_paused = true)]
async fn total_counts_while_no_task_asks_and_spares_a_body_that_has_ended() {
    let wheel = start_wheel();
    let full = || Full::new(Bytes::from_static(b"piece"));
    let mut late = TimeoutBody::new(&wheel, LIMIT, full()).with_total(&wheel, LIMIT);
    let mut ended = TimeoutBody::new(&wheel, LIMIT, full()).with_total(&wheel, LIMIT);
    assert!(ended.frame().await.unwrap().is_ok());
    sleep(LIMIT).await;
    assert!(ended.frame().await.is_none());
    assert!(late.frame().await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn layers_limit_all_of_a_body() {
    let wheel = start_wheel();
    let request = ServiceBuilder::new()
        .layer(RequestBodyTimeoutLayer::new(&wheel, LIMIT).with_total(LIMIT * 2))
        .service(service_fn(|request: Request<TimeoutBody<_>>| async {
            request.into_body().collect().await.map(|_| ())
        }));
    let start = Instant::now();
    let trickle = Request::new(pieces(&[JUST_BEFORE; 20]));
    assert!(request.oneshot(trickle).await.unwrap_err().is::<Elapsed>());
    assert_eq!(start.elapsed(), LIMIT * 2);
    let response = ServiceBuilder::new()
        .layer(ResponseBodyTimeoutLayer::new(&wheel, LIMIT).with_total(LIMIT * 2))
        .service(service_fn(|(): ()| async {
            Ok::<_, Infallible>(Response::new(pieces(&[JUST_BEFORE; 20])))
        }));
    let response = response.oneshot(()).await.unwrap();
    let start = Instant::now();
    assert!(
        response
            .into_body()
            .collect()
            .await
            .unwrap_err()
            .is::<Elapsed>()
    );
    assert_eq!(start.elapsed(), LIMIT * 2);
}

#[tokio::test(start_paused = true)]
async fn counts_no_time_in_which_no_task_asks() {
    let wheel = start_wheel();
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
    let wheel = start_wheel();
    let body = TimeoutBody::new(&wheel, LIMIT, pieces(&[Duration::from_secs(1); 20]));
    body.collect().await.unwrap();
    let metrics = wheel.metrics();
    // The first wait arms it.
    assert_eq!((metrics.sleeps_made, metrics.sleeps_moved), (1, 19));
}

#[tokio::test(start_paused = true)]
async fn takes_any_limit_on_frames() {
    let wheel = start_wheel();
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
    let wheel = start_wheel();
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
    let wheel = start_wheel();
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

/// The case in the module's documentation: axum makes 400 of an error that it does not know.
#[tokio::test(start_paused = true)]
async fn stalled_body_is_found_among_the_sources_of_a_rejection() {
    let wheel = start_wheel();
    let is_elapsed = |error: &(dyn Error + 'static)| {
        successors(Some(error), |&error| error.source()).any(<dyn Error>::is::<Elapsed>)
    };
    let read = move |body: Result<Bytes, BytesRejection>| async move {
        body.map_err(|rejection| match rejection.status() {
            _ if is_elapsed(&rejection) => StatusCode::REQUEST_TIMEOUT,
            status => status,
        })
    };
    let application = Router::new()
        .route("/", post(read))
        .layer(RequestBodyTimeoutLayer::new(&wheel, LIMIT));
    let ask = async |body| {
        let request = Request::post("/").body(body).unwrap();
        application.clone().oneshot(request).await.unwrap().status()
    };
    assert_eq!(ask(Body::new(pieces(&[JUST_BEFORE]))).await, StatusCode::OK);
    let stalled = Body::new(pieces(&[LIMIT * 2]));
    assert_eq!(ask(stalled).await, StatusCode::REQUEST_TIMEOUT);
    assert_eq!(ask(Body::new(Broken)).await, StatusCode::BAD_REQUEST);
    let large = Body::from(vec![0; 3_000_000]);
    assert_eq!(ask(large).await, StatusCode::PAYLOAD_TOO_LARGE);
}

/// A status in front of a limited body did not compile: the layer needs a default body.
#[tokio::test(start_paused = true)]
async fn status_and_body_limits_stack_in_both_orders() {
    let wheel = start_wheel();
    let status = || StatusTimeoutLayer::new(&wheel, LIMIT, StatusCode::GATEWAY_TIMEOUT);
    let body = || ResponseBodyTimeoutLayer::new(&wheel, LIMIT);
    let respond = async |(head, pauses): (Duration, &[Duration])| {
        sleep(head).await;
        Ok::<_, Infallible>(Response::new(Body::new(pieces(pauses))))
    };
    let outer_status = ServiceBuilder::new().layer(status()).layer(body());
    let outer_body = ServiceBuilder::new().layer(body()).layer(status());
    let outer_status = outer_status.service(service_fn(respond));
    let outer_body = outer_body.service(service_fn(respond));

    let steady: (Duration, &[Duration]) = (JUST_BEFORE, &[JUST_BEFORE; 2]);
    let stalled: (Duration, &[Duration]) = (JUST_BEFORE, &[LIMIT * 2]);
    let late: (Duration, &[Duration]) = (LIMIT * 2, &[]);
    macro_rules! assert_limits {
        ($service:expr) => {
            let response = $service.clone().oneshot(steady).await.unwrap();
            let whole = response.into_body().collect().await.unwrap();
            assert_eq!(whole.to_bytes().len(), 2 * "piece".len());
            let response = $service.clone().oneshot(stalled).await.unwrap();
            let error = response.into_body().collect().await.unwrap_err();
            assert!(error.is::<Elapsed>(), "{error}");
            let response = $service.oneshot(late).await.unwrap();
            assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
            let empty = response.into_body().collect().await.unwrap();
            assert!(empty.to_bytes().is_empty());
        };
    }
    assert_limits!(outer_status);
    assert_limits!(outer_body);
    assert_nothing_pending(&wheel).await;
}

/// As the module's documentation maps an error for gRPC, in axum: the status is a header.
#[tokio::test(start_paused = true)]
async fn elapsed_limit_becomes_a_header_of_grpc() {
    let wheel = start_wheel();
    let service = ServiceBuilder::new()
        .map_result(|outcome: Result<Response<Body>, BoxError>| match outcome {
            Err(error) if error.is::<Elapsed>() => {
                let response = Response::builder().header("grpc-status", "4");
                Ok(response.body(Body::default())?)
            }
            outcome => outcome,
        })
        .layer(TimeoutLayer::new(&wheel, LIMIT))
        .service(service_fn(async |head: Duration| {
            sleep(head).await;
            Ok::<_, BoxError>(Response::new(Body::from("done")))
        }));
    let response = service.clone().oneshot(JUST_BEFORE).await.unwrap();
    assert!(!response.headers().contains_key("grpc-status"));
    let response = service.oneshot(LIMIT * 2).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "4");
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn limits_the_body_of_a_response() {
    let wheel = start_wheel();
    let respond = async |pauses: &[Duration]| Ok::<_, Infallible>(Response::new(pieces(pauses)));
    let service = ServiceBuilder::new()
        .layer(ResponseBodyTimeoutLayer::new(&wheel, LIMIT))
        .service(service_fn(respond));
    let steady = service.clone().oneshot(&[JUST_BEFORE; 2]).await.unwrap();
    assert!(steady.into_body().collect().await.is_ok());
    let stalled = service.oneshot(&[Duration::MAX]).await.unwrap();
    assert!(stalled.into_body().collect().await.is_err());
}
