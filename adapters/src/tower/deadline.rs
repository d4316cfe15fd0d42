//! A deadline for a whole request, which the client names in a header.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Request, Response, StatusCode};
use pin_project_lite::pin_project;
use tickwheel::{Timeout as WheelTimeout, TimerWheel};
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

use super::{Limit, TimeoutBody};

/// Limits each whole request, from the call to the end of the response's body, to the time that its
/// client gives in a header.
///
/// | header | value | example |
/// |---|---|---|
/// | `grpc-timeout` | up to eight digits and a unit: `H`, `M`, `S`, `m`, `u` or `n`, as gRPC has it | `250m` for 250 ms |
/// | `x-request-timeout` | seconds, perhaps with a fraction | `1.5` |
///
/// The shortest of these and of the layer's own longest time counts. A header that cannot be read
/// is ignored.
///
/// If there is no response by the deadline, the layer responds with its status, or to a gRPC
/// request with `DEADLINE_EXCEEDED`. If the body has not ended by then, it fails with
/// [`Elapsed`](tickwheel::Elapsed), and the server ends the connection or the stream.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use http::{Request, Response, StatusCode};
/// use tickwheel::TimerWheel;
/// use tickwheel_adapters::tower::{BoxError, DeadlineLayer};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let wheel = TimerWheel::new();
/// let longest = Duration::from_secs(30);
/// let service = ServiceBuilder::new()
///     .layer(DeadlineLayer::new(&wheel, longest, StatusCode::GATEWAY_TIMEOUT))
///     .service(service_fn(|_: Request<()>| async {
///         tokio::time::sleep(Duration::from_secs(2)).await;
///         Ok::<_, BoxError>(Response::new(String::new()))
///     }));
///
/// let hasty = Request::builder().header("x-request-timeout", "0.5").body(())?;
/// assert_eq!(service.clone().oneshot(hasty).await?.status(), StatusCode::GATEWAY_TIMEOUT);
/// assert_eq!(service.oneshot(Request::new(())).await?.status(), StatusCode::OK);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct DeadlineLayer {
    longest: Limit,
    status: StatusCode,
}

impl DeadlineLayer {
    /// Limits each request to what its client asks for, and to `longest` at most, by timers on
    /// `wheel`. Then it responds with `status`.
    pub fn new(wheel: &TimerWheel, longest: Duration, status: StatusCode) -> Self {
        DeadlineLayer {
            longest: Limit::new(wheel, longest),
            status,
        }
    }
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Deadline<S> {
        Deadline {
            inner,
            longest: self.longest.clone(),
            status: self.status,
        }
    }
}

/// An HTTP service whose requests have the deadlines of their clients. Made by [`DeadlineLayer`].
#[derive(Debug, Clone)]
pub struct Deadline<S> {
    inner: S,
    longest: Limit,
    status: StatusCode,
}

impl<S, B, R> Service<Request<B>> for Deadline<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Default,
{
    type Response = Response<TimeoutBody<R>>;
    type Error = S::Error;
    type Future = DeadlineFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let headers = request.headers();
        let asked = [
            parsed(headers, "grpc-timeout", grpc_timeout),
            parsed(headers, "x-request-timeout", seconds),
        ];
        let longest = self.longest.duration();
        let limit = asked.into_iter().flatten().fold(longest, Duration::min);
        let is_grpc = headers
            .get(CONTENT_TYPE)
            .and_then(|of| of.as_bytes().strip_prefix(b"application/grpc"))
            .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')));
        let wheel = self.longest.wheel();
        DeadlineFuture {
            // One that cannot be represented never comes.
            deadline: Instant::now().checked_add(limit),
            timeout: wheel.timeout(limit, self.inner.call(request)),
            wheel: wheel.clone(),
            status: (!is_grpc).then_some(self.status),
        }
    }
}

fn parsed(
    headers: &HeaderMap,
    name: &str,
    parse: fn(&str) -> Option<Duration>,
) -> Option<Duration> {
    parse(headers.get(name)?.to_str().ok()?.trim())
}

fn grpc_timeout(value: &str) -> Option<Duration> {
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
    if digits.len() > 8 || !is_number {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

fn seconds(value: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(value.parse().ok()?).ok()
}

pin_project! {
    /// The response of a [`Deadline`].
    #[derive(Debug)]
    pub struct DeadlineFuture<F> {
        #[pin]
        timeout: WheelTimeout<F>,
        wheel: TimerWheel,
        deadline: Option<Instant>,
        // `None` for gRPC.
        status: Option<StatusCode>,
    }
}

impl<F, B, E> Future for DeadlineFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Default,
{
    type Output = Result<Response<TimeoutBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Ok(response) = ready!(this.timeout.poll(cx)) else {
            return Poll::Ready(Ok(exceeded(*this.status)));
        };
        let total = this.deadline.map(|at| this.wheel.sleep_until(at));
        Poll::Ready(response.map(|response| response.map(|body| TimeoutBody::until(total, body))))
    }
}

/// The response to a request that took too long; `None` is for gRPC.
fn exceeded<B: Default>(status: Option<StatusCode>) -> Response<B> {
    let mut response = Response::new(B::default());
    if let Some(status) = status {
        *response.status_mut() = status;
        return response;
    }
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from_static("4"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_timeouts_are_read_as_specified() {
        for (value, expected) in [
            ("1H", Some(Duration::from_secs(3_600))),
            ("2M", Some(Duration::from_secs(120))),
            ("3S", Some(Duration::from_secs(3))),
            ("250m", Some(Duration::from_millis(250))),
            ("99999999u", Some(Duration::from_micros(99_999_999))),
            ("0n", Some(Duration::ZERO)),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3_600))),
            ("100000000S", None),
            ("", None),
            ("S", None),
            ("5", None),
            ("5s", None),
            ("-5S", None),
            ("+5S", None),
            ("5é", None),
        ] {
            assert_eq!(grpc_timeout(value), expected, "{value}");
        }
    }

    #[test]
    fn seconds_may_have_a_fraction_and_no_sign() {
        for (value, expected) in [
            ("1.5", Some(Duration::from_millis(1_500))),
            ("2", Some(Duration::from_secs(2))),
            ("0", Some(Duration::ZERO)),
            ("-1", None),
            ("NaN", None),
            ("inf", None),
            ("1e300", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(seconds(value), expected, "{value}");
        }
    }
}
