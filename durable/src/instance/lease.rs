//! One claim's hold on its timer, and how it is renewed.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};

use super::group_commit::Group;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::retry::{Retry, RetryWhen, error_text};
use crate::settings::Settings;
use crate::store::{
    Fired, InstanceId, LeftRow, Namespace, Settle, Settled, Settlement, StoreError, Version,
};
use crate::token::Token;

/// How often a lease is checked while it lasts. It is renewed once a half and this part of it, or
/// less, are left, so that a renewal may fail three times.
const LOOKS: u32 = 8;

/// The state that the leases of an instance share.
pub(crate) struct Leases {
    namespace: Namespace,
    settles: Group<Settle, Settled>,
    metrics: Arc<Metrics>,
    settings: Settings,
    /// The number of the part.
    part: usize,
    renewed: Mutex<Renewed>,
}

/// The leases that are renewed.
#[derive(Debug, Default)]
struct Renewed {
    leases: HashMap<u64, Handling>,
    next: u64,
}

/// A lease that is renewed.
#[derive(Debug)]
struct Handling {
    lease: Weak<Lease>,
    since: Instant,
    /// Whether it is known to last longer than a lease; `None` where it does not matter.
    is_slow: Option<bool>,
}

impl Leases {
    pub(super) fn new(
        namespace: Namespace,
        settles: Group<Settle, Settled>,
        metrics: Arc<Metrics>,
        settings: Settings,
        part: usize,
    ) -> Self {
        Leases {
            namespace,
            settles,
            metrics,
            settings,
            part,
            renewed: Mutex::default(),
        }
    }

    /// How long a lease is.
    fn length(&self) -> Duration {
        self.settings.lease
    }

    fn renewed(&self) -> MutexGuard<'_, Renewed> {
        self.renewed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those to be renewed now. Counts and logs handlers that last longer than a lease.
    fn to_renew(&self) -> Vec<Arc<Lease>> {
        let mut due = Vec::new();
        for handling in self.renewed().leases.values_mut() {
            let Some(lease) = handling.lease.upgrade().filter(|lease| lease.is_held()) else {
                continue;
            };
            if handling.is_slow == Some(false) && handling.since.elapsed() >= self.length() {
                handling.is_slow = Some(true);
                self.metrics.slow_handlers.add(1);
                tracing::warn!(
                    namespace = %self.namespace, key = %lease.key(), token = %lease.token(), lease = ?self.length(),
                    "a handler takes longer than a lease, which is renewed"
                );
            }
            if lease.remaining() <= self.length() / 2 + self.length() / LOOKS {
                due.push(lease);
            }
        }
        due
    }
}

/// Renews leases until there will be none.
pub(super) async fn renew(leases: Weak<Leases>, length: Duration) {
    loop {
        sleep(length / LOOKS).await;
        let Some(leases) = leases.upgrade() else {
            return;
        };
        // All at once: they share a batch.
        let due = leases.to_renew();
        join_all(due.iter().map(|lease| lease.renew())).await;
    }
}

/// Renews the lease of a claim until it is dropped. From [`Claim::auto_renew`](crate::Claim::auto_renew).
#[must_use = "the lease is renewed until this is dropped"]
pub struct RenewGuard {
    leases: Arc<Leases>,
    number: u64,
}

impl Drop for RenewGuard {
    fn drop(&mut self) {
        self.leases.renewed().leases.remove(&self.number);
    }
}

impl fmt::Debug for RenewGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RenewGuard").finish_non_exhaustive()
    }
}

/// Holds a timer in flight, and a part of the capacity. Dropping it releases what is not settled.
pub(crate) struct Lease {
    token: Version,
    /// The encoded key, for the log.
    pub(crate) key: Vec<u8>,
    /// How often the timer has fired, this time included.
    attempt: u32,
    /// How late it fired, by the store's clock.
    late: Duration,
    /// One of the constants below.
    state: AtomicU8,
    /// How many calls that end it are under way. It is not renewed meanwhile.
    settling: AtomicUsize,
    leases: Arc<Leases>,
    held: Mutex<Held>,
}

struct Held {
    /// Its part of the capacity, until it is settled.
    permit: Option<OwnedSemaphorePermit>,
    /// When it ends, or sooner; `None` for never.
    until: Option<Instant>,
}

