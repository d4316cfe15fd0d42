//! A server that stops answers the requests that were sent before.
//!
//! When axum is told to stop, it closes its listener and the connections without a request, with
//! any request that lies unread in a socket. So it is told only when nothing lies unread that was
//! there at the signal:
//!
//! 1. The runtime asks the operating system once more which sockets have something to read.
//! 2. Each task that waits to accept or to read is woken. It polls, and takes what there is.
//! 3. A *source*, the listener or a connection, is done when its task has polled it since, or did
//!    not wait: it reads already, or waits for something else. A connection that is accepted
//!    meanwhile is done after its first poll. A task that is woken and does not poll within
//!    [`ROUNDS`] does not wait to read any more: an upgraded connection has passed from the task
//!    that read its requests to one that may only write.
//! 4. When all sources are done, and connections were accepted since the signal, all of this is
//!    done once more: a task may have polled a new connection before the operating system was asked
//!    about it. Connections that are accepted after that came after the signal.
//! 5. Then axum is told. A task that has read a request in a poll has begun to handle it by the end
//!    of that poll, and axum lets it finish.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::serve::Listener;
use pin_project_lite::pin_project;
use slab::Slab;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::task::coop;
use tokio::time;

/// A server is told to stop this long after the signal, whatever its sockets hold.
const MAX_DRAIN: Duration = Duration::from_secs(5);

/// A task that was woken, and has not polled its connection after so many rounds, does not wait for
/// it any more: the waker is that of a task that has ended, or of one that only writes.
const ROUNDS: usize = 20;

/// In a round, the task that drains goes through the runtime's queue once, behind tasks that were
/// woken before.
const ROUND: Duration = Duration::from_millis(5);

/// Lets a server answer the requests that were sent before it was asked to stop. Returns a listener
/// in place of `listener`, and a future for `with_graceful_shutdown` in place of `signal`.
///
/// The future completes when `signal` has, and when all requests that had arrived by then have been
/// read, on connections that were accepted as on those that waited for that. Until then the server
/// goes on. That takes ten to thirty milliseconds, or some hundred where a task only writes, such
/// as that of a WebSocket; and at most five seconds: a server that has not read its requests by
/// then is overloaded.
///
/// Requests that arrive later may be cut, as may those that are pipelined behind another. axum
/// tells the client by `connection: close` that it answers no more. Bytes that arrived encrypted
/// are read only if the TLS is above this.
///
/// # Cancel safety
///
/// Dropping the future leaves the listener as it is. Poll it within a Tokio runtime with a time
/// driver, as axum does.
///
/// # Examples
///
/// See the [module](crate::axum).
pub fn drain<L, S>(
    listener: L,
    signal: S,
) -> (DrainListener<L>, impl Future<Output = ()> + use<L, S>)
where
    L: Listener,
    S: Future<Output = ()>,
{
    let sources = Arc::new(Sources::default());
    let listener = DrainListener {
        listener,
        source: Source::new(&sources),
    };
    let drained = async move {
        signal.await;
        // An error means that it has taken too long.
        let _ = time::timeout(MAX_DRAIN, sources.drain()).await;
    };
    (listener, drained)
}

/// A listener of connections that are [drained](drain()).
#[derive(Debug)]
pub struct DrainListener<L> {
    listener: L,
    source: Source,
}

pin_project! {
    /// A connection of a [`DrainListener`].
    #[derive(Debug)]
    pub struct DrainStream<S> {
        #[pin]
        inner: S,
        source: Source,
    }
}

/// The listener and its connections.
#[derive(Debug, Default)]
struct Sources {
    states: Mutex<Slab<Arc<Mutex<State>>>>,
    /// Whether the signal has come. Only then all polls change the state.
    is_draining: AtomicBool,
    /// Whether a source was made since the signal.
    has_new: AtomicBool,
    /// A source is done.
    done: Notify,
}

/// The state of the task of a source.
#[derive(Debug)]
enum State {
    /// It has not polled yet.
    New,
    /// It waits, and was not woken to drain.
    Waiting(Waker),
    /// It was woken to drain, and has not polled since.
    Woken,
    /// It has polled, and does not wait to read.
    Polled,
}

#[derive(Debug)]
struct Source {
    sources: Arc<Sources>,
    number: usize,
    state: Arc<Mutex<State>>,
}

/// The only code of a user that runs under these mutexes clones a waker, before anything is
/// changed, so the value of a poisoned one is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn is_done(&self) -> bool {
        matches!(self, State::Waiting(_) | State::Polled)
    }
}

