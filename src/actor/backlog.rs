//! The commands that the actor has taken and not applied, and what waits until they are.
//!
//! # Deferred work
//!
//! Some work has to wait until every command is applied that is on its way now: a task that
//! [settles](crate::TimerWheel::settle) and an eviction for the commands that were pushed before
//! them, and a sweep for the commands that make stale nodes. Such work is
//! [deferred](Backlog::defer):
//!
//! 1. When it is deferred, a command that was pushed before lies in a queue or in the backlog.
//! 2. The next time that all queues are emptied, those in the queues come into the backlog too. The
//!    backlog then marks how many commands have to be applied.
//! 3. When that many are applied, [`passed`](Backlog::passed) returns the work.

use std::collections::VecDeque;
use std::mem;

use tokio::sync::oneshot;

use crate::shared::command::{Command, CommandMailbox};
use crate::shared::mailbox::CommandQueue;
use crate::sync::IN_EXPLORER;
use crate::tick::NEVER;

/// How many commands a turn applies before it fires timers. It applies whole blocks, so perhaps a
/// few more.
pub(super) const COMMANDS_PER_TURN: usize = if IN_EXPLORER { 4 } else { 4096 };

/// See the module.
#[derive(Debug)]
pub(super) struct Backlog {
    taken: CommandQueue<Command>,
    /// How many commands were applied.
    applied: u64,
    /// Work that waits, in order. In blocks: any number of tasks may settle.
    waiting: CommandQueue<Deferred>,
    /// So many of them, after those of earlier marks, wait until this many commands are applied.
    marks: VecDeque<(usize, u64)>,
    /// How many were deferred since the queues were emptied, and have no mark yet.
    unmarked: usize,
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
            waiting: CommandQueue::new(),
            marks: VecDeque::new(),
            unmarked: 0,
        }
    }

    /// Takes everything that is queued, once all that was taken before is applied. Until then the
    /// queues fill, and callers that fill them give way to the actor.
    pub(super) fn take(&mut self, mailbox: &CommandMailbox) {
        if !self.taken.is_empty() || !mailbox.take_all(&mut self.taken) {
            return;
        }
        if self.unmarked > 0 {
            let until = self.applied + self.taken.len() as u64;
            self.marks.push_back((mem::take(&mut self.unmarked), until));
        }
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
        self.waiting.push(NEVER, work);
        self.unmarked += 1;
    }

    pub(super) fn has_deferred(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next work whose commands are all applied, as they were when the queues were emptied.
    pub(super) fn passed(&mut self) -> Option<Deferred> {
        let (left, until) = self.marks.front_mut()?;
        if *until > self.applied {
            return None;
        }
        *left -= 1;
        if *left == 0 {
            self.marks.pop_front();
        }
        self.waiting.pop()
    }

    /// The actor ends: closes the mailbox, and takes everything that is left.
    pub(super) fn close(&mut self, mailbox: &CommandMailbox) -> impl Iterator<Item = Command> + '_ {
        mailbox.close(&mut self.taken);
        std::iter::from_fn(|| self.taken.pop())
    }

    /// The actor ends: the tasks that settle.
    pub(super) fn close_deferred(&mut self) -> impl Iterator<Item = oneshot::Sender<()>> + '_ {
        std::iter::from_fn(|| self.waiting.pop()).filter_map(|work| match work {
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

    fn mailbox() -> CommandMailbox {
        CommandMailbox::new(2, ActorNotifier::of_nobody())
    }

    fn push(mailbox: &CommandMailbox, queue: usize, commands: usize) {
        for _ in 0..commands {
            assert!(mailbox.push(queue, 5, Request::Evict.into()).is_ok());
        }
    }

    // A settle once counted the commands of the queues that were not locked, and was done before
    // those of the locked one were applied.
    #[test]
    fn settle_waits_for_the_commands_of_a_locked_queue() {
        let mailbox = mailbox();
        let mut backlog = Backlog::new();
        push(&mailbox, 1, 1);
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

    #[test]
    fn work_waits_for_the_commands_before_it_and_for_no_others() {
        let mailbox = mailbox();
        let mut backlog = Backlog::new();
        let passed = |backlog: &mut Backlog| std::iter::from_fn(|| backlog.passed()).count();
        for _ in 0..3 {
            backlog.defer(Deferred::Settle(oneshot::channel().0));
            backlog.defer(Deferred::Sweep);
            push(&mailbox, 0, 1_000);
            backlog.take(&mailbox);
            // These come behind all that is taken.
            backlog.defer(Deferred::Sweep);
            push(&mailbox, 0, 1_000);
            backlog.take(&mailbox);
            let mut in_all = Vec::new();
            while let Some(block) = backlog.next_block(0) {
                drop(block);
                in_all.push(passed(&mut backlog));
            }
            // Blocks have 512 commands.
            assert_eq!(in_all, [0, 2]);
            backlog.take(&mailbox);
            while let Some(block) = backlog.next_block(0) {
                drop(block);
            }
            assert_eq!(passed(&mut backlog), 1);
        }
        assert!(!backlog.has_deferred());
        // Nothing is queued.
        backlog.defer(Deferred::Evict);
        assert_eq!(passed(&mut backlog), 0, "the queues were not looked at");
        backlog.take(&mailbox);
        assert_eq!(passed(&mut backlog), 1);
    }
}
