//! Loads rows onto the wheel.
//!
//! Other instances count this one as alive for as long as it loads. So there is a load for each
//! poll, whatever else happens, and an idle instance makes no other call but to discard old dead
//! timers. The instance also loads at once when a hint says that there may be near rows, and when
//! the last load left rows out and there is [demand](super::delivery) or room for them. The
//! response says what other instances lack, and the instance leaves due rows that it does not need
//! to them.
//!
//! **Invariant.** Every row that is marked by the present id of this instance is on its wheel, is
//! due here and waits to be fired, is being fired, or the instance is about to unload it or
//! everything. A row that broke it would wait for as long as the id is live, because its mark keeps
//! others from loading it. So after any call without a response, which may have marked rows,
//! the instance first unloads everything, which ends the
//! [incarnation](crate::protocol#incarnations) of its id, and loads under another one.
//!
//! 1. Loads and unloads take turns: [`Core::unloading`].
//! 2. A load holds its turn until what it has loaded is armed, so that an unload finds it there.
//! 3. When an unload has failed or was dropped, the id stays the old one, and may have ended. So
//!    nothing is loaded under it: the next load unloads it again first.
//! 4. A row that is left to others names the id that has loaded it, and is armed nowhere any more.
//!    No load returns it before the mark is gone, and once it is, the call has no more effect.
//!
//! # No id is live after its unload
//!
//! 1. Loads and unloads take turns, and calls keep their order also when the future of one was
//!    dropped (rule 3 of the [contract](crate::store)). So no load takes effect after the unload.
//! 2. A write, fire or settle that takes effect after the unload marks nothing under the old id.
//!    The store sends a hint, and the instance loads.
//! 3. One that began before the unload and ends after it, on a store that executes calls side by
//!    side, may mark a timer with the ended id. If its response arrives, this instance fires the
//!    timer on time, even if another one has loaded it too. If the response is lost, the next load
//!    of any instance unloads the timer.
//! 4. An unload leaves out a row that another transaction has locked. No instance could fire it
//!    anyway, and the first load after the lock unloads it.

use std::future::pending;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::Core;
use super::delivery::Demand;
use crate::error::Error;
use crate::jitter::jittered;
use crate::lock::lock;
use crate::race::race;
use crate::store::{Load, Loaded, StoreTime, Version};

/// One load asks for at most this many rows: a bounded step.
const BATCH: usize = 1024;

/// Instances that share due rows load so many times a poll.
const LOADS_PER_POLL: u32 = 4;

/// An instance that was to load less, since the wheel was full, loads more after so many polls.
const RAISED_EACH: u32 = 16;

/// Hints that come within this time of each other make one load.
const HINTS_APART: Duration = Duration::from_millis(5);

/// The result of a load.
#[derive(Clone, Copy)]
struct Found {
    unloaded: Unloaded,
    /// Whether the load has returned rows that were due well before: probably, other instances have
    /// left them.
    overdue: bool,
    others_lack: usize,
}

/// The rows that the store may have for this instance, but for demand or room: what the last load
/// has left, and what has happened since.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unloaded {
    Nothing,
    /// Perhaps rows that are not due yet, or that are left to other instances.
    Later,
    /// Probably rows that are due. The task that fires takes them without a load.
    Due,
}

/// Loads until it is dropped.
pub(super) async fn run(core: &Core) {
    let poll = core.settings.poll;
    // Whether others get some of what is due here, and until when this instance probably gets some
    // of theirs.
    let (mut gives, mut takes_until) = (false, Instant::now());
    let mut was_woken = false;
    let mut raised = Instant::now();
    loop {
        let began = Instant::now();
        if began - raised >= poll * RAISED_EACH {
            core.raise_max_loaded();
            raised = began;
        }
        // A fire takes the due rows that were left. A load would deliver them after what is fired
        // meanwhile.
        let demand = if core.has_due_unloaded() {
            0
        } else {
            core.to_load()
        };
        let mut found = load(core, demand).await.ok();
        // Whether there is or may be more that is due. A load that asks for nothing does not learn
        // it.
        let mut more = demand == 0 && core.unloaded() > Unloaded::Nothing;
        if let Some(first) = found {
            let behind = core.due.len() > core.deliveries.demand(core.part).ahead;
            gives = behind && (gives || first.others_lack > 0);
            if was_woken || first.overdue {
                takes_until = began + poll;
            }
            more |= core.give(first.others_lack).await || first.overdue;
        }
        // No due row is left: later rows are loaded as far as there is room.
        while found.is_some_and(|found| found.unloaded == Unloaded::Later) {
            if core.room() == 0 {
                break;
            }
            // A pause lets others have their share.
            tokio::task::yield_now().await;
            found = load(core, core.room()).await.ok();
        }
        let unloaded = found.map(|found| found.unloaded);
        let unseen = if more {
            Unloaded::Later
        } else {
            Unloaded::Nothing
        };
        core.change_unloaded(|_| unloaded.map_or(unseen, |unloaded| unloaded.max(unseen)));
        core.due.changed.notify_one();
        let takes = core.to_load() > 0 && began < takes_until;
        let pause = if gives || takes {
            poll / LOADS_PER_POLL
        } else {
            poll
        };
        was_woken = woken_until(core, began + jittered(pause), unloaded).await;
    }
}

