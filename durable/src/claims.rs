//! The stream of claims.

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use futures_util::{FutureExt, StreamExt};

use crate::claim::Claim;
use crate::codec::Coder;
use crate::error::Error;
use crate::instance::{Core, Delivery, Life};
use crate::store::{Action, Due, How, StoreTime, Write};

/// How long a timer waits after a handler that panicked, times two for each earlier attempt, up to a minute.
const AFTER_PANIC: Duration = Duration::from_secs(1);
const AFTER_PANICS: Duration = Duration::from_secs(60);

/// The timers that this instance claims as they come due. Made by [`Builder::start`](crate::Builder::start).
///
/// They come by their deadlines, as far as one instance sees them. At most [`capacity`](crate::Builder::capacity) claims are
/// unsettled at once, those in this stream included: a program that does not receive, or does not settle, is given no more, and
/// other instances are.
///
/// A claim whose lease ends while it waits to be received is not handed out. Its timer is delivered again, by any instance.
///
/// A timer whose key or value does not decode is not delivered. It is logged, counted and *parked*: it stays in flight for
/// ever, where [`Admin`](crate::Admin) shows and releases it, and stops nobody.
///
/// The stream ends after [`shutdown`](crate::DurableTimers::shutdown), or when the wheel is shut down. Dropping it ends the
/// claims of this instance: what it has loaded is given back, and its handles go on writing.
pub struct Claims<K, V> {
    core: Arc<Core>,
    coder: Arc<dyn Coder<K, V>>,
    life: Arc<Life>,
}

/// What a handler returns for a timer that is to be delivered again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// After how long.
    pub after: Duration,
}

impl Retry {
    /// After that long.
    pub fn after(after: Duration) -> Self {
        Retry { after }
    }
}

impl<K, V> Claims<K, V> {
    pub(crate) fn new(core: Arc<Core>, coder: Arc<dyn Coder<K, V>>, life: Arc<Life>) -> Self {
        Claims { core, coder, life }
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
                match self.poll_recv(cx) {
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
        loop {
            let budget = ready!(tokio::task::coop::poll_proceed(cx));
            let delivery = ready!(self.life.poll_delivery(cx));
            budget.made_progress();
            let Some(delivery) = delivery else {
                return Poll::Ready(None);
            };
            if delivery.has_lapsed() {
                self.core.metrics.lapsed.add(1);
                delivery.lease.abandon();
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
    /// A handler that returns `Ok` has its claim acknowledged; after an `Err` the timer is delivered [again](Claim::again) when
    /// it says. A handler that panics is logged, and its timer is delivered again after a second, two seconds, four, up to a
    /// minute. A claim that the handler settles itself is left as it is. The lease is not extended: a handler that may take
    /// longer [extends](Claim::extend) it.
    ///
    /// The handlers run within this future: concurrently, but all on the task that awaits it.
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
        self.for_each_concurrent(concurrency.max(1), |claim| {
            let core = &core;
            let lease = Arc::clone(&claim.lease);
            let attempt = claim.attempt;
            let handled = std::panic::catch_unwind(AssertUnwindSafe(|| handler(claim)));
            async move {
                let outcome = match handled {
                    Ok(handling) => AssertUnwindSafe(handling).catch_unwind().await,
                    Err(panic) => Err(panic),
                };
                let how = match outcome {
                    Ok(Ok(())) => How::Ack,
                    Ok(Err(retry)) => How::Again(retry.after),
                    Err(_) => {
                        let after = after_panic(attempt);
                        let namespace = core.calls.namespace();
                        tracing::error!(%namespace, token = %lease.token(), attempt, ?after, "a handler has panicked");
                        How::Again(after)
                    }
                };
                if lease.is_held() {
                    if let Err(error) = lease.settle(how).await {
                        let namespace = core.calls.namespace();
                        tracing::warn!(%namespace, token = %lease.token(), %error, "a claim was not settled");
                    }
                }
            }
        })
        .await;
    }

    /// Ends this instance's claims, and returns when everything it has loaded is given back to the store and what was fired and
    /// not received is released. As [`DurableTimers::shutdown`](crate::DurableTimers::shutdown).
    pub async fn shutdown(&self) {
        self.life.stop();
        self.life.ended().await;
    }

    /// Makes a claim of a delivery; parks what does not decode.
    fn decode(&self, delivery: Delivery) -> Option<Claim<K, V>> {
        let Delivery { fired, lease, .. } = delivery;
        let key = self.coder.decode_key(&fired.key);
        let value = self.coder.decode_value(&fired.value);
        match (key, value) {
            (Ok(key), Ok(value)) => {
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
                tracing::error!(%namespace, %key, token = %lease.token(), %error, "parked a timer");
                self.core.metrics.parked.add(1);
                lease.settle_unheard(How::Extend(Duration::MAX));
                if fired.repeats {
                    self.park_series(fired.key, error);
                }
                None
            }
        }
    }

    /// Keeps the next occurrences of a parked repeating timer from being parked each.
    fn park_series(&self, key: Vec<u8>, error: Error) {
        let core = Arc::clone(&self.core);
        tokio::spawn(async move {
            let due = Due::At(StoreTime::NEVER);
            let write = Write {
                key,
                action: Action::Move { due },
            };
            if let Err(failed) = core.calls.write(vec![write], core.near()).await {
                tracing::warn!(namespace = %core.calls.namespace(), %failed, %error, "its next occurrence was not parked");
            }
        });
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
        self.life.stop();
    }
}

impl<K, V> fmt::Debug for Claims<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims")
            .field("core", &self.core)
            .finish_non_exhaustive()
    }
}
