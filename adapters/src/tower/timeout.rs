//! A limit on the time until a response. Past the limit, the call fails.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tickwheel::{Timeout as WheelTimeout, TimerWheel};
use tower_layer::Layer;
use tower_service::Service;

use super::{BoxError, Limit};

/// Fails a call when its response takes longer than a limit. See the [module](super) for an
/// example.
#[derive(Debug, Clone)]
pub struct TimeoutLayer {
    limit: Limit,
}

impl TimeoutLayer {
    /// Limits calls to `limit`, by timers on `wheel`.
    pub fn new(wheel: &TimerWheel, limit: Duration) -> Self {
        TimeoutLayer {
            limit: Limit::new(wheel, limit),
        }
    }
}

impl<S> Layer<S> for TimeoutLayer {
    type Service = Timeout<S>;

    fn layer(&self, inner: S) -> Timeout<S> {
        Timeout {
            inner,
            limit: self.limit.clone(),
        }
    }
}

/// A service that fails a call when its response takes longer than a limit. Made by
/// [`TimeoutLayer`].
///
/// The limit counts from the call, not from when the service became ready.
#[derive(Debug, Clone)]
pub struct Timeout<S> {
    inner: S,
    limit: Limit,
}

impl<S, Request> Service<Request> for Timeout<S>
where
    S: Service<Request>,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        ResponseFuture {
            timeout: self.limit.timeout(self.inner.call(request)),
        }
    }
}

pin_project! {
    /// The response of a [`Timeout`]; [`Elapsed`](tickwheel::Elapsed) in the error once the limit
    /// has passed.
    #[derive(Debug)]
    pub struct ResponseFuture<F> {
        #[pin]
        timeout: WheelTimeout<F>,
    }
}

impl<F, Response, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response, E>>,
    E: Into<BoxError>,
{
    type Output = Result<Response, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match ready!(self.project().timeout.poll(cx)) {
            Ok(response) => response.map_err(Into::into),
            Err(elapsed) => Err(elapsed.into()),
        })
    }
}
