//! A `KeepAliveStream` behind a real hyper server, under the paused clock.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tickwheel::{IdleLimits, TimerWheel};
use tickwheel_adapters::keep_alive::KeepAliveStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::{self, Instant};

const IDLE: Duration = ms(1_000);

/// Less than the limit.
const JUST_BEFORE: Duration = ms(998);

/// How long the handler of `/slow` takes: longer than the limit.
const SLOW: Duration = ms(1_500);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn keep_alive() -> (Duration, IdleLimits) {
    (IDLE, IdleLimits::none())
}

/// The end of a connection on the server's side: how long it lasted, and whether hyper failed.
type Served = JoinHandle<(Duration, bool)>;

/// A hyper server on one end of a pipe, with these limits, and the other end.
fn serve((idle, limits): (Duration, IdleLimits)) -> (DuplexStream, Served) {
    let (client, socket) = duplex(4096);
    let wheel = TimerWheel::new();
    let stream = wheel.idle_stream_with(socket, &limits);
    let stream = KeepAliveStream::new(stream, &wheel, idle);
    let handler = |request: Request<Incoming>| async move {
        let is_slow = request.uri().path() == "/slow";
        let _ = request.into_body().collect().await;
        if is_slow {
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

/// A limit on all bytes cuts a request in flight; a `KeepAliveStream` does not.
#[tokio::test(start_paused = true)]
async fn limit_on_all_bytes_cuts_slow_request() {
    let (mut client, served) = serve((Duration::MAX, IdleLimits::none().either(IDLE)));
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

/// hyper writes that it goes on, and the handler is slow after that.
#[tokio::test(start_paused = true)]
async fn slow_request_whose_client_asks_to_go_on_survives() {
    for (path, idle) in [("/slow", SLOW + IDLE), ("/", IDLE)] {
        let (mut client, served) = serve(keep_alive());
        let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n");
        let request = head + "content-length: 1\r\n\r\nx";
        client.write_all(request.as_bytes()).await.unwrap();
        let mut responses = String::new();
        client.read_to_string(&mut responses).await.unwrap();
        assert!(responses.starts_with("HTTP/1.1 100"), "{responses}");
        assert!(responses.ends_with("done"), "{responses}");
        assert_eq!(served.await.unwrap(), (idle, true));
    }
}

#[tokio::test(start_paused = true)]
async fn closes_connection_that_sends_nothing() {
    let (mut client, served) = serve(keep_alive());
    assert_eq!(client.read(&mut [0]).await.expect("an end"), 0);
    assert_eq!(served.await.unwrap().0, IDLE);
}

/// Half a request looks like one in flight: only the limit on reading ends it. A slow handler stays
/// below that.
#[tokio::test(start_paused = true)]
async fn read_limit_closes_half_sent_request() {
    let (mut client, served) = serve((IDLE, IdleLimits::none().read(ms(4_000))));
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
