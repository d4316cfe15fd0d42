//! Fires rows that are due by the wheel, as many as the program asks for.
//!
//! A row that has come due here is only a hint: another instance may have moved, removed or fired
//! it since it was loaded. The store decides, and the instance delivers only rows that the store
//! has fired.
//!
//! Each claim takes a permit of the capacity, before its row is fired.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tickwheel::{Expirations, Expired};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::calls::Timed;
use super::lease::{Lease, Leases};
use super::lost_fires::LostFires;
use super::{Core, Delivery};
use crate::error::Error;
use crate::jitter::jittered;
use crate::race::race;
use crate::store::{Fire, FireReport, StoreError, Version};

/// At most this many rows are fired at once.
const BATCH: usize = 1024;

/// The delay after a call that failed. It doubles with each failure, up to a poll.
const FIRST_RETRY: Duration = Duration::from_millis(20);

/// The least delay before a row that the store has found early is fired again.
const EARLY_RETRY: Duration = Duration::from_micros(500);

/// The task that fires.
pub(super) struct Firing {
    pub(super) core: Arc<Core>,
    pub(super) leases: Arc<Leases>,
    /// Whether the claims have ended.
    pub(super) stopped: watch::Receiver<bool>,
    pub(super) lost: LostFires,
}

/// The next event.
enum Event {
    /// The claims have ended, or the wheel is shut down.
    End,
    /// Rows have come due: from the wheel, or elsewhere.
    Due,
    /// The program can take more, and there is or may be more.
    Demand,
    /// A claim has waited for the program for too long.
    Stale,
    /// Claims of a lost fire may be there.
    Lost,
}

type Expiring = Vec<Expired<Version, ()>>;

