//! Connections that are closed between requests, never during one.
//!
//! [`KeepAliveStream`] reads from the bytes of a connection when a response is owed, and counts its
//! idle duration only while none is.
//!
//! | connection | the idle duration counts |
//! |---|---|
//! | HTTP/1, no request yet, or between two | from the last byte |
//! | HTTP/1, a request arrives or is being handled | not at all: [limit reading](#half-a-request) for a request that stops halfway |
//! | HTTP/1, a response is being written | from the last byte |
//! | WebSocket and others after a response with the status 101 | from the last byte in either direction |
//! | a tunnel by `CONNECT`, with a 200 as response | only after a byte of the server: use [`IdleLimits::either`](tickwheel::IdleLimits::either) |
//! | HTTP/2, gRPC | only after a byte of the server, also while requests are being handled: use [`IdleLimits::either`](tickwheel::IdleLimits::either) with [guards](tickwheel::IdleHandle::busy) |
//!
//! # How it knows
//!
//! A byte stream shows what is read and written, and when. So this is a guess about HTTP/1 and
//! protocols like it:
//!
//! 1. Bytes that are read are a request, or a part of one: from then on a response is owed.
//! 2. The first attempt to write at least one byte begins the response, and nothing is owed any
//!    more. Interim responses of HTTP/1, such as `100 Continue`, begin nothing where they stand at
//!    the beginning of a write.
//! 3. A response that begins with the status 101 upgrades the connection: nothing is owed from then
//!    on.
//!
//! Bytes that are read after a response has begun, such as the rest of an upload that was refused,
//! look like another request.
//!
//! Therefore the limit cuts a response that pauses for longer than the idle duration, and the
//! second of two pipelined requests if its handler takes longer than that after the first response.
//! Where requests can be counted, as in a handler, a [guard](KeepAliveStream::handle) for each is
//! exact.
//!
//! Wrap the stream that carries the requests: above TLS, not below it.
//!
//! # Half a request
//!
//! A request that stops halfway looks like one that is being handled, so this limit does not end
//! it. Let the server limit the arrival, by hyper's `header_read_timeout` for example, or limit
//! reading on the stream below, for longer than the slowest handler takes:
//!
//! ```
//! use std::time::Duration;
//! use tickwheel::{IdleLimits, TimerWheel};
//! use tickwheel_adapters::keep_alive::KeepAliveStream;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
//! use tokio::time::Instant;
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> std::io::Result<()> {
//! let wheel = TimerWheel::new();
//! let (mut client, socket) = duplex(64);
//! let limits = IdleLimits::none().read(Duration::from_secs(300));
//! let socket = wheel.idle_stream_with(socket, &limits);
//! let mut socket = KeepAliveStream::new(socket, &wheel, Duration::from_secs(60));
//!
//! client.write_all(b"GET / HT").await?;
//! let start = Instant::now();
//! let error = socket.read_to_string(&mut String::new()).await.unwrap_err();
//! assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
//! assert_eq!(start.elapsed(), Duration::from_secs(300));
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tickwheel::{BusyGuard, IdleHandle, IdleStream, TimerWheel};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Wraps a connection. Once nothing has happened on it for its idle duration while no response is
/// owed, its operations fail with [`TimedOut`](io::ErrorKind::TimedOut).
///
/// The [module](self) says when a response is owed. Otherwise it is like an [`IdleStream`] with the
/// limit [`either`](tickwheel::IdleLimits::either).
///
/// # Cancel safety
///
/// Operations are as cancel safe as those of the inner stream.
///
/// # Examples
///
/// ```
/// use std::io::ErrorKind;
/// use std::time::Duration;
/// use tickwheel::TimerWheel;
/// use tickwheel_adapters::keep_alive::KeepAliveStream;
/// use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
/// use tokio::time::sleep;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> std::io::Result<()> {
/// let wheel = TimerWheel::new();
/// let (mut client, socket) = duplex(64);
/// let socket = KeepAliveStream::new(socket, &wheel, Duration::from_secs(5));
/// let (mut requests, mut responses) = tokio::io::split(socket);
///
/// client.write_all(b"a").await?;
/// assert_eq!(requests.read_u8().await?, b'a');
/// // The handler takes a minute. Meanwhile the server waits for the client to hang up.
/// let hung_up = tokio::spawn(async move { requests.read_u8().await });
/// sleep(Duration::from_secs(60)).await;
/// responses.write_all(b"A").await?;
///
/// // No other request follows.
/// assert_eq!(hung_up.await?.unwrap_err().kind(), ErrorKind::TimedOut);
/// # Ok(())
/// # }
/// ```
pub struct KeepAliveStream<S> {
    inner: IdleStream<S>,
    response: Response,
}

enum Response {
    None,
    Owed(#[allow(dead_code)] Option<BusyGuard>),
    Upgraded,
}

impl<S> KeepAliveStream<S> {
    /// Limits how long nothing may happen on `io` while no response is owed, by a timer on `wheel`.
    ///
    /// # Panics
    ///
    /// Panics if `idle` is zero.
    #[track_caller]
    pub fn new(io: S, wheel: &TimerWheel, idle: Duration) -> Self {
        KeepAliveStream {
            inner: wheel.idle_stream(io, idle),
            response: Response::None,
        }
    }

    /// The inner stream.
    pub fn get_ref(&self) -> &S {
        self.inner.get_ref()
    }

    /// Takes the inner stream back and cancels the timer.
    pub fn into_inner(self) -> S {
        self.inner.into_inner()
    }

    /// Whether an operation has failed because the stream was idle.
    pub fn is_idle(&self) -> bool {
        self.inner.is_idle()
    }

    /// A handle to touch the stream, or to keep it busy, from any task.
    pub fn handle(&self) -> Option<IdleHandle> {
        self.inner.handle()
    }

    /// Bytes arrived.
    fn has_read(&mut self) {
        if let Response::None = self.response {
            let guard = self.inner.handle().map(|handle| handle.busy());
            self.response = Response::Owed(guard);
        }
    }

    /// There are bytes to write, which begin with these: the peer has to take them from now on.
    fn begins_write(&mut self, bytes: &[u8]) {
        let Response::Owed(_) = self.response else {
            return;
        };
        let bytes = after_interim(bytes);
        if bytes.is_empty() {
            return;
        }
        // Dropping the guard is activity.
        self.response = if is_upgrade(bytes) {
            Response::Upgraded
        } else {
            Response::None
        };
    }
}

impl<S: AsyncWrite> KeepAliveStream<S> {
    /// Shuts the inner stream down once, at the moment at which the stream is found to be idle: see
    /// [`IdleStream::shutdown_when_idle`].
    #[must_use]
    pub fn shutdown_when_idle(self) -> Self {
        KeepAliveStream {
            inner: self.inner.shutdown_when_idle(),
            ..self
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for KeepAliveStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.has_read();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for KeepAliveStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.begins_write(buf);
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(first) = bufs.iter().find(|buf| !buf.is_empty()) {
            self.begins_write(first);
        }
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<S: fmt::Debug> fmt::Debug for KeepAliveStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeepAliveStream")
            .field("inner", self.inner.get_ref())
            .field("is_owed", &matches!(self.response, Response::Owed(_)))
            .field("is_idle", &self.is_idle())
            .finish_non_exhaustive()
    }
}

/// The bytes from the status of an HTTP/1 response on, if they begin one.
fn status(bytes: &[u8]) -> Option<&[u8]> {
    let minor_and_rest = bytes.strip_prefix(b"HTTP/1.")?;
    minor_and_rest.get(1..)?.strip_prefix(b" ")
}

/// Whether the bytes begin a response that changes the protocol.
fn is_upgrade(bytes: &[u8]) -> bool {
    status(bytes).is_some_and(|status| status.starts_with(b"101"))
}

/// What follows the interim responses at the beginning of the bytes. An upgrade is none: it is
/// final.
fn after_interim(mut bytes: &[u8]) -> &[u8] {
    while status(bytes).is_some_and(|status| status.starts_with(b"1")) && !is_upgrade(bytes) {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        bytes = end.map_or(&[], |end| &bytes[end + 4..]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::{after_interim, is_upgrade};

    #[test]
    fn only_the_status_101_is_an_upgrade() {
        for upgrade in ["HTTP/1.1 101 Switching Protocols\r\n", "HTTP/1.0 101"] {
            assert!(is_upgrade(upgrade.as_bytes()), "{upgrade}");
        }
        for other in [
            "",
            "HTTP/1.",
            "HTTP/1.1 200 OK",
            "GET / HTTP/1.1 101",
            "101",
        ] {
            assert!(!is_upgrade(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn interim_responses_at_the_beginning_are_left_out() {
        let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n";
        for response in ["", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 101", "body"] {
            let bytes = format!("{interim}{response}");
            assert_eq!(after_interim(bytes.as_bytes()), response.as_bytes());
            assert_eq!(after_interim(response.as_bytes()), response.as_bytes());
        }
        assert_eq!(after_interim(b"HTTP/1.1 100 Cont"), b"");
    }
}
