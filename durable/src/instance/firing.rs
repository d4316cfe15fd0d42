//! Fires what the wheel says is due.
//!
//! A row that has come due here is only a suspicion: it may have been moved, removed or fired by another instance since it was
//! loaded. The store decides. Only what it returns as fired is delivered, so while the store is away nothing is.
//!
//! Each claim takes a permit of the capacity, before its row is fired. While there is none, nothing is fired; and when that
//! lasts, everything loaded is given back, so that other instances fire it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tickwheel::Expirations;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep, timeout};

use super::group_commit::Group;
use super::race::race;
use super::random::jittered;
use super::{Core, Deliveries, Delivery, Lease};
use crate::store::{Fire, FireReport, Settle, Settled, Version};

/// At most this many rows are fired at once.
const BATCH: usize = 1024;

/// When the capacity has been used up for so long, and rows are due, they are given back.
const PATIENCE: Duration = Duration::from_millis(50);

/// After a call that failed the next one waits so long, and twice as long each time.
const FIRST_RETRY: Duration = Duration::from_millis(20);

/// A row that the store finds early is asked about again after this at the earliest.
const EARLY: Duration = Duration::from_micros(500);

/// What firing needs.
pub(super) struct Firing {
    pub(super) core: Arc<Core>,
    pub(super) settles: Group<Settle, Settled>,
    pub(super) deliveries: Arc<Deliveries>,
    /// Whether the claims have ended.
    pub(super) stopped: watch::Receiver<bool>,
}

/// Returns `false` when the claims have ended.
async fn stopped(stopped: &mut watch::Receiver<bool>) -> bool {
    // An error means that nobody is left who could receive them.
    let _ = stopped.wait_for(|&stopped| stopped).await;
    false
}

impl Firing {
    /// Fires until the claims end or the wheel is shut down. A call under way is waited for: what it fires is released.
    pub(super) async fn run(mut self, mut expirations: Expirations<Version, ()>) {
        let mut expired = Vec::with_capacity(BATCH);
        loop {
            let received = async { expirations.recv_many(&mut expired, BATCH).await > 0 };
            if !race(stopped(&mut self.stopped), received).await {
                return;
            }
            let mut due: Vec<_> = expired.drain(..).map(|expired| expired.key).collect();
            self.core.let_go(due.len());
            while !due.is_empty() && !*self.stopped.borrow() {
                let Some(permits) = self.permits(due.len()).await else {
                    // What is due is given back too.
                    due.clear();
                    self.give_back_until_free().await;
                    continue;
                };
                let rest = due.split_off(permits.num_permits());
                self.fire(std::mem::replace(&mut due, rest), permits).await;
            }
        }
    }

    /// As many permits as there are, up to that many; `None` if there are none for a while.
    async fn permits(&self, wanted: usize) -> Option<OwnedSemaphorePermit> {
        let capacity = &self.core.capacity;
        let wanted = capacity.available_permits().clamp(1, wanted);
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let acquire = Arc::clone(capacity).acquire_many_owned(wanted);
        // The semaphore is never closed.
        timeout(PATIENCE, acquire).await.ok()?.ok()
    }

    /// Loads nothing, and keeps nothing loaded, until there is capacity.
    async fn give_back_until_free(&mut self) {
        let core = &*self.core;
        core.loads.store(false, Ordering::Release);
        core.metrics.given_back.add(1);
        tracing::debug!(namespace = %core.calls.namespace(), "the capacity is used up");
        let free = async {
            while let Err(error) = core.give_back().await {
                tracing::debug!(namespace = %core.calls.namespace(), %error, "not given back");
                sleep(jittered(core.settings.poll)).await;
            }
            core.capacity.acquire().await.is_ok()
        };
        if !race(stopped(&mut self.stopped), free).await {
            return;
        }
        core.loads.store(true, Ordering::Release);
        core.load_now.notify_one();
    }

    /// Fires rows, and tries again for as long as the store does not answer.
    async fn fire(&self, versions: Vec<Version>, permits: OwnedSemaphorePermit) {
        let core = &*self.core;
        let settings = &core.settings;
        let mut retry = FIRST_RETRY;
        loop {
            let request = Fire {
                versions: versions.clone(),
                lease: (!settings.at_most_once).then_some(settings.lease),
                missed: settings.missed,
                near: core.near(),
            };
            match core.calls.fire(request).await {
                Ok(timed) => {
                    core.observe(timed.asked, timed.answered, timed.answer.now);
                    return self.deliver(timed.answer, timed.answered, permits);
                }
                Err(_) if *self.stopped.borrow() => return,
                Err(_) => sleep(jittered(retry)).await,
            }
            retry = (retry * 2).min(settings.poll);
        }
    }

    fn deliver(&self, report: FireReport, answered: Instant, mut permits: OwnedSemaphorePermit) {
        let core = &*self.core;
        let soonest = Instant::now() + EARLY;
        for row in report.later {
            if row.loaded {
                let instant = core.clock.instant_of(row.due);
                core.arm_at(row.version, instant.max(soonest));
            }
        }
        report
            .next
            .into_iter()
            .for_each(|row| core.arm_if_loaded(row));
        core.metrics.claimed.add(report.fired.len());
        let deliveries = report.fired.into_iter().map(|fired| {
            if fired.attempt == 1 {
                let late = report.now.since(fired.deadline);
                core.metrics.lateness.add_duration(late);
            }
            let permit = permits.split(1).expect("there is one for each row");
            let settles = self.settles.clone();
            let lease = Lease::new(fired.token, settles, Arc::clone(&core.metrics), permit);
            let (lease, until) = if core.settings.at_most_once {
                (lease.already_settled(), None)
            } else {
                (lease, Some(answered + core.settings.lease))
            };
            Delivery {
                fired,
                lease,
                until,
            }
        });
        self.deliveries.push(deliveries.collect());
    }
}
