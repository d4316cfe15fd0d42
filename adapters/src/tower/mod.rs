//! Layers that limit how long requests, responses and bodies take, on the wheel.
//!
//! | layer | limits | then |
//! |---|---|---|
//! | [`TimeoutLayer`] | the time from a call until its response | the call fails with [`Elapsed`](tickwheel::Elapsed) in a [`BoxError`], as with `tower::timeout` |
//! | [`StatusTimeoutLayer`] | the same, of an HTTP service | the response is an empty one with a status of your choice, as with `tower_http::timeout` |
//! | [`DeadlineLayer`] | a whole request, to the time that its client gives in a header | the response is one with a status of your choice, or `DEADLINE_EXCEEDED`; a body that has begun fails |
//! | [`RequestBodyTimeoutLayer`] | the wait for each frame of a request's body, and all of it | reading the body fails with [`Elapsed`](tickwheel::Elapsed) in a [`BoxError`] |
//! | [`ResponseBodyTimeoutLayer`] | the wait for each frame of a response's body, and all of it | the body fails with [`Elapsed`](tickwheel::Elapsed) in a [`BoxError`], and the server ends the connection |
//!
//! A request that completes in time costs what [`TimerWheel::timeout`] costs, and one change of a
//! count that the layer's services share. A call or body that is dropped leaves no timer behind.
//!
//! With axum, [`StatusTimeoutLayer`] fits into `Router::layer` as it is, because it adds no error.
//! [`TimeoutLayer`] goes below axum's `HandleErrorLayer`, which gets the [`BoxError`]. The
//! [front page](crate#an-axum-server) has a whole axum server.
//!
//! The layers fit together in any order. The body of a response that [`StatusTimeoutLayer`] makes
//! is the default one, without a limit.
//!
//! # A stalled body is a 408
//!
//! A body that stalls is an error of the handler's extractor, and axum makes 400 of errors that it
//! does not know. A handler that takes a `Result` finds [`Elapsed`](tickwheel::Elapsed) among the
//! sources of the rejection:
//!
//! ```
//! use std::error::Error;
//! use std::iter::successors;
//!
//! /// Whether an error is, or was caused by, a limit that has passed.
//! fn is_elapsed(error: &(dyn Error + 'static)) -> bool {
//!     successors(Some(error), |&error| error.source()).any(<dyn Error>::is::<tickwheel::Elapsed>)
//! }
//! # let error = std::io::Error::other(Box::<dyn Error + Send + Sync>::from("another"));
//! # assert!(!is_elapsed(&error));
//! ```
//!
//! ```ignore
//! async fn upload(body: Result<Bytes, BytesRejection>) -> Result<Bytes, StatusCode> {
//!     body.map_err(|rejection| match rejection.status() {
//!         _ if is_elapsed(&rejection) => StatusCode::REQUEST_TIMEOUT,
//!         status => status,
//!     })
//! }
//! ```
//!
//! # gRPC
//!
//! A gRPC call that takes too long should return `DEADLINE_EXCEEDED`, which is a header and not an
//! HTTP status. [`DeadlineLayer`] does so, for the client's deadline and for a longest one. Or map
//! the error of [`TimeoutLayer`]. With tonic the response is
//! `Status::deadline_exceeded("..").into_http()`; these are its headers:
//!
//! ```
//! use std::time::Duration;
//!
//! use http::{Request, Response};
//! use tickwheel_adapters::tower::{BoxError, TimeoutLayer};
//! use tickwheel::{Elapsed, TimerWheel};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! fn deadline_exceeded<B: Default>() -> Response<B> {
//!     let mut response = Response::new(B::default());
//!     let headers = response.headers_mut();
//!     headers.insert("content-type", http::HeaderValue::from_static("application/grpc"));
//!     headers.insert("grpc-status", http::HeaderValue::from_static("4"));
//!     response
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! let wheel = TimerWheel::new();
//! let service = ServiceBuilder::new()
//!     .map_result(|outcome: Result<Response<String>, BoxError>| match outcome {
//!         Err(error) if error.is::<Elapsed>() => Ok(deadline_exceeded()),
//!         outcome => outcome,
//!     })
//!     .layer(TimeoutLayer::new(&wheel, Duration::from_secs(1)))
//!     .service(service_fn(|_: Request<String>| async {
//!         tokio::time::sleep(Duration::from_secs(2)).await;
//!         Ok::<_, BoxError>(Response::new("too late".to_owned()))
//!     }));
//!
//! let response = service.oneshot(Request::default()).await?;
//! assert_eq!(response.headers()["grpc-status"], "4");
//! # Ok(())
//! # }
//! ```
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//!
//! use tickwheel_adapters::tower::{BoxError, TimeoutLayer};
//! use tickwheel::{Elapsed, TimerWheel};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let wheel = TimerWheel::new();
//! let service = ServiceBuilder::new()
//!     .layer(TimeoutLayer::new(&wheel, Duration::from_secs(1)))
//!     .service(service_fn(|seconds: u64| async move {
//!         tokio::time::sleep(Duration::from_secs(seconds)).await;
//!         Ok::<_, BoxError>("done")
//!     }));
//!
//! assert_eq!(service.clone().oneshot(0).await.unwrap(), "done");
//! assert!(service.oneshot(2).await.unwrap_err().is::<Elapsed>());
//! # }
//! ```
//!
//! [`TimerWheel::timeout`]: tickwheel::TimerWheel::timeout

mod body;
mod deadline;
mod status;
mod timeout;

use std::error::Error;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

pub use body::{
    RequestBodyTimeout, RequestBodyTimeoutLayer, ResponseBodyFuture, ResponseBodyTimeout,
    ResponseBodyTimeoutLayer, TimeoutBody,
};
pub use deadline::{Deadline, DeadlineFuture, DeadlineLayer};
pub use status::{StatusFuture, StatusTimeout, StatusTimeoutLayer};
pub use timeout::{ResponseFuture, Timeout, TimeoutLayer};

use tickwheel::{Sleep, Timeout as WheelTimeout, TimerWheel};

/// The error of most tower services; the same type as `tower::BoxError`.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A wheel and a duration. Servers clone their services for each connection or request; cloning
/// this changes one count where a wheel has two.
#[derive(Debug, Clone)]
struct Limit(Arc<(TimerWheel, Duration)>);

impl Limit {
    fn new(wheel: &TimerWheel, duration: Duration) -> Self {
        Limit(Arc::new((wheel.clone(), duration)))
    }

    fn duration(&self) -> Duration {
        self.0.1
    }

    fn wheel(&self) -> &TimerWheel {
        &self.0.0
    }

    fn sleep(&self) -> Sleep {
        self.wheel().sleep(self.duration())
    }

    fn timeout<F: IntoFuture>(&self, future: F) -> WheelTimeout<F::IntoFuture> {
        self.wheel().timeout(self.duration(), future)
    }
}
