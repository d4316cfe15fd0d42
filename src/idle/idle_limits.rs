//! The limits of an idle stream.

use std::time::Duration;

use super::idle_timer::assert_not_zero;

/// How long a stream may be without progress: in each direction, in both, or between requests.
///
/// | limit | reached when | for |
/// |---|---|---|
/// | [`either`](Self::either) | no byte was read and none written for so long | tunnels, anything that should never be silent |
/// | [`keep_alive`](Self::keep_alive) | no response is owed and nothing happened for so long | servers that answer requests, such as HTTP/1 |
/// | [`read`](Self::read) | no byte was read for so long, whatever was written | peers that must send, such as uploads or heartbeats; chats and other servers that write on their own |
/// | [`write`](Self::write) | no byte was written for so long, whatever was read | peers that must take what they are sent |
///
/// Each limit is optional, and a stream is idle as soon as one of them is reached. Where requests
/// can be counted, as in a handler, a [guard](crate::IdleHandle::busy) for each request is exact
/// with any of them.
///
/// What holds for a connection with the limit `keep_alive`:
///
/// | connection | `keep_alive` counts |
/// |---|---|
/// | HTTP/1, no request yet, or between two | from the last byte |
/// | HTTP/1, a request arrives or is being handled | not at all: add `read` for a request that stops halfway |
/// | HTTP/1, a response is being written | from the last byte |
/// | WebSocket and others after a response with the status 101 | like `either`: from the last byte in either direction |
/// | a tunnel by `CONNECT`, with a 200 as response | only after a byte of the server: use `either` |
/// | HTTP/2, gRPC | from the last byte, also while requests are being handled: use guards |
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdleLimits {
    pub(super) either: Option<Duration>,
    pub(super) read: Option<Duration>,
    pub(super) write: Option<Duration>,
    pub(super) keep_alive: Option<Duration>,
}

impl IdleLimits {
    /// No limits. A stream without limits has no timer.
    pub fn none() -> Self {
        Self::default()
    }

    /// Limits how long no byte may be read.
    ///
    /// # Panics
    ///
    /// Panics if `idle` is zero.
    #[must_use]
    #[track_caller]
    pub fn read(mut self, idle: Duration) -> Self {
        assert_not_zero(idle);
        self.read = Some(idle);
        self
    }

    /// Limits how long no byte may be written.
    ///
    /// # Panics
    ///
    /// Panics if `idle` is zero.
    #[must_use]
    #[track_caller]
    pub fn write(mut self, idle: Duration) -> Self {
        assert_not_zero(idle);
        self.write = Some(idle);
        self
    }

    /// Limits how long no byte may be read and none written.
    ///
    /// # Panics
    ///
    /// Panics if `idle` is zero.
    #[must_use]
    #[track_caller]
    pub fn either(mut self, idle: Duration) -> Self {
        assert_not_zero(idle);
        self.either = Some(idle);
        self
    }

    /// Limits how long nothing may happen while no response is owed: the right limit for a server
    /// that answers requests.
    ///
    /// A response is owed from the moment bytes are read until the server begins to write; this
    /// limit does not count then, however long the handler takes. It counts before the first
    /// request, while a response is written, and after it until the first byte of the next request.
    /// Reading, writing and the beginning of a response are activity. An interim response of
    /// HTTP/1, such as `100 Continue`, is not the one that is owed.
    ///
    /// After a response of HTTP/1 with the status 101, such as one that begins a WebSocket, no
    /// response is owed any more: the limit counts like [`either`](Self::either).
    ///
    /// A byte stream shows no more than that. Therefore:
    ///
    /// * A request that stops halfway looks like one that is being handled, and this limit does not
    ///   end it. Add a [`read`](Self::read) limit longer than the slowest handler, or let the
    ///   server limit the request's arrival (such as hyper's `header_read_timeout`).
    /// * This limit cuts a response that pauses for longer than the limit, and the second of two
    ///   pipelined requests if its handler takes longer than the limit after the first response.
    /// * A protocol that writes on its own while a request is being handled, such as HTTP/2 with
    ///   its acknowledgements, looks like a response that begins, so the limit counts. Use a
    ///   [guard](crate::IdleHandle::busy) for each request there.
    ///
    /// Wrap the stream that carries the requests: above TLS, not below it. With
    /// [`shutdown_when_idle`](crate::IdleStream::shutdown_when_idle) the client then sees TLS end
    /// in order.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::ErrorKind;
    /// use std::time::Duration;
    /// use tickwheel::{IdleLimits, TimerWheel};
    /// use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    /// use tokio::time::sleep;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> std::io::Result<()> {
    /// let wheel = TimerWheel::new();
    /// let (mut client, socket) = duplex(64);
    /// let limits = IdleLimits::none().keep_alive(Duration::from_secs(5));
    /// let stream = wheel.idle_stream_with(socket, &limits);
    /// let (mut requests, mut responses) = tokio::io::split(stream);
    ///
    /// client.write_all(b"a").await?;
    /// assert_eq!(requests.read_u8().await?, b'a');
    /// // The handler takes a minute.
    /// let hung_up = tokio::spawn(async move { requests.read_u8().await });
    /// sleep(Duration::from_secs(60)).await;
    /// responses.write_all(b"A").await?;
    ///
    /// // No other request follows.
    /// assert_eq!(hung_up.await?.unwrap_err().kind(), ErrorKind::TimedOut);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if `idle` is zero.
    #[must_use]
    #[track_caller]
    pub fn keep_alive(mut self, idle: Duration) -> Self {
        assert_not_zero(idle);
        self.keep_alive = Some(idle);
        self
    }
}
