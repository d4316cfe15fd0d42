//! Servers and clients on hyper, axum, tower and quinn. Documentation only.
//!
//! The [`adapters`](crate::adapters) put the wheel behind the timer interfaces of other crates.
//!
//! | you have | feature | do |
//! |---|---|---|
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
//! `keep_alive` cuts a response that pauses for longer than the limit: for server-sent events and
//! the like, hold a [`BusyGuard`] for each request. With axum, the listener wraps the sockets it
//! accepts:
//!
//! ```ignore
//! struct IdleListener {
//!     listener: TcpListener,
//!     wheel: TimerWheel,
//!     limits: IdleLimits,
//! }
//!
//! impl Listener for IdleListener {
//!     type Io = IdleStream<TcpStream>;
//!     type Addr = SocketAddr;
//!
//!     async fn accept(&mut self) -> (Self::Io, SocketAddr) {
//!         let (socket, peer) = Listener::accept(&mut self.listener).await;
//!         (self.wheel.idle_stream_with(socket, self.limits), peer)
//!     }
//!
//!     fn local_addr(&self) -> io::Result<SocketAddr> {
//!         self.listener.local_addr()
//!     }
//! }
//!
//! /// For handlers that take `ConnectInfo<Peer>`. `ConnectInfo<SocketAddr>` is for axum's own listeners only.
//! #[derive(Debug, Clone)]
//! struct Peer(SocketAddr);
//!
//! impl Connected<IncomingStream<'_, IdleListener>> for Peer {
//!     fn connect_info(stream: IncomingStream<'_, IdleListener>) -> Self {
//!         Peer(*stream.remote_addr())
//!     }
//! }
//!
//! async fn serve(
//!     listener: TcpListener,
//!     wheel: TimerWheel,
//!     idle: Duration,
//!     service: Router,
//!     stop: impl Future<Output = ()> + Send + 'static,
//! ) -> io::Result<()> {
//!     let limit = Duration::from_secs(10);
//!     let service = service.layer(StatusTimeoutLayer::new(
//!         &wheel,
//!         limit,
//!         StatusCode::REQUEST_TIMEOUT,
//!     ));
//!     // Half a request looks like one that is being handled: the second limit, longer than any handler takes, ends it.
//!     let limits = IdleLimits::none()
//!         .keep_alive(idle)
//!         .read(idle + Duration::from_secs(30));
//!     let listener = IdleListener {
//!         listener,
//!         wheel,
//!         limits,
//!     };
//!     axum::serve(
//!         listener,
//!         service.into_make_service_with_connect_info::<Peer>(),
//!     )
//!     .with_graceful_shutdown(stop)
//!     .await
//! }
//! ```
//!
//! The example `axum_service` in the repository has the whole program. When it stops, axum lets
//! handlers finish and closes the other connections: it cuts a request that lies unread in a socket
//! or waits to be accepted. The example `http_service`, which serves its connections with hyper,
//! answers those requests too.

// For the links above.
#[allow(unused_imports)]
use crate::BusyGuard;
