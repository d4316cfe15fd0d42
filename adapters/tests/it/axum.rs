//! Axum's server behind an idle listener, most of it on pipes under the paused clock.

use std::future::pending;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Request};
use axum::http::{Response, StatusCode, header};
use axum::serve::Listener;
use axum::{Router, routing::get};
use hyper_util::rt::TokioIo;
use tickwheel::{IdleLimits, TimerWheel};
use tickwheel_adapters::axum::{IdleListener, drain};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use crate::start_wheel;

const IDLE: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);

/// A listener of connections that are pipes.
struct Pipes(mpsc::UnboundedReceiver<DuplexStream>);

/// Connects to the listener.
#[derive(Clone)]
struct Clients(mpsc::UnboundedSender<DuplexStream>);

fn pipes() -> (Clients, Pipes) {
    let (clients, pipes) = mpsc::unbounded_channel();
    (Clients(clients), Pipes(pipes))
}

impl Listener for Pipes {
    type Io = DuplexStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (DuplexStream, SocketAddr) {
        match self.0.recv().await {
            Some(pipe) => (pipe, SocketAddr::from(([127, 0, 0, 1], 1))),
            None => pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::from(([127, 0, 0, 1], 0)))
    }
}

impl Clients {
    fn connect(&self) -> DuplexStream {
        let (client, server) = duplex(4096);
        self.0.send(server).expect("the server runs");
        client
    }
}

/// Answers at once, after an hour, with a body that pauses for an hour, and by an upgrade.
fn application() -> Router {
    let slow = async || {
        sleep(HOUR).await;
        "hello"
    };
    let pauses = async || {
        let pieces = futures_util::stream::unfold(0, async |piece| {
            if piece > 0 {
                sleep(HOUR).await;
            }
            Some((Ok::<_, io::Error>(Bytes::from("piece\n")), piece + 1))
        });
        Body::from_stream(pieces)
    };
    Router::new()
        .route("/", get("hello"))
        .route("/slow", get(slow))
        .route("/pauses", get(pauses))
        .route("/upgrade", get(upgrade))
        .route("/push", get(push))
}

/// Echoes what comes after the upgrade.
async fn upgrade(request: Request) -> Response<Body> {
    tokio::spawn(async {
        let upgraded = hyper::upgrade::on(request).await.expect("it is asked for");
        let mut echo = TokioIo::new(upgraded);
        let mut byte = [0];
        while echo.read_exact(&mut byte).await.is_ok() {
            echo.write_all(&byte).await.expect("the client is there");
        }
    });
    switching()
}

/// Writes something each hour after the upgrade, and reads nothing.
async fn push(request: Request) -> Response<Body> {
    tokio::spawn(async {
        let upgraded = hyper::upgrade::on(request).await.expect("it is asked for");
        let mut client = TokioIo::new(upgraded);
        while client.write_all(b"x").await.is_ok() {
            sleep(HOUR).await;
        }
    });
    switching()
}

fn switching() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, "upgrade".parse().expect("valid"));
    headers.insert(header::UPGRADE, "echo".parse().expect("valid"));
    response
}

/// A server that limits its connections so; without any, one on the bare listener.
fn serve(limits: Option<(Duration, IdleLimits)>) -> Clients {
    let (clients, pipes) = pipes();
    tokio::spawn(async move {
        let app = application();
        match limits {
            Some((idle, limits)) => {
                let wheel = start_wheel();
                axum::serve(IdleListener::with_limits(pipes, &wheel, idle, limits), app).await
            }
            None => axum::serve(pipes, app).await,
        }
    });
    clients
}

fn keep_alive() -> (Duration, IdleLimits) {
    (IDLE, IdleLimits::none())
}

async fn ask(client: &mut DuplexStream, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    let written = client.write_all(request.as_bytes());
    written.await.expect("the connection is open");
}

/// Upgrades the connection.
async fn ask_to_upgrade(client: &mut DuplexStream, path: &str) {
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n");
    let written = client.write_all(request.as_bytes());
    written.await.expect("the connection is open");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.expect("it answers"));
    }
}

/// Reads until what it has read ends with `end`. `None` if the connection is closed before, or in
/// two hours.
async fn read_until(client: &mut DuplexStream, end: &str) -> Option<String> {
    let mut read = Vec::new();
    while !read.ends_with(end.as_bytes()) {
        let more = timeout(2 * HOUR, client.read_buf(&mut read)).await.ok()?;
        if more.unwrap_or(0) == 0 {
            return None;
        }
    }
    Some(String::from_utf8(read).expect("it is text"))
}

/// How long it takes until the server closes the connection; `None` if it has not in ten minutes.
async fn closed_after(client: &mut DuplexStream) -> Option<Duration> {
    let start = Instant::now();
    let mut rest = Vec::new();
    let closed = timeout(Duration::from_secs(600), client.read_to_end(&mut rest));
    closed.await.ok().map(|_| start.elapsed())
}

