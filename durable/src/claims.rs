//! The stream of claims.

use std::any::Any;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tracing::{Instrument, Span};

use crate::claim::Claim;
use crate::codec::Coder;
use crate::error::Error;
use crate::instance::{Core, Cores, Delivery, End, Lease, MAX_AHEAD, Settling, Shutdown, Want};
use crate::retry::Retry;
use crate::store::{Fired, Settlement};

/// The timers that this instance claims as they come due. Made by
/// [`Builder::start`](crate::Builder::start).
///
/// One instance delivers by deadline; instances deliver side by side.
///
/// # Demand
///
/// The instance claims a timer when the program asks for one, and leaves the others to other
/// instances. For a program that quickly takes one claim after the other, it claims some ahead, so
/// that the program need not wait for the store: about as many as the program takes within an
/// eighth of a [poll](crate::Builder::poll), and at most 512, or as many as
/// [`recv_many`](Self::recv_many) asks for, or as [`dispatch`](Self::dispatch) runs at once. If the
/// program is through with these before the store has fired others, it claims as many ahead as the
/// program takes meanwhile, up to 512. At most [`capacity`](crate::Builder::capacity) claims are
/// unsettled at once. The [protocol](crate::protocol#demand) says how instances share a backlog.
///
/// The program receives every claim with at least half of its lease left, unless the whole process
/// stood still while it was fired, or the store took longer than a quarter of the lease. A claim
/// that has waited for longer is released, and does not count as an [attempt](Claim::attempt).
///
/// # Timers that do not decode
///
/// A timer is not delivered here if its key or value does not decode. The instance logs a warning,
/// keeps the error of the codec with the timer, and leaves it to other instances, one of which may
/// know the value in the middle of a roll-out. That does not count as an [attempt](Claim::attempt).
///
/// If no instance has decoded it for a [lease](crate::Builder::lease), or for three
/// [polls](crate::Builder::poll) if these are longer, the timer is
/// [dead](crate::operating#timers-that-fail): logged, counted, and kept until
/// [`Admin`](crate::Admin#dead-timers) retries or discards it. A repeating timer goes on: each of
/// its occurrences is left to others, and dies alone. A timer that was set again is another one,
/// and is tried by every instance.
///
/// With [`at_most_once`](crate::Builder::at_most_once) a timer is gone once it has fired. One that
/// does not decode is logged and counted, and lost.
///
/// The stream ends after [`shutdown`](crate::DurableTimers::shutdown), or when the wheel is shut
/// down. Dropping it unloads what the instance has loaded and ends its claiming; its handles go on
/// writing.
pub struct Claims<K, V> {
    cores: Arc<Cores>,
    coder: Arc<dyn Coder<K, V>>,
    shutdown: Arc<Shutdown>,
}