/// Without an instant it sleeps forever.
async fn sleep_until_some(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

impl Firing {
    /// Fires until the claims end or the wheel is shut down. A call under way is waited for: what
    /// it fires is released.
    pub(super) async fn run(mut self, mut expirations: Expirations<Version, ()>) {
        let core = Arc::clone(&self.core);
        let mut expired = Vec::with_capacity(BATCH);
        loop {
            match self.next(&mut expirations, &mut expired).await {
                Event::End => {
                    self.lost.unfire(&core, &self.leases).await;
                    return;
                }
                Event::Due => {
                    let due = expired.drain(..).map(|due| (due.deadline, due.key));
                    core.due.add(due);
                }
                Event::Demand => self.fire_some().await,
                Event::Stale => self.give_up_stale(),
                Event::Lost => self.lost.unfire(&core, &self.leases).await,
            }
            core.unmark(core.due.take_surplus()).await;
            core.load_if_wanted();
        }
    }

    async fn next(
        &mut self,
        expirations: &mut Expirations<Version, ()>,
        expired: &mut Expiring,
    ) -> Event {
        let core = &*self.core;
        let stopped = async {
            // An error means that the receiver is gone.
            let _ = self.stopped.wait_for(|&stopped| stopped).await;
            Event::End
        };
        let due = async {
            match expirations.recv_many(expired, BATCH).await {
                0 => Event::End,
                _ => Event::Due,
            }
        };
        let changed = async {
            core.due.changed.notified().await;
            Event::Due
        };
        let demand = async {
            if core.due.len() == 0 && !core.has_due_unloaded() && !core.could_load() {
                return pending().await;
            }
            core.deliveries.demanded(core.part).await;
            // The semaphore is never closed.
            drop(core.capacity.acquire().await);
            Event::Demand
        };
        let stale = async {
            sleep_until_some(core.deliveries.stale_at()).await;
            Event::Stale
        };
        let look_at = self.lost.look_at();
        let lost = async {
            sleep_until_some(look_at).await;
            Event::Lost
        };
        // First a batch is gathered, then it is fired.
        let enough = core.due.len() >= BATCH;
        let rest = race(changed, race(stale, lost));
        if enough {
            race(stopped, race(demand, race(due, rest))).await
        } else {
            race(stopped, race(due, race(demand, rest))).await
        }
    }

    /// Fires as much as the program asks for, and has more loaded meanwhile.
    async fn fire_some(&mut self) {
        let core = Arc::clone(&self.core);
        let wanted = core.deliveries.demand(core.part).claims;
        let wanted = wanted.min(core.capacity.available_permits()).min(BATCH);
        let rows = core.due.take(wanted);
        let unloaded = if core.has_due_unloaded() {
            wanted - rows.len()
        } else {
            0
        };
        let firing = rows.len() + unloaded;
        let permits = u32::try_from(firing).unwrap_or(0);
        // Only this task takes permits.
        let permits = Arc::clone(&core.capacity).try_acquire_many_owned(permits);
        let Ok(permits) = permits else {
            core.due.add(rows);
            return;
        };
        core.deliveries.begin_firing(core.part, firing);
        core.load_if_wanted();
        if firing > 0 {
            self.fire(rows, unloaded, permits).await;
        }
    }

    /// Gives up claims that have waited for the program until half of their lease was over.
    fn give_up_stale(&self) {
        for delivery in self.core.deliveries.take_stale() {
            delivery.lease.lapse();
        }
    }

    /// Fires rows, and tries again for as long as the store does not respond.
    async fn fire(
        &mut self,
        rows: Vec<(Instant, Version)>,
        unloaded: usize,
        permits: OwnedSemaphorePermit,
    ) {
        let core = Arc::clone(&self.core);
        let settings = &core.settings;
        let mut retry = FIRST_RETRY;
        loop {
            self.lost.unfire(&core, &self.leases).await;
            let by = core.id();
            let versions = rows.iter().map(|&(_, version)| version);
            let plans = core
                .calendar
                .plans(versions.clone(), settings.missed, core.now());
            let request = Fire {
                versions: versions.collect(),
                unloaded,
                lease: (!settings.at_most_once).then_some(settings.lease),
                missed: settings.missed,
                no_overlap: settings.no_overlap,
                near: core.near(),
                plans,
                schedules: core.calendar.known(),
                by: Some(by),
            };
            match core.calls.fire(request).await {
                Ok(timed) => {
                    core.observe(timed.sent, timed.received, timed.answer.now);
                    let done = rows.len().saturating_sub(timed.answer.rest);
                    core.due.add(rows[done..].iter().copied());
                    let done = rows[..done].iter().map(|(_, version)| version);
                    core.calendar.remove(done);
                    // Rows that it should have loaded, and could not, are for the next load.
                    let now = timed.answer.now;
                    let mut later = timed.answer.later.iter();
                    let is_left = later.any(|row| !row.loaded && row.due <= now);
                    if unloaded > 0 && (!timed.answer.more || is_left) {
                        core.no_due_unloaded();
                    }
                    return self.deliver(timed, permits);
                }
                // Nothing was taken: the store has refused the fire, or it was not sent.
                Err(Error::Store(
                    StoreError::Charter { .. }
                    | StoreError::Schema { .. }
                    | StoreError::Amended { .. }
                    | StoreError::NotOpened { .. }
                    | StoreError::Late { .. },
                )) => {}
                Err(_) => self.lost.add(by, &core),
            }
            let stopped = self.stopped.wait_for(|&stopped| stopped);
            if timeout(jittered(retry), stopped).await.is_ok() || core.on_wheel.is_closed() {
                return;
            }
            retry = (retry * 2).min(settings.poll);
        }
    }

    fn deliver(&self, fired: Timed<FireReport>, mut permits: OwnedSemaphorePermit) {
        let core = &*self.core;
        let (report, sent) = (fired.answer, fired.sent);
        let soonest = Instant::now() + EARLY_RETRY;
        let unknown = core.learn(report.scheduled);
        for row in report.later {
            if row.loaded && !unknown.contains(&row.version) {
                let instant = core.clock.instant_of(row.due);
                core.arm_at(row.version, instant.max(soonest));
            }
        }
        report
            .next
            .into_iter()
            .filter(|row| !unknown.contains(&row.version))
            .for_each(|row| core.arm_if_loaded(row));
        for row in &report.damaged {
            let (namespace, key) = (core.calls.namespace(), String::from_utf8_lossy(&row.key));
            let (version, reason) = (row.version.0, &*row.reason);
            tracing::error!(%namespace, %key, version, reason, "a timer holds what no store writes, and is dead: see `Admin::dead`");
        }
        // The leases began after the call was sent. If the response took very long, most of that
        // time was before.
        let lease = core.settings.lease;
        let began = sent.max(fired.received.checked_sub(lease / 4).unwrap_or(sent));
        let first = report.fired.iter().filter(|fired| fired.attempt == 1);
        let late = first.map(|fired| report.now.since(fired.deadline));
        core.metrics.update(|m| {
            m.claimed += report.fired.len() as u64;
            m.dead += report.damaged.len() as u64;
            late.for_each(|late| m.lateness.record(late));
        });
        let deliveries = report.fired.into_iter().map(|fired| {
            let permit = permits.split(1).expect("there is one for each row");
            let leases = Arc::clone(&self.leases);
            let late = report.now.since(fired.deadline);
            let lease = Lease::new(&fired, late, leases, began + lease, permit);
            Delivery { fired, lease }
        });
        core.deliveries.push(core.part, deliveries.collect());
    }
}
