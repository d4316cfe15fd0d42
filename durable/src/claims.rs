//! The stream of claims.

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::claim::Claim;
use crate::codec::Coder;
use crate::error::Error;
use crate::instance::{Core, Delivery, Lease, Shutdown, Want};
use crate::store::{Action, Due, Settlement, StoreTime, Write};

/// The delay after a handler that panicked or took too long. It doubles with each earlier attempt, up to a minute.
const AFTER_PANIC: Duration = Duration::from_secs(1);
const AFTER_PANICS: Duration = Duration::from_secs(60);

/// The most claims that wait for a program which quickly receives one after the other.
const PREFETCH: usize = 512;

/// The timers that this instance claims as they come due. Made by [`Builder::start`](crate::Builder::start).
///
/// One instance delivers by deadline; instances deliver side by side.
///
/// # Demand
///
/// The instance claims a timer when the program asks for one, and leaves the others to other
/// instances. For a program that quickly takes one claim after the other, it claims some ahead, so
/// that the program need not wait for the store: about as many as the program takes within an
/// eighth of a [poll](crate::Builder::poll), and at most 512, or as many as
/// [`recv_many`](Self::recv_many) asks for, or as [`dispatch`](Self::dispatch) runs at once. At
/// most [`capacity`](crate::Builder::capacity) claims are unsettled at once. The
/// [protocol](crate::protocol#demand) says how instances share a backlog.
///
/// The program receives every claim with at least half of its lease left, unless the whole process stood still while it
/// was fired. A claim that has waited for longer is released, and does not count as an [attempt](Claim::attempt).
///
/// # Timers that do not decode
///
/// A timer whose key or value does not decode is not delivered. It is logged, counted and *quarantined*: it stays in flight
/// until [`Admin`](crate::Admin) releases or discards it. It does not block other timers.
///
/// The stream ends after [`shutdown`](crate::DurableTimers::shutdown), or when the wheel is shut down. Dropping it
/// unloads what the instance has loaded and ends its claiming; its handles go on writing.
pub struct Claims<K, V> {
    core: Arc<Core>,
    coder: Arc<dyn Coder<K, V>>,
    shutdown: Arc<Shutdown>,
}

/// Returned by a handler to have its timer delivered again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// The delay before it is delivered again.
    pub after: Duration,
}

impl Retry {
    /// Delivers the timer again this long from now.
    pub fn after(after: Duration) -> Self {
        Retry { after }
    }
}

impl<K, V> Claims<K, V> {
    pub(crate) fn new(
        core: Arc<Core>,
        coder: Arc<dyn Coder<K, V>>,
        shutdown: Arc<Shutdown>,
    ) -> Self {
        Claims {
            core,
            coder,
            shutdown,
        }
    }

