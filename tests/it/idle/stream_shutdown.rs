//! The shutdown of the inner stream of an idle stream.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tickwheel::TimerWheel;
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, BufWriter,
    DuplexStream, ReadBuf, duplex,
};
use tokio::time::{self, Instant};

use crate::support::ms;

/// Counts its shutdowns, which never complete.
struct CountsShutdowns(DuplexStream, Arc<AtomicUsize>);

impl AsyncRead for CountsShutdowns {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for CountsShutdowns {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn idle_stream_shuts_its_inner_stream_down_once_if_it_is_to() {
    let wheel = TimerWheel::new();
    for is_to in [false, true] {
        let shutdowns = Arc::<AtomicUsize>::default();
        let (socket, mut peer) = duplex(4);
        let inner = CountsShutdowns(socket, Arc::clone(&shutdowns));
        let mut stream = wheel.idle_stream(inner, ms(100));
        if is_to {
            stream = stream.shutdown_when_idle();
        }
        // Operations that complete, and an error of the stream's own, are no reason.
        peer.write_all(b"a").await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'a');
        assert_eq!(shutdowns.load(Ordering::Relaxed), 0);
        assert_eq!(
            stream.read_u8().await.unwrap_err().kind(),
            ErrorKind::TimedOut
        );
        for _ in 0..2 {
            assert!(stream.read_u8().await.is_err() && stream.write_all(b"abcdef").await.is_err());
        }
        assert_eq!(shutdowns.load(Ordering::Relaxed), usize::from(is_to));
    }
}

#[tokio::test(start_paused = true)]
async fn idle_stream_that_is_read_by_its_buffer_is_shut_down() {
    let wheel = TimerWheel::new();
    let (socket, mut peer) = duplex(8);
    let stream = wheel.idle_stream(BufReader::new(socket), ms(100));
    let mut lines = stream.shutdown_when_idle();
    peer.write_all(b"a\n").await.unwrap();
    let mut line = String::new();
    assert_eq!(lines.read_line(&mut line).await.unwrap(), 2);
    let error = lines.read_line(&mut line).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(
        peer.read(&mut [0]).await.unwrap(),
        0,
        "the peer sees the end"
    );
}

#[tokio::test(start_paused = true)]
async fn pending_shutdown_finds_the_stream_idle() {
    let wheel = TimerWheel::new();
    let (socket, mut peer) = duplex(4);
    let mut stream = wheel.idle_stream(BufWriter::new(socket), ms(100));
    stream.write_all(b"12345678").await.unwrap();
    let start = Instant::now();
    let shut_down = time::timeout(ms(1_000), stream.shutdown()).await;
    let error = shut_down.expect("it ends").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(start.elapsed(), ms(100));
    assert!(stream.is_idle());

    // An idle stream can still be shut down.
    let mut received = Vec::new();
    let (shut_down, read) = tokio::join!(stream.shutdown(), peer.read_to_end(&mut received));
    shut_down.unwrap();
    assert_eq!((read.unwrap(), received), (8, b"12345678".to_vec()));
}
