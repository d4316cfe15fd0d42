//! Bugs that idle streams once had.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::support::jump;
use tickwheel::{IdleLimits, TimerWheel};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader, ReadBuf,
    duplex,
};
use tokio::time::{self, Instant};
use tokio_test::{assert_pending, assert_ready, task};

use crate::support::advance;

const IDLE: Duration = ms(100);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn is_idle<R: std::fmt::Debug>(result: io::Result<R>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::TimedOut)
}

// --- idle is final, for both directions ---

/// Touches and guards that came after one direction had failed put the other direction off forever.
#[tokio::test(start_paused = true)]
async fn fails_other_direction_despite_later_touches() {
    for limits in [
        IdleLimits::none().either(IDLE),
        IdleLimits::none().read(IDLE),
        IdleLimits::none().write(IDLE),
    ] {
        let wheel = TimerWheel::new();
        let (socket, _peer) = duplex(8);
        let mut stream = wheel.idle_stream_with(socket, &limits);
        stream.write_all(&[0; 8]).await.expect("there is room");
        let handle = stream.handle().expect("it has limits");
        let (mut reading, mut writing) = tokio::io::split(stream);
        let mut write = task::spawn(writing.write_u8(1));
        assert_pending!(write.poll());

        time::advance(IDLE).await;
        // The read finds the stream idle before the actor does.
        let mut read = task::spawn(reading.read_u8());
        assert!(is_idle(assert_ready!(read.poll())), "{limits:?}");
        assert!(!handle.touch(), "idle is final: {limits:?}");
        let busy = handle.busy();
        assert!(!busy.is_effective(), "idle is final: {limits:?}");
        assert!(write.is_woken(), "{limits:?}");
        assert!(is_idle(assert_ready!(write.poll())), "{limits:?}");
    }
}

/// The operation that decides wakes the other direction itself: the actor may be late, or as here
/// not run at all.
#[tokio::test(start_paused = true)]
async fn wakes_other_direction_without_actor() {
    let wheel = TimerWheel::new();
    let (socket, _peer) = duplex(8);
    let stream = wheel.idle_stream(socket, ms(10));
    let (mut reading, mut writing) = tokio::io::split(stream);
    let mut write = task::spawn(writing.write_all(&[0; 9]));
    assert_pending!(write.poll());
    // The test awaits nothing, so the actor has no turn.
    jump(ms(20));
    assert!(!write.is_woken());
    let mut read = task::spawn(reading.read_u8());
    assert!(is_idle(assert_ready!(read.poll())));
    assert!(write.is_woken());
    assert!(is_idle(assert_ready!(write.poll())));
}

/// A touch that came too late was recorded, unless the limit on either direction was reached.
#[tokio::test(start_paused = true)]
async fn activity_that_comes_too_late_is_not_recorded() {
    let limits: [fn(IdleLimits, Duration) -> IdleLimits; 3] =
        [IdleLimits::either, IdleLimits::read, IdleLimits::write];
    for limit in limits {
        let limits = limit(IdleLimits::none(), IDLE);
        let wheel = TimerWheel::new();
        let (socket, mut peer) = duplex(8);
        let mut stream = wheel.idle_stream_with(BufReader::new(socket), &limits);
        let handle = stream.handle().expect("it has limits");
        peer.write_all(b"abc").await.expect("there is room");
        time::advance(ms(10)).await;
        assert_eq!(stream.fill_buf().await.expect("not idle"), b"abc");
        stream.write_all(&[0; 8]).await.expect("there is room");
        let last = Instant::now();
        assert!(is_idle(stream.write_u8(1).await), "{limits:?}");
        assert_eq!(handle.last_active(), last, "{limits:?}");

        time::advance(IDLE).await;
        assert!(!handle.touch());
        assert_eq!(handle.last_active(), last, "touched: {limits:?}");
        stream.consume(1);
        assert_eq!(handle.last_active(), last, "consumed: {limits:?}");
        let busy = handle.busy();
        assert!(!busy.is_effective(), "{limits:?}");
        drop(busy);
        assert_eq!(handle.last_active(), last, "guarded: {limits:?}");
    }
}

// --- buffered bytes ---

/// Filling the buffer without new bytes counted as progress.
#[tokio::test(start_paused = true)]
async fn ignores_fill_buf_without_new_bytes() {
    let wheel = TimerWheel::new();
    let (socket, mut peer) = duplex(64);
    let mut stream = wheel.idle_stream(BufReader::new(socket), IDLE);
    let handle = stream.handle().expect("it has limits");
    peer.write_all(b"abc").await.expect("it is open");
    assert_eq!(stream.fill_buf().await.expect("not idle"), b"abc");
    let arrived = Instant::now();
    for _ in 0..5 {
        time::advance(ms(30)).await;
        assert_eq!(stream.fill_buf().await.expect("not idle"), b"abc");
        assert_eq!(handle.last_active(), arrived);
    }
    // Consuming them is progress, each time.
    stream.consume(2);
    assert_eq!(handle.last_active(), Instant::now());
    time::advance(ms(30)).await;
    assert_eq!(stream.fill_buf().await.expect("not idle"), b"c");
    assert_eq!(handle.last_active(), Instant::now() - ms(30));
    stream.consume(0);
    assert_eq!(handle.last_active(), Instant::now() - ms(30));
    stream.consume(1);
    let start = Instant::now();
    assert!(is_idle(stream.fill_buf().await));
    assert_eq!(start.elapsed(), IDLE);
}

