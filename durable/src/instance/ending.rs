//! How a claim ends, and who tries how often.
//!
//! A claim ends by one [`End`]: it is acknowledged, put back, left to others, or dead.
//!
//! 1. From the moment at which an end is *decided*, the claim ends in no other way but by a later
//!    decision of the program. Dropping the claim sends the decided end; only a claim without one
//!    is released.
//! 2. A call of the program, such as [`Claim::ack`](crate::Claim::ack), is one try. What
//!    [`dispatch`](crate::Claims::dispatch) decides, and what is decided by dropping, is *kept*:
//!    the task of settles sends it again, with growing pauses, until the store has taken it or says
//!    that the claim is lost. From the first failure on, or from when a transaction is found to
//!    have locked its key, the lease is renewed meanwhile.
//! 3. A put-back is due when its first try would have made it due, and keeps its error.
//! 4. While a lease lasts by the instance's clock, no other instance ends the claim. So a claim
//!    that is `Lost` then, after a try without response, was ended by that try.
//! 5. Once the stream of claims has ended, a kept end is given up with its lease: the store may
//!    never be back.
//!
//! A kept end holds its part of the capacity, so there are no more of them than that.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::lease::{Hold, RenewGuard};
use crate::error::Error;
use crate::store::{Settle, Settled, Settlement, Version};

/// How a claim ends, or for how long it is extended.
#[derive(Debug, Clone)]
pub(crate) struct End {
    pub(super) settlement: Settlement,
    pub(super) error: Option<String>,
    /// When it was decided.
    pub(super) since: Instant,
}

impl End {
    pub(crate) fn new(settlement: Settlement) -> Self {
        End {
            settlement,
            error: None,
            since: Instant::now(),
        }
    }

    pub(crate) fn with_error(mut self, error: Option<String>) -> Self {
        self.error = error;
        self
    }

    pub(super) fn is_extension(&self) -> bool {
        matches!(self.settlement, Settlement::Extend(_))
    }

    /// Whether the program has decided it: not if no program has seen the claim, or it was dropped.
    pub(super) fn is_result(&self) -> bool {
        matches!(
            self.settlement,
            Settlement::Ack | Settlement::RetryAfter(_) | Settlement::Dead
        )
    }
}

/// Exists as long as a kept end waits for the store. `dispatch` waits for all of its own.
pub(crate) type Settling = mpsc::Sender<Infallible>;

/// An end on its way to the store.
pub(super) struct Ending {
    pub(super) hold: Arc<Hold>,
    pub(super) end: End,
    /// Whether it is sent until the store has taken it.
    pub(super) kept: bool,
    /// From the first try that has not ended it.
    pub(super) renewing: Option<RenewGuard>,
    pub(super) settling: Option<Settling>,
}

impl Ending {
    pub(super) fn token(&self) -> Version {
        self.hold.version()
    }

    pub(super) fn bytes(&self) -> usize {
        self.end.error.as_ref().map_or(0, String::len) + size_of::<Settle>()
    }

    /// What the store is asked for now.
    pub(super) fn settle(&self) -> Settle {
        let settlement = match self.end.settlement {
            Settlement::RetryAfter(delay) => {
                Settlement::RetryAfter(delay.saturating_sub(self.end.since.elapsed()))
            }
            other => other,
        };
        let mut settle = Settle::new(self.token(), settlement);
        settle.error.clone_from(&self.end.error);
        settle
    }

    /// Applies the store's response.
    pub(super) fn conclude(&self, settled: &Settled) -> Result<(), Error> {
        let concluded = self.hold.conclude(&self.end, settled);
        if let Err(error) = &concluded {
            self.warn(error);
        }
        concluded
    }

    /// Notes a try without a response. Returns whether there is another one.
    pub(super) fn is_tried_again(&mut self, error: &Error, claims_ended: bool) -> bool {
        self.hold.note_failure(&self.end);
        if !self.kept {
            return false;
        }
        if self.is_given_up(claims_ended) {
            self.warn(error);
            return false;
        }
        self.renew();
        true
    }

    /// Has the lease renewed from now on, if it is kept. It may wait for longer than the lease
    /// lasts: for the store, or for a transaction that has locked its key.
    pub(super) fn renew(&mut self) {
        if self.kept && self.renewing.is_none() && self.end.is_result() {
            self.renewing = Some(self.hold.keep(false));
        }
    }

    /// Whether it is not sent again (rule 5).
    pub(super) fn is_given_up(&self, claims_ended: bool) -> bool {
        claims_ended && self.hold.remaining().is_zero()
    }

    /// No caller learns of the result of a kept end.
    fn warn(&self, error: &Error) {
        if self.kept && self.end.is_result() {
            self.hold.warn(error, "a claim was not settled");
        }
    }
}
