//! Idle streams: a wrapper whose operations fail once its stream has been idle for too long.

use std::fmt;
use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use super::idle_timer::{IdleHandle, IdleTimer, assert_not_zero};
use crate::panic::wake;
use crate::shared::Shared;
use crate::shared::idle_clock::{IdleDurations, Kind};
use crate::sync::SpinMutex;

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
/// can be counted, as in a handler, a [guard](IdleHandle::busy) for each request is exact with any
/// of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IdleLimits(IdleDurations);

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
        self.0.read = Some(idle);
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
        self.0.write = Some(idle);
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
        self.0.either = Some(idle);
        self
    }

    /// Limits how long nothing may happen while no response is owed: the right limit for a server
    /// that answers requests.
    ///
    /// A response is owed from the moment bytes are read until the server begins to write; this
    /// limit does not count then, however long the handler takes. It counts before the first
    /// request, while a response is written, and after it until the first byte of the next request.
    /// Reading, writing and the beginning of a response are activity.
    ///
    /// A byte stream shows no more than that. Therefore:
    ///
    /// * A request that stops halfway looks like one that is being handled, and this limit does not
    ///   end it. Add a [`read`](Self::read) limit longer than the slowest handler, or let the
    ///   server limit the request's arrival (such as hyper's `header_read_timeout`).
    /// * This limit cuts a response that pauses for longer than the limit, and the second of two
    ///   pipelined requests if its handler takes longer than the limit after the first response.
    /// * A protocol that writes on its own while a request is being handled, such as HTTP/2 with
    ///   its acknowledgements, ends what is owed by that. Use a [guard](IdleHandle::busy) for each
    ///   request there.
    ///
    /// Wrap the stream that carries the requests: above TLS, not below it.
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
    /// let (mut requests, mut responses) = tokio::io::split(wheel.idle_stream_with(socket, limits));
    ///
    /// client.write_all(b"a").await?;
    /// assert_eq!(requests.read_u8().await?, b'a');
    /// // The handler takes a minute. Meanwhile the server waits for the client to hang up, as hyper does.
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
        self.0.keep_alive = Some(idle);
        self
    }
}

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
    /// chat, limits reading instead, by [`IdleLimits::read`]. A server that reads while its
    /// handlers run, such as hyper or axum, uses [`IdleLimits::keep_alive`]: a limit on
    /// [`either`](IdleLimits::either) direction cuts a request whose handler is slow.
    ///
    /// An operation that can make progress succeeds, however late it is; only a pending one finds
    /// the stream idle. That is final: the pending operation in the other direction fails, and so
    /// do all later ones except for shutting down. Later touches and guards of its
    /// [handle](Self::handle) have no effect, and report that. The inner stream is untouched; [take
    /// it back](Self::into_inner) to say goodbye on it. A task without a pending operation may be
    /// woken once when a limit is reached.
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
    }
}

/// The limits of a stream, and their state.
struct Guard {
    timer: IdleTimer,
    pending: Arc<Pending>,
    /// Wakes the operations that are pending.
    waker: Waker,
    is_idle: bool,
    /// Bytes were read and none were written since, and a limit depends on it.
    owes_response: bool,
    /// The unconsumed bytes last seen in the buffer of a buffered inner stream.
    buffered: usize,
}

#[derive(Debug, Clone, Copy)]
enum Direction {
    Read,
    Write,
}

/// The wakers of the pending operations, by [`Direction`]. Each is the last poller's.
#[derive(Debug)]
struct Pending(SpinMutex<[Option<Waker>; 2]>);

impl Pending {
    fn new() -> Self {
        Pending(SpinMutex::new([None, None]))
    }

    /// Makes `waker` the one to wake for this direction. Clones and drops wakers while the lock is
    /// free.
    fn register(&self, direction: Direction, waker: &Waker) {
        let is_same = |registered: &Waker| registered.will_wake(waker);
        if (self.0.lock()[direction as usize].as_ref()).is_some_and(is_same) {
            return;
        }
        let waker = waker.clone();
        let replaced = self.0.lock()[direction as usize].replace(waker);
        drop(replaced);
    }
}

impl Wake for Pending {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let wakers = mem::take(&mut *self.0.lock());
        wakers.into_iter().for_each(wake);
    }
}

