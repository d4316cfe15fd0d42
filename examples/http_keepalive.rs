//! An HTTP server that closes keep-alive connections on which no request is in flight, and leaves the busy ones alone.
//!
//! Each connection has an [idle timer](tickwheel::IdleTimer), and each request holds a [guard](tickwheel::Busy) of it,
//! from the moment it is read until the last byte of its answer is handed to the socket. That is the reading of idle
//! that servers want: a request that takes a minute is not idle, and a client that sends a header byte by byte is.
//!
//! Without arguments it demonstrates itself with clients on the loopback interface; with `--listen` it is a plain
//! server for `curl` and others. `--help` says more.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Bytes, Frame};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tickwheel::{Busy, TimerWheel};
use tokio::net::{TcpListener, TcpStream};

use crate::args::Args;

#[path = "http_keepalive/args.rs"]
mod args;
#[path = "http_keepalive/demo.rs"]
mod demo;

/// How long a connection that is told to end has for what is half done.
const GRACE: Duration = Duration::from_millis(500);

/// How a connection came to its end.
#[derive(Debug)]
enum End {
    /// No request was in flight for too long.
    Idle,
    /// The client closed it.
    Closed,
    Failed(hyper::Error),
}

type Body = BoxBody<Bytes, Infallible>;

/// Accepts for ever; says how each connection ended.
async fn run_server(
    listener: TcpListener,
    wheel: TimerWheel,
    idle: Duration,
    report: impl Fn(SocketAddr, &End) + Clone + Send + Sync + 'static,
) {
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => {
                let (wheel, report) = (wheel.clone(), report.clone());
                tokio::spawn(async move { report(peer, &serve(socket, &wheel, idle).await) });
            }
            // Most likely too many files are open; soon some are not.
            Err(_) => wheel.sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn serve(socket: TcpStream, wheel: &TimerWheel, idle: Duration) -> End {
    let mut idle = wheel.idle_timer(idle);
    let handle = idle.handle();
    let service = service_fn(|request| answer(request, wheel.clone(), handle.busy()));
    let connection = http1::Builder::new().serve_connection(TokioIo::new(socket), service);
    let mut connection = pin!(connection);
    tokio::select! {
        served = connection.as_mut() => return served.map_or_else(End::Failed, |()| End::Closed),
        () = &mut idle => {}
    }
    // Without a request this closes it now. One that has come this moment is still answered, and told to be the last.
    connection.as_mut().graceful_shutdown();
    let _ = wheel.timeout(GRACE, connection).await;
    End::Idle
}

/// Answers `/` at once, `/slow/2.5` after that many seconds, and `/trickle/2.5` little by little for that long.
///
/// While `busy` is held the connection is not idle; the body of the answer takes it along.
async fn answer(
    request: Request<hyper::body::Incoming>,
    wheel: TimerWheel,
    busy: Busy,
) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path();
    let body = if path == "/" {
        text("hello\n")
    } else if let Some(duration) = seconds(path, "/slow/") {
        wheel.sleep(duration).await;
        text("that took a while\n")
    } else if let Some(duration) = seconds(path, "/trickle/") {
        trickle(wheel, duration)
    } else {
        let mut response = Response::new(text("there is /, /slow/SECONDS and /trickle/SECONDS\n"));
        *response.status_mut() = StatusCode::NOT_FOUND;
        return Ok(response);
    };
    let body = body.map_frame(move |frame| {
        let _held = &busy;
        frame
    });
    Ok(Response::new(body.boxed()))
}

fn text(text: &'static str) -> Body {
    Full::from(text).boxed()
}

/// Ten pieces, spread over the time.
fn trickle(wheel: TimerWheel, duration: Duration) -> Body {
    let piece = move |_| {
        let pause = wheel.sleep(duration / 10);
        async move {
            pause.await;
            Ok(Frame::data(Bytes::from_static(b"drip\n")))
        }
    };
    BodyExt::boxed(StreamBody::new(stream::iter(0..10).then(piece)))
}

/// The number of seconds that follows `prefix` in a path, at most a minute.
fn seconds(path: &str, prefix: &str) -> Option<Duration> {
    let seconds = path.strip_prefix(prefix)?.parse().ok()?;
    let duration = Duration::try_from_secs_f64(seconds).ok()?;
    Some(duration.min(Duration::from_secs(60)))
}

#[tokio::main]
async fn main() -> ExitCode {
    match args::parse(lexopt::Parser::from_env()) {
        Ok(Args::Demo) => match demo::run().await {
            Ok(code) => code,
            Err(error) => {
                eprintln!("http_keepalive: {error}");
                ExitCode::FAILURE
            }
        },
        Ok(Args::Listen { address, idle }) => match listen(&address, idle).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => args::refuse(&error),
        },
        Ok(Args::Help) => {
            print!("{}", args::HELP);
            ExitCode::SUCCESS
        }
        Err(error) => args::refuse(&error),
    }
}

/// Serves until Ctrl-C.
async fn listen(address: &str, idle: Duration) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| format!("cannot listen at {address}: {error}"))?;
    println!(
        "listening on {}; connections without a request for {idle:?} are closed",
        listener.local_addr()?
    );
    let report = |peer, end: &End| match end {
        End::Idle => println!("{peer} was idle, and is closed"),
        End::Closed => println!("{peer} has hung up"),
        End::Failed(error) => println!("{peer} failed: {error}"),
    };
    tokio::select! {
        () = run_server(listener, TimerWheel::new(), idle, report) => {}
        stopped = tokio::signal::ctrl_c() => stopped?,
    }
    Ok(())
}
