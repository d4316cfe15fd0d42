//! Idle streams: operations on them fail once the stream has been idle for too long.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};

use pin_project_lite::pin_project;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use super::idle_limits::IdleLimits;
use super::idle_timer::{IdleHandle, IdleTimer};
use crate::shared::Shared;
use crate::shared::idle_clock::Kind;
use crate::shared::pending::{Direction, Pending};

pin_project! {
    /// Wraps a stream. Once the stream has been idle for too long, its operations fail with
    /// [`TimedOut`](io::ErrorKind::TimedOut). Made by
    /// [`TimerWheel::idle_stream`](crate::TimerWheel::idle_stream) and
    /// [`idle_stream_with`](crate::TimerWheel::idle_stream_with).
    ///
    /// Progress is activity: bytes read or written. Bytes in the buffer of an [`AsyncBufRead`]
    /// count when they arrive and when they are consumed. Flushing, failing, empty operations and
    /// the end of the file are no activity.
    ///
    /// Bytes written to a silent peer are activity too. A server that writes on its own, such as a
    /// chat, limits reading instead, by [`IdleLimits::read`]. A limit on
    /// [`either`](IdleLimits::either) direction cuts a request with a slow handler: a server that
    /// reads while its handlers run, such as hyper or axum, holds a [guard](IdleHandle::busy) for
    /// each request, or uses `KeepAliveStream` of the package `tickwheel-adapters`.
    ///
    /// An operation that can make progress succeeds, however late it is; only a pending one finds
    /// the stream idle. That is final: the pending operation in the other direction fails, and so
    /// do all later ones except for shutting down. Later touches and guards of its
    /// [handle](Self::handle) have no effect, and report that. The inner stream is untouched,
    /// unless it is to be [shut down](Self::shutdown_when_idle); [take it back](Self::into_inner)
    /// to say goodbye on it. A task without a pending operation may be woken once when a limit is
    /// reached.
    ///
    /// Time in which the runtime stood still is not silence: after a stall every limit is reached
    /// later, as [a reaper's watch](crate::Reaper#after-a-stall) is idle later.
    ///
    /// For a task in each direction, use [`tokio::io::split`]. To take the inner stream back, join
    /// the halves with [`unsplit`](tokio::io::ReadHalf::unsplit). Where only reading is limited,
    /// wrap the half that a socket's own `into_split` returns: its tasks share no lock.
    ///
    /// # Cancel safety
    ///
    /// Operations are as cancel safe as those of the inner stream. A cancelled operation neither
    /// loses activity nor prolongs a limit.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::ErrorKind;
    /// use std::time::Duration;
    ///
    /// use tokio::io::{AsyncReadExt, duplex};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let wheel = tickwheel::TimerWheel::new();
    /// let (_peer, socket) = duplex(64);
    ///
    /// let mut socket = wheel.idle_stream(socket, Duration::from_secs(30));
    /// let error = socket.read_u8().await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::TimedOut);
    /// let _socket = socket.into_inner();
    /// # }
    /// ```
    #[doc(alias = "into_split")]
    pub struct IdleStream<S> {
        #[pin]
        inner: S,
        // `None` without limits.
        guard: Option<Guard>,
        // Shuts the inner stream down when it is found to be idle, if that is wanted.
        shutdown: Option<Shutdown<S>>,
    }
}

type Shutdown<S> = fn(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<()>>;

/// The limits of a stream, and their state.
struct Guard {
    timer: IdleTimer,
    pending: Arc<Pending>,
    /// Wakes the operations that are pending.
    waker: Waker,
    is_idle: bool,
    /// The unconsumed bytes last seen in the buffer of a buffered inner stream.
    buffered: usize,
}

impl Guard {
    #[cfg_attr(feature = "console", track_caller)]
    fn new(shared: &Arc<Shared>, limits: &IdleLimits) -> Self {
        let pending = Arc::new(Pending::new());
        Guard {
            timer: IdleTimer::new(shared, limits),
            waker: Waker::from(Arc::clone(&pending)),
            pending,
            is_idle: false,
            buffered: 0,
        }
    }

    /// Fails if the stream was found to be idle.
    fn check(&self) -> io::Result<()> {
        if self.is_idle {
            return Err(idle_error());
        }
        Ok(())
    }

    /// Bytes were taken out of the buffer of the inner stream, if it has one.
    fn has_taken(&mut self, bytes: usize) {
        self.buffered = self.buffered.saturating_sub(bytes);
        self.progress(Kind::Read);
    }

    /// Bytes were read or written.
    fn progress(&self, kind: Kind) {
        let clock = self.timer.clock();
        clock.progress(kind, clock.now());
    }

    /// An operation can make no progress: ready if the stream is idle.
    fn poll_idle(&mut self, direction: Direction, cx: &mut Context<'_>) -> Poll<()> {
        // The limits are looked at after that. If they woke the operation before, or while the
        // waker was cloned, this poll itself finds what they woke it for.
        self.pending.register(direction, cx.waker(), Waker::clone);
        ready!(self.timer.poll_idle(&mut Context::from_waker(&self.waker)));
        self.is_idle = true;
        // The operation in the other direction fails too.
        self.pending.wake_by_ref();
        Poll::Ready(())
    }
}

fn idle_error() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        "the stream has been idle for too long",
    )
}

impl<S> IdleStream<S> {
    #[cfg_attr(feature = "console", track_caller)]
    pub(crate) fn new(shared: &Arc<Shared>, inner: S, limits: &IdleLimits) -> Self {
        let guard = if *limits == IdleLimits::none() {
            None
        } else {
            Some(Guard::new(shared, limits))
        };
        IdleStream {
            inner,
            guard,
            shutdown: None,
        }
    }