/// Whether it is the idle duration, but for the ticks of the wheel and of Tokio.
fn is_idle(closed_after: Option<Duration>) -> bool {
    closed_after.is_some_and(|after| (IDLE..IDLE + Duration::from_millis(5)).contains(&after))
}

#[tokio::test(start_paused = true)]
async fn keep_alive_connection_closes_once_idle() {
    for (limits, closes) in [(Some(keep_alive()), true), (None, false)] {
        let clients = serve(limits);
        let (mut silent, mut client) = (clients.connect(), clients.connect());
        for _ in 0..3 {
            ask(&mut client, "/").await;
            assert!(read_until(&mut client, "hello").await.is_some());
            sleep(IDLE * 2 / 3).await;
        }
        ask(&mut client, "/").await;
        assert!(read_until(&mut client, "hello").await.is_some());
        assert_eq!(is_idle(closed_after(&mut client).await), closes);
        assert_eq!(closed_after(&mut silent).await.is_some(), closes);
    }
}

#[tokio::test(start_paused = true)]
async fn slow_handler_keeps_its_connection() {
    let either = (Duration::MAX, IdleLimits::none().either(IDLE));
    for (limits, is_answered) in [(keep_alive(), true), (either, false)] {
        let mut client = serve(Some(limits.clone())).connect();
        ask(&mut client, "/slow").await;
        let response = read_until(&mut client, "hello").await;
        assert_eq!(response.is_some(), is_answered, "{limits:?}");
        assert_eq!(is_idle(closed_after(&mut client).await), is_answered);
    }
}

#[tokio::test(start_paused = true)]
async fn response_that_pauses_is_cut() {
    for (limits, is_cut) in [(Some(keep_alive()), true), (None, false)] {
        let mut client = serve(limits).connect();
        ask(&mut client, "/pauses").await;
        assert!(read_until(&mut client, "piece\n\r\n").await.is_some());
        let second = read_until(&mut client, "piece\n\r\n").await;
        assert_eq!(second.is_none(), is_cut);
    }
}

#[tokio::test(start_paused = true)]
async fn half_request_ends_by_the_read_limit_only() {
    let read = (IDLE, IdleLimits::none().read(IDLE));
    for (limits, closes) in [(read, true), (keep_alive(), false)] {
        let mut client = serve(Some(limits)).connect();
        client.write_all(b"GET / HT").await.unwrap();
        assert_eq!(is_idle(closed_after(&mut client).await), closes);
    }
}

/// axum gives up a request when its client cannot send any more.
#[tokio::test(start_paused = true)]
async fn half_closed_connection_ends_as_without_limits() {
    for limits in [Some(keep_alive()), None] {
        let clients = serve(limits);
        let mut client = clients.connect();
        ask(&mut client, "/").await;
        assert!(read_until(&mut client, "hello").await.is_some());
        client.shutdown().await.unwrap();
        assert_eq!(closed_after(&mut client).await, Some(Duration::ZERO));
        let mut client = clients.connect();
        ask(&mut client, "/slow").await;
        client.shutdown().await.unwrap();
        assert_eq!(closed_after(&mut client).await, Some(Duration::ZERO));
    }
}

#[tokio::test(start_paused = true)]
async fn upgraded_connection_closes_once_idle() {
    for (limits, closes) in [(Some(keep_alive()), true), (None, false)] {
        let mut client = serve(limits).connect();
        ask_to_upgrade(&mut client, "/upgrade").await;
        for _ in 0..3 {
            sleep(IDLE * 2 / 3).await;
            client.write_all(b"x").await.unwrap();
            assert!(read_until(&mut client, "x").await.is_some());
        }
        assert_eq!(is_idle(closed_after(&mut client).await), closes);
    }
}

#[tokio::test]
async fn handler_knows_the_address_of_its_client() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let (listener, drained) = drain(listener, pending());
    let listener = IdleListener::new(listener, &TimerWheel::new(), IDLE);
    let peer = async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.to_string();
    let app = Router::new().route("/", get(peer));
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    let serving = async {
        axum::serve(listener, app)
            .with_graceful_shutdown(drained)
            .await
    };
    tokio::spawn(serving);

    let mut client = TcpStream::connect(server).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    client.write_all(request).await.unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).await.unwrap();
    assert!(response.ends_with(&client.local_addr().unwrap().to_string()));
}