/// A source with a buffer that grows by one byte at each `fill_buf`.
struct Growing(usize);

impl AsyncRead for Growing {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        unreachable!("it is read through its buffer")
    }
}

impl AsyncBufRead for Growing {
    fn poll_fill_buf(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.0 += 1;
        Poll::Ready(Ok(&[0; 16][..self.0]))
    }

    fn consume(mut self: Pin<&mut Self>, amount: usize) {
        self.0 -= amount;
    }
}

#[tokio::test(start_paused = true)]
async fn counts_new_bytes_behind_unconsumed_ones() {
    let wheel = TimerWheel::new();
    let mut stream = wheel.idle_stream(Growing(0), IDLE);
    let handle = stream.handle().expect("it has limits");
    for length in 1..5 {
        time::advance(ms(30)).await;
        assert_eq!(stream.fill_buf().await.expect("not idle").len(), length);
        assert_eq!(handle.last_active(), Instant::now());
    }
    stream.consume(3);
    time::advance(ms(30)).await;
    assert_eq!(stream.fill_buf().await.expect("not idle").len(), 2);
    assert_eq!(handle.last_active(), Instant::now());
}

#[tokio::test(start_paused = true)]
async fn counts_new_bytes_after_buffer_was_read() {
    let wheel = TimerWheel::new();
    let (socket, mut peer) = duplex(64);
    let mut stream = wheel.idle_stream(BufReader::new(socket), IDLE);
    let handle = stream.handle().expect("it has limits");
    peer.write_all(b"abc").await.expect("it is open");
    assert_eq!(stream.fill_buf().await.expect("not idle"), b"abc");
    assert_eq!(stream.read(&mut [0; 3]).await.expect("not idle"), 3);
    time::advance(ms(60)).await;
    peer.write_all(b"de").await.expect("it is open");
    assert_eq!(stream.fill_buf().await.expect("not idle"), b"de");
    assert_eq!(handle.last_active(), Instant::now());
}

// --- tasks without a pending operation ---

// The documentation said that such a task is not woken.
#[tokio::test(start_paused = true)]
async fn ended_operation_has_its_task_woken_once_at_most() {
    let wheel = TimerWheel::new();
    let (mut peer, socket) = duplex(8);
    let mut stream = wheel.idle_stream(socket, IDLE);
    let mut reading = task::spawn(());
    let mut byte = [0];
    let mut poll = |reading: &mut task::Spawn<()>| {
        let mut buf = ReadBuf::new(&mut byte);
        reading.enter(|cx, _| Pin::new(&mut stream).poll_read(cx, &mut buf))
    };
    assert_pending!(poll(&mut reading));
    peer.write_all(b"x").await.expect("there is room");
    assert_ready!(poll(&mut reading)).expect("a byte");
    for wakes in [1, 0, 0] {
        advance(&wheel, 3 * IDLE).await;
        assert_eq!(usize::from(reading.is_woken()), wakes);
        reading.enter(|_, _| {});
    }
}

// --- peers that only listen ---

// A listener in a chat was never found idle: lines that are written to it are activity of the plain
// stream.
#[tokio::test(start_paused = true)]
async fn read_limit_finds_listener_idle_in_a_chat() {
    let wheel = TimerWheel::new();
    let limits = |limit: fn(IdleLimits, Duration) -> IdleLimits| limit(IdleLimits::none(), IDLE);
    for (limits, is_found) in [
        (limits(IdleLimits::either), false),
        (limits(IdleLimits::read), true),
    ] {
        let (mut listener, socket) = duplex(8);
        let stream = wheel.idle_stream_with(socket, &limits);
        let (mut input, mut output) = tokio::io::split(stream);
        let reading = tokio::spawn(async move { (input.read_u8().await, input) });
        for _ in 0..10 {
            time::sleep(IDLE / 2).await;
            let _ = output.write_u8(b'x').await;
            let _ = time::timeout(ms(1), listener.read_u8()).await;
        }
        assert_eq!(reading.is_finished(), is_found);
        drop(listener);
        let (read, input) = reading.await.expect("it does not panic");
        assert_eq!(is_idle(read), is_found);
        // The documented way to take the inner stream back.
        let _socket = input.unsplit(output).into_inner();
    }
}
