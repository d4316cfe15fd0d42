//! Layers that limit how long requests, responses and bodies take, on the wheel.
//!
//! | layer | limits | then |
//! |---|---|---|
//! | [`TimeoutLayer`] | the time from a call until its response | the call fails with [`Elapsed`](crate::Elapsed) in a [`BoxError`], as with `tower::timeout` |
//! | [`StatusTimeoutLayer`] | the same, of an HTTP service | the response is an empty one with a status of your choice, as with `tower_http::timeout` |
//! | [`RequestBodyTimeoutLayer`] | the wait for each frame of a request's body | reading the body fails with [`Elapsed`](crate::Elapsed) in a [`BoxError`] |
//! | [`ResponseBodyTimeoutLayer`] | the wait for each frame of a response's body | the same |
//!
//! All of them are made from a wheel. A request that completes in time costs what [`TimerWheel::timeout`] costs, and one
//! change of a count that the layer's services share. Whatever is dropped before it completes, a call or a body, leaves no
//! timer behind.
//!
//! With axum, [`StatusTimeoutLayer`] fits into `Router::layer` as it is, because it adds no error:
//! `.layer(StatusTimeoutLayer::new(&wheel, Duration::from_secs(10), StatusCode::REQUEST_TIMEOUT))`. [`TimeoutLayer`] goes
//! below axum's `HandleErrorLayer`, which gets the [`BoxError`]. The
//! [guide](crate::guide#with-hyper-tower-quinn-and-metrics) has a whole axum server, which also closes idle connections.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//!
//! use tickwheel::adapters::tower::{BoxError, TimeoutLayer};
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
//! [`TimerWheel::timeout`]: crate::TimerWheel::timeout

mod body;
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
pub use status::{StatusFuture, StatusTimeout, StatusTimeoutLayer};
pub use timeout::{ResponseFuture, Timeout, TimeoutLayer};

use crate::sleep::{Sleep, Timeout as WheelTimeout};
use crate::timer_wheel::TimerWheel;

/// The error of most tower services; the same type as `tower::BoxError`.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A wheel and a duration. Servers clone their services for each connection or request, and this is one count to change
/// where a wheel has two.
#[derive(Debug, Clone)]
struct Limit(Arc<(TimerWheel, Duration)>);

impl Limit {
    fn new(wheel: &TimerWheel, duration: Duration) -> Self {
        Limit(Arc::new((wheel.clone(), duration)))
    }

    fn duration(&self) -> Duration {
        self.0.1
    }

    fn sleep(&self) -> Sleep {
        self.0.0.sleep(self.duration())
    }

    fn timeout<F: IntoFuture>(&self, future: F) -> WheelTimeout<F::IntoFuture> {
        self.0.0.timeout(self.duration(), future)
    }
}
