//! The idle stream: which progress delays which limit, and which operations fail, under the paused
//! clock.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tickwheel::{IdleLimits, IdleStream, TimerWheel};
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream,
    ReadBuf, duplex,
};
use tokio::time::{self, Instant};
use tokio_test::{assert_pending, assert_ready, task};

use crate::support::ms;

const IDLE: Duration = ms(100);

/// A tick less than that.
const JUST_BEFORE: Duration = ms(99);

fn none() -> IdleLimits {
    IdleLimits::none()
}

fn is_idle<R: std::fmt::Debug>(result: io::Result<R>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::TimedOut)
}

/// A stream with limits, and its peer.
fn pair(wheel: &TimerWheel, limits: &IdleLimits) -> (IdleStream<DuplexStream>, DuplexStream) {
    let (socket, peer) = duplex(64);
    (wheel.idle_stream_with(socket, limits), peer)
}

/// Sends a byte after each `gap`, `times` times, and then stays silent.
fn trickle(mut peer: DuplexStream, gap: Duration, times: usize) {
    tokio::spawn(async move {
        for _ in 0..times {
            time::sleep(gap).await;
            peer.write_all(b"x").await.expect("it is open");
        }
        std::future::pending::<()>().await;
    });
}

/// Reads until it fails as idle; returns after how long.
async fn read_until_idle(stream: &mut IdleStream<DuplexStream>) -> Duration {
    let start = Instant::now();
    loop {
        match stream.read(&mut [0; 8]).await {
            Ok(n) => assert!(n > 0, "the peer has hung up"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::TimedOut);
                return start.elapsed();
            }
        }
    }
}

// --- the limits ---

#[tokio::test(start_paused = true)]
async fn fails_read_when_first_limit_is_reached() {
    let (read, write, all) = (ms(100), ms(150), ms(70));
    // The peer sends until 400 ms; nothing is written.
    for (limits, expected) in [
        (none().read(read), 500),
        (none().write(write), 150),
        (none().either(all), 470),
        (none().read(read).write(write), 150),
        (none().read(read).either(all), 470),
        (none().write(write).either(all), 150),
        (none().read(read).write(write).either(all), 150),
    ] {
        let wheel = TimerWheel::new();
        let (mut stream, peer) = pair(&wheel, &limits);
        trickle(peer, ms(40), 10);
        assert_eq!(
            read_until_idle(&mut stream).await,
            ms(expected),
            "{limits:?}"
        );
        assert!(stream.is_idle());
    }
}

#[tokio::test(start_paused = true)]
async fn fails_write_when_first_limit_is_reached() {
    // The peer takes 64 bytes at once, and ten more, one by one until 400 ms; nothing is read.
    for (limits, expected) in [
        (none().read(ms(100)), 100),
        (none().write(ms(150)), 550),
        (none().either(ms(70)), 470),
        (none().read(ms(500)).write(ms(150)).either(ms(90)), 490),
    ] {
        let wheel = TimerWheel::new();
        let (mut stream, mut peer) = pair(&wheel, &limits);
        tokio::spawn(async move {
            for _ in 0..10 {
                time::sleep(ms(40)).await;
                peer.read_u8().await.expect("there is something");
            }
            std::future::pending::<()>().await;
        });
        let start = Instant::now();
        let mut written = 0;
        while let Ok(n) = stream.write(&[0; 100]).await {
            written += n;
        }
        assert_eq!(start.elapsed(), ms(expected), "{limits:?}");
        assert!(stream.is_idle());
        assert!(written == 74 || expected == 100, "{written}");
    }
}

