//! An axum service that closes idle connections, and none on which a request is in flight: its
//! listener wraps the sockets that it accepts.
//!
//! Without arguments it demonstrates itself; with `--listen` it serves until Ctrl-C or SIGTERM, and
//! then lets handlers finish. axum closes the other connections at once, with any unread requests
//! in them; `http_service` answers those too. `--help` says more.

use std::error::Error;
use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::http::StatusCode;
use axum::serve::{IncomingStream, Listener};
use axum::{Router, routing::get};
use tickwheel::adapters::tower::StatusTimeoutLayer;
use tickwheel::{IdleLimits, IdleStream, TimerWheel};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::server_args::Server;

#[path = "../support/say.rs"]
#[macro_use]
mod say;
#[path = "../support/server_args.rs"]
mod server_args;
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

/// For handlers that take `ConnectInfo<Peer>`. `ConnectInfo<SocketAddr>` is for axum's own listeners only.
#[derive(Debug, Clone)]
struct Peer(SocketAddr);

impl Connected<IncomingStream<'_, IdleListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, IdleListener>) -> Self {
        Peer(*stream.remote_addr())
    }
}

async fn serve(
    listener: TcpListener,
    wheel: TimerWheel,
    idle: Duration,
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
        .keep_alive(idle)
        .read(idle + Duration::from_secs(30));
    let listener = IdleListener {
        listener,
        wheel,
        limits,
    };
    axum::serve(
        listener,
        service.into_make_service_with_connect_info::<Peer>(),
    )
    .with_graceful_shutdown(stop)
    .await
}

// --- until here ---

const HELP: &str = "\
An axum service that closes idle keep-alive connections, as an example of tickwheel.

Usage: axum_service
       axum_service --listen ADDRESS [--idle SECONDS]

Without options it demonstrates itself on the loopback interface: a request that takes longer than a connection may be
idle, and then silence.

Options:
  --listen ADDRESS  serve any client at this address, such as 127.0.0.1:8000, until Ctrl-C or SIGTERM; port 0 takes a free one.
                    / answers after two seconds, /peer at once with the client's address. When it is asked to stop it first
                    answers what its handlers are working on, and a second signal ends it at once
  --idle SECONDS    close a connection after this long without a request, such as 2.5  [default: 1]
  -h, --help        print this
";

const DEFAULT_IDLE: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> ExitCode {
    let server = Server {
        name: "axum_service",
        help: HELP,
        default_idle: DEFAULT_IDLE,
    };
    server.run(demonstrate, listen).await
}

fn application(wheel: &TimerWheel) -> Router {
    let wheel = wheel.clone();
    let answer = async move || {
        wheel.sleep(Duration::from_secs(2)).await;
        "that took two seconds"
    };
    let peer = async |ConnectInfo(Peer(address)): ConnectInfo<Peer>| address.to_string();
    Router::new()
        .route("/", get(answer))
        .route("/peer", get(peer))
}

/// Serves until Ctrl-C or SIGTERM.
async fn listen(address: &str, idle: Duration) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| format!("cannot listen on {address:?}: {error}"))?;
    // Before it says that it runs: a signal that follows is caught.
    let stop = stop::asked_to_stop();
    say!(
        "listening on {}; connections without a request are closed after {idle:?}",
        listener.local_addr()?
    );
    let wheel = TimerWheel::new();
    let service = application(&wheel);
    serve(listener, wheel, idle, service, stop).await?;
    say!("stopped");
    Ok(())
}

/// One request that takes longer than a connection may be idle, and then silence.
async fn demonstrate() -> io::Result<ExitCode> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let server = listener.local_addr()?;
    let wheel = TimerWheel::new();
    let service = application(&wheel);
    tokio::spawn(serve(listener, wheel, DEFAULT_IDLE, service, pending()));

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
    Ok(ExitCode::SUCCESS)
}
