//! Loads rows onto the wheel.
//!
//! A load is also the instance's sign of life. So there is one for each poll, whatever else happens, and an idle instance makes
//! no other call. Besides it loads at once when a hint says that there may be near rows, when the last load left rows out and
//! there is room again, and when the instance resumes after its capacity was used up.

use std::future::pending;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::Core;
use super::race::race;
use super::random::jittered;
use crate::error::Error;
use crate::store::Load;

/// One load asks for at most this many rows.
const BATCH: usize = 4096;

/// Hints that come within this time of each other make one load.
const HINTS_APART: Duration = Duration::from_millis(5);

/// Loads until it is dropped.
pub(super) async fn run(core: &Core) {
    let poll = core.settings.poll;
    let mut failing = false;
    loop {
        let began = Instant::now();
        let more = match load(core).await {
            Ok(more) => {
                if std::mem::take(&mut failing) {
                    tracing::info!(namespace = %core.calls.namespace(), "the store answers again");
                }
                more
            }
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(namespace = %core.calls.namespace(), %error, "the store does not answer");
                }
                false
            }
        };
        if more && core.room() > 0 {
            // A pause lets others have their share.
            tokio::task::yield_now().await;
            continue;
        }
        let early = race(core.load_now.notified(), async {
            match (failing, more) {
                (true, _) => pending().await,
                (false, true) => race(core.room_again(), hint(core)).await,
                (false, false) => hint(core).await,
            }
        });
        // Early or not: it is time for the next load.
        let _ = timeout_at(began + jittered(poll), early).await;
    }
}

/// Waits for a hint, and for those that come with it.
async fn hint(core: &Core) {
    core.calls.hinted().await;
    sleep(HINTS_APART).await;
}

/// Loads once. Returns whether rows were left out.
async fn load(core: &Core) -> Result<bool, Error> {
    if !core.loads() && core.capacity.available_permits() > 0 {
        // The wheel had no room: give back, and begin anew.
        core.give_back().await?;
        core.loads.store(true, Ordering::Release);
    }
    let limit = if core.loads() {
        core.room().min(BATCH)
    } else {
        0
    };
    let request = Load {
        instance: core.id,
        window: core.settings.window,
        limit,
        alive: core.settings.alive(),
    };
    let loaded = core.calls.load(request).await?;
    let (asked, answered) = (loaded.asked, loaded.answered);
    core.observe(asked, answered, loaded.answer.now);
    core.metrics.loaded.add(loaded.answer.rows.len());
    for &(version, due) in &loaded.answer.rows {
        core.arm(version, due);
    }
    Ok(loaded.answer.more)
}

impl Core {
    /// Returns when half of what may be loaded is free.
    async fn room_again(&self) {
        while self.room() <= self.max_loaded.load(Ordering::Acquire) / 2 {
            self.fired_some.notified().await;
        }
    }
}
