//! Runs a handler for each expiration, with panics caught.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::Either;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::expirations::Expirations;
use super::expired::Expired;
use super::in_hand::KeyCalls;
use crate::console::{Resource, TimerType};
use crate::error::Elapsed;
use crate::panic::catch_panic;
use crate::shared::SleepContext;
use crate::sleep::{Sleep, Timeout};

/// Logged when a handler panics.
const HANDLER: &str = "a handler panicked: its expiration is not handled again";

/// Logged when the drop of a handler's future panics.
const DROPPED: &str = "a handler panicked when it was dropped: what it owns may leak";

/// What follows a handler of [`dispatch`](Expirations::dispatch). A handler that returns `()` is
/// done.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Outcome<V> {
    /// Nothing follows.
    Done,
    /// The timer is set again, under its key with this value, and expires after this delay. The
    /// value is dropped if the timer repeats, or if the key was removed, set or drained since its
    /// handler was called. [`retain`](crate::KeyedTimers::retain) does not see it meanwhile.
    ///
    /// A [watch](crate::Reaper) has ended when it is received, and is not set again.
    Again(V, Duration),
}

impl<V> From<()> for Outcome<V> {
    fn from((): ()) -> Self {
        Outcome::Done
    }
}

impl<K, V> Expirations<K, V> {
    /// Sets how long a handler of [`dispatch`](Self::dispatch) may take. The default is no limit.
    ///
    /// A handler that takes longer is dropped, and its expiration is not handled again. A warning
    /// says so. Without a limit, a handler that never returns keeps its place of the `dispatch`,
    /// and the timers of its key wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (timers, mut expirations) = wheel.keyed::<u32, ()>();
    /// timers.set_timer(1, (), Duration::from_secs(5))?;
    /// drop(timers);
    ///
    /// let limit = Duration::from_secs(30);
    /// let stuck = |_| std::future::pending::<()>();
    /// expirations.handler_timeout(limit).dispatch(16, stuck).await; // it returns after 35 s
    /// # Ok(())
    /// # }
    /// ```
    pub fn handler_timeout(&mut self, limit: Duration) -> &mut Self {
        self.handler_timeout = Some(limit);
        self
    }

    /// Runs `handler` for each expiration, at most `concurrency` of them at once, until there are
    /// no more and all handlers have finished. A concurrency of zero counts as one.
    ///
    /// The handler's [`Outcome`] says what follows: nothing, or the timer is set again. One that
    /// returns `()` is done. A handler that panics is logged, and done too.
    ///
    /// One handler runs for a key at a time. If the key is set again meanwhile and its timer is
    /// due, it waits in the set, as any timer that is not received: it can be moved and removed,
    /// and has a handler once the one before has finished. Removing a key says `None` while its
    /// handler runs, since the timer has expired; but the handler does not set it
    /// [again](Outcome::Again). An expiration counts for [`max_keyed`](crate::Builder::max_keyed),
    /// and keeps the stream from ending, until its handler has finished.
    ///
    /// The watches of a [reaper](crate::Reaper) have ended when they are received: several may have
    /// one key, and each has its handler at once. They neither count nor keep the stream open.
    ///
    /// Each key is cloned while the set is locked. A `Clone` that panics is logged, and removes the
    /// timer.
    ///
    /// The handlers run concurrently, but all on the task that awaits this future, so a handler
    /// that computes for long delays the others; [`dispatch_spawned`](Self::dispatch_spawned) gives
    /// each its own task. Handlers may call the timers of the same set. One that owns a
    /// [`KeyedTimers`](crate::KeyedTimers) keeps the stream from ending, a
    /// [`WeakKeyedTimers`](crate::WeakKeyedTimers) does not.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the unfinished handlers. The stream keeps expirations without a
    /// handler.
    ///
    /// # Examples
    ///
    /// A delivery that is tried up to three times, unless it is cancelled:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::Outcome;
    /// # async fn deliver(_: u32) -> std::io::Result<()> { Err(std::io::ErrorKind::TimedOut.into()) }
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let wheel = tickwheel::TimerWheel::new();
    /// let (timers, mut expirations) = wheel.keyed::<u32, u32>();
    /// timers.set_timer(7, 1, Duration::from_secs(5)).unwrap();
    /// drop(timers); // the stream ends with the last try
    ///
    /// expirations
    ///     .dispatch(16, |expired| async move {
    ///         let tries = expired.value;
    ///         match deliver(expired.key).await {
    ///             Err(_) if tries < 3 => Outcome::Again(tries + 1, Duration::from_secs(5)),
    ///             _ => Outcome::Done,
    ///         }
    ///     })
    ///     .await;
    /// assert_eq!(wheel.metrics().keyed_fired, 3);
    /// # }
    /// ```
    #[doc(alias = "for_each_concurrent")]
    #[doc(alias = "workers")]
    #[doc(alias = "retry")]
    pub async fn dispatch<H, F>(&mut self, concurrency: usize, mut handler: H)
    where
        K: Clone + Eq,
        H: FnMut(Expired<K, V>) -> F,
        F: Future<Output: Into<Outcome<V>>>,
    {
        let limit = self.handler_limit();
        self.run(concurrency, |expired| {
            handle(catch_panic(HANDLER, || handler(expired)), &limit)
        })
        .await;
    }

