//! An axum service that closes idle connections, and none on which a request is in flight: a listener of ten lines wraps
//! what it accepts.
//!
//! Without an argument it demonstrates itself; with an address, such as 127.0.0.1:8000, it serves until Ctrl-C or SIGTERM, and
//! first answers what is in flight then.

use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use axum::http::StatusCode;
use axum::{Router, routing::get, serve::Listener};
use tickwheel::adapters::tower::StatusTimeoutLayer;
use tickwheel::{IdleLimits, IdleStream, TimerWheel};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

#[path = "../support/say.rs"]
#[macro_use]
mod say;
#[path = "../support/stop.rs"]
mod stop;

// --- the recipe ---

struct IdleListener {
    listener: TcpListener,
    wheel: TimerWheel,
    limits: IdleLimits,
}

impl Listener for IdleListener {
    type Io = IdleStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        let (socket, peer) = Listener::accept(&mut self.listener).await;
        (self.wheel.idle_stream_with(socket, self.limits), peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

async fn serve(
    listener: TcpListener,
    wheel: TimerWheel,
    service: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let limit = Duration::from_secs(10);
    let service = service.layer(StatusTimeoutLayer::new(
        &wheel,
        limit,
        StatusCode::REQUEST_TIMEOUT,
    ));
    // Half a request looks like one that is being handled: the second limit, longer than any handler takes, ends it.
    let limits = IdleLimits::none()
        .keep_alive(Duration::from_secs(1))
        .read(Duration::from_secs(30));
    let listener = IdleListener {
        listener,
        wheel,
        limits,
    };
    axum::serve(listener, service)
        .with_graceful_shutdown(stop)
        .await
}

// --- until here ---

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match std::env::args().nth(1) {
        Some(address) => listen(&address).await,
        None => demonstrate().await,
    };
    if let Err(error) = outcome {
        eprintln!("axum_service: {error}");
        return ExitCode::from(2);
    }
    ExitCode::SUCCESS
}

fn application(wheel: &TimerWheel) -> Router {
    let wheel = wheel.clone();
    let answer = async move || {
        wheel.sleep(Duration::from_secs(2)).await;
        "that took two seconds"
    };
    Router::new().route("/", get(answer))
}

/// Serves until Ctrl-C or SIGTERM.
async fn listen(address: &str) -> io::Result<()> {
    let bound = TcpListener::bind(address).await;
    let listener = bound.map_err(|error| {
        let text = format!("cannot listen on {address:?}: {error}");
        io::Error::new(error.kind(), text)
    })?;
    // Before anybody can know that it runs.
    let stop = stop::asked_to_stop();
    say!("listening on {}; Ctrl-C stops", listener.local_addr()?);
    let wheel = TimerWheel::new();
    let service = application(&wheel);
    serve(listener, wheel, service, stop).await
}

/// One request that takes longer than a connection may be idle, and then silence.
async fn demonstrate() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let server = listener.local_addr()?;
    let wheel = TimerWheel::new();
    let service = application(&wheel);
    tokio::spawn(serve(listener, wheel, service, pending()));

    let mut client = TcpStream::connect(server).await?;
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: example\r\n\r\n")
        .await?;
    let mut received = Vec::new();
    while !received.ends_with(b"seconds") {
        assert!(
            client.read_buf(&mut received).await? > 0,
            "a request was cut"
        );
    }
    say!("{}", String::from_utf8_lossy(&received));
    let answered = Instant::now();
    assert_eq!(client.read(&mut [0]).await?, 0);
    say!("closed {:.1?} after that", answered.elapsed());
    Ok(())
}
