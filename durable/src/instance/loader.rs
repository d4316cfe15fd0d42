//! Loads rows onto the wheel.
//!
//! A load is also the instance's sign of life. So there is one for each poll, whatever else happens, and an idle instance makes
//! no other call. Besides it loads at once when a hint says that there may be near rows, and when the last load left rows out
//! and there is [demand](crate::protocol#demand) or room for them.
//!
//! **Invariant.** Every row that is marked by the present id of this instance is on its wheel, is due here and waits to be
//! fired, is being fired, or the instance is about to give it or everything back. A row that broke it would wait for as long
//! as the id lives, because its mark keeps others from loading it. So after any call whose answer was lost, which may have
//! marked rows, the instance first gives everything back, which ends the [life](crate::protocol#lives) of its id, and loads
//! under another one.
//!
//! 1. Loads and unloads take turns: [`Core::unloading`].
//! 2. A load holds its turn until what it has loaded is armed, so that an unload finds it there.
//! 3. When an unload has failed or was dropped, the id stays the old one, and may have ended. So nothing is loaded under it:
//!    the next load unloads it again first.
//! 4. A row that is left to others names the id that has loaded it, and is armed nowhere any more. No load hands it out again
//!    before the mark is gone, and once it is, the call has no more effect.

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

/// What a load has left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    Nothing,
    /// Rows that are not due yet.
    Later,
    /// Perhaps rows that are due.
    Due,
}

/// Loads until it is dropped.
pub(super) async fn run(core: &Core) {
    let poll = core.settings.poll;
    loop {
        let began = Instant::now();
        let mut left = load(core, core.demand()).await;
        // Nothing is left that is due: what comes after it is loaded as far as there is room.
        while let Ok(Left::Later) = left {
            if core.room() == 0 {
                break;
            }
            // A pause lets others have their share.
            tokio::task::yield_now().await;
            left = load(core, core.room()).await;
        }
        core.more.store(
            matches!(left, Ok(Left::Later | Left::Due)),
            Ordering::Release,
        );
        core.due.changed.notify_one();
        let early = race(core.load_now.notified(), async {
            if left == Ok(Left::Nothing) {
                hint(core).await;
            } else {
                // It is told by the task that fires.
                pending::<()>().await;
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

/// Loads once, at most so many rows.
async fn load(core: &Core, limit: usize) -> Result<Left, Error> {
    let mut unloading = core.unloading.lock().await;
    // What a lost answer has marked as loaded is on no wheel, and nobody else would load it either.
    if core.calls.take_lost_answer() || *unloading {
        core.end_life(&mut unloading).await?;
    }
    let request = Load {
        instance: core.id(),
        window: core.settings.window,
        limit: limit.min(core.room()).min(BATCH),
        alive: core.settings.alive(),
    };
    let loaded = core.calls.load(request).await?;
    let (asked, answered) = (loaded.asked, loaded.answered);
    core.observe(asked, answered, loaded.answer.now);
    core.metrics.loaded.add(loaded.answer.rows.len());
    for &(version, due) in &loaded.answer.rows {
        core.arm(version, due);
    }
    let last = loaded.answer.rows.last();
    Ok(match last {
        _ if !loaded.answer.more => Left::Nothing,
        Some((_, due)) if *due > loaded.answer.now => Left::Later,
        _ => Left::Due,
    })
}

impl Core {
    /// How many rows may be loaded though they are due: what the program asks for, and as many as may wait for it, but for
    /// those that are here.
    fn demand(&self) -> usize {
        let (wanted, ahead) = self.deliveries.demand();
        let wanted = wanted.min(self.capacity.available_permits());
        (wanted + ahead).saturating_sub(self.due.len())
    }

    /// Whether the last load has left rows out, or this instance has left some to others, and half the room is free.
    pub(super) fn could_load(&self) -> bool {
        let more = self.more.load(Ordering::Acquire);
        more && self.room() > self.max_loaded.load(Ordering::Acquire) / 2
    }

    /// Tells the loader if there is more in the store, and demand and room for it. Not for each single row: what is due here
    /// has to be half used up.
    pub(super) fn load_if_wanted(&self) {
        let (_, ahead) = self.deliveries.demand();
        let few = self.due.len() <= ahead / 2;
        if few && self.could_load() && self.demand() > 0 {
            self.more.store(false, Ordering::Release);
            self.load_now.notify_one();
        }
    }
}
