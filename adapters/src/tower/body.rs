//! Limits on the wait for each frame of a body, and on all of it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tickwheel::{Elapsed, Sleep, TimerWheel};
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

use super::{BoxError, Limit};

pin_project! {
    /// A body that fails with [`Elapsed`] when the next frame takes longer than a limit, or all of
    /// it longer than a [total](Self::with_total).
    ///
    /// The limit counts from the poll that finds no frame, and again for each frame: a slow body of
    /// any length passes, a stalled one does not. Time without a poll does not count. The total
    /// counts from the beginning, without a poll too: it ends a body that trickles.
    ///
    /// The [`Default`] body is the default of `B`, without a limit: a layer around
    /// [`ResponseBodyTimeoutLayer`] can respond with an empty body.
    #[derive(Debug, Default)]
    pub struct TimeoutBody<B> {
        #[pin]
        body: B,
        limit: Option<FrameLimit>,
        // Fires when all of it has taken too long.
        total: Option<Sleep>,
    }
}

/// The limit on the wait for a frame.
#[derive(Debug)]
struct FrameLimit {
    sleep: Sleep,
    duration: Duration,
    // Whether a frame is awaited, so that the sleep has its deadline.
    is_awaited: bool,
}

impl<B> TimeoutBody<B> {
    /// Limits the wait for each frame of `body` to `limit`, by a timer on `wheel`.
    pub fn new(wheel: &TimerWheel, limit: Duration, body: B) -> Self {
        Self::with(wheel.sleep(limit), limit, body)
    }

    /// Limits all of the body too, to `total` from this call on, by a timer on `wheel`.
    ///
    /// # Examples
    ///
    /// Five seconds for each frame, and a minute for the upload:
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tickwheel::TimerWheel;
    /// # use tickwheel_adapters::tower::TimeoutBody;
    /// # fn limited<B>(wheel: &TimerWheel, body: B) -> TimeoutBody<B> {
    /// TimeoutBody::new(wheel, Duration::from_secs(5), body).with_total(wheel,
    /// Duration::from_secs(60))
    /// # }
    /// ```
    #[must_use]
    pub fn with_total(self, wheel: &TimerWheel, total: Duration) -> Self {
        TimeoutBody {
            total: Some(wheel.sleep(total)),
            ..self
        }
    }

    /// Limits all of `body` alone.
    pub(super) fn until(total: Option<Sleep>, body: B) -> Self {
        TimeoutBody {
            body,
            limit: None,
            total,
        }
    }

    fn with(sleep: Sleep, limit: Duration, body: B) -> Self {
        let limit = FrameLimit {
            sleep,
            duration: limit,
            is_awaited: false,
        };
        TimeoutBody {
            body,
            limit: Some(limit),
            total: None,
        }
    }
}

/// The limits of a layer.
#[derive(Debug, Clone)]
struct BodyLimits {
    frame: Limit,
    total: Option<Duration>,
}

impl BodyLimits {
    fn new(wheel: &TimerWheel, limit: Duration) -> Self {
        BodyLimits {
            frame: Limit::new(wheel, limit),
            total: None,
        }
    }

    fn body<B>(&self, body: B) -> TimeoutBody<B> {
        let body = TimeoutBody::with(self.frame.sleep(), self.frame.duration(), body);
        match self.total {
            Some(total) => body.with_total(self.frame.wheel(), total),
            None => body,
        }
    }
}