    /// The inner stream.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner stream. Reading and writing on it directly is no activity.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Takes the inner stream back and cancels the timer.
    pub fn into_inner(self) -> S {
        self.inner
    }

    /// Whether an operation has failed because the stream was idle.
    pub fn is_idle(&self) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.is_idle)
    }

    /// A handle to touch the stream, or to keep it busy, from any task; `None` without limits.
    /// Touches and guards count for every limit.
    pub fn handle(&self) -> Option<IdleHandle> {
        self.guard.as_ref().map(|guard| guard.timer.handle())
    }
}

impl<S: AsyncWrite> IdleStream<S> {
    /// Shuts the inner stream down once, at the moment at which the stream is found to be idle.
    ///
    /// Where the inner stream is TLS, the peer then sees TLS end in order, by its `close_notify`,
    /// and not a connection that breaks off. The shutdown is begun and not waited for: a peer that
    /// takes no bytes delays no operation. What the socket does not take at once is not sent.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::ErrorKind;
    /// use std::time::Duration;
    ///
    /// use tokio::io::{AsyncReadExt, duplex};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> std::io::Result<()> {
    /// let wheel = tickwheel::TimerWheel::new();
    /// let (mut peer, socket) = duplex(64);
    /// let socket = wheel.idle_stream(socket, Duration::from_secs(30));
    ///
    /// let mut socket = socket.shutdown_when_idle();
    /// let error = socket.read_u8().await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::TimedOut);
    /// assert_eq!(peer.read(&mut [0]).await?, 0, "the peer sees the end of the stream");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn shutdown_when_idle(mut self) -> Self {
        self.shutdown = Some(S::poll_shutdown);
        self
    }
}

impl<S> IdleStream<S> {
    /// Runs one operation of the inner stream and passes what it returns to `progress`. Fails if
    /// the operation is pending and the stream is idle.
    fn poll_op<R>(
        self: Pin<&mut Self>,
        direction: Direction,
        cx: &mut Context<'_>,
        op: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<R>>,
        progress: impl FnOnce(&mut Guard, &R),
    ) -> Poll<io::Result<R>> {
        let mut this = self.project();
        let Some(guard) = this.guard else {
            return op(this.inner, cx);
        };
        guard.check()?;
        if let Poll::Ready(result) = op(this.inner.as_mut(), cx) {
            return Poll::Ready(result.inspect(|result| progress(guard, result)));
        }
        ready!(guard.poll_idle(direction, cx));
        if let Some(shutdown) = this.shutdown.take() {
            // It is begun, and not waited for: the stream is idle whatever becomes of it.
            let _ = shutdown(this.inner, cx);
        }
        Poll::Ready(Err(idle_error()))
    }

    /// Runs one operation that writes bytes.
    fn poll_write_op(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        op: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.poll_op(Direction::Write, cx, op, |guard, &written| {
            if written > 0 {
                guard.progress(Kind::Write);
            }
        })
    }
}

impl<S: AsyncRead> AsyncRead for IdleStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let op = |inner: Pin<&mut S>, cx: &mut Context<'_>| {
            ready!(inner.poll_read(cx, buf))?;
            Poll::Ready(Ok(buf.filled().len() - before))
        };
        let read = self.poll_op(Direction::Read, cx, op, |guard, &read| {
            if read > 0 {
                guard.has_taken(read);
            }
        });
        Poll::Ready(ready!(read).map(|_| ()))
    }
}

impl<S: AsyncBufRead> AsyncBufRead for IdleStream<S> {
    fn poll_fill_buf(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        if self.shutdown.is_some() {
            // What the buffer holds borrows the inner stream, which could not be shut down. So a
            // first look borrows nothing.
            let look =
                |inner: Pin<&mut S>, cx: &mut Context<'_>| inner.poll_fill_buf(cx).map_ok(|_| ());
            let looked = self.as_mut();
            ready!(looked.poll_op(Direction::Read, cx, look, |_, ()| {}))?;
        }
        let this = self.project();
        let Some(guard) = this.guard else {
            return this.inner.poll_fill_buf(cx);
        };
        guard.check()?;
        let Poll::Ready(buf) = this.inner.poll_fill_buf(cx)? else {
            ready!(guard.poll_idle(Direction::Read, cx));
            return Poll::Ready(Err(idle_error()));
        };
        if buf.len() > guard.buffered {
            // Bytes have arrived.
            guard.progress(Kind::Read);
        }
        guard.buffered = buf.len();
        Poll::Ready(Ok(buf))
    }

    fn consume(self: Pin<&mut Self>, amount: usize) {
        let this = self.project();
        this.inner.consume(amount);
        if let (Some(guard), true) = (this.guard, amount > 0) {
            guard.has_taken(amount);
        }
    }
}

impl<S: AsyncWrite> AsyncWrite for IdleStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_op(cx, |inner, cx| inner.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_op(cx, |inner, cx| inner.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Bytes count when they are accepted, and a flush may have nothing to do.
        self.poll_op(Direction::Write, cx, S::poll_flush, |_, ()| {})
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        let polled = this.inner.poll_shutdown(cx);
        match this.guard {
            Some(guard) if polled.is_pending() && !guard.is_idle => {
                ready!(guard.poll_idle(Direction::Write, cx));
                Poll::Ready(Err(idle_error()))
            }
            // An idle stream can still be shut down.
            _ => polled,
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for IdleStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleStream")
            .field("inner", &self.inner)
            .field("is_idle", &self.is_idle())
            .finish_non_exhaustive()
    }
}
