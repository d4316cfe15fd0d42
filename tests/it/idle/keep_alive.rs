//! `IdleLimits::keep_alive`, under the paused clock and behind a real hyper server: it counts while no response is owed.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tickwheel::{IdleLimits, IdleStream, TimerWheel};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::{self, Instant};
use tokio_test::{assert_pending, assert_ready, task};

const IDLE: Duration = ms(1_000);

/// Less than the limit.
const JUST_BEFORE: Duration = ms(998);

/// How long the handler of `/slow` takes: longer than the limit.
const SLOW: Duration = ms(1_500);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn keep_alive() -> IdleLimits {
    IdleLimits::none().keep_alive(IDLE)
}

// --- behind hyper ---

/// The end of a connection on the server's side: how long it lasted, and whether hyper failed.
type Served = JoinHandle<(Duration, bool)>;

/// A hyper server on one end of a pipe, whose stream has these limits, and the other end.
fn serve(limits: IdleLimits) -> (DuplexStream, Served) {
    let (client, socket) = duplex(4096);
    let wheel = TimerWheel::new();
    let stream = wheel.idle_stream_with(socket, limits);
    let handler = |request: Request<Incoming>| async move {
        if request.uri().path() == "/slow" {
            time::sleep(SLOW).await;
        }
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("done"))))
    };
    let served = tokio::spawn(async move {
        let start = Instant::now();
        let connection =
            http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(handler));
        let ended = connection.await;
        drop(wheel);
        (start.elapsed(), ended.is_err())
    });
    (client, served)
}

async fn get(client: &mut DuplexStream, path: &str) -> io::Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: example\r\n\r\n");
    client.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\ndone") {
        if client.read_buf(&mut response).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(String::from_utf8_lossy(&response).into_owned())
}

/// A limit on all bytes cuts a request in flight; `keep_alive` does not.
#[tokio::test(start_paused = true)]
async fn limit_on_all_bytes_cuts_slow_request() {
    let (mut client, served) = serve(IdleLimits::none().either(IDLE));
    assert!(get(&mut client, "/slow").await.is_err());
    assert_eq!(served.await.unwrap(), (IDLE, true));
}

#[tokio::test(start_paused = true)]
async fn slow_request_survives_and_silent_connection_is_closed() {
    let (mut client, served) = serve(keep_alive());
    let start = Instant::now();
    for path in ["/slow", "/", "/slow", "/slow"] {
        let response = get(&mut client, path).await.expect("it is answered");
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        time::sleep(JUST_BEFORE).await;
    }
    let silent = start.elapsed();
    assert_eq!(client.read(&mut [0]).await.expect("an end"), 0);
    let (after, failed) = served.await.unwrap();
    assert_eq!((after + JUST_BEFORE, failed), (silent + IDLE, true));
}

#[tokio::test(start_paused = true)]
async fn closes_connection_that_sends_nothing() {
    let (mut client, served) = serve(keep_alive());
    assert_eq!(client.read(&mut [0]).await.expect("an end"), 0);
    assert_eq!(served.await.unwrap().0, IDLE);
}

/// Half a request looks like one in flight: only the limit on reading ends it. A slow handler stays below that.
#[tokio::test(start_paused = true)]
async fn read_limit_closes_half_sent_request() {
    let (mut client, served) = serve(keep_alive().read(ms(4_000)));
    assert!(get(&mut client, "/slow").await.is_ok());
    client.write_all(b"GET / HT").await.expect("it is open");
    let half_sent = Instant::now();
    assert_eq!(client.read(&mut [0]).await.expect("an end"), 0);
    assert_eq!(half_sent.elapsed(), ms(4_000));
    served.await.unwrap();

    let (mut client, served) = serve(keep_alive());
    client.write_all(b"GET / HT").await.expect("it is open");
    time::sleep(IDLE * 20).await;
    assert!(!served.is_finished(), "without that limit it stays");
    client
        .write_all(b"TP/1.1\r\nhost: x\r\n\r\n")
        .await
        .expect("it is open");
    assert!(client.read(&mut [0; 64]).await.expect("an answer") > 0);
}

#[tokio::test(start_paused = true)]
async fn closes_connection_whose_client_does_not_take_response() {
    let wheel = TimerWheel::new();
    let (mut client, socket) = duplex(8);
    let mut stream = wheel.idle_stream_with(socket, keep_alive());
    // There is no room for a single byte of the response.
    stream.write_all(&[0; 8]).await.expect("there is room");
    client.write_all(b"?").await.expect("it is open");
    assert_eq!(stream.read_u8().await.expect("it is there"), b'?');
    time::sleep(IDLE * 3).await;
    let start = Instant::now();
    let error = stream.write_all(&[0; 64]).await.expect_err("it is idle");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(
        start.elapsed(),
        IDLE,
        "counted from the beginning of the response"
    );
}

