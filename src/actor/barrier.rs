//! The barriers: tasks in [`settle`](crate::TimerWheel::settle) that wait until everything is
//! applied and has fired.
//!
//! A barrier comes here when all commands that were pushed before it are
//! [applied](super::backlog). It then waits until every timer that is due by that turn has fired.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use crate::panic::{WOKEN, catch_panic};
use crate::sync::EXPLORED;

/// How many tasks are woken in one turn.
const WAKES_PER_TURN: usize = if EXPLORED { 1 } else { 256 };

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Barrier {
    /// The tick by which everything has to have fired. The ticks of turns do not decrease, so the
    /// first barrier is met first.
    pub(super) waiting: VecDeque<(u64, oneshot::Sender<()>)>,
}

impl Barrier {
    /// Adds a barrier that waits for the timers due by `tick`, the current one.
    pub(super) fn add(&mut self, tick: u64, done: oneshot::Sender<()>) {
        self.waiting.push_back((tick, done));
    }

    /// Wakes some of the tasks with a barrier that is met: every timer due before tick `before` has
    /// fired.
    pub(super) fn fired(&mut self, before: u64) {
        for _ in 0..WAKES_PER_TURN {
            let first = self.waiting.front();
            if first.is_none_or(|&(tick, _)| tick >= before) {
                return;
            }
            let Some((_, done)) = self.waiting.pop_front() else {
                return;
            };
            // An error means that the task does not wait any more.
            catch_panic(WOKEN, || done.send(()));
        }
    }

    /// The actor ends: wakes all tasks.
    pub(super) fn close(&mut self) {
        for (_, done) in self.waiting.drain(..) {
            catch_panic(WOKEN, || drop(done));
        }
    }
}
