//! Servers and clients on hyper, axum, tower and quinn. Documentation only.
//!
//! The [`adapters`](crate::adapters) put the wheel behind the timer interfaces of other crates.
//!
//! | you have | feature | do |
//! |---|---|---|
//! | axum | `axum` | `axum::serve(IdleListener::new(listener, &wheel, idle), app)`, and `drain(listener, signal)` for a graceful stop |
//! | axum, or another stack of tower layers | `tower` | `.layer(StatusTimeoutLayer::new(&wheel, limit, status))`, or `TimeoutLayer` where the caller handles the error |
//! | bodies that may stall | `tower` | `RequestBodyTimeoutLayer`, `ResponseBodyTimeoutLayer`, or a `TimeoutBody` |
//! | a server or client on hyper or hyper-util | `hyper` | pass the wheel to `timer(..)`, for `header_read_timeout`, HTTP/2 pings and pools |
//! | a QUIC endpoint of quinn | `quinn` | `Endpoint::new(.., Arc::new(WheelRuntime::new(&wheel)))` |
//! | an exporter of the metrics facade | `metrics` | `tokio::spawn(Reporter::new(&wheel).run(period))` |
//! | `backon` | none | `.sleep(move \|delay\| wheel.sleep(delay))` |
//! | the AWS SDK | none | an `AsyncSleep` of eight lines; the example `aws_sleep` has them |
//!
//! A server has four things to limit:
//!
//! | what takes too long | limit |
//! |---|---|
//! | the handler | `StatusTimeoutLayer` |
//! | a body that the client sends or takes | `RequestBodyTimeoutLayer`; for responses, [`IdleLimits::write`](crate::IdleLimits::write) on the stream |
//! | the head of a request | hyper's `header_read_timeout`; [`IdleLimits::read`](crate::IdleLimits::read), longer than any handler takes, where hyper is hidden |
//! | the next request, while none is in flight | [`IdleLimits::keep_alive`](crate::IdleLimits::keep_alive) on the stream |
//!
//! `keep_alive` does cut a response that has begun and then pauses for longer than the limit: for
//! server-sent events and the like, hold a [`BusyGuard`] for each request. The feature `axum` has a
//! listener with these limits, and its [module](crate::adapters) says which connections it closes
//! when. A stop by axum alone cuts the requests that lie unread in sockets; `drain` answers them
//! first:
//!
//! ```ignore
//! use tickwheel::adapters::axum::{IdleListener, drain};
//! use tickwheel::adapters::tower::StatusTimeoutLayer;
//!
//! async fn serve(
//!     listener: TcpListener,
//!     wheel: &TimerWheel,
//!     idle: Duration,
//!     app: Router,
//!     stop: impl Future<Output = ()> + Send + 'static,
//! ) -> io::Result<()> {
//!     let limit = Duration::from_secs(10);
//!     let app = app.layer(StatusTimeoutLayer::new(
//!         wheel,
//!         limit,
//!         StatusCode::REQUEST_TIMEOUT,
//!     ));
//!     // Half a request looks like one that is being handled: the second limit, longer than any handler takes, ends it.
//!     let limits = IdleLimits::none().keep_alive(idle).read(idle + 3 * limit);
//!     let (listener, drained) = drain(listener, stop);
//!     let listener = IdleListener::with_limits(listener, wheel, limits);
//!     axum::serve(
//!         listener,
//!         app.into_make_service_with_connect_info::<SocketAddr>(),
//!     )
//!     .with_graceful_shutdown(drained)
//!     .await
//! }
//! ```
//!
//! This is from the example `axum_service` in the repository.

// For the links above.
#[allow(unused_imports)]
use crate::BusyGuard;