    /// Waits for the next claim; `None` when there will be no more.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn recv(&mut self) -> Option<Claim<K, V>> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Waits for claims and appends at most `limit` of them to `into`. Returns how many; zero when there will be no more, or
    /// when `limit` is zero.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn recv_many(&mut self, into: &mut Vec<Claim<K, V>>, limit: usize) -> usize {
        if limit == 0 {
            return 0;
        }
        let before = into.len();
        poll_fn(|cx| {
            while into.len() - before < limit {
                let want = Want {
                    now: limit - (into.len() - before),
                    ahead: limit,
                };
                match self.poll_claim(cx, want) {
                    Poll::Ready(Some(claim)) => into.push(claim),
                    Poll::Pending if into.len() == before => return Poll::Pending,
                    Poll::Ready(None) | Poll::Pending => break,
                }
            }
            Poll::Ready(into.len() - before)
        })
        .await
    }

    /// Polls for the next claim; `None` when there will be no more.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Claim<K, V>>> {
        let want = Want {
            now: 1,
            ahead: PREFETCH,
        };
        self.poll_claim(cx, want)
    }

    fn poll_claim(&mut self, cx: &mut Context<'_>, want: Want) -> Poll<Option<Claim<K, V>>> {
        loop {
            let budget = ready!(tokio::task::coop::poll_proceed(cx));
            let delivery = ready!(self.shutdown.poll_delivery(cx, want));
            budget.made_progress();
            let Some(delivery) = delivery else {
                return Poll::Ready(None);
            };
            if delivery.lease.is_stale() {
                self.core.metrics.lapsed.add(1);
                delivery.lease.settle_detached(Settlement::Unfire);
                continue;
            }
            if let Some(claim) = self.decode(delivery) {
                return Poll::Ready(Some(claim));
            }
        }
    }

    /// Runs `handler` for each claim, at most `concurrency` of them at once, until there are no more and all handlers have
    /// finished. A concurrency of zero counts as one.
    ///
    /// `Ok` acknowledges the claim. After an `Err` the timer is delivered [again](Claim::retry_after) after the delay it asks
    /// for. A handler that panics is logged, and its timer is delivered again after a second, two seconds, four, up to
    /// a minute. A claim that the handler settles itself is left as it is.
    ///
    /// The lease is renewed while the handler runs, so no other instance gets the timer meanwhile.
    /// [`handler_timeout`](crate::Builder::handler_timeout) ends a handler that hangs; without it such a handler keeps
    /// its place forever. A handler that takes longer than a lease is logged and counted.
    ///
    /// The handlers run concurrently, but all on the task that awaits this future. A handler that blocks its thread
    /// delays the others; [`dispatch_spawned`](Self::dispatch_spawned) gives each a task of its own.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the handlers that have not finished, and releases their claims.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel_durable::{Claims, Retry};
    /// # async fn send(_: &str) -> std::io::Result<()> { Ok(()) }
    ///
    /// async fn remind(mut claims: Claims<String, String>) {
    ///     claims
    ///         .dispatch(16, |claim| async move {
    ///             let sent = send(&claim.value).await;
    ///             sent.map_err(|_| Retry::after(Duration::from_secs(5)))
    ///         })
    ///         .await;
    /// }
    /// ```
    pub async fn dispatch<H, F>(&mut self, concurrency: usize, mut handler: H)
    where
        H: FnMut(Claim<K, V>) -> F,
        F: Future<Output = Result<(), Retry>>,
    {
        let core = Arc::clone(&self.core);
        let start = |claim| Handling::new(&core, claim, &mut handler).run();
        self.run(concurrency.max(1), start).await;
    }

    /// Like [`dispatch`](Self::dispatch), but each handler runs on a task of its own, so they use all threads of the
    /// runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future aborts the handlers that have not finished, and releases their claims.
    pub async fn dispatch_spawned<H, F>(&mut self, concurrency: usize, mut handler: H)
    where
        H: FnMut(Claim<K, V>) -> F,
        F: Future<Output = Result<(), Retry>> + Send + 'static,
    {
        let core = Arc::clone(&self.core);
        let start = |claim| {
            let handling = Handling::new(&core, claim, &mut handler);
            Task(tokio::spawn(handling.run()))
        };
        self.run(concurrency.max(1), start).await;
    }

    /// Calls `start` for each claim, with at most `concurrency` running at once.
    async fn run<F: Future<Output = ()>>(
        &mut self,
        concurrency: usize,
        mut start: impl FnMut(Claim<K, V>) -> F,
    ) {
        let mut running = FuturesUnordered::new();
        let mut is_open = true;
        poll_fn(|cx| {
            loop {
                while is_open && running.len() < concurrency {
                    let want = Want {
                        now: concurrency - running.len(),
                        ahead: concurrency,
                    };
                    match self.poll_claim(cx, want) {
                        Poll::Ready(Some(claim)) => running.push(start(claim)),
                        Poll::Ready(None) => is_open = false,
                        Poll::Pending => break,
                    }
                }
                match running.poll_next_unpin(cx) {
                    // There is a place for another one.
                    Poll::Ready(Some(())) => {}
                    Poll::Ready(None) if !is_open => return Poll::Ready(()),
                    Poll::Ready(None) | Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await;
    }

    /// Ends this instance's claiming, like [`DurableTimers::shutdown`](crate::DurableTimers::shutdown).
    pub async fn shutdown(&self) {
        self.shutdown.stop();
        self.shutdown.ended().await;
    }

    /// Makes a claim of a delivery; quarantines what does not decode.
    fn decode(&self, delivery: Delivery) -> Option<Claim<K, V>> {
        let Delivery { fired, mut lease } = delivery;
        let key = self.coder.decode_key(&fired.key);
        let value = self.coder.decode_value(&fired.value);
        match (key, value) {
            (Ok(key), Ok(value)) => {
                lease.key = fired.key;
                self.core.metrics.delivered.add(1);
                self.core
                    .metrics
                    .redelivered
                    .add(usize::from(fired.attempt > 1));
                Some(Claim {
                    key,
                    value,
                    deadline: fired.deadline.into(),
                    attempt: fired.attempt,
                    missed: fired.missed,
                    lease: Arc::new(lease),
                })
            }
            (Err(error), _) | (_, Err(error)) => {
                let namespace = self.core.calls.namespace();
                let key = String::from_utf8_lossy(&fired.key);
                tracing::error!(%namespace, %key, token = %lease.token(), error = %format_args!("{error:#}"), "a timer does not decode and was quarantined: see `Admin::in_flight`");
                self.core.metrics.quarantined.add(1);
                lease.settle_detached(Settlement::Extend(Duration::MAX));
                if fired.repeats {
                    self.park_series(fired.key, error);
                }
                None
            }
        }
    }

    /// Keeps the next occurrences of a quarantined repeating timer from being quarantined each.
    fn park_series(&self, key: Vec<u8>, error: Error) {
        let core = Arc::clone(&self.core);
        tokio::spawn(async move {
            let due = Due::At(StoreTime::NEVER);
            let write = Write {
                key,
                action: Action::Move { due },
            };
            if let Err(failed) = core.calls.write(vec![write], core.near()).await {
                tracing::warn!(namespace = %core.calls.namespace(), %failed, error = %format_args!("{error:#}"), "the next occurrence of a quarantined repeating timer could not be quarantined");
            }
        });
    }
}

/// A running handler. It settles its claim when it ends.
struct Handling<F> {
    core: Arc<Core>,
    lease: Arc<Lease>,
    attempt: u32,
    /// The future that the handler has returned, if it has not panicked.
    handler: std::thread::Result<F>,
}

impl<F: Future<Output = Result<(), Retry>>> Handling<F> {
    fn new<K, V>(
        core: &Arc<Core>,
        claim: Claim<K, V>,
        handler: &mut impl FnMut(Claim<K, V>) -> F,
    ) -> Self {
        Handling {
            core: Arc::clone(core),
            lease: Arc::clone(&claim.lease),
            attempt: claim.attempt,
            handler: std::panic::catch_unwind(AssertUnwindSafe(|| handler(claim))),
        }
    }

    async fn run(self) {
        let Handling {
            core,
            lease,
            attempt,
            handler,
        } = self;
        let namespace = core.calls.namespace();
        let renewing = lease.keep(true);
        let limit = core.settings.handler_timeout;
        let outcome = match handler {
            Ok(handler) => {
                let handler = AssertUnwindSafe(handler).catch_unwind();
                match limit {
                    Some(limit) => timeout(limit, handler).await,
                    None => Ok(handler.await),
                }
            }
            Err(panic) => Ok(Err(panic)),
        };
        drop(renewing);
        let settlement = match outcome {
            Ok(Ok(Ok(()))) => Settlement::Ack,
            Ok(Ok(Err(retry))) => Settlement::RetryAfter(retry.after),
            Ok(Err(_panic)) => {
                let after = after_panic(attempt);
                tracing::error!(%namespace, key = %lease.key(), token = %lease.token(), attempt, ?after, "a handler has panicked");
                Settlement::RetryAfter(after)
            }
            Err(_elapsed) => {
                core.metrics.timed_out.add(1);
                let after = after_panic(attempt);
                tracing::error!(%namespace, key = %lease.key(), token = %lease.token(), attempt, ?limit, ?after, "a handler took too long and was cancelled");
                Settlement::RetryAfter(after)
            }
        };
        if lease.is_held() {
            if let Err(error) = lease.settle(settlement).await {
                tracing::warn!(%namespace, key = %lease.key(), token = %lease.token(), error = %format_args!("{error:#}"), "a claim was not settled");
            }
        }
    }
}

/// A task that is aborted when this is dropped.
struct Task(JoinHandle<()>);

impl Future for Task {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // An error means that the runtime is shut down: the handler does not panic.
        self.0.poll_unpin(cx).map(drop)
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn after_panic(attempt: u32) -> Duration {
    let doublings = attempt.saturating_sub(1).min(6);
    (AFTER_PANIC * 2_u32.pow(doublings)).min(AFTER_PANICS)
}

impl<K, V> Stream for Claims<K, V> {
    type Item = Claim<K, V>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Claim<K, V>>> {
        self.poll_recv(cx)
    }
}

impl<K, V> Drop for Claims<K, V> {
    fn drop(&mut self) {
        self.shutdown.abandon();
    }
}

impl<K, V> fmt::Debug for Claims<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims")
            .field("core", &self.core)
            .finish_non_exhaustive()
    }
}
