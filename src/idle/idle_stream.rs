//! A stream that fails once it has been idle for too long.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use super::idle_timer::{IdleHandle, IdleTimer, assert_not_zero};
use crate::shared::Shared;
use crate::shared::idle_clock::IdleClock;

/// How long a stream may be without progress, in each direction and in both. Each limit is optional.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IdleLimits {
    read: Option<Duration>,
    write: Option<Duration>,
    all: Option<Duration>,
}

impl IdleLimits {
    /// No limits: a stream with these costs nothing. Never panics.
    pub fn none() -> Self {
        Self::default()
    }

    /// Nothing may be read for at most this long.
    ///
    /// # Panics
    ///
    /// If it is zero.
    #[must_use]
    #[track_caller]
    pub fn read(mut self, idle: Duration) -> Self {
        assert_not_zero(idle);
        self.read = Some(idle);
        self
    }

    /// Nothing may be written for at most this long.
    ///
    /// # Panics
    ///
    /// If it is zero.
    #[must_use]
    #[track_caller]
    pub fn write(mut self, idle: Duration) -> Self {
        assert_not_zero(idle);
        self.write = Some(idle);
        self
    }

    /// Nothing may be read and nothing written for at most this long.
    ///
    /// # Panics
    ///
    /// If it is zero.
    #[must_use]
    #[track_caller]
    pub fn all(mut self, idle: Duration) -> Self {
        assert_not_zero(idle);
        self.all = Some(idle);
        self
    }
}

pin_project! {
    /// Wraps a stream; once it has been idle for too long, its operations fail with
    /// [`TimedOut`](io::ErrorKind::TimedOut). Made by [`TimerWheel::idle_stream`](crate::TimerWheel::idle_stream).
    ///
    /// Progress counts as activity: bytes read, bytes written. When a [limit](IdleLimits) has
    /// passed, the operations that are pending fail, in both directions, and so do all later ones but for shutting
    /// down; the inner stream is untouched and can be [taken back](Self::into_inner), to say goodbye on it, say.
    /// End-of-file is not idleness.
    ///
    /// The two directions may be used by two tasks, as with [`tokio::io::split`]; both are woken. A task that does not
    /// have an operation pending is not told that the stream is idle.
    ///
    /// # Cancel safety
    ///
    /// That of the inner stream; the timers lose nothing.
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
    pub struct IdleStream<S> {
        #[pin]
        inner: S,
        // None when there is no limit.
        guard: Option<Guard>,
    }
}

/// A timer for the waker of each direction, on one clock.
struct Guard {
    reading: IdleTimer,
    writing: IdleTimer,
    is_idle: bool,
}

#[derive(Debug, Clone, Copy)]
enum Direction {
    Read,
    Write,
}

impl Guard {
    /// Fails once the stream is idle, for now and ever.
    fn check(&self) -> io::Result<()> {
        if self.is_idle {
            return Err(idle_error());
        }
        Ok(())
    }

    fn touch(&self, direction: Direction) {
        let clock = self.reading.clock();
        match direction {
            Direction::Read => clock.touch_read(),
            Direction::Write => clock.touch_write(),
        }
    }

    /// Ready once the stream is idle.
    fn poll_idle(&mut self, direction: Direction, cx: &mut Context<'_>) -> Poll<()> {
        let timer = match direction {
            Direction::Read => &mut self.reading,
            Direction::Write => &mut self.writing,
        };
        ready!(std::future::Future::poll(Pin::new(timer), cx));
        self.is_idle = true;
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
    pub(crate) fn new(shared: &Arc<Shared>, inner: S, limits: IdleLimits) -> Self {
        let IdleLimits { read, write, all } = limits;
        let guard = (limits != IdleLimits::none()).then(|| {
            let clock = Arc::new(IdleClock::new(shared.ticks, all, read, write));
            Guard {
                reading: IdleTimer::with_clock(shared, Arc::clone(&clock)),
                writing: IdleTimer::with_clock(shared, clock),
                is_idle: false,
            }
        });
        IdleStream { inner, guard }
    }

    /// The inner stream. Never panics.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner stream. What is read and written on it directly does not count as activity. Never panics.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Takes the inner stream back; the timers are cancelled. Never panics.
    pub fn into_inner(self) -> S {
        self.inner
    }

    /// Whether an operation has failed because the stream was idle. Never panics.
    pub fn is_idle(&self) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.is_idle)
    }

    /// A handle to touch it, or to keep it busy, from elsewhere; `None` without limits. What it does counts in both
    /// directions. Never panics.
    pub fn handle(&self) -> Option<IdleHandle> {
        self.guard.as_ref().map(|guard| guard.reading.handle())
    }
}

/// Runs one operation of the inner stream: it counts as activity if it makes progress, and fails if it does not while
/// the stream is idle.
fn poll_op<R>(
    guard: &mut Option<Guard>,
    direction: Direction,
    cx: &mut Context<'_>,
    op: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<R>>,
    is_progress: impl FnOnce(&R) -> bool,
) -> Poll<io::Result<R>> {
    let Some(guard) = guard else {
        return op(cx);
    };
    guard.check()?;
    match op(cx) {
        Poll::Ready(Ok(result)) => {
            if is_progress(&result) {
                guard.touch(direction);
            }
            Poll::Ready(Ok(result))
        }
        Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        Poll::Pending => {
            ready!(guard.poll_idle(direction, cx));
            Poll::Ready(Err(idle_error()))
        }
    }
}

impl<S: AsyncRead> AsyncRead for IdleStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.project();
        let before = buf.filled().len();
        let read = |cx: &mut Context<'_>| {
            ready!(this.inner.poll_read(cx, buf))?;
            Poll::Ready(Ok(buf.filled().len() - before))
        };
        let read = ready!(poll_op(this.guard, Direction::Read, cx, read, |&n| n > 0));
        Poll::Ready(read.map(|_| ()))
    }
}

impl<S: AsyncBufRead> AsyncBufRead for IdleStream<S> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.project();
        let fill = |cx: &mut Context<'_>| this.inner.poll_fill_buf(cx);
        poll_op(this.guard, Direction::Read, cx, fill, |buf| !buf.is_empty())
    }

    fn consume(self: Pin<&mut Self>, amount: usize) {
        self.project().inner.consume(amount);
    }
}

impl<S: AsyncWrite> AsyncWrite for IdleStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        let write = |cx: &mut Context<'_>| this.inner.poll_write(cx, buf);
        poll_op(this.guard, Direction::Write, cx, write, |&n| n > 0)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        let write = |cx: &mut Context<'_>| this.inner.poll_write_vectored(cx, bufs);
        poll_op(this.guard, Direction::Write, cx, write, |&n| n > 0)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        let flush = |cx: &mut Context<'_>| this.inner.poll_flush(cx);
        // Bytes count when they are accepted: a flush that has nothing to do is no progress.
        poll_op(this.guard, Direction::Write, cx, flush, |()| false)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Ending it is what an idle stream is there for.
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