/// To be settled.
const HELD: u8 = 0;
/// Settled, or gone from the store when it fired.
const SETTLED: u8 = 1;
/// Delivered again meanwhile, or about to be.
const LOST: u8 = 2;

impl Lease {
    /// A lease on a timer in flight.
    pub(super) fn new(
        fired: &Fired,
        late: Duration,
        leases: Arc<Leases>,
        until: Instant,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Lease {
            token: fired.token,
            key: Vec::new(),
            attempt: fired.attempt,
            late,
            state: AtomicU8::new(HELD),
            settling: AtomicUsize::new(0),
            leases,
            held: Mutex::new(Held {
                permit: Some(permit),
                until: Some(until),
            }),
        }
    }

    /// The lease of a timer that the store has deleted as it fired.
    pub(super) fn already_settled(mut self) -> Self {
        *self.state.get_mut() = SETTLED;
        self
    }

    pub(crate) fn token(&self) -> Token {
        Token {
            version: self.token,
            part: self.part(),
        }
    }

    /// The number of the part.
    pub(crate) fn part(&self) -> usize {
        self.leases.part
    }

    /// The encoded key, as a text.
    pub(crate) fn key(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.key)
    }

    /// Whether it is still to be settled.
    pub(crate) fn is_held(&self) -> bool {
        self.state.load(Ordering::Acquire) == HELD
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much of it is left, if it is to be settled.
    pub(crate) fn remaining(&self) -> Duration {
        if !self.is_held() {
            return Duration::ZERO;
        }
        let until = self.held().until;
        until.map_or(Duration::MAX, |until| {
            until.saturating_duration_since(Instant::now())
        })
    }

    /// When less than half of it is left.
    pub(super) fn stale_at(&self) -> Option<Instant> {
        let until = self.held().until.filter(|_| self.is_held())?;
        Some(until.checked_sub(self.leases.length() / 2).unwrap_or(until))
    }

    /// Whether less than half of it is left: nothing like that is handed out.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale_at().is_some_and(|at| at <= Instant::now())
    }

    /// A span for the handler.
    pub(crate) fn span(&self) -> tracing::Span {
        tracing::info_span!(
            "handle",
            namespace = %self.leases.namespace,
            key = %self.key(),
            attempt = self.attempt,
            lateness = ?self.late,
        )
    }

    /// Whether the timer has been delivered as often as it may be. This one does not count.
    pub(crate) fn is_exhausted(&self) -> bool {
        let max = self.leases.settings.max_attempts;
        self.is_held() && max.is_some_and(|max| self.attempt > max)
    }

    fn is_last_attempt(&self) -> bool {
        let max = self.leases.settings.max_attempts;
        max.is_some_and(|max| self.attempt >= max)
    }

    /// Settles it. After an error that may pass it can be tried again.
    pub(crate) async fn settle(&self, settlement: Settlement) -> Result<(), Error> {
        match settlement {
            Settlement::RetryAfter(delay) => self.fail(Retry::after(delay)).await,
            _ => self.settle_with(settlement, None).await,
        }
    }

    /// Settles it after a failure: the timer comes again, or is dead after its last attempt.
    pub(crate) async fn fail(&self, retry: Retry) -> Result<(), Error> {
        let Retry { when, error } = retry;
        let delay = match when {
            RetryWhen::Never => return self.end_for_good(error).await,
            _ if self.is_last_attempt() => return self.end_for_good(error).await,
            RetryWhen::After(delay) => delay,
            RetryWhen::Backoff => self.leases.settings.backoff.delay(self.attempt),
        };
        self.settle_with(Settlement::RetryAfter(delay), error).await
    }

    /// Makes the timer dead.
    async fn end_for_good(&self, error: Option<String>) -> Result<(), Error> {
        self.settle_with(Settlement::Dead, error.clone()).await?;
        self.leases.metrics.dead.add(1);
        let (namespace, key, token, attempt) = (
            &self.leases.namespace,
            self.key(),
            self.token(),
            self.attempt,
        );
        let error = error.as_deref().unwrap_or("it was put back");
        tracing::warn!(%namespace, %key, %token, attempt, error, "a timer is dead: see `Admin::dead`");
        Ok(())
    }

    /// Ends a timer for good that the program has not received. If that fails, it is tried again when the lease has ended.
    pub(crate) async fn bury(&self, error: impl fmt::Display) {
        let buried = self.end_for_good(Some(error_text(&error))).await;
        if let Err(failed) = buried {
            self.end(SETTLED);
            let (namespace, key) = (&self.leases.namespace, self.key());
            tracing::warn!(%namespace, %key, token = %self.token(), error = %format_args!("{failed:#}"), "a timer that has failed for good could not be settled");
        }
    }

    async fn settle_with(
        &self,
        settlement: Settlement,
        error: Option<String>,
    ) -> Result<(), Error> {
        let token = self.token();
        match self.state.load(Ordering::Acquire) {
            HELD => {}
            SETTLED if settlement == Settlement::Ack => return Ok(()),
            SETTLED => return Err(Error::Settled { token }),
            _ => return Err(Error::Lost { token }),
        }
        let asked = Instant::now();
        let extended = match settlement {
            Settlement::Extend(lease) => Some(lease),
            _ => None,
        };
        let _settling = extended.is_none().then(|| Settling::new(&self.settling));
        let settle = Settle {
            token: self.token,
            settlement,
            error,
        };
        match self.leases.settles.submit(settle).await? {
            Settled::Lost => {
                self.end(LOST);
                self.leases.metrics.lost.add(1);
                Err(Error::Lost { token })
            }
            // The group sends it again instead of returning it.
            Settled::Locked => Err(Error::Store(StoreError::unavailable(
                "a transaction has changed the key and has not ended",
            ))),
            Settled::Done | Settled::Armed(_) => {
                match extended {
                    Some(lease) => self.held().until = asked.checked_add(lease),
                    None => self.end(SETTLED),
                }
                Ok(())
            }
        }
    }

    /// Makes it end a whole lease from now.
    async fn renew(&self) {
        if self.settling.load(Ordering::Acquire) > 0 {
            return;
        }
        let asked = Instant::now();
        let length = self.leases.length();
        let settle = Settle::new(self.token, Settlement::Extend(length));
        match self.leases.settles.submit(settle).await {
            Ok(Settled::Lost) => {
                // A settle that has just succeeded reports its own result.
                if self.settling.load(Ordering::Acquire) > 0 || !self.is_held() {
                    return;
                }
                self.end(LOST);
                self.leases.metrics.lost.add(1);
                tracing::warn!(
                    namespace = %self.leases.namespace, key = %self.key(), token = %self.token(),
                    "a claim is lost: its lease ended before it was renewed"
                );
            }
            Ok(_) => {
                self.held().until = asked.checked_add(length);
                self.leases.metrics.renewed.add(1);
            }
            // It is tried again soon. The lane of settles says what is wrong.
            Err(_) => {}
        }
    }

    /// Keeps renewing it until the guard is dropped. A handler that lasts longer than a lease is counted.
    pub(crate) fn keep(self: &Arc<Self>, is_handler: bool) -> RenewGuard {
        let mut renewed = self.leases.renewed();
        let number = renewed.next;
        renewed.next += 1;
        let handling = Handling {
            lease: Arc::downgrade(self),
            since: Instant::now(),
            is_slow: is_handler.then_some(false),
        };
        renewed.leases.insert(number, handling);
        drop(renewed);
        RenewGuard {
            leases: Arc::clone(&self.leases),
            number,
        }
    }

    fn end(&self, state: u8) {
        self.state.store(state, Ordering::Release);
        let permit = self.held().permit.take();
        drop(permit);
    }

    /// Leaves a timer that this instance cannot decode to others, without waiting.
    pub(crate) fn leave(&self, by: InstanceId, pause: Duration, error: &str) {
        if self.state.swap(SETTLED, Ordering::AcqRel) == HELD {
            let left = LeftRow::new(by, pause, self.leases.settings.left_for());
            let settle = Settle::new(self.token, Settlement::Leave(left));
            let settle = settle.with_error(error_text(&error));
            self.leases.settles.submit_detached(settle);
        }
    }

    /// Settles it, if it is not, without waiting.
    pub(crate) fn settle_detached(&self, settlement: Settlement) {
        if self.state.swap(SETTLED, Ordering::AcqRel) == HELD {
            let settle = Settle::new(self.token, settlement);
            self.leases.settles.submit_detached(settle);
        }
    }
}

/// Counts a call that ends a lease, also if its future is dropped.
struct Settling<'a>(&'a AtomicUsize);

impl<'a> Settling<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Settling(count)
    }
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.settle_detached(Settlement::Release);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("token", &self.token)
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}