impl<B> Body for TimeoutBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let this = self.project();
        let polled = this.body.poll_frame(cx);
        if !matches!(polled, Poll::Ready(None))
            && (this.total.as_mut()).is_some_and(|total| Pin::new(total).poll(cx).is_ready())
        {
            return Poll::Ready(Some(Err(Elapsed::new().into())));
        }
        let Some(limit) = this.limit else {
            return polled.map_err(Into::into);
        };
        if let Poll::Ready(frame) = polled {
            limit.is_awaited = false;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        if !limit.is_awaited {
            limit.is_awaited = true;
            // The sleep was made for the same duration: one that cannot be represented never ends.
            if let Some(deadline) = Instant::now().checked_add(limit.duration) {
                limit.sleep.set_deadline(deadline);
            }
        }
        ready!(Pin::new(&mut limit.sleep).poll(cx));
        limit.is_awaited = false;
        Poll::Ready(Some(Err(Elapsed::new().into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Limits the wait for each frame of a request's body, and perhaps all of it: see [`TimeoutBody`].
#[derive(Debug, Clone)]
pub struct RequestBodyTimeoutLayer {
    limits: BodyLimits,
}

impl RequestBodyTimeoutLayer {
    /// Limits the wait for each frame to `limit`, by timers on `wheel`.
    pub fn new(wheel: &TimerWheel, limit: Duration) -> Self {
        RequestBodyTimeoutLayer {
            limits: BodyLimits::new(wheel, limit),
        }
    }

    /// Limits each whole body too: see [`TimeoutBody::with_total`].
    #[must_use]
    pub fn with_total(mut self, total: Duration) -> Self {
        self.limits.total = Some(total);
        self
    }
}

impl<S> Layer<S> for RequestBodyTimeoutLayer {
    type Service = RequestBodyTimeout<S>;

    fn layer(&self, inner: S) -> RequestBodyTimeout<S> {
        RequestBodyTimeout {
            inner,
            limits: self.limits.clone(),
        }
    }
}

/// A service that gives each request a [`TimeoutBody`]. Made by [`RequestBodyTimeoutLayer`].
#[derive(Debug, Clone)]
pub struct RequestBodyTimeout<S> {
    inner: S,
    limits: BodyLimits,
}

impl<S, B> Service<Request<B>> for RequestBodyTimeout<S>
where
    S: Service<Request<TimeoutBody<B>>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        let request = request.map(|body| self.limits.body(body));
        self.inner.call(request)
    }
}

/// Limits the wait for each frame of a response's body, and perhaps all of it: see [`TimeoutBody`].
#[derive(Debug, Clone)]
pub struct ResponseBodyTimeoutLayer {
    limits: BodyLimits,
}

impl ResponseBodyTimeoutLayer {
    /// Limits the wait for each frame to `limit`, by timers on `wheel`.
    pub fn new(wheel: &TimerWheel, limit: Duration) -> Self {
        ResponseBodyTimeoutLayer {
            limits: BodyLimits::new(wheel, limit),
        }
    }

    /// Limits each whole body too: see [`TimeoutBody::with_total`].
    #[must_use]
    pub fn with_total(mut self, total: Duration) -> Self {
        self.limits.total = Some(total);
        self
    }
}

impl<S> Layer<S> for ResponseBodyTimeoutLayer {
    type Service = ResponseBodyTimeout<S>;

    fn layer(&self, inner: S) -> ResponseBodyTimeout<S> {
        ResponseBodyTimeout {
            inner,
            limits: self.limits.clone(),
        }
    }
}

/// A service that gives each response a [`TimeoutBody`]. Made by [`ResponseBodyTimeoutLayer`].
#[derive(Debug, Clone)]
pub struct ResponseBodyTimeout<S> {
    inner: S,
    limits: BodyLimits,
}

impl<S, R, B> Service<R> for ResponseBodyTimeout<S>
where
    S: Service<R, Response = Response<B>>,
{
    type Response = Response<TimeoutBody<B>>;
    type Error = S::Error;
    type Future = ResponseBodyFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        ResponseBodyFuture {
            response: self.inner.call(request),
            limits: self.limits.clone(),
        }
    }
}

pin_project! {
    /// The response of a [`ResponseBodyTimeout`].
    #[derive(Debug)]
    pub struct ResponseBodyFuture<F> {
        #[pin]
        response: F,
        limits: BodyLimits,
    }
}

impl<F, B, E> Future for ResponseBodyFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<TimeoutBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.response.poll(cx))?;
        Poll::Ready(Ok(response.map(|body| this.limits.body(body))))
    }
}
