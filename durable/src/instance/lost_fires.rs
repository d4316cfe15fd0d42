//! Claims of fires that lost their responses.
//!
//! Such a fire may have taken effect. Its claims are in flight under the id of this instance, and
//! no program has them: they would wait for a whole lease, and an attempt would be spent that no
//! handler has seen. So the instance looks for them, and unfires them.
//!
//! 1. The task that fires does this, between two fires: what is in flight under its id then, and
//!    has no [`Lease`] here, is of a lost fire.
//! 2. It looks before the next fire, and once more when the store can no longer be executing the
//!    lost call. It looks again after a look that failed, or found a claim locked.
//! 3. When the claims end it looks only if it is time to. What it would have found later waits for
//!    the end of its lease.
//!
//! [`Lease`]: super::lease::Lease

use tokio::time::Instant;

use super::Core;
use super::lease::Leases;
use crate::error::Error;
use crate::store::{InstanceId, List, Settle, Settled, Settlement, State, StoreError};

/// One look asks for so many rows.
const PAGE: usize = 1_000;

/// The fires that lost their responses.
#[derive(Default)]
pub(super) struct LostFires {
    fires: Vec<LostFire>,
}

struct LostFire {
    by: InstanceId,
    look_at: Instant,
    /// It is assumed that the store executes the call no longer than until then.
    until: Instant,
}

impl LostFires {
    /// Notes a fire that was sent under this id.
    pub(super) fn add(&mut self, by: InstanceId, core: &Core) {
        let look_at = Instant::now();
        self.fires.retain(|fire| fire.by != by);
        self.fires.push(LostFire {
            by,
            look_at,
            until: look_at + core.settings.call_timeout,
        });
    }

    /// When to look next, if no fire comes before.
    pub(super) fn look_at(&self) -> Option<Instant> {
        self.fires.iter().map(|fire| fire.look_at).min()
    }

    /// Unfires their claims, if it is time to look. Called between two fires.
    pub(super) async fn unfire(&mut self, core: &Core, leases: &Leases) {
        let now = Instant::now();
        if self.look_at().is_none_or(|at| at > now) {
            return;
        }
        let looked = self.look(core, leases).await;
        for fire in &mut self.fires {
            fire.look_at = match looked {
                Ok(()) => fire.until,
                Err(_) => Instant::now() + core.settings.poll,
            };
        }
        if looked.is_ok() {
            self.fires.retain(|fire| fire.until > now);
        }
    }

    async fn look(&self, core: &Core, leases: &Leases) -> Result<(), Error> {
        let (mut after, mut looked) = (None, Ok(()));
        loop {
            let request = List::new(State::InFlight, after, PAGE);
            let listing = (core.calls).ask("list", |store, space| store.list(space, request));
            let rows = listing.await?;
            let Some(last) = rows.last() else { break };
            after = Some((last.due, last.version));
            let is_lost = |by| self.fires.iter().any(|fire| Some(fire.by) == by);
            let lost = rows
                .iter()
                .filter(|row| is_lost(row.claimed_by) && !leases.holds(row.version));
            let settles: Vec<_> = lost
                .map(|row| Settle::new(row.version, Settlement::Unfire))
                .collect();
            if settles.is_empty() {
                continue;
            }
            tracing::debug!(namespace = %core.calls.namespace(), claims = settles.len(), "claims of a lost fire are unfired");
            for settled in core.calls.settle(settles, core.near()).await? {
                match settled {
                    Settled::Armed(row) => core.arm_if_loaded(row),
                    Settled::Locked => looked = Err(Error::Store(StoreError::locked("a claim"))),
                    _ => {}
                }
            }
        }
        looked
    }
}
