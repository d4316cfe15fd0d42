//! Puts servers and clients on the timing wheel of [`tickwheel`]: its timers behind the interfaces
//! of axum, hyper, tower, quinn and metrics.
//!
//! A server arms several timers for each request, and nearly all are cancelled. That is what the
//! wheel makes cheap. Each adapter has a feature, and none is on by default:
//!
//! | feature | you have | do |
//! |---|---|---|
//! | `axum` | a server on [axum](https://docs.rs/axum) | `axum::serve(IdleListener::with_limits(listener, &wheel, idle, limits), app)`, and `drain(listener, signal)` for a stop that cuts no request |
//! | `tower` | axum, tonic, or another stack of [tower](https://docs.rs/tower) layers | `.layer(StatusTimeoutLayer::new(&wheel, limit, status))`, or `TimeoutLayer` where the caller handles the error |
//! | `tower` | clients that name a deadline in a header, as in gRPC | `.layer(DeadlineLayer::new(&wheel, longest, status))` |
//! | `tower` | bodies that may stall or trickle | `RequestBodyTimeoutLayer`, `ResponseBodyTimeoutLayer`, or a `TimeoutBody` |
//! | `hyper` | a server or client on [hyper](https://docs.rs/hyper) or hyper-util | pass `WheelTimer::new(&wheel)` to `timer(..)`, for `header_read_timeout`, HTTP/2 pings and pools |
//! | `quinn` | a QUIC endpoint of [quinn](https://docs.rs/quinn) | `Endpoint::new(.., Arc::new(WheelRuntime::new(&wheel)))` |
//! | - | a server that answers requests, such as HTTP/1 | a [`KeepAliveStream`](keep_alive::KeepAliveStream) closes its connections between them |
//! | `metrics` | an exporter of the [metrics](https://docs.rs/metrics) facade, such as Prometheus | `tokio::spawn(Reporter::new(&wheel).run(period))` |
//!
//! These need no adapter: `backon` takes `.sleep(move |delay| wheel.sleep(delay))`, and the AWS SDK
//! an `AsyncSleep` of eight lines, which the example `aws_sleep` in the repository has.
//!
//! Every adapter takes the wheel that it uses. A limit of zero elapses at once, but an idle
//! duration or a period of zero panics; one that cannot be represented never elapses. hyper adds
//! some durations to an instant by itself, and panics if the sum cannot be represented: that of
//! `header_read_timeout`, for example.
//!
//! # The limits of a server
//!
//! | what takes too long | limit |
//! |---|---|
//! | the handler | `StatusTimeoutLayer` |
//! | a body that the client sends or takes | `RequestBodyTimeoutLayer`, with a total for one that trickles; for responses, [`IdleLimits::write`](tickwheel::IdleLimits::write) on the stream |
//! | the head of a request | hyper's `header_read_timeout`; [`IdleLimits::read`](tickwheel::IdleLimits::read), longer than any handler takes, where hyper is hidden |
//! | the next request, while none is in flight | a [`KeepAliveStream`](keep_alive::KeepAliveStream) |
//!
//! That one does cut a response that has begun and then pauses for longer than the limit: for
//! server-sent events and the like, hold a [`BusyGuard`](tickwheel::BusyGuard) for each request.
//! The feature `axum` has a listener with these limits, and its module says which connections it
//! closes when.
//!
//! # An axum server
//!
//! A stop by axum alone cuts the requests that lie unread in sockets; `drain` answers them first:
//!
//! ```ignore
//! use tickwheel_adapters::axum::{IdleListener, drain};
//! use tickwheel_adapters::tower::StatusTimeoutLayer;
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
//!     // Half a request looks like one that is being handled: the second limit, longer than any
//!     // handler takes, ends it.
//!     let limits = IdleLimits::none().read(idle + 3 * limit);
//!     let (listener, drained) = drain(listener, stop);
//!     let listener = IdleListener::with_limits(listener, wheel, idle, limits);
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
//!
//! # Versions
//!
//! An adapter exposes types of its peer, so a breaking version of any peer is a breaking version of
//! this package, and not of `tickwheel`. The changelog names the versions of the peers.

#![forbid(unsafe_code)]
#![doc(test(attr(deny(unused_imports, unused_must_use))))]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "axum")]
pub mod axum;
#[cfg(feature = "hyper")]
pub mod hyper;
pub mod keep_alive;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "quinn")]
pub mod quinn;
#[cfg(feature = "tower")]
pub mod tower;

/// The code in the README runs as a test of the documentation.
#[cfg(all(doctest, feature = "hyper"))]
#[doc = include_str!("../README.md")]
struct Readme;
