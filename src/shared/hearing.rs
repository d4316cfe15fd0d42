//! The hearing before a verdict of silence: those who could still speak have their turn first.
//!
//! The verdict may be due in the very pass of the runtime that finds bytes in the sockets of those
//! whom it is about, or after a stall that the actor has not [noticed](super::stalls). So whoever
//! decides lets others run before, twice:
//!
//! 1. Behind the driver, which looks at the sockets and makes their tasks ready. Tokio wakes a task
//!    that yields after that.
//! 2. Behind these tasks. On a runtime with several threads the first wake-up goes ahead of them,
//!    and a task that wakes itself goes to the end of its queue.
//!
//! If that takes as long as a [stall](super::stalls), others are behind with their work, and the
//! hearing begins again. It ends after an idle duration at the latest.
//!
//! Tokio yields by a plain wake-up where no runtime of its own polls the task. A virtual clock
//! moves on only when nobody has anything left to say, so it needs no hearing.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::Instant;

use super::stalls::SHORTEST;
use crate::clock;
use crate::sync::IN_EXPLORER;

/// See the module.
#[derive(Debug, Default)]
pub(crate) enum Hearing {
    #[default]
    None,
    Round {
        /// When the hearing began.
        began: Instant,
        /// When its last round did.
        round: Instant,
        is_behind_driver: bool,
    },
    Over,
}

impl Hearing {
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Hearing::Over)
    }

    /// Ready once others have had their turn. It takes no longer than `longest`, and what others
    /// take for a turn.
    pub(crate) fn poll(&mut self, longest: Duration, waker: &Waker) -> Poll<()> {
        let now = clock::now();
        match *self {
            Hearing::Over => return Poll::Ready(()),
            Hearing::None if IN_EXPLORER || clock::is_virtual() => {
                *self = Hearing::Over;
                return Poll::Ready(());
            }
            Hearing::None => self.begin_round(now, now, waker),
            Hearing::Round {
                ref mut is_behind_driver,
                ..
            } if !*is_behind_driver => {
                *is_behind_driver = true;
                waker.wake_by_ref();
            }
            Hearing::Round { began, round, .. } => {
                let is_slow = now.saturating_duration_since(round) > SHORTEST;
                if !is_slow || now.saturating_duration_since(began) >= longest {
                    *self = Hearing::Over;
                    return Poll::Ready(());
                }
                self.begin_round(began, now, waker);
            }
        }
        Poll::Pending
    }

    fn begin_round(&mut self, began: Instant, round: Instant, waker: &Waker) {
        *self = Hearing::Round {
            began,
            round,
            is_behind_driver: false,
        };
        // It wakes the task after the driver has run. Its second poll would do nothing.
        let _ = pin!(yield_now()).poll(&mut Context::from_waker(waker));
    }
}
