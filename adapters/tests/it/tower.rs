//! The layers in real stacks of tower and axum, under the paused clock.

mod body;
mod deadline;

use std::convert::Infallible;
use std::future::{Future, pending, poll_fn, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::start_wheel;
use axum::error_handling::HandleErrorLayer;
use axum::http::{Request, Response, StatusCode};
use axum::{Router, body::Body, routing::get};
use tickwheel::{Elapsed, TimerWheel};
use tickwheel_adapters::tower::{BoxError, StatusTimeoutLayer, TimeoutLayer};
use tokio::time::{Instant, sleep};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

const LIMIT: Duration = Duration::from_secs(10);

/// A millisecond less.
const JUST_BEFORE: Duration = Duration::from_millis(9_999);

/// Responds after a duration.
async fn respond(after: Duration) -> Result<&'static str, BoxError> {
    sleep(after).await;
    Ok("done")
}

/// A sleep that was neither fired nor cancelled is left.
async fn assert_nothing_pending(wheel: &TimerWheel) {
    wheel.settle().await;
    assert_eq!(wheel.metrics().sleeps_pending, 0);
}

#[tokio::test(start_paused = true)]
async fn fails_at_the_limit_and_not_before() {
    let wheel = start_wheel();
    let start = Instant::now();
    let service = ServiceBuilder::new()
        .layer(TimeoutLayer::new(&wheel, LIMIT))
        .service(service_fn(respond));
    let error = service.oneshot(Duration::MAX).await.unwrap_err();
    assert!(error.is::<Elapsed>(), "{error}");
    assert_eq!(start.elapsed(), LIMIT);
    assert_eq!(wheel.metrics().sleeps_fired, 1);
}

#[tokio::test(start_paused = true)]
async fn passes_a_response_in_time_and_leaves_no_timer() {
    let wheel = start_wheel();
    let service = ServiceBuilder::new()
        .layer(TimeoutLayer::new(&wheel, LIMIT))
        .service(service_fn(respond));
    assert_eq!(service.oneshot(JUST_BEFORE).await.unwrap(), "done");
    assert_nothing_pending(&wheel).await;
    assert_eq!(wheel.metrics().sleeps_cancelled, 1);
}

#[tokio::test(start_paused = true)]
async fn leaves_no_timer_when_a_call_is_dropped() {
    let wheel = start_wheel();
    let mut service = ServiceBuilder::new()
        .layer(TimeoutLayer::new(&wheel, LIMIT))
        .service(service_fn(respond));
    let mut call = Box::pin(service.ready().await.unwrap().call(Duration::MAX));
    let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
    assert_eq!(wheel.metrics().sleeps_pending, 1);
    drop(call);
    assert_nothing_pending(&wheel).await;
}

#[derive(Debug, PartialEq)]
struct Refused;

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("refused")
    }
}

impl std::error::Error for Refused {}

#[tokio::test(start_paused = true)]
async fn passes_the_error_of_the_service_through() {
    let wheel = start_wheel();
    let service = ServiceBuilder::new()
        .layer(TimeoutLayer::new(&wheel, LIMIT))
        .service(service_fn(|()| ready(Err::<(), _>(Refused))));
    let error = service.oneshot(()).await.unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&Refused));
    // It was ready at once, so no timer was ever armed.
    assert_eq!(wheel.metrics().commands, 0);
}

/// Ready when it is told to be.
#[derive(Debug)]
struct Gate(Poll<Result<(), Refused>>);

impl Service<()> for Gate {
    type Response = ();
    type Error = Refused;
    type Future = std::future::Ready<Result<(), Refused>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refused>> {
        std::mem::replace(&mut self.0, Poll::Pending)
    }

    fn call(&mut self, (): ()) -> Self::Future {
        ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn passes_readiness_through() {
    let wheel = start_wheel();
    for state in [
        Poll::Pending,
        Poll::Ready(Ok(())),
        Poll::Ready(Err(Refused)),
    ] {
        let expected = match &state {
            Poll::Pending => "not ready",
            Poll::Ready(Ok(())) => "ready",
            Poll::Ready(Err(_)) => "refused",
        };
        let mut service = ServiceBuilder::new()
            .layer(TimeoutLayer::new(&wheel, LIMIT))
            .service(Gate(state));
        let polled = poll_fn(|cx| Poll::Ready(service.poll_ready(cx))).await;
        let seen = match polled {
            Poll::Pending => "not ready".to_owned(),
            Poll::Ready(Ok(())) => "ready".to_owned(),
            Poll::Ready(Err(error)) => error.to_string(),
        };
        assert_eq!(seen, expected);
    }
    // A service that is not ready is not limited: the caller decides how long it waits for that.
    assert_eq!(wheel.metrics().sleeps_made, 0);
}

#[tokio::test(start_paused = true)]
async fn takes_any_limit() {
    let wheel = start_wheel();
    let limited = |limit| {
        ServiceBuilder::new()
            .layer(TimeoutLayer::new(&wheel, limit))
            .service(service_fn(respond))
    };
    let year = Duration::from_secs(365 * 86_400);
    assert!(limited(Duration::MAX).oneshot(year).await.is_ok());
    // A response that is there at once counts, as with `TimerWheel::timeout`.
    assert!(
        limited(Duration::ZERO)
            .oneshot(Duration::ZERO)
            .await
            .is_ok()
    );
    let start = Instant::now();
    assert!(limited(Duration::ZERO).oneshot(year).await.is_err());
    assert_eq!(start.elapsed(), Duration::ZERO);
}

/// An axum application with a path that responds, and one that never does.
fn application() -> Router {
    Router::new()
        .route("/", get(|| async { "done" }))
        .route("/stuck", get(pending::<&'static str>))
}

async fn status(application: Router, path: &str) -> StatusCode {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response: Result<Response<Body>, Infallible> = application.oneshot(request).await;
    response.unwrap_or_else(|never| match never {}).status()
}

#[tokio::test(start_paused = true)]
async fn answers_with_a_status_in_axum() {
    let wheel = start_wheel();
    let layer = StatusTimeoutLayer::new(&wheel, LIMIT, StatusCode::GATEWAY_TIMEOUT);
    let application = application().layer(layer);
    let start = Instant::now();
    assert_eq!(status(application.clone(), "/").await, StatusCode::OK);
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(
        status(application, "/stuck").await,
        StatusCode::GATEWAY_TIMEOUT
    );
    assert_eq!(start.elapsed(), LIMIT);
    assert_nothing_pending(&wheel).await;
}

#[tokio::test(start_paused = true)]
async fn hands_its_error_to_the_handler_of_axum() {
    let wheel = start_wheel();
    let handle = |error: BoxError| async move {
        assert!(error.is::<Elapsed>());
        (StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    };
    let layers = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(handle))
        .layer(TimeoutLayer::new(&wheel, LIMIT));
    let application = application().layer(layers);
    assert_eq!(status(application.clone(), "/").await, StatusCode::OK);
    assert_eq!(
        status(application, "/stuck").await,
        StatusCode::SERVICE_UNAVAILABLE
    );
}

#[tokio::test(start_paused = true)]
async fn counts_the_limit_from_the_call() {
    let wheel = start_wheel();
    let mut service = ServiceBuilder::new()
        .layer(TimeoutLayer::new(&wheel, LIMIT))
        .service(service_fn(respond));
    let call = service.ready().await.unwrap().call(Duration::MAX);
    let mut call = pin!(call);
    sleep(LIMIT / 2).await;
    let start = Instant::now();
    assert!(call.as_mut().await.is_err());
    assert_eq!(start.elapsed(), LIMIT / 2);
}
