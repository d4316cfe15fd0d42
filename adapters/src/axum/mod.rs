//! Connections of an axum server that are closed when they are idle, and requests that are answered
//! although the server stops.
//!
//! [`IdleListener`] takes a listener's place in `axum::serve`. [`drain`](drain()) lets a server
//! that stops answer the requests that were sent before.
//!
//! # Examples
//!
//! A whole service. It closes a connection on which no request is in flight for a minute, or no
//! byte arrives for five, and stops at Ctrl-C. No handler takes five minutes:
//!
//! ```no_run
//! use std::net::SocketAddr;
//! use std::time::Duration;
//!
//! use axum::{Router, extract::ConnectInfo, routing::get};
//! use tickwheel::{IdleLimits, TimerWheel};
//! use tickwheel_adapters::axum::{IdleListener, drain};
//! use tokio::net::TcpListener;
//!
//! async fn hello(ConnectInfo(peer): ConnectInfo<SocketAddr>) -> String {
//!     format!("hello, {peer}\n")
//! }
//!
//! # async fn ctrl_c() {}
//! #[tokio::main]
//! async fn main() -> std::io::Result<()> {
//!     let wheel = TimerWheel::new();
//!     let app = Router::new().route("/", get(hello));
//!     let (listener, drained) = drain(TcpListener::bind("0.0.0.0:3000").await?, ctrl_c());
//!     // Without this limit half a request would stay open forever.
//!     let limits = IdleLimits::none().read(Duration::from_secs(300));
//!     let listener = IdleListener::with_limits(listener, &wheel, Duration::from_secs(60), limits);
//!     axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())
//!         .with_graceful_shutdown(drained)
//!         .await
//! }
//! ```
//!
//! # What closes a connection
//!
//! [`IdleListener::new`] limits the time [between requests](crate::keep_alive):
//!
//! | connection | is closed |
//! |---|---|
//! | no request yet, or kept alive after a response | once nothing has happened for the idle duration |
//! | a handler is running, on HTTP/1 | never, however long the handler takes |
//! | a handler is running, on HTTP/2 | once nothing has been read or written for the idle duration: let clients ping, or use a longer duration |
//! | a response that pauses, such as server-sent events | once it has paused for the idle duration: send comments more often |
//! | half a request | never; [with](IdleListener::with_limits) a limit on [reading](tickwheel::IdleLimits::read), once that is reached |
//! | the client has shut down its sending half | at once, also during a request: axum does so by itself |
//! | upgraded to WebSocket | once nothing has been read or written for the idle duration |
//!
//! Other [limits](IdleListener::with_limits) suit other servers. An idle connection is [shut
//! down](tickwheel::IdleStream::shutdown_when_idle) before it is dropped, so the client of a
//! listener with TLS sees its end.

mod drain;
mod idle_listener;

pub use drain::{DrainListener, DrainStream, drain};
pub use idle_listener::{IdleListener, TappedListener};
