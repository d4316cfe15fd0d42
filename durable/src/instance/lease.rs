//! What an instance holds of a timer in flight, how that is renewed, and how its end is sent.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::oneshot::{self, Receiver};
use tokio::time::{Instant, sleep};

use super::Core;
use super::ending::{End, LeaseState, Settling};
use super::group_commit::Group;
use crate::error::Error;
use crate::lock::lock;
use crate::metrics::Metrics;
use crate::retry::{Retry, RetryWhen, error_text};
use crate::settings::Settings;
use crate::store::{Fired, InstanceId, LeftRow, Namespace, Settle, Settled, Settlement, Version};
use crate::token::Token;

/// How often a lease is checked while it lasts. It is renewed once a half and this part of it, or
/// less, are left, so that a renewal may fail three times if the call timeout is shorter than that
/// part.
const CHECKS_PER_LEASE: u32 = 8;

/// The state that the leases of an instance share.
///
/// It copies what it needs of its [`Core`], and does not hold it: the core holds the deliveries
/// that wait, each with a lease. If the runtime ended before they were received, this circle would
/// keep all of them, and the store, forever.
pub(crate) struct Leases {
    namespace: Namespace,
    settles: Group<Ending, ()>,
    metrics: Arc<Metrics>,
    settings: Settings,
    /// The number of the part.
    part: usize,
    renewed: Mutex<Renewed>,
    /// The tokens of all claims.
    tokens: Mutex<HashSet<Version>>,
}

/// The leases that are renewed.
#[derive(Default)]
struct Renewed {
    leases: HashMap<u64, Handling>,
    next: u64,
}

/// A lease that is renewed.
struct Handling {
    lease: Weak<LeaseInner>,
    /// When a handler takes longer than a lease, until that is noted.
    slow_at: Option<Instant>,
}

impl Leases {
    pub(super) fn new(core: &Core, settles: Group<Ending, ()>) -> Self {
        Leases {
            namespace: core.calls.namespace().clone(),
            settles,
            metrics: Arc::clone(&core.metrics),
            settings: core.settings.clone(),
            part: core.part,
            renewed: Mutex::default(),
            tokens: Mutex::default(),
        }
    }

    /// How long a lease is.
    fn length(&self) -> Duration {
        self.settings.lease
    }

    fn tokens(&self) -> MutexGuard<'_, HashSet<Version>> {
        lock(&self.tokens)
    }

    /// Whether this instance holds the claim with this token.
    pub(super) fn holds(&self, token: Version) -> bool {
        self.tokens().contains(&token)
    }

    fn renewed(&self) -> MutexGuard<'_, Renewed> {
        lock(&self.renewed)
    }

    /// Those to be renewed now. Counts and logs handlers that last longer than a lease.
    fn to_renew(&self) -> Vec<Arc<LeaseInner>> {
        let (now, mut due) = (Instant::now(), Vec::new());
        for handling in self.renewed().leases.values_mut() {
            let Some(lease) = handling.lease.upgrade().filter(|lease| lease.is_held()) else {
                continue;
            };
            if handling.slow_at.take_if(|at| *at <= now).is_some() {
                self.metrics.update(|m| m.slow_handlers += 1);
                tracing::warn!(
                    namespace = %self.namespace, key = %lease.key(), token = %lease.token(), lease = ?self.length(),
                    "a handler takes longer than a lease, which is renewed"
                );
            }
            if lease.remaining() <= self.length() / 2 + self.length() / CHECKS_PER_LEASE {
                due.push(lease);
            }
        }
        due
    }
}

/// Renews leases until there will be none.
pub(super) async fn renew(leases: Weak<Leases>, length: Duration) {
    loop {
        sleep(length / CHECKS_PER_LEASE).await;
        let Some(leases) = leases.upgrade() else {
            return;
        };
        // All at once: they share a batch.
        let due = leases.to_renew();
        join_all(due.iter().map(LeaseInner::renew)).await;
    }
}

/// Renews the lease of a claim until it is dropped. From
/// [`Claim::auto_renew`](crate::Claim::auto_renew).
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

/// The lease of a claim, as the program has it. Dropping it releases what has not ended otherwise.
pub(crate) struct Lease(Arc<LeaseInner>);

/// What this instance holds of a timer in flight, and a part of the capacity.
pub(crate) struct LeaseInner {
    token: Version,
    /// The encoded key, for the log.
    key: Vec<u8>,
    /// How often the timer has fired, this time included.
    attempt: u32,
    /// How late it fired, by the store's clock.
    late: Duration,
    leases: Arc<Leases>,
    state: Mutex<LeaseState>,
}

impl Lease {
    /// A lease on a timer in flight.
    pub(super) fn new(
        fired: &Fired,
        late: Duration,
        leases: Arc<Leases>,
        until: Instant,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        leases.tokens().insert(fired.token);
        let mut state = LeaseState::new(until, permit);
        if leases.settings.at_most_once {
            state.settle();
        }
        Lease(Arc::new(LeaseInner {
            token: fired.token,
            key: fired.key.clone(),
            attempt: fired.attempt,
            late,
            leases,
            state: Mutex::new(state),
        }))
    }
}

