//! A limit on the time until an HTTP response. Past the limit, the response is a status.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Response, StatusCode};
use pin_project_lite::pin_project;
use tickwheel::{Timeout as WheelTimeout, TimerWheel};
use tower_layer::Layer;
use tower_service::Service;

use super::Limit;

/// Responds with a status when a request takes longer than a limit.
///
/// The service keeps its error type, so the layer fits into axum's `Router::layer`. The usual
/// statuses are [`StatusCode::REQUEST_TIMEOUT`] and, where the service waits for another server,
/// [`StatusCode::GATEWAY_TIMEOUT`].
#[derive(Debug, Clone)]
pub struct StatusTimeoutLayer {
    limit: Limit,
    status: StatusCode,
}

impl StatusTimeoutLayer {
    /// Responds with `status` after `limit`, by timers on `wheel`.
    pub fn new(wheel: &TimerWheel, limit: Duration, status: StatusCode) -> Self {
        StatusTimeoutLayer {
            limit: Limit::new(wheel, limit),
            status,
        }
    }
}

impl<S> Layer<S> for StatusTimeoutLayer {
    type Service = StatusTimeout<S>;

    fn layer(&self, inner: S) -> StatusTimeout<S> {
        StatusTimeout {
            inner,
            limit: self.limit.clone(),
            status: self.status,
        }
    }
}

/// An HTTP service that responds with a status when a request takes longer than a limit. Made by
/// [`StatusTimeoutLayer`].
#[derive(Debug, Clone)]
pub struct StatusTimeout<S> {
    inner: S,
    limit: Limit,
    status: StatusCode,
}

impl<S, Request, Body> Service<Request> for StatusTimeout<S>
where
    S: Service<Request, Response = Response<Body>>,
    Body: Default,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = StatusFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        StatusFuture {
            timeout: self.limit.timeout(self.inner.call(request)),
            status: self.status,
        }
    }
}

pin_project! {
    /// The response of a [`StatusTimeout`]; one with an empty body once the limit has passed.
    #[derive(Debug)]
    pub struct StatusFuture<F> {
        #[pin]
        timeout: WheelTimeout<F>,
        status: StatusCode,
    }
}

impl<F, Body, E> Future for StatusFuture<F>
where
    F: Future<Output = Result<Response<Body>, E>>,
    Body: Default,
{
    type Output = Result<Response<Body>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let outcome = ready!(this.timeout.poll(cx));
        Poll::Ready(outcome.unwrap_or_else(|_elapsed| {
            let mut response = Response::new(Body::default());
            *response.status_mut() = *this.status;
            Ok(response)
        }))
    }
}
