//! One claim's hold on its timer.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedSemaphorePermit;

use super::group_commit::Group;
use crate::claim::Token;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::store::{How, Settle, Settled, Version};

/// Holds a timer in flight, and a part of the capacity. Dropping it releases what is not settled.
pub(crate) struct Lease {
    token: Version,
    /// One of the constants below.
    state: AtomicU8,
    settles: Group<Settle, Settled>,
    metrics: Arc<Metrics>,
    /// Its part of the capacity, until it is settled.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

/// To be settled.
const HELD: u8 = 0;
/// Settled, or gone from the store when it fired.
const SETTLED: u8 = 1;
/// Delivered again meanwhile, or about to be.
const LOST: u8 = 2;

impl Lease {
    /// A lease on a timer in flight.
    pub(crate) fn new(
        token: Version,
        settles: Group<Settle, Settled>,
        metrics: Arc<Metrics>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Lease {
            token,
            state: AtomicU8::new(HELD),
            settles,
            metrics,
            permit: Mutex::new(Some(permit)),
        }
    }

    /// The lease of a timer that the store has deleted as it fired.
    pub(crate) fn already_settled(mut self) -> Self {
        *self.state.get_mut() = SETTLED;
        self
    }

    pub(crate) fn token(&self) -> Token {
        Token(self.token)
    }

    /// Whether it is still to be settled.
    pub(crate) fn is_held(&self) -> bool {
        self.state.load(Ordering::Acquire) == HELD
    }

    /// Settles it. After an error that may pass it can be tried again.
    pub(crate) async fn settle(&self, how: How) -> Result<(), Error> {
        let token = self.token();
        match self.state.load(Ordering::Acquire) {
            HELD => {}
            SETTLED if how == How::Ack => return Ok(()),
            SETTLED => return Err(Error::Settled { token }),
            _ => return Err(Error::Lost { token }),
        }
        let settle = Settle {
            token: self.token,
            how,
        };
        match self.settles.submit(settle).await? {
            Settled::Lost => {
                self.end(LOST);
                self.metrics.lost.add(1);
                Err(Error::Lost { token })
            }
            Settled::Done if matches!(how, How::Extend(_)) => Ok(()),
            Settled::Done | Settled::Armed(_) => {
                self.end(SETTLED);
                Ok(())
            }
        }
    }

    /// Lets go of a lease that has ended. The store needs no word of it.
    pub(crate) fn abandon(&self) {
        self.end(LOST);
    }

    fn end(&self, state: u8) {
        self.state.store(state, Ordering::Release);
        let permit = self
            .permit
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(permit);
    }

    /// Settles it, if it is not, without waiting.
    pub(crate) fn settle_unheard(&self, how: How) {
        if self.state.swap(SETTLED, Ordering::AcqRel) == HELD {
            let token = self.token;
            self.settles.submit_unheard(Settle { token, how });
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.settle_unheard(How::Release);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("token", &self.token)
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}