impl<K, V> Claims<K, V> {
    pub(crate) fn new(
        cores: Arc<Cores>,
        coder: Arc<dyn Coder<K, V>>,
        shutdown: Arc<Shutdown>,
    ) -> Self {
        Claims {
            cores,
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

    /// Waits for claims and appends at most `limit` of them to `into`. Returns how many; zero when
    /// there will be no more, or when `limit` is zero.
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
                let is_first = into.len() == before;
                let want = Want {
                    now: if is_first { limit } else { 0 },
                    places: limit,
                };
                match self.poll_claim(cx, want) {
                    Poll::Ready(Some(claim)) => into.push(claim),
                    Poll::Pending if is_first => return Poll::Pending,
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
            places: MAX_AHEAD,
        };
        self.poll_claim(cx, want)
    }

    fn poll_claim(&mut self, cx: &mut Context<'_>, want: Want) -> Poll<Option<Claim<K, V>>> {
        loop {
            let budget = ready!(tokio::task::coop::poll_proceed(cx));
            let delivery = ready!(self.shutdown.deliveries.poll_next(cx, want));
            budget.made_progress();
            let Some(delivery) = delivery else {
                return Poll::Ready(None);
            };
            if delivery.lease.is_stale() {
                delivery.lease.lapse();
                continue;
            }
            if delivery.lease.is_exhausted() {
                let lease = &delivery.lease;
                let error = "its last attempt ended without a result: its process crashed or stood still, or it was dropped";
                let end = lease.end_after(Retry::never(error));
                lease.end_in_background(end);
                continue;
            }
            if let Some(claim) = self.decode(delivery) {
                return Poll::Ready(Some(claim));
            }
        }
    }

    /// Runs `handler` for each claim, at most `concurrency` of them at once, until there are no
    /// more, all handlers have finished, and their claims are settled. A concurrency of zero counts
    /// as one.
    ///
    /// `Ok` acknowledges the claim. After an `Err` the timer is delivered again: after the delay
    /// that the handler [asks for](Retry), or else after the [backoff](crate::Builder::backoff). A
    /// handler that panics is logged, and treated like one that returns an error. After the last of
    /// [`max_attempts`](crate::Builder::max_attempts) the timer is
    /// [dead](crate::operating#timers-that-fail). A claim that the handler settles itself is left
    /// as it is.
    ///
    /// Each handler runs in a `tracing` span `handle`, of level `INFO`, with the fields
    /// `namespace`, `key`, `attempt` and `lateness`: how late the timer fired, by the store's
    /// clock.
    ///
    /// A handler that has finished frees its place at once. While the store is unreachable, what it
    /// has returned is kept: the lease is renewed, and the claim is settled [as soon as the store
    /// is back](Claim::ack_in_background). So an outage that is shorter than what is left of the
    /// lease runs no handler again.
    ///
    /// The lease is renewed while the handler runs, so no other instance gets the timer meanwhile.
    /// [`handler_timeout`](crate::Builder::handler_timeout) ends a handler that hangs; without it
    /// such a handler keeps its place forever. A handler that takes longer than a lease is logged
    /// and counted.
    ///
    /// The handlers run concurrently, but all on the task that awaits this future, so a handler that
    /// computes for long delays the others; [`dispatch_spawned`](Self::dispatch_spawned) gives each
    /// a task of its own. What blocks belongs into
    /// [`spawn_blocking`](crate::operating#writing-handlers) with either.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the handlers that have not finished, and releases their claims.
    /// What others have returned is settled all the same.
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
        let cores = Arc::clone(&self.cores);
        let start =
            |claim, settling| handle(Arc::clone(&cores), begin(claim, &mut handler), settling);
        self.run(concurrency.max(1), start).await;
    }

    /// Like [`dispatch`](Self::dispatch), but each handler runs on its own task, so they use
    /// all threads of the runtime.
    ///
    /// Handlers that block can block all of these threads, and then no lease is renewed:
    /// [`spawn_blocking`](crate::operating#writing-handlers) leaves the threads free.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future aborts the handlers that have not finished, and releases their claims.
    pub async fn dispatch_spawned<H, F>(&mut self, concurrency: usize, mut handler: H)
    where
        H: FnMut(Claim<K, V>) -> F,
        F: Future<Output = Result<(), Retry>> + Send + 'static,
    {
        let cores = Arc::clone(&self.cores);
        let start = |claim, settling| {
            let begun = begin(claim, &mut handler);
            Task(tokio::spawn(handle(Arc::clone(&cores), begun, settling)))
        };
        self.run(concurrency.max(1), start).await;
    }

