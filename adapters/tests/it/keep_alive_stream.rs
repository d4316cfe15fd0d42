//! A `KeepAliveStream` under the paused clock: it counts while no response is owed.

use std::io::{self, ErrorKind};
use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_adapters::keep_alive::KeepAliveStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::{self, Instant};

const IDLE: Duration = ms(1_000);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn pair() -> (TimerWheel, KeepAliveStream<DuplexStream>, DuplexStream) {
    let wheel = TimerWheel::new();
    let (socket, peer) = duplex(64);
    let stream = KeepAliveStream::new(socket, &wheel, IDLE);
    (wheel, stream, peer)
}

/// The time after which a read of the stream fails as idle; `None` if it does not.
async fn idle_after(stream: &mut KeepAliveStream<DuplexStream>) -> Option<Duration> {
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
    let stream = wheel.idle_stream(socket, IDLE * 2);
    let mut stream = KeepAliveStream::new(stream, &wheel, IDLE);
    peer.write_all(b"a").await.expect("it is open");
    assert_eq!(stream.read_u8().await.expect("it is there"), b'a');
    let start = Instant::now();
    assert!(stream.read_u8().await.is_err());
    assert_eq!(start.elapsed(), IDLE * 2);
}

#[tokio::test(start_paused = true)]
async fn closes_connection_whose_client_does_not_take_response() {
    let wheel = TimerWheel::new();
    let (mut client, socket) = duplex(8);
    let mut stream = KeepAliveStream::new(socket, &wheel, IDLE);
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

#[tokio::test(start_paused = true)]
async fn nothing_is_owed_after_an_upgrade() {
    let (_wheel, mut stream, mut peer) = pair();
    peer.write_all(b"GET /chat\r\n").await.expect("it is open");
    stream.read_exact(&mut [0; 11]).await.expect("it is there");
    assert_eq!(idle_after(&mut stream).await, None, "a response is owed");
    stream
        .write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        .await
        .expect("not idle");

    // The last message is the client's, and the server does not answer.
    time::sleep(ms(400)).await;
    peer.write_all(b"m").await.expect("it is open");
    assert_eq!(stream.read_u8().await.expect("it is there"), b'm');
    assert_eq!(idle_after(&mut stream).await, Some(IDLE));
}

#[tokio::test(start_paused = true)]
async fn only_a_response_is_an_upgrade() {
    let (_wheel, mut stream, mut peer) = pair();
    for response in [&b"HTTP/1.1 200 OK"[..], b"HTTP/1.1 404 No"] {
        peer.write_all(b"r").await.expect("it is open");
        assert_eq!(stream.read_u8().await.expect("it is there"), b'r');
        stream.write_all(response).await.expect("not idle");
        // The body of a response may begin like the head of another one.
        stream.write_all(b"HTTP/1.1 101").await.expect("not idle");
    }
    peer.write_all(b"r").await.expect("it is open");
    assert_eq!(stream.read_u8().await.expect("it is there"), b'r');
    assert_eq!(idle_after(&mut stream).await, None, "a response is owed");
}

#[tokio::test(start_paused = true)]
async fn interim_response_is_not_the_one_owed() {
    let (_wheel, mut stream, mut peer) = pair();
    let interim = &b"HTTP/1.1 100 Continue\r\n\r\n"[..];
    peer.write_all(b"r").await.expect("it is open");
    assert_eq!(stream.read_u8().await.expect("it is there"), b'r');
    stream.write_all(interim).await.expect("not idle");
    assert_eq!(idle_after(&mut stream).await, None, "a response is owed");
    let both = [interim, b"HTTP/1.1 200"].concat();
    stream.write_all(&both).await.expect("not idle");
    assert_eq!(idle_after(&mut stream).await, Some(IDLE));
}

#[tokio::test(start_paused = true)]
async fn interim_response_hides_no_upgrade() {
    let (_wheel, mut stream, mut peer) = pair();
    peer.write_all(b"r").await.expect("it is open");
    assert_eq!(stream.read_u8().await.expect("it is there"), b'r');
    for response in [&b"HTTP/1.1 100 Continue\r\n\r\n"[..], b"HTTP/1.1 101"] {
        stream.write_all(response).await.expect("not idle");
    }
    peer.write_all(b"m").await.expect("it is open");
    assert_eq!(stream.read_u8().await.expect("it is there"), b'm');
    assert_eq!(idle_after(&mut stream).await, Some(IDLE));
}
