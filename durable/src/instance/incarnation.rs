//! The incarnations of an instance, and how it learns that the store has returned to an earlier
//! state.
//!
//! A store can lose what it has answered while no call fails: a server takes over from another one
//! and lacks its last writes, or a file is restored in place. Then rows come back that are marked
//! by this instance, and that it has fired, moved or removed. No other instance would load them
//! while its id lives.
//!
//! 1. Each load brings the [receipt](Receipt) of the last one, and the store compares. If it does
//!    not have that load, or may have lost what came after it, the instance ends its incarnation.
//!    That takes its marks away, and the next load finds the rows as any other instance does.
//! 2. An id that the instance has ended may come back living, with marks. Each load lets it live
//!    for a few polls only, so the instance ends those again that it has ended in the last ones.
//! 3. A call that has failed may hide a return: the instance would load under another id, of which
//!    the store has no load yet. So it compares before it unloads, too.
//! 4. The store has lost its data if the namespace was made again: the calls find that out when
//!    they open it. Otherwise it is known to have returned if it does not have the last load.
//!    Either is logged and counted once.

use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::Core;
use super::calls::Timed;
use crate::error::Error;
use crate::store::{Continuity, Edition, InstanceId, Load, Loaded, Receipt};

/// The present incarnation, and those before it.
pub(super) struct Incarnation {
    /// What the last load under the present id has left, and in which namespace: see
    /// [`made`](super::calls::Calls::made).
    last: Option<(Receipt, Edition)>,
    /// Whether it has to unload before it loads: an unload has started and not succeeded, or the
    /// store may have returned to an earlier state.
    is_over: bool,
    /// Whether the ids before this one are to be ended again.
    may_have_returned: bool,
    /// The ids that were ended, and when.
    ended: Vec<(InstanceId, Instant)>,
}

impl Incarnation {
    pub(super) fn new(receipt: Receipt, made: Edition) -> Self {
        Incarnation {
            last: Some((receipt, made)),
            is_over: false,
            may_have_returned: false,
            ended: Vec::new(),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }
}

impl Core {
    /// Loads, and compares with the last load.
    pub(super) async fn load_in(
        &self,
        incarnation: &mut Incarnation,
        request: &Load,
    ) -> Result<Timed<Loaded>, Error> {
        let mut request = request.clone();
        request.last = incarnation.last.map(|(receipt, _)| receipt);
        let loaded = self.calls.load(request).await?;
        let made = self.calls.made();
        let last = incarnation.last.replace((loaded.answer.receipt, made));
        let continuity = loaded.answer.continuity;
        if continuity != Continuity::Kept {
            incarnation.is_over = true;
            incarnation.may_have_returned = true;
        }
        let is_same = last.is_some_and(|(_, before)| before == made);
        if continuity == Continuity::Broken && is_same {
            self.calls.note_returned();
        }
        Ok(loaded)
    }

    /// Compares with the last load, before an unload after which nothing can be compared.
    pub(super) async fn look_back(&self, incarnation: &mut Incarnation) -> Result<(), Error> {
        self.forget_loaded();
        if incarnation.last.is_none() {
            return Ok(());
        }
        let settings = &self.settings;
        let mut request = Load::new(self.id(), settings.window, 0, settings.alive());
        request.name.clone_from(&settings.name);
        self.load_in(incarnation, &request).await.map(drop)
    }

    /// Unloads everything, and goes on under another id.
    pub(super) async fn end_incarnation(&self, incarnation: &mut Incarnation) -> Result<(), Error> {
        (incarnation.is_over, incarnation.last) = (true, None);
        self.forget_loaded();
        let lived = self.settings.alive() * 2;
        incarnation.ended.retain(|(_, at)| at.elapsed() <= lived);
        if incarnation.may_have_returned {
            for &(id, _) in &incarnation.ended {
                self.unload(id).await?;
            }
        }
        let id = self.id();
        let InstanceId(fresh) = self.unload(id).await?;
        self.id.store(fresh, Ordering::Release);
        incarnation.ended.push((id, Instant::now()));
        (incarnation.is_over, incarnation.may_have_returned) = (false, false);
        Ok(())
    }

    /// Takes everything off the wheel, before it is unloaded: another instance may load what is
    /// armed after this, which is then on two wheels at worst.
    fn forget_loaded(&self) {
        drop(self.drain());
        self.due.clear();
        self.calendar.clear();
    }

    async fn unload(&self, id: InstanceId) -> Result<InstanceId, Error> {
        (self.calls)
            .ask("unload", |store, space| store.unload(space, id))
            .await
    }
}