#[tokio::test(start_paused = true)]
async fn counts_directions_separately() {
    let wheel = TimerWheel::new();
    for limits in [none().read(IDLE), none().write(IDLE)] {
        let (stream, mut peer) = pair(&wheel, &limits);
        let (mut reading, mut writing) = tokio::io::split(stream);
        let start = Instant::now();
        let writes = limits == none().read(IDLE);
        let other = tokio::spawn(async move {
            loop {
                time::sleep(ms(10)).await;
                let done = if writes {
                    writing.write_all(b"x").await
                } else {
                    peer.write_all(b"x").await
                };
                if done.is_err() {
                    return peer;
                }
            }
        });
        while let Ok(n) = reading.read(&mut [0; 8]).await {
            assert!(n > 0);
        }
        assert_eq!(start.elapsed(), IDLE, "{limits:?}");
        other.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn stays_alive_by_byte_just_before_each_deadline() {
    let wheel = TimerWheel::new();
    let (mut stream, peer) = pair(&wheel, &none().either(IDLE));
    trickle(peer, JUST_BEFORE, 100);
    assert_eq!(read_until_idle(&mut stream).await, JUST_BEFORE * 100 + IDLE);
    let metrics = wheel.metrics();
    assert!(metrics.rescheduled <= 101, "{metrics:?}");
}

#[tokio::test(start_paused = true)]
async fn wakes_both_halves_of_split_stream() {
    let wheel = TimerWheel::new();
    for limits in [none().read(IDLE), none().write(IDLE), none().either(IDLE)] {
        let (stream, _peer) = pair(&wheel, &limits);
        let (mut reading, mut writing) = tokio::io::split(stream);
        let start = Instant::now();
        let reading = tokio::spawn(async move { is_idle(reading.read_u8().await) });
        let writing = tokio::spawn(async move { is_idle(writing.write_all(&[0; 100]).await) });
        assert!(reading.await.expect("it does not panic"));
        assert!(writing.await.expect("it does not panic"));
        // The write made progress at the beginning.
        assert_eq!(start.elapsed(), IDLE, "{limits:?}");
    }
}

// --- what counts ---

#[tokio::test(start_paused = true)]
async fn ignores_empty_operations_and_flushes() {
    let wheel = TimerWheel::new();
    let (mut stream, _peer) = pair(&wheel, &none().either(IDLE));
    for _ in 0..9 {
        time::advance(ms(10)).await;
        assert_eq!(stream.write(&[]).await.expect("not idle"), 0);
        assert_eq!(stream.read(&mut []).await.expect("not idle"), 0);
        stream.flush().await.expect("not idle");
    }
    assert_eq!(read_until_idle(&mut stream).await, ms(10));
}

#[tokio::test(start_paused = true)]
async fn end_of_file_is_not_idleness() {
    let wheel = TimerWheel::new();
    let (mut stream, peer) = pair(&wheel, &none().read(IDLE).either(IDLE));
    drop(peer);
    for _ in 0..10 {
        assert_eq!(stream.read(&mut [0; 8]).await.expect("an end"), 0);
        time::advance(IDLE * 2).await;
    }
    assert!(!stream.is_idle());
}

#[tokio::test(start_paused = true)]
async fn passes_inner_errors_on() {
    let wheel = TimerWheel::new();
    let (mut stream, peer) = pair(&wheel, &none().either(IDLE));
    drop(peer);
    let error = stream.write_all(b"x").await.expect_err("the peer is gone");
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    assert!(!stream.is_idle());
}

#[tokio::test(start_paused = true)]
async fn late_operation_succeeds_if_it_can() {
    let wheel = TimerWheel::new();
    let (mut stream, mut peer) = pair(&wheel, &none().either(IDLE));
    peer.write_all(b"xy").await.expect("it is open");
    time::advance(IDLE * 5).await;
    assert!(!stream.is_idle(), "no operation has failed");
    assert_eq!(stream.read_u8().await.expect("it is there"), b'x');

    time::advance(IDLE * 5).await;
    assert_eq!(stream.read_u8().await.expect("it is there"), b'y');
    time::advance(IDLE * 5).await;
    let start = Instant::now();
    assert!(is_idle(stream.read_u8().await));
    assert_eq!(start.elapsed(), Duration::ZERO);
}

/// A touch through the handle, and a guard, hold every limit off: a limit on reading too.
#[tokio::test(start_paused = true)]
async fn handle_touches_and_guards_both_directions() {
    for limits in [
        none().either(IDLE),
        none().read(IDLE),
        none().write(IDLE),
        none().read(IDLE).write(IDLE).either(IDLE),
    ] {
        let wheel = TimerWheel::new();
        let (mut stream, _peer) = pair(&wheel, &limits);
        let handle = stream.handle().expect("it has limits");
        tokio::spawn(async move {
            for _ in 0..5 {
                time::sleep(ms(90)).await;
                assert!(handle.touch());
            }
            let busy = handle.busy();
            time::sleep(ms(505)).await;
            drop(busy);
            // A touch far ahead counts for one idle duration.
            time::sleep(ms(90)).await;
            handle.touch_at(Instant::now() + Duration::from_secs(86_400));
        });
        let idle = read_until_idle(&mut stream).await;
        let last = ms(450 + 505 + 90);
        assert!(idle >= last + IDLE, "{limits:?}: {idle:?}");
        assert!(idle <= last + 3 * IDLE, "{limits:?}: {idle:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn counts_each_limit_from_release_of_guard() {
    for limits in [none().either(IDLE), none().read(IDLE), none().write(IDLE)] {
        let wheel = TimerWheel::new();
        let (mut stream, _peer) = pair(&wheel, &limits);
        let busy = stream.handle().expect("it has limits").busy();
        tokio::spawn(async move {
            time::sleep(ms(450)).await;
            drop(busy);
        });
        assert_eq!(read_until_idle(&mut stream).await, ms(550), "{limits:?}");
    }
}

// --- what fails, and what does not ---

#[tokio::test(start_paused = true)]
async fn fails_later_operations_except_shutdown() {
    let wheel = TimerWheel::new();
    let (socket, mut peer) = duplex(64);
    let mut stream = wheel.idle_stream(BufReader::new(socket), IDLE);
    assert!(is_idle(stream.read_u8().await));
    peer.write_all(b"too late\n").await.expect("it is open");
    for _ in 0..3 {
        assert!(is_idle(stream.read_u8().await));
        assert!(is_idle(stream.write(b"x").await));
        assert!(is_idle(stream.write_vectored(&[IoSlice::new(b"x")]).await));
        assert!(is_idle(stream.flush().await));
        assert!(is_idle(stream.fill_buf().await));
        time::advance(ms(10)).await;
    }
    stream.shutdown().await.expect("that is allowed");
    assert_eq!(peer.read(&mut [0; 8]).await.expect("the end"), 0);
}

#[tokio::test(start_paused = true)]
async fn gives_inner_stream_back_for_goodbye() {
    let wheel = TimerWheel::new();
    let (mut stream, mut peer) = pair(&wheel, &none().either(IDLE));
    assert!(is_idle(stream.read_u8().await));
    peer.write_all(b"!").await.expect("it is open");
    let mut inner = stream.into_inner();
    assert_eq!(inner.read_u8().await.expect("it was not idle"), b'!');
    inner.write_all(b"bye").await.expect("it is open");
    drop(inner);
    let mut said = String::new();
    peer.read_to_string(&mut said).await.expect("it ends");
    assert_eq!(said, "bye");
    wheel.settle().await;
    assert_eq!(wheel.metrics().sleeps_pending, 0);
}

#[tokio::test(start_paused = true)]
async fn p7_dropped_stream_wakes_no_task() {
    let wheel = TimerWheel::new();
    let limits = none().read(IDLE).write(IDLE);
    let mut stream = wheel.idle_stream_with(Silent, &limits);
    let mut waiting = task::spawn(());
    waiting.enter(|cx, _| {
        let mut buf = [0; 8];
        let read = Pin::new(&mut stream).poll_read(cx, &mut ReadBuf::new(&mut buf));
        assert_pending!(read);
    });
    assert!(waiting.waker_ref_count() > 1, "the wheel holds the waker");
    let _ = stream.into_inner();
    wheel.settle().await;
    assert_eq!(waiting.waker_ref_count(), 1);
    time::advance(IDLE * 2).await;
    wheel.settle().await;
    assert!(!waiting.is_woken());
}

#[tokio::test(start_paused = true)]
async fn has_no_timer_without_limits() {
    let wheel = TimerWheel::new();
    let (mut stream, mut peer) = pair(&wheel, &none());
    assert!(stream.handle().is_none());
    let mut read = task::spawn(stream.read_u8());
    assert_pending!(read.poll());
    time::advance(Duration::from_secs(86_400)).await;
    wheel.settle().await;
    assert_pending!(read.poll());
    peer.write_u8(7).await.expect("it is open");
    assert_eq!(assert_ready!(read.poll()).expect("it is there"), 7);
    drop(read);
    assert!(!stream.is_idle());
    let metrics = wheel.metrics();
    assert_eq!((metrics.sleeps_made, metrics.lateness.count()), (0, 0));
    assert_eq!(size_of::<IdleStream<()>>() % 8, 0);
}

#[tokio::test(start_paused = true)]
async fn cancelled_reads_lose_neither_bytes_nor_limit() {
    let wheel = TimerWheel::new();
    let (mut stream, mut peer) = pair(&wheel, &none().either(IDLE));
    let start = Instant::now();
    for n in 0..20 {
        for _ in 0..3 {
            let cancelled = time::timeout(ms(9), stream.read_u8()).await;
            assert!(cancelled.is_err());
        }
        peer.write_u8(n).await.expect("it is open");
        assert_eq!(stream.read_u8().await.expect("it is there"), n);
    }
    let last = start.elapsed();
    loop {
        // After many cancelled operations the limit still counts from the last byte.
        if let Ok(read) = time::timeout(ms(7), stream.read_u8()).await {
            assert!(is_idle(read));
            break;
        }
    }
    assert_eq!(start.elapsed(), last + IDLE);
}

#[tokio::test(start_paused = true)]
async fn p15_keeps_limits_by_tokios_timer_after_shutdown() {
    let wheel = TimerWheel::new();
    let (mut stream, peer) = pair(&wheel, &none().either(IDLE));
    wheel.shutdown().await;
    let (mut late, late_peer) = pair(&wheel, &none().read(IDLE));
    trickle(peer, ms(60), 5);
    trickle(late_peer, ms(60), 2);
    let (first, second) = tokio::join!(read_until_idle(&mut stream), read_until_idle(&mut late));
    assert_eq!((first, second), (ms(400), ms(220)));
}

/// Never has anything to read, and keeps no waker.
#[derive(Debug)]
struct Silent;

impl AsyncRead for Silent {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

// --- passing through ---

/// Accepts every byte, and records the operations.
#[derive(Debug, Default)]
struct Sink {
    vectored: bool,
    writes: Vec<Vec<usize>>,
}

impl AsyncWrite for Sink {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writes.push(vec![buf.len()]);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let lengths: Vec<usize> = bufs.iter().map(|buf| buf.len()).collect();
        let n = lengths.iter().sum();
        self.writes.push(lengths);
        Poll::Ready(Ok(n))
    }

    fn is_write_vectored(&self) -> bool {
        self.vectored
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn passes_vectored_writes_through() {
    let wheel = TimerWheel::new();
    for vectored in [false, true] {
        let sink = Sink {
            vectored,
            writes: Vec::new(),
        };
        let mut stream = wheel.idle_stream(sink, IDLE);
        assert_eq!(stream.is_write_vectored(), vectored);
        time::advance(ms(60)).await;
        let bufs = [IoSlice::new(b"ab"), IoSlice::new(b"cde")];
        assert_eq!(stream.write_vectored(&bufs).await.expect("taken"), 5);
        let handle = stream.handle().expect("it has a limit");
        assert_eq!(handle.last_active(), Instant::now());
        assert_eq!(stream.get_ref().writes, [[2, 3]]);
    }
}

#[tokio::test(start_paused = true)]
async fn passes_buffered_reads_through() {
    let wheel = TimerWheel::new();
    let (socket, mut peer) = duplex(64);
    let stream = wheel.idle_stream(BufReader::new(socket), IDLE);
    let mut lines = stream.lines();
    let start = Instant::now();
    tokio::spawn(async move {
        for line in ["one\ntw", "o\nthree\n"] {
            time::sleep(ms(60)).await;
            peer.write_all(line.as_bytes()).await.expect("it is open");
        }
        std::future::pending::<()>().await;
    });
    for expected in ["one", "two", "three"] {
        let line = lines.next_line().await.expect("not idle");
        assert_eq!(line.as_deref(), Some(expected));
    }
    assert!(is_idle(lines.next_line().await));
    assert_eq!(start.elapsed(), ms(220));
}

#[tokio::test(start_paused = true)]
async fn ignores_operations_on_inner_stream() {
    let wheel = TimerWheel::new();
    let (mut stream, mut peer) = pair(&wheel, &none().either(IDLE));
    time::advance(ms(60)).await;
    peer.write_u8(1).await.expect("it is open");
    assert_eq!(stream.get_mut().read_u8().await.expect("it is there"), 1);
    assert_eq!(read_until_idle(&mut stream).await, ms(40));
}

// --- bad input ---

#[tokio::test(start_paused = true)]
#[should_panic(expected = "an idle duration must be longer than zero")]
async fn refuses_stream_of_zero_duration() {
    let _ = TimerWheel::new().idle_stream(duplex(1).0, Duration::ZERO);
}

#[test]
fn refuses_limits_of_zero_duration() {
    let limits: [fn(IdleLimits, Duration) -> IdleLimits; 3] =
        [IdleLimits::read, IdleLimits::write, IdleLimits::either];
    for limit in limits {
        let refused = std::panic::catch_unwind(|| limit(none(), Duration::ZERO));
        let panic = refused.expect_err("it is zero");
        let sentence = panic.downcast_ref::<&str>();
        assert_eq!(sentence, Some(&"an idle duration must be longer than zero"));
    }
}

#[tokio::test(start_paused = true)]
async fn treats_longest_limits_as_none() {
    let wheel = TimerWheel::new();
    let (mut stream, peer) = pair(&wheel, &none().read(Duration::MAX).either(Duration::MAX));
    let mut read = task::spawn(stream.read_u8());
    assert_pending!(read.poll());
    time::advance(Duration::from_secs(86_400 * 365 * 20)).await;
    wheel.settle().await;
    assert!(!read.is_woken());
    drop(peer);
    assert!(assert_ready!(read.poll()).is_err_and(|e| e.kind() == ErrorKind::UnexpectedEof));
}