    /// Calls `start` for each claim, with at most `concurrency` running at once. Returns when their
    /// claims have ended, too.
    async fn run<F: Future<Output = ()>>(
        &mut self,
        concurrency: usize,
        mut start: impl FnMut(Claim<K, V>, Settling) -> F,
    ) {
        let mut running = FuturesUnordered::new();
        // Closed when no end of these claims waits for the store.
        let (settling, mut settled) = mpsc::channel(1);
        let mut is_open = true;
        poll_fn(|cx| {
            loop {
                while is_open && running.len() < concurrency {
                    let want = Want {
                        now: concurrency - running.len(),
                        places: concurrency,
                    };
                    match self.poll_claim(cx, want) {
                        Poll::Ready(Some(claim)) => running.push(start(claim, settling.clone())),
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
        drop(settling);
        let _: Option<Infallible> = settled.recv().await;
    }

    /// Ends this instance's claiming, like
    /// [`DurableTimers::shutdown`](crate::DurableTimers::shutdown).
    pub async fn shutdown(&self) {
        self.shutdown.stop();
        self.shutdown.ended().await;
        self.cores.close_store().await;
    }

    /// The core of the part that a claim is from.
    fn core_of(&self, lease: &Lease) -> &Arc<Core> {
        self.cores.of_part(lease.part())
    }

    /// Makes a claim of a delivery; ends what does not decode.
    fn decode(&self, delivery: Delivery) -> Option<Claim<K, V>> {
        let Delivery { fired, lease } = delivery;
        let core = self.core_of(&lease);
        let key = self.coder.decode_key(&fired.key);
        let value = self.coder.decode_value(&fired.value);
        match (key, value) {
            (Ok(key), Ok(value)) => {
                core.metrics.update(|m| {
                    m.delivered += 1;
                    m.redelivered += u64::from(fired.attempt > 1);
                });
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
                end_undecoded(core, &fired, &lease, &error);
                None
            }
        }
    }
}

/// Leaves a timer that does not decode to other instances, or ends it if none decodes it.
fn end_undecoded(core: &Core, fired: &Fired, lease: &Lease, error: &Error) {
    let left = core.undecoded.judge(fired, &core.settings);
    let (namespace, key, token) = (core.calls.namespace(), lease.key(), lease.token());
    let error = format!("{error:#}");
    core.metrics.update(|m| m.undecoded += 1);
    // One that is delivered at most once is gone already.
    match left {
        Some(pause) if lease.is_held() => {
            if pause.is_zero() {
                tracing::warn!(%namespace, %key, %token, error, "a timer does not decode here: it is left to other instances");
            }
            lease.leave(core.id(), pause, &error);
        }
        _ => {
            tracing::error!(%namespace, %key, %token, error, "a timer does not decode");
            if lease.is_held() {
                let end = lease.end_after(Retry::never(error));
                lease.end_in_background(end);
            }
        }
    }
}

/// A handler that was called: the lease of its claim, its span, when it began, and the future that
/// it has returned, unless it has panicked.
type Begun<F> = (Arc<Lease>, Span, Instant, std::thread::Result<F>);

/// Calls a handler.
fn begin<K, V, F>(claim: Claim<K, V>, handler: &mut impl FnMut(Claim<K, V>) -> F) -> Begun<F> {
    let lease = Arc::clone(&claim.lease);
    let span = lease.span();
    let began = Instant::now();
    let handler = AssertUnwindSafe(|| span.in_scope(|| handler(claim)));
    let handler = std::panic::catch_unwind(handler);
    (lease, span, began, handler)
}

/// Runs a handler, and settles its claim when it ends.
async fn handle<F>(cores: Arc<Cores>, begun: Begun<F>, settling: Settling)
where
    F: Future<Output = Result<(), Retry>>,
{
    let (lease, span, began, handler) = begun;
    let core = cores.of_part(lease.part());
    let namespace = core.calls.namespace();
    let renewing = lease.keep(true);
    let limit = core.settings.handler_timeout;
    let outcome = match handler {
        Ok(handler) => {
            let handler = handler.instrument(span);
            let handler = AssertUnwindSafe(handler).catch_unwind();
            match limit {
                Some(limit) => timeout(limit, handler).await,
                None => Ok(handler.await),
            }
        }
        Err(panic) => Ok(Err(panic)),
    };
    drop(renewing);
    let took = began.elapsed();
    core.metrics.update(|m| m.handler_time.record(took));
    let failed = match outcome {
        Ok(Ok(Ok(()))) => None,
        Ok(Ok(Err(retry))) => Some(retry),
        Ok(Err(panic)) => {
            let error = panic_text(&*panic);
            tracing::error!(%namespace, key = %lease.key(), token = %lease.token(), error, "a handler has panicked");
            Some(Retry::backoff(error))
        }
        Err(_elapsed) => {
            core.metrics.update(|m| m.timed_out += 1);
            let error = format!(
                "the handler took longer than {:?}",
                limit.unwrap_or_default()
            );
            tracing::error!(%namespace, key = %lease.key(), token = %lease.token(), error, "a handler took too long and was cancelled");
            Some(Retry::backoff(error))
        }
    };
    // One that the handler has ended stays as it is.
    if lease.is_held() {
        let end = match failed {
            None => End::new(Settlement::Ack),
            Some(retry) => lease.end_after(retry),
        };
        lease.set_settling(settling);
        lease.end_in_background(end);
    }
}

/// The message of the panic of a handler.
fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.map_or("panicked".into(), |text| format!("panicked: {text}"))
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

opaque!(Claims<K, V>, |claims| namespace: claims.cores.namespace());
