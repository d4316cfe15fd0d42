//! The wheel as hyper's timer, under real servers and clients.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::time::{Duration, Instant};

use crate::start_wheel;
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::rt::Timer;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, client};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tickwheel::TimerWheel;
use tickwheel_adapters::hyper::WheelTimer;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time;

const LIMIT: Duration = Duration::from_millis(200);

async fn answer(_: Request<Incoming>) -> Result<Response<String>, Infallible> {
    Ok(Response::new("done".to_owned()))
}

/// A server for one connection on the loopback interface, with a limit on the time for a head, and
/// its client.
async fn http1_server(
    wheel: &TimerWheel,
    limit: Duration,
) -> io::Result<(TcpStream, JoinHandle<hyper::Result<()>>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let client = TcpStream::connect(listener.local_addr()?).await?;
    let (socket, _) = listener.accept().await?;
    let mut http = http1::Builder::new();
    http.timer(WheelTimer::new(wheel))
        .header_read_timeout(limit);
    let connection = http.serve_connection(TokioIo::new(socket), service_fn(answer));
    Ok((client, tokio::spawn(connection)))
}

#[tokio::test]
async fn closes_a_silent_client_by_the_wheel() -> io::Result<()> {
    let wheel = start_wheel();
    let start = Instant::now();
    let (mut client, served) = http1_server(&wheel, LIMIT).await?;
    client.write_all(b"GET / HT").await?;
    assert_eq!(client.read(&mut [0]).await?, 0, "it is closed");
    assert!(start.elapsed() >= LIMIT);
    assert!(served.await?.unwrap_err().is_timeout());
    let metrics = wheel.metrics();
    assert_eq!((metrics.sleeps_made, metrics.sleeps_fired), (1, 1));
    Ok(())
}

#[tokio::test]
async fn arms_a_sleep_for_each_request_and_keeps_none() -> io::Result<()> {
    let wheel = start_wheel();
    let (mut client, served) = http1_server(&wheel, 100 * LIMIT).await?;
    for _ in 0..10 {
        client
            .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            .await?;
        let mut response = Vec::new();
        while !response.ends_with(b"done") {
            assert!(
                client.read_buf(&mut response).await? > 0,
                "it is kept alive"
            );
        }
    }
    drop(client);
    served
        .await?
        .expect("the client has hung up between requests");
    wheel.settle().await;
    let metrics = wheel.metrics();
    assert!(metrics.sleeps_made >= 10, "{metrics:?}");
    assert_eq!((metrics.sleeps_fired, metrics.sleeps_pending), (0, 0));
    // Two come from `settle`, and one from the first sleep: the others take its entry over.
    assert!(metrics.commands <= 3, "{metrics:?}");
    Ok(())
}

#[tokio::test]
async fn closes_a_kept_alive_connection_that_falls_silent() -> io::Result<()> {
    let wheel = start_wheel();
    let (mut client, served) = http1_server(&wheel, LIMIT).await?;
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .await?;
    let mut answer = String::new();
    client.read_to_string(&mut answer).await?;
    assert!(answer.ends_with("done"), "{answer}");
    // hyper takes a client that sent nothing of a request for one that has hung up.
    let _ = served.await?;
    assert_eq!(wheel.metrics().sleeps_fired, 1);
    Ok(())
}

/// An HTTP/2 server that sends a ping after each `interval` of silence, on one end of a pipe.
fn http2_server(
    wheel: &TimerWheel,
    interval: Duration,
) -> (tokio::io::DuplexStream, JoinHandle<hyper::Result<()>>) {
    let (client, socket) = duplex(4096);
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(WheelTimer::new(wheel))
        .keep_alive_interval(interval)
        .keep_alive_timeout(Duration::from_secs(5));
    let connection = http.serve_connection(TokioIo::new(socket), service_fn(answer));
    (client, tokio::spawn(connection))
}

#[tokio::test(start_paused = true)]
async fn resets_one_sleep_for_all_pings() {
    let wheel = start_wheel();
    let (client, served) = http2_server(&wheel, Duration::from_secs(10));
    let mut handshake = client::conn::http2::Builder::new(TokioExecutor::new());
    let (mut requests, connection) = (handshake.timer(WheelTimer::new(&wheel)))
        .handshake(TokioIo::new(client))
        .await
        .expect("the server speaks HTTP/2");
    tokio::spawn(connection);
    let request = Request::new(Empty::<Bytes>::new());
    assert!(requests.send_request(request).await.is_ok());
    time::sleep(Duration::from_secs(105)).await;
    assert!(!served.is_finished(), "each ping is answered");
    let metrics = wheel.metrics();
    // Ten times the wait for the next ping has passed; each wait for a pong was moved to the next
    // ping instead.
    assert_eq!(metrics.sleeps_fired, 10, "{metrics:?}");
    assert!(metrics.sleeps_moved >= 10, "{metrics:?}");
    assert_eq!(metrics.sleeps_cancelled, 0, "no new sleep was made");
}

#[tokio::test(start_paused = true)]
async fn closes_a_client_that_answers_no_ping() {
    let wheel = start_wheel();
    let start = time::Instant::now();
    let (mut client, served) = http2_server(&wheel, Duration::from_secs(10));
    // The preface and empty settings.
    client
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .unwrap();
    let ended = served.await.unwrap();
    assert!(ended.unwrap_err().is_timeout());
    assert_eq!(start.elapsed(), Duration::from_secs(15));
}

#[tokio::test(start_paused = true)]
async fn moves_a_sleep_of_the_wheel_when_reset() {
    let wheel = start_wheel();
    let timer = WheelTimer::new(&wheel);
    let now = timer.now();
    let mut sleep = timer.sleep(Duration::from_secs(60));
    assert!(time::timeout(Duration::ZERO, sleep.as_mut()).await.is_err());
    let address: *const u8 = (&raw const *sleep).cast();
    for seconds in [90, 30] {
        timer.reset(&mut sleep, now + Duration::from_secs(seconds));
    }
    assert_eq!((&raw const *sleep).cast(), address, "it is the same sleep");
    sleep.await;
    assert_eq!(timer.now() - now, Duration::from_secs(30));
    let metrics = wheel.metrics();
    assert_eq!((metrics.sleeps_made, metrics.sleeps_moved), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn replaces_a_sleep_of_another_timer_when_reset() {
    let wheel = start_wheel();
    let timer = WheelTimer::new(&wheel);
    let deadline = timer.now() + Duration::from_secs(5);
    let mut sleep = TokioTimer::new().sleep(Duration::from_secs(60));
    timer.reset(&mut sleep, deadline);
    assert_eq!(wheel.metrics().sleeps_made, 1);
    sleep.await;
    assert_eq!(timer.now(), deadline);
}

#[tokio::test(start_paused = true)]
async fn takes_any_duration_and_instant() {
    let wheel = start_wheel();
    let timer = WheelTimer::new(&wheel);
    let year = Duration::from_secs(365 * 86_400);
    let never = timer.sleep(Duration::MAX);
    assert!(time::timeout(year, never).await.is_err());
    let past = timer.now();
    time::sleep(Duration::from_secs(1)).await;
    let at_once: [Pin<Box<dyn hyper::rt::Sleep>>; 2] =
        [timer.sleep(Duration::ZERO), timer.sleep_until(past)];
    let now = timer.now();
    for sleep in at_once {
        sleep.await;
    }
    assert_eq!(timer.now(), now);
}
