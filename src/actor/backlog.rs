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
use crate::shared::mailbox::CommandQueue;
use crate::sync::IN_EXPLORER;

/// How many commands a turn applies before it fires timers. It applies whole blocks, so perhaps a
/// few more.
pub(super) const COMMANDS_PER_TURN: usize = if IN_EXPLORER { 4 } else { 4096 };

/// See the module.
#[derive(Debug)]
pub(super) struct Backlog {
    taken: CommandQueue<Command>,
    /// How many commands were applied.
    applied: u64,
    /// The work that was deferred since the queues were emptied.
    unnumbered: Vec<Deferred>,
    /// Work that waits until this many commands are applied. No number is lower than those before
    /// it.
    waiting: VecDeque<(u64, Deferred)>,
}

/// Work that waits until commands are applied.
#[derive(Debug)]
pub(super) enum Deferred {
    Settle(oneshot::Sender<()>),
    /// Take stale nodes off the wheel of the sleeps.
    Sweep,
    /// Take the sleeps off their wheel.
    Evict,
}

impl Backlog {
    pub(super) fn new() -> Self {
        Backlog {
            taken: CommandQueue::new(),
            applied: 0,
            unnumbered: Vec::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Takes everything that is queued.
    pub(super) fn take(&mut self, mailbox: &CommandMailbox) {
        if !mailbox.take_all(&mut self.taken) {
            return;
        }
        let until = self.applied + self.taken.len() as u64;
        self.waiting
            .extend(self.unnumbered.drain(..).map(|work| (until, work)));
    }

    /// The next commands for a turn that has applied so many, in order. They are counted, and have
    /// to be applied in this turn. Their memory can be [recycled](Self::recycle).
    pub(super) fn next_block(&mut self, applied: usize) -> Option<VecDeque<Command>> {
        if applied >= COMMANDS_PER_TURN {
            return None;
        }
        let block = self.taken.pop_block()?;
        self.applied += block.len() as u64;
        Some(block)
    }

    pub(super) fn recycle(&mut self, emptied: VecDeque<Command>) {
        self.taken.recycle(emptied);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// How many commands are taken and not applied.
    pub(super) fn len(&self) -> usize {
        self.taken.len()
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
        let &(until, _) = self.waiting.front()?;
        if until > self.applied {
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