impl Guard {
    #[cfg_attr(feature = "console", track_caller)]
    fn new(shared: &Arc<Shared>, limits: IdleLimits) -> Self {
        let pending = Arc::new(Pending::new());
        Guard {
            timer: IdleTimer::with_durations(shared, limits.0),
            waker: Waker::from(Arc::clone(&pending)),
            pending,
            is_idle: false,
            owes_response: false,
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

    /// Bytes arrived from the inner stream.
    fn has_read(&mut self) {
        self.progress(Kind::Read);
        if !self.owes_response {
            self.owes_response = self.timer.clock().owe();
        }
    }

    /// Bytes were read or written.
    fn progress(&self, kind: Kind) {
        let clock = self.timer.clock();
        clock.progress(kind, clock.now());
    }

    /// There are bytes to write: no response is owed any more, and the peer has to take the bytes.
    fn begin_response(&mut self) {
        if mem::take(&mut self.owes_response) {
            let clock = self.timer.clock();
            clock.respond(clock.now());
        }
    }

    /// The buffer of the inner stream holds this many bytes. If there are more than before, bytes
    /// have arrived.
    fn has_buffered(&mut self, bytes: usize) {
        if bytes > self.buffered {
            self.has_read();
        }
        self.buffered = bytes;
    }

    /// Bytes were taken out of the buffer of the inner stream, if it has one.
    fn has_taken(&mut self, bytes: usize) {
        self.buffered = self.buffered.saturating_sub(bytes);
    }

    /// An operation can make no progress: ready if the stream is idle.
    fn poll_idle(&mut self, direction: Direction, cx: &mut Context<'_>) -> Poll<()> {
        self.pending.register(direction, cx.waker());
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
    pub(crate) fn new(shared: &Arc<Shared>, inner: S, limits: IdleLimits) -> Self {
        let guard = if limits == IdleLimits::none() {
            None
        } else {
            Some(Guard::new(shared, limits))
        };
        IdleStream { inner, guard }
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

/// Runs one operation of the inner stream and passes what it returns to `progress`. Fails if the
/// operation is pending and the stream is idle.
fn poll_op<R>(
    guard: &mut Option<Guard>,
    direction: Direction,
    cx: &mut Context<'_>,
    op: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<R>>,
    progress: impl FnOnce(&mut Guard, &R),
) -> Poll<io::Result<R>> {
    let Some(guard) = guard else {
        return op(cx);
    };
    guard.check()?;
    match op(cx) {
        Poll::Ready(Ok(result)) => {
            progress(guard, &result);
            Poll::Ready(Ok(result))
        }
        Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        Poll::Pending => {
            ready!(guard.poll_idle(direction, cx));
            Poll::Ready(Err(idle_error()))
        }
    }
}

/// Runs one operation that writes.
fn poll_write_op(
    guard: &mut Option<Guard>,
    is_empty: bool,
    cx: &mut Context<'_>,
    op: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<usize>>,
) -> Poll<io::Result<usize>> {
    if let (Some(guard), false) = (&mut *guard, is_empty) {
        guard.begin_response();
    }
    poll_op(guard, Direction::Write, cx, op, |guard, &written| {
        if written > 0 {
            guard.progress(Kind::Write);
        }
    })
}

impl<S: AsyncRead> AsyncRead for IdleStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.project();
        let before = buf.filled().len();
        let op = |cx: &mut Context<'_>| {
            ready!(this.inner.poll_read(cx, buf))?;
            Poll::Ready(Ok(buf.filled().len() - before))
        };
        let read = poll_op(this.guard, Direction::Read, cx, op, |guard, &read| {
            if read > 0 {
                guard.has_read();
                guard.has_taken(read);
            }
        });
        Poll::Ready(ready!(read).map(|_| ()))
    }
}

impl<S: AsyncBufRead> AsyncBufRead for IdleStream<S> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.project();
        let op = |cx: &mut Context<'_>| this.inner.poll_fill_buf(cx);
        poll_op(this.guard, Direction::Read, cx, op, |guard, buf| {
            guard.has_buffered(buf.len());
        })
    }

    fn consume(self: Pin<&mut Self>, amount: usize) {
        let this = self.project();
        this.inner.consume(amount);
        if let (Some(guard), true) = (this.guard, amount > 0) {
            guard.has_taken(amount);
            guard.progress(Kind::Read);
        }
    }
}

impl<S: AsyncWrite> AsyncWrite for IdleStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        let op = |cx: &mut Context<'_>| this.inner.poll_write(cx, buf);
        poll_write_op(this.guard, buf.is_empty(), cx, op)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        let op = |cx: &mut Context<'_>| this.inner.poll_write_vectored(cx, bufs);
        let is_empty = bufs.iter().all(|buf| buf.is_empty());
        poll_write_op(this.guard, is_empty, cx, op)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        let op = |cx: &mut Context<'_>| this.inner.poll_flush(cx);
        // Bytes count when they are accepted, and a flush may have nothing to do.
        poll_op(this.guard, Direction::Write, cx, op, |_, ()| {})
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // An idle stream can still be shut down.
        self.project().inner.poll_shutdown(cx)
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
