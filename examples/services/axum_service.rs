//! An axum service that closes idle connections, and none on which a request is in flight.
//!
//! Without arguments it demonstrates itself; with `--listen` it serves until Ctrl-C or SIGTERM, and
//! then answers the requests that were sent before. `--help` says more.

use std::error::Error;
use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::http::StatusCode;
use axum::{Router, routing::get};
use tickwheel::{IdleLimits, TimerWheel};
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

use tickwheel_adapters::axum::{IdleListener, drain};
use tickwheel_adapters::tower::StatusTimeoutLayer;

async fn serve(
    listener: TcpListener,
    wheel: &TimerWheel,
    idle: Duration,
    app: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let limit = Duration::from_secs(10);
    let app = app.layer(StatusTimeoutLayer::new(
        wheel,
        limit,
        StatusCode::REQUEST_TIMEOUT,
    ));
    // Half a request looks like one that is being handled: the second limit, longer than any
    // handler takes, ends it.
    let limits = IdleLimits::none().read(idle + 3 * limit);
    let (listener, drained) = drain(listener, stop);
    let listener = IdleListener::with_limits(listener, wheel, idle, limits);
    axum::serve(
        listener,
        app.into_make_service_with_connect_info::<SocketAddr>(),
    )
    .with_graceful_shutdown(drained)
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
                    / and /peer, which is the client's address, answer at once, /slow after two seconds. When it is asked
                    to stop it first answers the requests that were sent before, and a second signal ends it at once
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
    let slow = async move || {
        wheel.sleep(Duration::from_secs(2)).await;
        "that took two seconds"
    };
    let peer = async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.to_string();
    Router::new()
        .route("/", get("hello\n"))
        .route("/slow", get(slow))
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
    serve(listener, &wheel, idle, application(&wheel), stop).await?;
    say!("stopped");
    Ok(())
}

/// One request that takes longer than a connection may be idle, and then silence.
async fn demonstrate() -> io::Result<ExitCode> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let server = listener.local_addr()?;
    tokio::spawn(async move {
        let wheel = TimerWheel::new();
        let app = application(&wheel);
        serve(listener, &wheel, DEFAULT_IDLE, app, pending()).await
    });

    let mut client = TcpStream::connect(server).await?;
    client
        .write_all(b"GET /slow HTTP/1.1\r\nhost: example\r\n\r\n")
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