    /// Like [`dispatch`](Self::dispatch), but each handler runs on its own task, so they use all
    /// threads of the runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future aborts the unfinished handlers. One that is being polled runs on until
    /// it yields, perhaps beside a handler of a later dispatch. The stream keeps expirations
    /// without a handler.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    pub async fn dispatch_spawned<H, F>(&mut self, concurrency: usize, mut handler: H)
    where
        K: Clone + Eq,
        H: FnMut(Expired<K, V>) -> F,
        F: Future<Output: Into<Outcome<V>> + Send> + Send + 'static,
    {
        // Before anything is received.
        let runtime = Handle::current();
        let limit = self.handler_limit();
        self.run(concurrency, |expired| {
            Task(runtime.spawn(handle(catch_panic(HANDLER, || handler(expired)), &limit)))
        })
        .await;
    }

    fn handler_limit(&self) -> HandlerLimit {
        Some((self.handler_timeout?, Arc::clone(&self.context)))
    }

    /// Calls `start` for each expiration, with at most `concurrency` running at once.
    async fn run<F, O>(&mut self, concurrency: usize, mut start: impl FnMut(Expired<K, V>) -> F)
    where
        K: Clone + Eq,
        F: Future<Output = Option<O>>,
        O: Into<Outcome<V>>,
    {
        let calls = KeyCalls {
            clone: K::clone,
            eq: K::eq,
        };
        self.set.begin_dispatch(&mut self.reader, calls);
        let dispatch = Dispatch(self);
        let mut running = FuturesUnordered::new();
        let mut is_open = true;
        poll_fn(|cx| {
            loop {
                while is_open && running.len() < concurrency.max(1) {
                    match dispatch.0.poll_recv(cx) {
                        Poll::Ready(Some(expired)) => {
                            let ticket = dispatch.0.reader.ticket;
                            running.push(start(expired).map(move |outcome| (ticket, outcome)));
                        }
                        Poll::Ready(None) => is_open = false,
                        Poll::Pending => break,
                    }
                }
                match running.poll_next_unpin(cx) {
                    Poll::Ready(Some((ticket, outcome))) => {
                        let outcome = catch_panic(HANDLER, || outcome.map(Into::into));
                        let again = match outcome.flatten() {
                            Some(Outcome::Again(value, delay)) => Some((value, delay)),
                            Some(Outcome::Done) | None => None,
                        };
                        let Expirations { set, reader, .. } = &mut *dispatch.0;
                        set.end_handler(reader, ticket, again);
                        // A timer that waited for this handler may be due.
                        is_open = true;
                    }
                    Poll::Ready(None) if !is_open => return Poll::Ready(()),
                    Poll::Ready(None) | Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await;
    }
}

/// How long a handler may take, and on which wheel that is counted.
type HandlerLimit = Option<(Duration, Arc<SleepContext>)>;

/// Limits the future that a handler has returned.
fn handle<F: Future>(
    future: Option<F>,
    limit: &HandlerLimit,
) -> Handler<impl Future<Output = Result<F::Output, Elapsed>> + use<F>> {
    let future = future.map(|future| match limit {
        None => Either::Left(future.map(Ok)),
        Some((limit, context)) => {
            let resource = Resource::new(TimerType::Timeout);
            let sleep = Sleep::on_wheel(resource, context, *limit);
            Either::Right(Timeout::new(future, sleep))
        }
    });
    Handler { future }
}

pin_project! {
    /// A handler's future. It completes when the future completes, takes too long or panics. A
    /// panic in the future's drop is caught.
    pub(super) struct Handler<F> {
        #[pin]
        future: Option<F>,
    }

    impl<F> PinnedDrop for Handler<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            catch_panic(DROPPED, || this.future.set(None));
        }
    }
}

impl<F: Future<Output = Result<O, Elapsed>>, O> Future for Handler<F> {
    type Output = Option<O>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<O>> {
        let mut this = self.project();
        let mut output = None;
        if let Some(future) = this.future.as_mut().as_pin_mut() {
            // A future that has panicked is never polled again.
            let polled = catch_panic(HANDLER, || future.poll(cx));
            if let Some(polled) = polled {
                output = ready!(polled).map_err(|_| late()).ok();
            }
        }
        catch_panic(DROPPED, || this.future.set(None));
        Poll::Ready(output)
    }
}

#[cold]
fn late() {
    tracing::warn!("a handler took longer than its limit: it was dropped");
}

/// A handler on its own task, which is aborted when this is dropped.
struct Task<O>(JoinHandle<Option<O>>);

impl<O> Future for Task<O> {
    type Output = Option<O>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<O>> {
        // An error means that the runtime ends.
        Poll::Ready(ready!(Pin::new(&mut self.0).poll(cx)).ok().flatten())
    }
}

impl<O> Drop for Task<O> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A stream whose set knows what is in hand.
struct Dispatch<'a, K, V>(&'a mut Expirations<K, V>);

impl<K, V> Drop for Dispatch<'_, K, V> {
    fn drop(&mut self) {
        self.0.set.end_dispatch(&mut self.0.reader);
    }
}
