//! Loads rows onto the wheel.
//!
//! A load is also the instance's sign of life. So there is one for each poll, whatever else happens, and an idle instance makes
//! no other call. Besides it loads at once when a hint says that there may be near rows, when the last load left rows out and
//! there is room again, and when the instance resumes after its capacity was used up.
//!
//! **Invariant.** Every row that is marked by the present id of this instance is on its wheel, or is about to be fired, or the
//! instance is about to give everything back. A row that broke it would wait for as long as the id lives, because its mark
//! keeps others from loading it. So after any call whose answer was lost, which may have marked rows, the instance first gives
//! everything back, which ends the [life](crate::protocol#lives) of its id, and loads under another one.
//!
//! 1. Loads and unloads take turns: [`Core::unloading`]. Two tasks unload, the loader and, when the capacity is used up, the
//!    one that fires. A load under way while the other unloads could take effect after it, and begin the ended life anew.
//! 2. A load holds its turn until what it has loaded is on the wheel, so that whoever gives back next finds it there.
//! 3. When an unload has failed or was dropped, the id stays the old one, and may have ended. So nothing is loaded under it:
//!    the next load unloads it again first.
//! 4. When the capacity is used up the instance stops loading, and after that gives back. Every later call that may mark rows
//!    either names no loader or the id that ended: [`Core::near`] reads the id before it asks whether the instance loads.

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
            if more {
                core.room_again().await;
            } else if failing || core.room() == 0 {
                pending::<()>().await;
            } else {
                hint(core).await;
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
    let mut unloading = core.unloading.lock().await;
    let had_no_room = !core.loads() && core.capacity.available_permits() > 0;
    // What a lost answer has marked as loaded is on no wheel, and nobody else would load it either.
    if core.calls.take_lost_answer() || *unloading || had_no_room {
        core.end_life(&mut unloading).await?;
    }
    if had_no_room {
        core.loads.store(true, Ordering::Release);
    }
    let limit = if core.loads() {
        core.room().min(BATCH)
    } else {
        0
    };
    let request = Load {
        instance: core.id(),
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
