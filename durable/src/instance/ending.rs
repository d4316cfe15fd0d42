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
//!    that is `Lost` then, after a try of the same end without response, was ended by that try. It
//!    is lost if another end than the decided one took effect, also with a late response. An
//!    operator's release or discard, a host that was suspended, and a fire with a very late
//!    response are the exceptions: then a claim may count as ended by the decided end that was not.
//! 5. Once the stream of claims has ended, a kept end is given up with its lease: the store may
//!    never be back.
//!
//! A kept end holds its part of the capacity, so there are no more of them than that.

use std::convert::Infallible;
use std::mem::discriminant;

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;

use crate::error::Error;
use crate::store::{Settled, Settlement};
use crate::token::Token;

/// How a claim ends, or for how long it is extended.
#[derive(Clone)]
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

    /// Whether both end it in the same way. A backoff is jittered, and the try that took effect has
    /// the delay.
    fn is_like(&self, other: &End) -> bool {
        discriminant(&self.settlement) == discriminant(&other.settlement)
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

/// Exists until a claim has ended, or its kept end is given up. `dispatch` waits for all of its
/// claims.
pub(crate) type Settling = mpsc::Sender<Infallible>;

/// What this instance holds of a timer in flight, and how that ends.
pub(super) struct LeaseState {
    phase: Phase,
    /// Its part of the capacity, until it has ended.
    permit: Option<OwnedSemaphorePermit>,
    /// Where `dispatch` waits for that. Dropping it may wake the program's task by a waker of the
    /// program, so that is done without the lock.
    pub(super) settling: Option<Settling>,
    /// When the lease ends, or sooner; `None` for never.
    pub(super) until: Option<Instant>,
}

enum Phase {
    Held,
    /// Its end is decided.
    Ending {
        end: End,
        /// Whether a try of this end has had no response.
        tried: bool,
        /// Whether the task of settles has it until it is done.
        kept: bool,
    },
    /// Settled, or gone from the store when it fired.
    Settled,
    /// Delivered again meanwhile, or about to be.
    Lost,
}

impl LeaseState {
    pub(super) fn new(until: Instant, permit: OwnedSemaphorePermit) -> Self {
        LeaseState {
            phase: Phase::Held,
            permit: Some(permit),
            settling: None,
            until: Some(until),
        }
    }

    pub(super) fn is_held(&self) -> bool {
        matches!(self.phase, Phase::Held | Phase::Ending { .. })
    }

    pub(super) fn is_lost(&self) -> bool {
        matches!(self.phase, Phase::Lost)
    }

    /// The store has deleted the timer as it fired.
    pub(super) fn settle(&mut self) {
        self.phase = Phase::Settled;
    }

    /// The end of a claim that is dropped, unless it has one already.
    pub(super) fn end_of_dropped(&self) -> Option<End> {
        match &self.phase {
            Phase::Held => Some(End::new(Settlement::Release)),
            Phase::Ending {
                end, kept: false, ..
            } => Some(end.clone()),
            _ => None,
        }
    }

    /// Notes how it ends. Returns `false` if it has ended so already, or if its end is kept and
    /// this one would be, too: the first one stays.
    pub(super) fn decide(
        &mut self,
        decided: &End,
        keeps: bool,
        token: Token,
    ) -> Result<bool, Error> {
        match &mut self.phase {
            Phase::Held | Phase::Ending { .. } if decided.is_extension() => {}
            Phase::Ending { kept: true, .. } if keeps => return Ok(false),
            Phase::Ending { end, tried, kept } => {
                *tried &= end.is_like(decided);
                *end = decided.clone();
                *kept |= keeps;
            }
            Phase::Held => {
                self.phase = Phase::Ending {
                    end: decided.clone(),
                    tried: false,
                    kept: keeps,
                }
            }
            Phase::Settled if decided.settlement == Settlement::Ack => return Ok(false),
            Phase::Settled => return Err(Error::Settled { token }),
            Phase::Lost => return Err(Error::Lost { token }),
        }
        Ok(true)
    }

    /// Notes that a try has had no response: it may have taken effect.
    pub(super) fn note_failure(&mut self, sent: &End) {
        if let Settlement::Extend(lease) = sent.settlement {
            let ends = self.until.into_iter().chain(sent.since.checked_add(lease));
            self.until = ends.min();
        }
        if let Phase::Ending { end, tried, .. } = &mut self.phase {
            *tried |= end.is_like(sent);
        }
    }

    /// Applies the store's response to an end or an extension.
    pub(super) fn conclude(
        &mut self,
        sent: &End,
        settled: &Settled,
        token: Token,
    ) -> Result<(), Error> {
        let lasts = self.until.is_none_or(|until| until > Instant::now());
        let decided = matches!(&self.phase, Phase::Ending { end, .. } if end.is_like(sent));
        if *settled == Settled::Lost {
            match self.phase {
                // Only a try of this instance can have ended it.
                Phase::Ending { tried: true, .. } if lasts && decided => {}
                // The end that is decided finds out.
                Phase::Ending { .. } if sent.is_extension() => return Err(Error::Lost { token }),
                // Another call was quicker, and reports its own result.
                Phase::Settled if sent.settlement == Settlement::Ack => return Ok(()),
                Phase::Settled => return Err(Error::Settled { token }),
                Phase::Lost => return Err(Error::Lost { token }),
                Phase::Held | Phase::Ending { .. } => {
                    self.end_as(Phase::Lost);
                    return Err(Error::Lost { token });
                }
            }
        }
        if let Settlement::Extend(lease) = sent.settlement {
            self.until = sent.since.checked_add(lease);
        } else {
            self.end_as(if decided { Phase::Settled } else { Phase::Lost });
        }
        Ok(())
    }

    fn end_as(&mut self, phase: Phase) {
        (self.phase, self.permit) = (phase, None);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::sync::Semaphore;

    use super::*;
    use crate::store::Version;

    const LEASE: Duration = Duration::from_secs(60);

    fn held() -> LeaseState {
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned();
        LeaseState::new(Instant::now() + LEASE, permit.expect("there is one"))
    }

    // It said that the lease had ended, and the timer was delivered again.
    #[tokio::test(start_paused = true)]
    async fn second_put_back_is_told_that_the_first_has_settled_the_claim() {
        let mut lease = held();
        let (version, part) = (Version(7), 0);
        let token = Token { version, part };
        let first = End::new(Settlement::RetryAfter(LEASE));
        let second = End::new(Settlement::RetryAfter(LEASE));
        for end in [&first, &second] {
            assert_eq!(lease.decide(end, false, token), Ok(true));
        }
        assert_eq!(lease.conclude(&first, &Settled::Done, token), Ok(()));
        let late = lease.conclude(&second, &Settled::Lost, token);
        assert_eq!(late, Err(Error::Settled { token }));
    }

    #[tokio::test(start_paused = true)]
    async fn shorter_lease_without_response_may_have_begun() {
        let mut lease = held();
        let extend = |by| End::new(Settlement::Extend(by));
        lease.note_failure(&extend(2 * LEASE));
        assert_eq!(lease.until, Some(Instant::now() + LEASE));
        lease.note_failure(&extend(LEASE / 2));
        assert_eq!(lease.until, Some(Instant::now() + LEASE / 2));
    }
}
