//! An HTTP server that closes keep-alive connections on which no request is in flight, and leaves
//! the busy ones alone.
//!
//! Each connection has an [idle timer](tickwheel::IdleTimer), and each request holds a
//! [guard](tickwheel::BusyGuard) of it until the last byte of its response is written: a request
//! that takes a minute is not idle, and a client that sends a header byte by byte is.
//!
//! Without arguments it demonstrates itself; with `--listen` it serves any client. `--help` says
//! more.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::process::ExitCode;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Bytes, Frame, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tickwheel::{BusyGuard, IdleHandle, IdleLimits, TimerWheel};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::server_args::Server;

#[path = "support/say.rs"]
#[macro_use]
mod say;
#[path = "http_keepalive/args.rs"]
mod args;
#[path = "support/backlog.rs"]
mod backlog;
#[path = "http_keepalive/demo.rs"]
mod demo;
#[path = "support/server_args.rs"]
mod server_args;
#[path = "support/stop.rs"]
mod stop;

const NAME: &str = "http_keepalive";

/// How long an idle connection may take to end.
const GRACE: Duration = Duration::from_millis(500);

/// How long a client may take nothing of a response, besides what it may be idle. It is longer than
/// a response pauses.
const STALL: Duration = Duration::from_secs(10);

/// How long a server that stops waits for the requests in flight.
const DRAIN: Duration = Duration::from_secs(60);

/// How a connection came to its end.
#[derive(Debug)]
enum End {
    /// No request was in flight for too long.
    Idle,
    /// The client closed it.
    Closed,
    /// The server stops. A request that was in flight has been answered.
    Stopped,
    Failed(hyper::Error),
}

type Body = BoxBody<Bytes, Infallible>;

/// Serves until `stop` completes and the requests that were sent by then are answered. Reports how
/// each connection ended.
async fn run_server(
    listener: TcpListener,
    wheel: &TimerWheel,
    idle: Duration,
    stop: impl Future<Output = ()>,
    report: impl Fn(SocketAddr, &End) + Clone + Send + Sync + 'static,
) -> io::Result<()> {
    let (stopping, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
    let serve = |socket, peer| {
        let (wheel, report, stopped) = (wheel.clone(), report.clone(), stopped.clone());
        async move { report(peer, &serve(socket, &wheel, idle, stopped).await) }
    };
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, peer)) => drop(connections.spawn(serve(socket, peer))),
                // Most likely too many files are open, which passes.
                Err(_) => wheel.sleep(Duration::from_millis(100)).await,
            },
            Some(_) = connections.join_next() => {}
            () = &mut stop => break,
        }
    }
    for socket in backlog::close(listener)? {
        // One that has no peer any more is gone.
        if let Ok(peer) = socket.peer_addr() {
            connections.spawn(serve(socket, peer));
        }
    }
    drop(stopping);
    let drained = async { while connections.join_next().await.is_some() {} };
    let _ = wheel.timeout(DRAIN, drained).await;
    Ok(())
}

/// Serves one connection until it is idle, or the server stops: `stopped` is closed.
async fn serve(
    socket: TcpStream,
    wheel: &TimerWheel,
    idle: Duration,
    mut stopped: watch::Receiver<()>,
) -> End {
    // A client that takes no response would keep its connection busy. While none is due, that limit
    // is longer than the connection lasts.
    let limits = IdleLimits::none().write(idle.saturating_add(STALL));
    let mut idle = wheel.idle_timer(idle);
    let handle = idle.handle();
    let socket = wheel.idle_stream_with(socket, &limits);
    let writing = socket.handle();
    let service = service_fn(|request| {
        let computing = writing.as_ref().map(IdleHandle::busy);
        let answer = answer(request, wheel.clone(), handle.busy());
        async move {
            let answer = answer.await;
            drop(computing);
            answer
        }
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(socket), service);
    let mut connection = pin!(connection);
    let stop = async {
        let _ = stopped.changed().await;
        backlog::last_look().await;
    };
    tokio::select! {
        // A request that lies in the socket comes before the end.
        biased;
        served = connection.as_mut() => return served.map_or_else(End::Failed, |()| End::Closed),
        () = &mut idle => {}
        () = stop => {
            // Closes it now if no request is in flight, else after the response, which says that it
            // is the last.
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                biased;
                _ = connection => {}
                // A client that has sent half a request, or does not take its response.
                () = &mut idle => {}
            }
            return End::Stopped;
        }
    }
    // Closes it now. A request that has come this moment is still answered.
    connection.as_mut().graceful_shutdown();
    let _ = wheel.timeout(GRACE, connection).await;
    End::Idle
}

/// Answers `/` at once, `/slow/2.5` after that many seconds, and `/trickle/2.5` little by little
/// for that long.
///
/// While `busy` is held the connection is not idle; the body of the answer takes it along.
async fn answer(
    request: Request<hyper::body::Incoming>,
    wheel: TimerWheel,
    busy: BusyGuard,
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
    Ok(Response::new(Held { body, _busy: busy }.boxed()))
}

/// A body that keeps its connection from being idle until it is dropped. What it says of its length
/// stays, so that the response says so too.
struct Held {
    body: Body,
    _busy: BusyGuard,
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn text(text: &'static str) -> Body {
    Full::from(text).boxed()
}

static PIECE: [u8; 65_536] = [b'.'; 65_536];

/// Ten pieces, spread over the time.
fn trickle(wheel: TimerWheel, duration: Duration) -> Body {
    let piece = move |_| {
        let pause = wheel.sleep(duration / 10);
        async move {
            pause.await;
            Ok(Frame::data(Bytes::from_static(&PIECE)))
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
    let server = Server {
        name: NAME,
        help: args::HELP,
        default_idle: args::DEFAULT_IDLE,
    };
    server.run(demo::run, listen).await
}

/// Serves until Ctrl-C or SIGTERM.
async fn listen(address: &str, idle: Duration) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| format!("cannot listen on {address:?}: {error}"))?;
    // Before it says that it runs: a signal that follows is caught.
    let stop = stop::asked_to_stop();
    say!(
        "listening on {}; connections without a request for {idle:?} are closed",
        listener.local_addr()?
    );
    let report = |peer, end: &End| match end {
        End::Idle => say!("{peer} was idle, and is closed"),
        End::Closed => say!("{peer} has hung up"),
        End::Stopped => say!("{peer} is closed: the server stops"),
        End::Failed(error) => say!("{peer} failed: {error}"),
    };
    let wheel = TimerWheel::new();
    run_server(listener, &wheel, idle, stop, report).await?;
    wheel.shutdown().await;
    say!("stopped");
    Ok(())
}