impl Sources {
    /// Waits until all that had arrived is read.
    async fn drain(&self) {
        self.has_new.store(false, Ordering::SeqCst);
        self.pass().await;
        if self.has_new.load(Ordering::SeqCst) {
            self.pass().await;
        }
    }

    /// Wakes the tasks that wait, and waits until all sources are done.
    async fn pass(&self) {
        // A timer of Tokio fires when the runtime has asked the operating system for what is ready.
        // It may have asked before it fires the first one, and has asked again before it fires the
        // second.
        for _ in 0..2 {
            time::sleep(ROUND).await;
        }
        self.is_draining.store(true, Ordering::SeqCst);
        let mut wakers = Vec::new();
        for (_, state) in lock(&self.states).iter() {
            let mut state = lock(state);
            match mem::replace(&mut *state, State::Woken) {
                State::Waiting(waker) => wakers.push(waker),
                other => *state = other,
            }
        }
        for waker in wakers {
            // A waker that panics must not keep the others from being woken; the hook has printed
            // it.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
        for _ in 0..ROUNDS {
            let done = self.all_are(State::is_done);
            if time::timeout(ROUND, done).await.is_ok() {
                return;
            }
        }
        let is_done_or_woken = |state: &State| state.is_done() || matches!(state, State::Woken);
        self.all_are(is_done_or_woken).await;
    }

    /// Waits until the states of all sources are such.
    async fn all_are(&self, is_such: impl Fn(&State) -> bool) {
        loop {
            let mut done = pin!(self.done.notified());
            done.as_mut().enable();
            let are_such = |states: &Slab<Arc<Mutex<State>>>| {
                states.iter().all(|(_, state)| is_such(&lock(state)))
            };
            if are_such(&lock(&self.states)) {
                return;
            }
            done.await;
        }
    }

    fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::SeqCst)
    }
}

impl Source {
    fn new(sources: &Arc<Sources>) -> Self {
        let state = Arc::new(Mutex::new(State::New));
        let number = lock(&sources.states).insert(Arc::clone(&state));
        sources.has_new.store(true, Ordering::SeqCst);
        Source {
            sources: Arc::clone(sources),
            number,
            state,
        }
    }

    /// An operation that takes in what has arrived returned this.
    fn has_taken<T>(&self, polled: &Poll<T>, cx: &Context<'_>) {
        // Without budget it was pending for that, and has not looked.
        if polled.is_pending() && !coop::has_budget_remaining() {
            return;
        }
        let replaced = match &mut *lock(&self.state) {
            State::Waiting(waker) if polled.is_pending() && waker.will_wake(cx.waker()) => return,
            state if polled.is_pending() => mem::replace(state, State::Waiting(cx.waker().clone())),
            state => mem::replace(state, State::Polled),
        };
        self.note(&replaced);
    }

    /// The task has polled another operation: it can have read before, or does so in the same poll.
    fn has_polled(&self) {
        if !self.sources.is_draining() || !coop::has_budget_remaining() {
            return;
        }
        let mut state = lock(&self.state);
        if !state.is_done() {
            let replaced = mem::replace(&mut *state, State::Polled);
            drop(state);
            self.note(&replaced);
        }
    }

    /// This state was replaced. The callers drop it while nothing is locked.
    fn note(&self, replaced: &State) {
        if !replaced.is_done() && self.sources.is_draining() {
            self.sources.done.notify_one();
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let removed = lock(&self.sources.states).remove(self.number);
        drop(removed);
        if self.sources.is_draining() {
            self.sources.done.notify_one();
        }
    }
}

impl<L: Listener> Listener for DrainListener<L> {
    type Io = DrainStream<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let mut accept = pin!(self.listener.accept());
        let accepted = poll_fn(|cx| {
            let accepted = accept.as_mut().poll(cx).map(|(inner, peer)| {
                let source = Source::new(&self.source.sources);
                (DrainStream { inner, source }, peer)
            });
            // There may be more to accept: the next call finds out.
            if accepted.is_pending() {
                self.source.has_taken(&accepted, cx);
            }
            accepted
        });
        accepted.await
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

impl<S> DrainStream<S> {
    /// The connection.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The connection. Bytes that are read from it directly are not drained.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }
}

impl<S: AsyncRead> AsyncRead for DrainStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.project();
        let read = this.inner.poll_read(cx, buf);
        this.source.has_taken(&read, cx);
        read
    }
}

impl<S: AsyncWrite> AsyncWrite for DrainStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        this.source.has_polled();
        this.inner.poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        this.source.has_polled();
        this.inner.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        this.source.has_polled();
        this.inner.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        this.source.has_polled();
        this.inner.poll_shutdown(cx)
    }
}