impl Deref for Lease {
    type Target = Arc<LeaseInner>;

    fn deref(&self) -> &Arc<LeaseInner> {
        &self.0
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let end = self.state().end_of_dropped();
        if let Some(end) = end {
            self.end_in_background(end);
        }
    }
}

impl Drop for LeaseInner {
    fn drop(&mut self) {
        self.leases.tokens().remove(&self.token);
    }
}

impl LeaseInner {
    pub(crate) fn token(&self) -> Token {
        Token {
            version: self.token,
            part: self.part(),
        }
    }

    pub(super) fn version(&self) -> Version {
        self.token
    }

    /// The number of the part.
    pub(crate) fn part(&self) -> usize {
        self.leases.part
    }

    /// The encoded key, as a text.
    pub(crate) fn key(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.key)
    }

    /// Has `dispatch` wait until it has ended.
    pub(crate) fn set_settling(&self, settling: Settling) {
        let mut state = self.state();
        if state.is_held() {
            state.settling = Some(settling);
        }
    }

    /// Whether it has not ended.
    pub(crate) fn is_held(&self) -> bool {
        self.state().is_held()
    }

    fn state(&self) -> MutexGuard<'_, LeaseState> {
        lock(&self.state)
    }

    /// How much of it is left, if it has not ended.
    pub(crate) fn remaining(&self) -> Duration {
        let state = self.state();
        match state.until {
            _ if !state.is_held() => Duration::ZERO,
            None => Duration::MAX,
            Some(until) => until.saturating_duration_since(Instant::now()),
        }
    }

    /// When less than half of it is left.
    pub(super) fn stale_at(&self) -> Option<Instant> {
        let state = self.state();
        let until = state.until.filter(|_| state.is_held())?;
        Some(until.checked_sub(self.leases.length() / 2).unwrap_or(until))
    }

    /// Whether less than half of it is left: nothing like that is handed out.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale_at().is_some_and(|at| at <= Instant::now())
    }

    /// Gives it up, since no program has received it in time.
    pub(crate) fn lapse(self: &Arc<Self>) {
        self.leases.metrics.update(|m| m.lapsed += 1);
        drop(self.end_in_background(End::new(Settlement::Unfire)));
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

    pub(super) fn warn(&self, error: &Error, text: &str) {
        tracing::warn!(namespace = %self.leases.namespace, key = %self.key(), token = %self.token(), error = %format_args!("{error:#}"), "{text}");
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

    /// The end of a claim that has failed: the timer comes again, or is dead after its last
    /// attempt.
    pub(crate) fn end_after(&self, retry: Retry) -> End {
        let Retry { when, error } = retry;
        let settlement = match when {
            RetryWhen::Never => Settlement::Dead,
            _ if self.is_last_attempt() => Settlement::Dead,
            RetryWhen::After(delay) => Settlement::RetryAfter(delay),
            RetryWhen::Backoff => {
                Settlement::RetryAfter(self.leases.settings.backoff.delay(self.attempt))
            }
        };
        End::new(settlement).with_error(error)
    }

    /// Leaves a timer that this instance cannot decode to others.
    pub(crate) fn leave(self: &Arc<Self>, by: InstanceId, pause: Duration, error: &str) {
        let left = LeftRow::new(by, pause, self.leases.settings.left_for());
        let end = End::new(Settlement::Leave(left)).with_error(Some(error_text(&error)));
        self.end_in_background(end);
    }

    /// Ends it, or extends it, in one try. After an error that may pass it can be tried again.
    pub(crate) async fn end(self: &Arc<Self>, end: End) -> Result<(), Error> {
        if self.decide(&end, false)? {
            self.send(end).await
        } else {
            Ok(())
        }
    }

    /// Ends it, however often that takes: see [`ending`](super::ending). An end that is under way
    /// so already stays.
    pub(crate) fn end_in_background(self: &Arc<Self>, end: End) -> Receiver<Result<(), Error>> {
        let (reply, ended) = oneshot::channel();
        match self.decide(&end, true) {
            Ok(true) => {
                let mut ending = self.ending(end);
                ending.kept = true;
                self.leases.settles.keep(ending, reply);
            }
            // Its kept end stays, and has a caller of its own.
            Ok(false) => drop(reply.send(Ok(()))),
            Err(error) => drop(reply.send(Err(error))),
        }
        ended
    }

    fn ending(self: &Arc<Self>, end: End) -> Ending {
        Ending {
            lease: Arc::clone(self),
            end,
            kept: false,
            renewing: None,
        }
    }

    fn send(self: &Arc<Self>, end: End) -> impl Future<Output = Result<(), Error>> {
        self.leases.settles.submit(self.ending(end))
    }

    /// Notes how it ends. Returns `false` if it has ended so already.
    fn decide(&self, decided: &End, keeps: bool) -> Result<bool, Error> {
        self.state().decide(decided, keeps, self.token())
    }

    /// Applies the store's response to an end or an extension.
    fn conclude(&self, sent: &End, settled: &Settled) -> Result<(), Error> {
        let (mut state, token) = (self.state(), self.token());
        let was_held = state.is_held();
        let concluded = state.conclude(sent, settled, token);
        let is_lost = was_held && state.is_lost();
        let settling = (!state.is_held()).then(|| state.settling.take());
        drop(state);
        drop(settling);
        if is_lost && (sent.is_result() || sent.is_extension()) {
            self.leases.metrics.update(|m| m.lost += 1);
        }
        if concluded.is_ok() && sent.settlement == Settlement::Dead {
            self.leases.metrics.update(|m| m.dead += 1);
            let error = sent.error.as_deref().unwrap_or("it was put back");
            tracing::warn!(namespace = %self.leases.namespace, key = %self.key(), %token, attempt = self.attempt, error, "a timer is dead: see `Admin::dead`");
        }
        concluded
    }

    /// Makes it end a whole lease from now.
    async fn renew(self: &Arc<Self>) {
        let extension = End::new(Settlement::Extend(self.leases.length()));
        match self.send(extension).await {
            Ok(()) => self.leases.metrics.update(|m| m.renewed += 1),
            Err(error @ Error::Lost { .. }) if self.state().is_lost() => {
                self.warn(
                    &error,
                    "a claim is lost: its lease ended before it was renewed, or an operator has ended it",
                );
            }
            // It is tried again soon. The log says why settles fail.
            Err(_) => {}
        }
    }

    /// Keeps renewing it until the guard is dropped. A handler that lasts longer than a lease is
    /// counted.
    pub(crate) fn keep(self: &Arc<Self>, is_handler: bool) -> RenewGuard {
        let mut renewed = self.leases.renewed();
        let number = renewed.next;
        renewed.next += 1;
        let handling = Handling {
            lease: Arc::downgrade(self),
            slow_at: is_handler.then(|| Instant::now() + self.leases.length()),
        };
        renewed.leases.insert(number, handling);
        drop(renewed);
        RenewGuard {
            leases: Arc::clone(&self.leases),
            number,
        }
    }
}

/// An end on its way to the store.
pub(super) struct Ending {
    pub(super) lease: Arc<LeaseInner>,
    pub(super) end: End,
    /// Whether it is sent until the store has taken it.
    pub(super) kept: bool,
    /// From the first try that has not ended it.
    pub(super) renewing: Option<RenewGuard>,
}

impl Ending {
    /// What it has in common with those that are to take effect in order. A renewal does so at any
    /// time, also while the end of the claim waits for the lock of its key.
    pub(super) fn order(&self) -> (Version, bool) {
        (self.lease.version(), self.end.is_extension())
    }

    pub(super) fn bytes(&self) -> usize {
        self.end.error.as_ref().map_or(0, String::len) + size_of::<Settle>()
    }

    /// What the store is asked for now.
    pub(super) fn settle(&self) -> Settle {
        let settlement = match self.end.settlement {
            Settlement::RetryAfter(delay) => {
                Settlement::RetryAfter(delay.saturating_sub(self.end.since.elapsed()))
            }
            other => other,
        };
        let mut settle = Settle::new(self.lease.version(), settlement);
        settle.error.clone_from(&self.end.error);
        settle
    }

    /// Applies the store's response.
    pub(super) fn conclude(&self, settled: &Settled) -> Result<(), Error> {
        let concluded = self.lease.conclude(&self.end, settled);
        if let Err(error) = &concluded {
            self.warn(error);
        }
        concluded
    }

    /// Notes a try without a response. Returns whether there is another one.
    pub(super) fn is_tried_again(&mut self, error: &Error, claims_ended: bool) -> bool {
        self.lease.state().note_failure(&self.end);
        if !self.kept {
            return false;
        }
        if self.give_up(claims_ended) {
            self.warn(error);
            return false;
        }
        self.renew();
        true
    }

    /// Has the lease renewed from now on, if it is kept. It may wait for longer than the lease
    /// lasts: for the store, or for a transaction that has locked its key.
    pub(super) fn renew(&mut self) {
        if self.kept && self.renewing.is_none() && self.end.is_result() {
            self.renewing = Some(self.lease.keep(false));
        }
    }

    /// Gives it up if it is not to be sent again (rule 5 of [`ending`](super::ending)). Returns
    /// whether it has.
    pub(super) fn give_up(&self, claims_ended: bool) -> bool {
        let is_over = claims_ended && self.lease.remaining().is_zero();
        if is_over {
            let settling = self.lease.state().settling.take();
            drop(settling);
        }
        is_over
    }

    /// No caller learns of the result of a kept end.
    fn warn(&self, error: &Error) {
        if self.kept && self.end.is_result() {
            self.lease.warn(error, "a claim was not settled");
        }
    }
}
