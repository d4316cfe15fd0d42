//! How long after it fired a reminder is delivered again.
//!
//! The store knows when each lease ends. It is asked for what is in flight right after each kill,
//! so it names all that the victim held, also what the victim had no time to tell, and each poll
//! besides, since a call of the victim may take effect after it. A lease ends at the latest so long
//! after the worker's line, whatever the store says. The line also stands in for what the store has
//! not named.
//!
//! A lease that has ended is noticed by the next poll of any worker. Two things put that off. They
//! are counted, and no failure:
//!
//! * The store does not answer. A probe says when. Whatever was in flight then may come as late as
//!   the workers connect again.
//! * The worker that has loaded the reminder after its lease is killed too, before it fires it. It
//!   counts as living for three polls. What the store names as loaded after its lease may be that,
//!   and may come a poll after that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tickwheel_durable::{Entry, Error};
use tokio::time::sleep;

use super::store::{LEASE, LONGEST_POLL, POLL, Reminders};
use super::totals::quantile;
use super::worker::{in_micros, micros};

/// The time that loading, firing and reporting may take on a busy machine, besides what nearly all
/// first deliveries are late by. Long enough that a disk or a core that stands still for a moment
/// is no failure; the table says how late they really are.
const SLACK: Duration = Duration::from_secs(1);

/// The store is asked this often whether it answers.
const PROBE: Duration = Duration::from_millis(50);

/// A list asks for so many at once.
const PAGE: usize = 1024;

/// A claim: the reminder and its attempt.
type Claim = (u32, u32);

/// From when to when the store did not answer, in microseconds since the epoch.
#[derive(Clone, Default)]
pub(crate) struct Outages(Arc<Mutex<Vec<(u64, u64)>>>);

impl Outages {
    /// Asks the store again and again, until it is dropped.
    pub(crate) async fn probe(self, reminders: Reminders) {
        let mut answered = SystemTime::now();
        loop {
            sleep(PROBE).await;
            if reminders.deadline(&0).await.is_err() {
                continue;
            }
            let now = SystemTime::now();
            let silent = now.duration_since(answered).unwrap_or_default();
            if silent > PROBE + SLACK {
                let mut outages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                outages.push((micros(answered), micros(now)));
            }
            answered = now;
        }
    }

    fn all(&self) -> Vec<(u64, u64)> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// The ends of leases, as far as they are known.
#[derive(Default)]
pub(crate) struct Leases {
    /// As the store says.
    ends: BTreeMap<Claim, u64>,
    /// Until when a dead worker may have kept others from loading it after that.
    kept_until: BTreeMap<Claim, u64>,
    pub(crate) outages: Outages,
}

impl Leases {
    /// Asks the store for what is in flight.
    pub(crate) async fn look(&mut self, reminders: &Reminders) -> Result<(), Error> {
        let mut after = None;
        loop {
            let page = reminders.admin().in_flight(after, PAGE).await?;
            let now = micros(SystemTime::now());
            after = page.last().map(Entry::position);
            for entry in &page {
                let lease_until = entry.in_flight.as_ref().and_then(|claim| claim.lease_until);
                let (Ok(key), Some(end)) = (&entry.key, lease_until.map(micros)) else {
                    continue;
                };
                let claim = (*key, entry.attempt);
                // It has fired by now.
                self.ends.insert(claim, end.min(now + in_micros(LEASE)));
                if entry.loaded {
                    let until = now + in_micros(3 * POLL);
                    self.kept_until.entry(claim).or_insert(until);
                }
            }
            if page.len() < PAGE {
                return Ok(());
            }
        }
    }
}

/// How reminders were delivered again.
#[derive(Default)]
pub(crate) struct Redeliveries {
    /// From firing to the next delivery.
    pub(crate) after: Vec<u64>,
    /// It is unknown when they had fired: left out of `after`.
    pub(crate) unmeasured: usize,
    /// Before the lease had ended.
    pub(crate) too_soon: usize,
    /// Later than lease and poll, since a second worker was killed or the store was away.
    pub(crate) put_off: usize,
    /// Later than they may be.
    pub(crate) too_late: usize,
    outages: Vec<(u64, u64)>,
    slack: u64,
}

impl Redeliveries {
    /// `first` has the deadline and the lateness of each first delivery. On a machine that is too
    /// busy all are late.
    pub(crate) fn new(leases: &Leases, first: &[(u64, u64)]) -> Self {
        let mut all = Redeliveries {
            outages: leases.outages.all(),
            ..Redeliveries::default()
        };
        let recovery = in_micros(2 * POLL);
        let was_away = |deadline: u64| all.was_away(deadline.saturating_sub(recovery), deadline);
        let first = first.iter().filter(|&&(deadline, _)| !was_away(deadline));
        let mut lateness: Vec<_> = first.map(|&(_, lateness)| lateness).collect();
        lateness.sort_unstable();
        all.slack = in_micros(SLACK) + quantile(&lateness, 990);
        all
    }

    /// Takes down a delivery of the claim after this one, of which a worker has told at `told`, if
    /// it had time to.
    pub(crate) fn add(&mut self, leases: &Leases, claim: Claim, told: Option<u64>, received: u64) {
        let end = leases.ends.get(&claim).copied();
        self.too_soon += usize::from(end.is_some_and(|end| received < end));
        let told = told.map(|told| told + in_micros(LEASE));
        let Some(end) = end.into_iter().chain(told).min() else {
            self.unmeasured += 1;
            return;
        };
        self.after
            .push((received + in_micros(LEASE)).saturating_sub(end));
        if received <= self.polled(end) {
            return;
        }
        let kept_until = leases.kept_until.get(&claim);
        let was_kept = kept_until.is_some_and(|&until| received <= self.polled(until));
        if was_kept || self.was_away(end - in_micros(LEASE), received) {
            self.put_off += 1;
        } else {
            self.too_late += 1;
        }
    }

    /// When a worker has polled and delivered what was free, at the latest.
    fn polled(&self, free: u64) -> u64 {
        free + in_micros(LONGEST_POLL) + self.slack
    }

    /// Whether the store was away between these.
    fn was_away(&self, from: u64, until: u64) -> bool {
        let mut outages = self.outages.iter();
        outages.any(|outage| outage.0 < until && outage.1 > from)
    }

    /// Says what the bound was.
    pub(crate) fn bound(&self) -> String {
        let away = self.outages.iter().map(|&(from, until)| until - from);
        let (times, away) = (self.outages.len(), Duration::from_micros(away.sum()));
        let slack = Duration::from_micros(self.slack);
        format!(
            "again within: lease {LEASE:?} + poll {LONGEST_POLL:?} + {slack:.0?} for a busy machine; \
            the store was away {times} times, {away:.1?}"
        )
    }
}