/// How many of 200 requests a server does not answer that lie in its connections when it is asked
/// to stop: in idle ones, and in ones that it has not accepted.
async fn unanswered(is_drained: bool) -> usize {
    let (clients, pipes) = pipes();
    let (stop, stopped) = oneshot::channel::<()>();
    let signal = async {
        let _ = stopped.await;
    };
    let wheel = start_wheel();
    let server = tokio::spawn(async move {
        let app = application();
        if is_drained {
            let (pipes, drained) = drain(pipes, signal);
            let listener = IdleListener::new(pipes, &wheel, IDLE);
            let serve = axum::serve(listener, app).with_graceful_shutdown(drained);
            return serve.await;
        }
        let listener = IdleListener::new(pipes, &wheel, IDLE);
        let serve = axum::serve(listener, app).with_graceful_shutdown(signal);
        serve.await
    });
    let mut connections: Vec<DuplexStream> = (0..100).map(|_| clients.connect()).collect();
    for client in &mut connections {
        ask(client, "/").await;
        assert!(read_until(client, "hello").await.is_some());
    }
    connections.extend((0..100).map(|_| clients.connect()));
    // All in one instant: the server runs when this task waits, and sees the signal first.
    stop.send(()).unwrap();
    for client in &mut connections {
        ask(client, "/").await;
    }
    let mut lost = 0;
    for client in &mut connections {
        lost += usize::from(read_until(client, "hello").await.is_none());
    }
    server.await.unwrap().unwrap();
    lost
}

#[tokio::test(start_paused = true)]
async fn drained_server_answers_what_was_sent_before() {
    assert_eq!(unanswered(true).await, 0);
    assert!(unanswered(false).await > 0, "the control answers all too");
}

/// A listener of sockets that are not read before the runtime has asked for what is ready, as those
/// that Tokio accepts were up to 1.53.
struct Unasked(TcpListener);

impl Listener for Unasked {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        let (socket, peer) = self.0.accept().await.unwrap();
        let socket = TcpStream::from_std(socket.into_std().unwrap());
        (socket.unwrap(), peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

#[tokio::test]
async fn drained_server_answers_a_connection_that_it_accepts_meanwhile() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .unwrap();
    let (listener, drained) = drain(Unasked(listener), async {});
    let drained = tokio::spawn(drained);
    sleep(Duration::from_millis(30)).await;
    let drained = async { drained.await.unwrap() };
    let serve = axum::serve(listener, application()).with_graceful_shutdown(drained);
    tokio::spawn(serve.into_future()).await.unwrap().unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200"), "{response:?}");
}

#[tokio::test(start_paused = true)]
async fn drained_server_finishes_what_it_handles() {
    let (clients, pipes) = pipes();
    let (listener, drained) = drain(pipes, sleep(IDLE));
    let serve = axum::serve(listener, application()).with_graceful_shutdown(drained);
    let server = tokio::spawn(serve.into_future());
    let mut client = clients.connect();
    ask(&mut client, "/slow").await;
    assert!(read_until(&mut client, "hello").await.is_some());
    server.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn drain_waits_for_a_connection_that_is_not_polled() {
    let (clients, pipes) = pipes();
    let (mut listener, drained) = drain(pipes, async {});
    let mut client = clients.connect();
    let (mut connection, _) = listener.accept().await;
    let start = Instant::now();
    let drained = tokio::spawn(async move {
        drained.await;
        start.elapsed()
    });
    let accepting = tokio::spawn(async move { listener.accept().await.1 });
    sleep(Duration::from_secs(1)).await;
    assert!(!drained.is_finished());
    client.write_all(b"x").await.unwrap();
    assert_eq!(connection.read_u8().await.unwrap(), b'x');
    assert_eq!(drained.await.unwrap(), Duration::from_secs(1));
    accepting.abort();
}

/// The waker of the task that read the requests was woken, and nothing polled for five seconds.
#[tokio::test(start_paused = true)]
async fn drain_does_not_wait_for_upgraded_connection_that_only_writes() {
    let (clients, pipes) = pipes();
    let (stop, stopped) = oneshot::channel::<()>();
    let signal = async {
        let _ = stopped.await;
    };
    let (listener, drained) = drain(pipes, signal);
    let serve = axum::serve(listener, application()).with_graceful_shutdown(drained);
    let server = tokio::spawn(serve.into_future());
    let mut pushed = clients.connect();
    ask_to_upgrade(&mut pushed, "/push").await;
    assert_eq!(pushed.read_u8().await.unwrap(), b'x');
    let start = Instant::now();
    stop.send(()).unwrap();
    server.await.unwrap().unwrap();
    let took = start.elapsed();
    assert!(took < Duration::from_millis(500), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn drain_ends_after_five_seconds_at_the_latest() {
    let (clients, pipes) = pipes();
    let (mut listener, drained) = drain(pipes, async {});
    let _client = clients.connect();
    let _unpolled = listener.accept().await;
    let start = Instant::now();
    drained.await;
    assert_eq!(start.elapsed(), Duration::from_secs(5));
}