/// Waits for the next load: until then, or until a hint, or until [`Core::load_if_wanted`] asks for
/// it. Returns whether that has.
async fn woken_until(core: &Core, until: Instant, unloaded: Option<Unloaded>) -> bool {
    let wanted = async {
        core.load_now.notified().await;
        true
    };
    let hinted = async {
        match unloaded {
            Some(Unloaded::Nothing | Unloaded::Later) => core.heard.notified().await,
            // The task that fires notifies `load_now`.
            Some(Unloaded::Due) | None => pending::<()>().await,
        }
        false
    };
    timeout_at(until, race(wanted, hinted)).await == Ok(true)
}

/// Waits for hints until it is dropped, also while a load is under way, which may have come before
/// what a hint is about.
pub(super) async fn listen(core: &Core) {
    loop {
        core.calls.hinted().await;
        // Those that come with it are about rows that the next load sees.
        sleep(HINTS_APART).await;
        core.heard.notify_one();
    }
}

/// Loads once, at most so many rows. Rows that are not due yet are loaded only if all of them have
/// room.
async fn load(core: &Core, limit: usize) -> Result<Found, Error> {
    let mut unloading = core.unloading.lock().await;
    // Rows that a call with a lost response has marked are on no wheel, and no other instance would
    // load them.
    if core.calls.take_lost_answer() || *unloading {
        core.end_incarnation(&mut unloading).await?;
    }
    let limit = limit.min(BATCH);
    // Rows that are due already take no room on the wheel. Without room a load asks for these
    // alone. With a limit of zero it asks only whether there are any.
    let is_full = core.has_due_unloaded() && limit == 0 || limit > core.room();
    let request = Load {
        instance: core.id(),
        window: if is_full {
            Duration::ZERO
        } else {
            core.settings.window
        },
        limit,
        wanted: core.to_load().min(limit),
        alive: core.settings.alive(),
        schedules: core.calendar.known(),
        edition: None,
        name: core.settings.name.clone(),
    };
    let mut loaded = core.calls.load(request).await?;
    let (sent, received) = (loaded.sent, loaded.received);
    let unknown = core.learn(std::mem::take(&mut loaded.answer.scheduled));
    let Loaded { now, rows, .. } = &loaded.answer;
    core.observe(sent, received, *now);
    core.metrics.update(|m| m.loaded += rows.len() as u64);
    for &(version, due) in rows {
        if !unknown.contains(&version) {
            core.arm(version, due);
        }
    }
    let overdue =
        |(_, due): &(Version, StoreTime)| now.since(*due) >= core.settings.overdue_after();
    Ok(Found {
        unloaded: match rows.last() {
            _ if !loaded.answer.more && is_full => Unloaded::Later,
            _ if !loaded.answer.more => Unloaded::Nothing,
            Some((_, due)) if due > now => Unloaded::Later,
            _ => Unloaded::Due,
        },
        overdue: rows.first().is_some_and(overdue),
        others_lack: loaded.answer.others_lack,
    })
}

impl Core {
    /// How many due rows may be loaded: as many as the program asks for and as may wait for it,
    /// less those that are here.
    fn to_load(&self) -> usize {
        let Demand { claims, ahead } = self.deliveries.demand(self.part);
        let claims = claims.min(self.capacity.available_permits());
        (claims + ahead).saturating_sub(self.due.len())
    }

    /// Leaves rows that other instances lack to them: rows that have been due here for long, and
    /// that the program will not take soon.
    async fn give(&self, others_lack: usize) -> bool {
        let Demand { ahead, .. } = self.deliveries.demand(self.part);
        let overdue_after = self.settings.overdue_after();
        let rows = self.due.take_old(ahead, overdue_after, others_lack);
        self.unmark(rows).await
    }

    /// Leaves rows to other instances, if there are any.
    pub(super) async fn unmark(&self, rows: Vec<Version>) -> bool {
        if rows.is_empty() {
            return false;
        }
        (self.metrics).update(|m| m.left_to_others += rows.len() as u64);
        self.calendar.remove(&rows);
        self.change_unloaded(|unloaded| unloaded.max(Unloaded::Later));
        // After an error the next load first unloads everything.
        let unmark = (self.calls).ask("unmark", |store, space| {
            store.unmark(space, self.id(), rows)
        });
        if let Ok(locked) = unmark.await {
            let now = Instant::now();
            self.due
                .add(locked.into_iter().map(|version| (now, version)));
        }
        true
    }

    /// Whether the last load has left rows out, or this instance has left some to others, and half
    /// the room is free.
    pub(super) fn could_load(&self) -> bool {
        self.unloaded() > Unloaded::Nothing
            && self.room() > self.max_loaded.load(Ordering::Acquire) / 2
    }

    fn unloaded(&self) -> Unloaded {
        *lock(&self.unloaded)
    }

    fn change_unloaded(&self, change: impl FnOnce(Unloaded) -> Unloaded) {
        let mut unloaded = lock(&self.unloaded);
        *unloaded = change(*unloaded);
    }

    /// Whether the store probably has due rows that no instance has loaded.
    pub(super) fn has_due_unloaded(&self) -> bool {
        self.unloaded() == Unloaded::Due
    }

    /// The task that fires has found no more of these.
    pub(super) fn no_due_unloaded(&self) {
        self.change_unloaded(|unloaded| unloaded.min(Unloaded::Later));
    }

    /// Tells the loader if there is more in the store, and demand and room for it. Not for each
    /// single row: what is due here has to be half used up. And not for rows that are due: these
    /// are fired without being loaded.
    pub(super) fn load_if_wanted(&self) {
        let Demand { ahead, .. } = self.deliveries.demand(self.part);
        let few = self.due.len() <= ahead / 2;
        if few && !self.has_due_unloaded() && self.could_load() && self.to_load() > 0 {
            self.change_unloaded(|_| Unloaded::Nothing);
            self.load_now.notify_one();
        }
    }
}
