//! The commands that the actor has taken and not applied, and what waits until they are.
//!
//! # Deferred work
//!
//! Some work has to wait until every command is applied that is on its way now: a task that
//! [settles](crate::TimerWheel::settle) and an eviction for the commands that were pushed before
//! them, the key of a set for the notes about it, and a sweep for the commands that make stale
//! nodes. Such work is [deferred](Backlog::defer):
//!
//! 1. When it is deferred, a command that was pushed before lies in a queue or in the backlog.
//! 2. The next time that all queues are emptied, those in the queues come into the backlog too. The
//!    backlog then counts how many commands of each lane have to be applied.
//! 3. When that many are applied, [`passed`](Backlog::passed) returns the work.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use crate::shared::command::{Command, CommandMailbox};
use crate::shared::mailbox::{Lane, Lanes};
use crate::shared::note::SetKey;
use crate::sync::IN_EXPLORER;

/// How many commands a turn applies before it fires timers. It applies whole blocks, so perhaps a
/// few more.
const COMMANDS_PER_TURN: usize = if IN_EXPLORER { 4 } else { 4096 };

/// How many of these may be needed soon while others wait: at least a block of the others is
/// applied too, so they do not wait forever.
const SOON_PER_TURN: usize = if IN_EXPLORER { 2 } else { 3072 };

/// See the module.
#[derive(Debug)]
pub(super) struct Backlog {
    taken: Lanes<Command>,
    /// How many commands of the lanes soon and later were applied.
    applied: [u64; 2],
    /// The work that was deferred since the queues were emptied.
    unnumbered: Vec<Deferred>,
    /// Work that waits until this many commands of each lane are applied. No number is lower than
    /// those before it.
    waiting: VecDeque<([u64; 2], Deferred)>,
}

/// Work that waits until commands are applied.
#[derive(Debug)]
pub(super) enum Deferred {
    Settle(oneshot::Sender<()>),
    /// Forget a set.
    Forget(SetKey),
    /// Take stale nodes off the wheel of the sleeps.
    Sweep,
    /// Take the sleeps off their wheel.
    Evict,
}

impl Backlog {
    pub(super) fn new() -> Self {
        Backlog {
            taken: Lanes::new(),
            applied: [0; 2],
            unnumbered: Vec::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Takes everything that is queued, once all that is needed soon is applied.
    pub(super) fn take(&mut self, mailbox: &CommandMailbox) {
        if !self.taken.lane(Lane::Soon).is_empty() {
            return;
        }
        if !mailbox.take_all(&mut self.taken) {
            return;
        }
        let lengths = self.taken.lengths();
        let until = [0, 1].map(|lane| self.applied[lane] + lengths[lane] as u64);
        self.waiting
            .extend(self.unnumbered.drain(..).map(|work| (until, work)));
    }

    /// The next commands for a turn that has applied so many, in order, and their lane. They are
    /// counted, and have to be applied in this turn. Their memory can be
    /// [recycled](Self::recycle).
    pub(super) fn next_block(&mut self, applied: usize) -> Option<(Lane, VecDeque<Command>)> {
        if applied >= COMMANDS_PER_TURN {
            return None;
        }
        let [soon, later] = self.taken.lengths();
        let lane = if soon > 0 && (applied < SOON_PER_TURN || later == 0) {
            Lane::Soon
        } else {
            Lane::Later
        };
        let block = self.taken.lane(lane).pop_block()?;
        self.applied[lane as usize] += block.len() as u64;
        Some((lane, block))
    }

    pub(super) fn recycle(&mut self, lane: Lane, emptied: VecDeque<Command>) {
        self.taken.lane(lane).recycle(emptied);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// No command in here is needed before this tick; `NEVER` when there is none.
    pub(super) fn earliest(&self) -> u64 {
        self.taken.earliest()
    }

    /// See the module.
    pub(super) fn defer(&mut self, work: Deferred) {
        self.unnumbered.push(work);
    }

    pub(super) fn has_deferred(&self) -> bool {
        !(self.unnumbered.is_empty() && self.waiting.is_empty())
    }

    /// The next work whose commands are all applied.
    pub(super) fn passed(&mut self) -> Option<Deferred> {
        let (until, _) = self.waiting.front()?;
        let is_passed = (until.iter().zip(&self.applied)).all(|(until, applied)| until <= applied);
        if !is_passed {
            return None;
        }
        Some(self.waiting.pop_front()?.1)
    }

    /// The actor ends: closes the mailbox, and takes everything that is left.
    pub(super) fn close(&mut self, mailbox: &CommandMailbox) -> impl Iterator<Item = Command> + '_ {
        mailbox.close(&mut self.taken);
        std::iter::from_fn(|| self.taken.pop())
    }

    /// The actor ends: the tasks that settle.
    pub(super) fn close_deferred(&mut self) -> impl Iterator<Item = oneshot::Sender<()>> + '_ {
        let waiting = self.waiting.drain(..).map(|(_, work)| work);
        waiting
            .chain(self.unnumbered.drain(..))
            .filter_map(|work| match work {
                Deferred::Settle(done) => Some(done),
                _ => None,
            })
    }
}

#[cfg(all(test, not(any(tickwheel_loom, tickwheel_shuttle))))]
mod tests {
    use super::*;
    use crate::shared::command::Request;
    use crate::shared::notifier::ActorNotifier;

    // A settle once counted the commands of the queues that were not locked, and was done before
    // those of the locked one were applied.
    #[test]
    fn settle_waits_for_the_commands_of_a_locked_queue() {
        let mailbox = CommandMailbox::new(2, ActorNotifier::for_thread());
        let mut backlog = Backlog::new();
        let pushed = mailbox.push(1, 5, Request::Evict.into());
        assert!(pushed.is_ok());
        backlog.defer(Deferred::Settle(oneshot::channel().0));
        let held = mailbox.hold_queue(1);
        backlog.take(&mailbox);
        assert!(backlog.passed().is_none(), "the queue was left");
        drop(held);
        backlog.take(&mailbox);
        assert!(backlog.passed().is_none(), "its command is not applied");
        assert!(backlog.next_block(0).is_some());
        assert!(backlog.passed().is_some());
    }
}