// --- what is owed ---

fn pair() -> (
    TimerWheel,
    IdleStream<BufReader<DuplexStream>>,
    DuplexStream,
) {
    let wheel = TimerWheel::new();
    let (socket, peer) = duplex(64);
    let stream = wheel.idle_stream_with(BufReader::new(socket), keep_alive());
    (wheel, stream, peer)
}

/// The time after which a read of the stream fails as idle; `None` if it does not.
async fn idle_after(stream: &mut IdleStream<BufReader<DuplexStream>>) -> Option<Duration> {
    let start = Instant::now();
    let failed = time::timeout(IDLE * 10, stream.read_u8()).await.ok()?;
    assert_eq!(
        failed.expect_err("nothing comes").kind(),
        ErrorKind::TimedOut
    );
    Some(start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn response_is_owed_from_read_until_write() {
    let (_wheel, mut stream, mut peer) = pair();
    peer.write_all(b"ab").await.expect("it is open");
    assert_eq!(stream.read_u8().await.expect("it is there"), b'a');
    assert_eq!(stream.read_u8().await.expect("it is there"), b'b');
    assert_eq!(idle_after(&mut stream).await, None);
    // Empty writes and flushes are no response.
    assert_eq!(stream.write(&[]).await.expect("not idle"), 0);
    let empty = [io::IoSlice::new(&[])];
    assert_eq!(stream.write_vectored(&empty).await.expect("not idle"), 0);
    stream.flush().await.expect("not idle");
    assert_eq!(idle_after(&mut stream).await, None);
    stream.write_all(b"A").await.expect("not idle");
    time::sleep(ms(400)).await;
    assert_eq!(idle_after(&mut stream).await, Some(ms(600)));
}

#[tokio::test(start_paused = true)]
async fn vectored_write_is_response() {
    let (_wheel, mut stream, mut peer) = pair();
    peer.write_all(b"a").await.expect("it is open");
    assert_eq!(stream.read_u8().await.expect("it is there"), b'a');
    time::sleep(IDLE * 3).await;
    let response = [io::IoSlice::new(&[]), io::IoSlice::new(b"A")];
    assert_eq!(stream.write_vectored(&response).await.expect("taken"), 1);
    assert_eq!(idle_after(&mut stream).await, Some(IDLE));
}

#[tokio::test(start_paused = true)]
async fn buffered_bytes_are_request_once_they_arrive() {
    let (_wheel, mut stream, mut peer) = pair();
    peer.write_all(b"a").await.expect("it is open");
    assert_eq!(stream.fill_buf().await.expect("not idle"), b"a");
    time::sleep(IDLE * 3).await;
    // A server that responds before it consumes owes nothing after that.
    stream.write_all(b"A").await.expect("not idle");
    assert_eq!(stream.fill_buf().await.expect("not idle"), b"a");
    stream.consume(1);
    assert_eq!(idle_after(&mut stream).await, Some(IDLE));
}

#[tokio::test(start_paused = true)]
async fn greeting_of_server_owes_nothing() {
    let (_wheel, mut stream, _peer) = pair();
    time::sleep(ms(300)).await;
    stream.write_all(b"220 ready").await.expect("not idle");
    assert_eq!(idle_after(&mut stream).await, Some(IDLE));
}

#[tokio::test(start_paused = true)]
async fn guard_and_touch_count_beside_what_is_owed() {
    let (_wheel, mut stream, mut peer) = pair();
    let handle = stream.handle().expect("it has a limit");
    peer.write_all(b"a").await.expect("it is open");
    assert_eq!(stream.read_u8().await.expect("it is there"), b'a');
    let busy = handle.busy();
    stream.write_all(b"A").await.expect("not idle");
    assert_eq!(idle_after(&mut stream).await, None);
    drop(busy);
    time::sleep(ms(500)).await;
    assert!(handle.touch());
    assert_eq!(idle_after(&mut stream).await, Some(IDLE));
    assert!(!handle.touch() && !handle.busy().is_effective());
}

#[tokio::test(start_paused = true)]
async fn counts_limit_on_all_while_response_is_owed() {
    let wheel = TimerWheel::new();
    let (socket, mut peer) = duplex(64);
    let limits = keep_alive().either(IDLE * 2);
    let mut stream = wheel.idle_stream_with(socket, limits);
    peer.write_all(b"a").await.expect("it is open");
    assert_eq!(stream.read_u8().await.expect("it is there"), b'a');
    let mut read = task::spawn(stream.read_u8());
    assert_pending!(read.poll());
    time::sleep(IDLE * 2).await;
    wheel.settle().await;
    assert!(read.is_woken());
    assert!(assert_ready!(read.poll()).is_err());
}
